"""One rank's trace standing in for ranks whose traces are not there: a repair that the user asks for by number.

Data-parallel ranks do the same, and of many a job only one rank was ever recorded. Whether the ranks really were alike
nobody can check, so the report says that it was assumed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workload.findings import Check, Example, Severity

if TYPE_CHECKING:
    from workload.findings import FindingLog
    from workload.settings import WorkloadSettings
    from workload.trace import Trace


def replicated(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> Trace:
    """The trace with its one rank repeated `settings.replicate_ranks` times; unchanged where nobody asked for it.

    Only the rank's number changes. Sends, and collectives of groups that not all ranks are in, then fail their own
    checks: who the peers of another rank are cannot be known.
    """
    count = settings.replicate_ranks
    if count is None:
        return trace
    found = f"{len(trace.ranks)} rank{'' if len(trace.ranks) == 1 else 's'}"
    severity, remedy = (
        Severity.WARNING,
        f"it stands for each of {count} ranks, as workload.replicate_ranks says",
    )
    if len(trace.ranks) != 1:
        severity, remedy = Severity.ERROR, "leave workload.replicate_ranks out"
    wanted = (
        f"the traces of all {count} ranks" if len(trace.ranks) == 1 else "the trace of one rank to replicate"
    )
    log.add(Check.RANKS_REPLICATED, severity, remedy, Example(trace.source, None, None, "", wanted, found))
    if len(trace.ranks) != 1:
        return trace
    return replace(trace, ranks=tuple(replace(trace.ranks[0], rank=rank) for rank in range(count)))
