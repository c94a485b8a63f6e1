"""The limit of op records of a run in memory at once. A shell: it asks the operating system."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd

if TYPE_CHECKING:
    from etloop.contract.model.run import RunOutcome

MOST_OPS: Final = 1 << 19
"""Op records in memory for a run that ended early, or for one that does not fit as a whole."""
OP_BYTES: Final = 640
"""Memory of one op while tables, figures and pages are made of it."""


def most_ops(outcome: RunOutcome) -> int | None:
    """Return the most op records that tables may hold in memory, at least one block of iterations; None for no limit.

    A finished run is processed as a whole if memory allows, because its verdict uses the figures.
    """
    records = outcome.op_records
    if outcome.kept_ops is None or records <= MOST_OPS:
        return None
    if outcome.state is RunEnd.DONE and records * OP_BYTES <= affordable_bytes():
        return None
    return MOST_OPS


def affordable_bytes() -> int:
    """Return half of the memory available to this process, by its own limit and by that of the machine."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - a file of the kernel
            available_kib = [line.split()[1] for line in file if line.startswith("MemAvailable:")]
        available = int(available_kib[0]) * 1024 if available_kib else available
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        available = min(available, limit)
    return available // 2
