"""The digest of a job's communication, by which two runs are known to be of one job. Pure."""

from __future__ import annotations

import hashlib

import numpy as np

from etloop.contract.model.run import PlanTables


def workload_digest(tables: PlanTables) -> str:
    """Return a digest of the communication of a job, before scaling: 16 hexadecimal digits, equal for equal communication."""
    ops = tables.ops
    hashed = hashlib.sha256(repr(tables.communicators).encode())
    for column in (
        ops.rank,
        ops.node_id,
        ops.kind,
        ops.collective,
        ops.communicator,
        ops.peer,
        ops.trace_bytes,
    ):
        hashed.update(np.ascontiguousarray(column).tobytes())
    return hashed.hexdigest()[:16]
