"""plan.json: the plan of a run as columns of numbers, so that a run directory can be measured again from its files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import Problem
from etloop.contract.base.ip_address import ip_bytes, ip_column, ip_text
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import (
    PlannedChoice,
    PlannedConnections,
    PlannedJobs,
    PlannedOps,
    PlanTables,
    RecordedBaselines,
)
from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.typed_form import FILE_RULES
from etloop.results.schema.typed_json import RESTORE, RunDirError, from_json

PLAN_SCHEMA: Final = "etloop-plan/4"


@dataclass(frozen=True, slots=True, eq=False)
class _ConnectionNumbers:
    """The numeric columns of `PlannedConnections`."""

    communicator: NDArray[np.int32]
    channel: NDArray[np.int32]
    src_rank: NDArray[np.int32]
    dst_rank: NDArray[np.int32]
    path: NDArray[np.uint8]
    qp_offsets: NDArray[np.int32]
    src_qpn: NDArray[np.uint32]
    dst_qpn: NDArray[np.uint32]
    src_udp_port: NDArray[np.uint16]
    dst_udp_port: NDArray[np.uint16]
    payload_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Addresses:
    """The address columns, as text."""

    src_ip: tuple[str, ...]
    dst_ip: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Communicator:
    name: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _PlanFile:
    """plan.json as it is on disk."""

    schema: str
    source: str
    iterations: int
    bytes_scale: str
    time_scale: str
    policy: str
    edges: dict[str, int]
    notes: tuple[str, ...]
    rank_agent: tuple[str, ...]
    rank_host: tuple[int, ...]
    rank_port: tuple[str, ...]
    communicators: tuple[_Communicator, ...]
    algorithms: tuple[str, ...]
    op_names: tuple[str, ...]
    shaping: str
    choices: tuple[PlannedChoice, ...]
    ops: PlannedOps
    connections: _ConnectionNumbers
    addresses: _Addresses
    baselines: RecordedBaselines | None
    several: PlannedJobs | None = None
    run_nonce: int = 0
    rank_transport: tuple[str, ...] = ()


def plan_to_json(tables: PlanTables) -> str:
    """Return `tables` as compact JSON, one key a line at the top level."""
    connections = {name: getattr(tables.connections, name) for name in _NUMBERS}
    file = _PlanFile(
        schema=PLAN_SCHEMA,
        communicators=tuple(_Communicator(name, members) for name, members in tables.communicators),
        connections=_ConnectionNumbers(**connections),
        addresses=_Addresses(
            src_ip=tuple(map(ip_text, tables.connections.src_ip)),
            dst_ip=tuple(map(ip_text, tables.connections.dst_ip)),
        ),
        **{name: getattr(tables, name) for name in _AS_THEY_ARE},
    )
    lines = (
        f"{json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}"
        for key, entry in plain(file, FILE_RULES).items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_from_json(text: str, where: str) -> PlanTables:
    """Parse the output of `plan_to_json`.

    Raises:
        RunDirError: with every mistake by key path.
    """
    file = from_json(_PlanFile, text, where, PLAN_SCHEMA)
    problems = [*_job_problems(file, where), *_name_problems(file, where)]
    numbers = {name: getattr(file.connections, name) for name in _NUMBERS}
    src_ip = _address_column(file.addresses.src_ip, f"{where}.addresses.src_ip", problems)
    dst_ip = _address_column(file.addresses.dst_ip, f"{where}.addresses.dst_ip", problems)
    if problems:
        raise RunDirError(*problems)
    return PlanTables(
        communicators=tuple((entry.name, entry.members) for entry in file.communicators),
        connections=PlannedConnections(src_ip=src_ip, dst_ip=dst_ip, **numbers),
        **{name: getattr(file, name) for name in _AS_THEY_ARE},
    )


def _job_problems(file: _PlanFile, where: str) -> Iterator[Problem]:
    """Yield the inconsistencies among the jobs of the plan, whose numbers index other columns."""
    if file.several is None:
        return
    jobs, where = file.several.jobs, f"{where}.several"
    first = 0
    for job in jobs:
        if job.first_rank != first or job.ranks < 1 or job.passes < 1:
            yield Problem(where, f"job {job.name[:64]} does not follow the one before it", RESTORE)
        first = job.first_rank + job.ranks
    turn = file.several.turn
    turns = len(file.several.phases) * max((job.passes for job in jobs), default=0)
    are_members_known = all(0 <= member < len(jobs) for members in file.several.phases for member in members)
    fits = first == len(file.rank_agent) and are_members_known and bool(((turn >= -1) & (turn < turns)).all())
    if not fits or len(turn) != len(file.ops.rank):
        yield Problem(where, "ranks, phases or turns are not those of the plan", RESTORE)


def _name_problems(file: _PlanFile, where: str) -> Iterator[Problem]:
    """Yield op names that do not index `op_names`, and a list of transports that does not cover the ranks."""
    name = file.ops.name
    if len(name) != len(file.ops.rank) or not ((name >= -1) & (name < len(file.op_names))).all():
        yield Problem(f"{where}.ops.name", "is not a number of op_names for each op", RESTORE)
    if file.rank_transport and len(file.rank_transport) != len(file.rank_agent):
        words = f"names {len(file.rank_transport)} transports of {len(file.rank_agent)} ranks"
        yield Problem(f"{where}.rank_transport", words, RESTORE)


def _address_column(texts: tuple[str, ...], where: str, problems: list[Problem]) -> NDArray[np.void]:
    """Return a column of addresses; addresses that cannot be parsed are added to `problems`."""
    try:
        return ip_column(map(ip_bytes, texts))
    except ValueError as error:
        problems.append(Problem(where, str(error)[:80], RESTORE))
        return ip_column(())


_NUMBERS: Final = tuple(field.name for field in fields(_ConnectionNumbers))
_AS_THEY_ARE: Final = tuple(
    field.name
    for field in fields(_PlanFile)
    if field.name not in ("schema", "communicators", "connections", "addresses")
)
assert {*_NUMBERS, "src_ip", "dst_ip"} == {field.name for field in fields(PlannedConnections)}
assert {*_AS_THEY_ARE, "communicators", "connections"} == {field.name for field in fields(PlanTables)}
