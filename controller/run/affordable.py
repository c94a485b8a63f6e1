"""How much of a run's tables may be in memory at once. A shell: it asks the operating system."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING, Final

from etloop.contract.model.run import RunEnd

if TYPE_CHECKING:
    from etloop.contract.model.run import RunOutcome

MOST_OPS: Final = 1 << 19
"""Of a run that ended early, or that memory does not allow more of: enough for figures that nobody will judge by."""
OP_BYTES: Final = 640
"""Memory of one op while its tables, figures and pages are made, all told."""


def most_ops(outcome: RunOutcome) -> int | None:
    """Return of how many ops the tables may be in memory, at least of one block of iterations; None: of all.

    A run that was finished is worked through as a whole as far as memory goes, for it is judged.
    """
    records = outcome.op_records
    if outcome.kept_ops is None or records <= MOST_OPS:
        return None
    if outcome.state is RunEnd.DONE and records * OP_BYTES <= affordable_bytes():
        return None
    return MOST_OPS


def affordable_bytes() -> int:
    """Return half of what this process may still take: by its own limit, and by what the machine has."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - a file of the kernel's
            stated = [line.split()[1] for line in file if line.startswith("MemAvailable:")]
        available = int(stated[0]) * 1024 if stated else available
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        available = min(available, limit)
    return available // 2
