"""One rank's trace standing in for ranks whose traces are not there: a repair that the user asks for by number.

Data-parallel ranks do the same, and of many a job only one rank was ever recorded. Whether the ranks really were alike
nobody can check, so the report says that it was assumed.
"""

from __future__ import annotations

from dataclasses import replace

from etloop.contract.base.errors import Severity
from etloop.workload.graph.communicators import WORLD_KEYS
from etloop.workload.trace.findings import Check, FindingLog, job_example
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import Trace


def replicated(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> Trace:
    """The trace with its one rank repeated `settings.replicate_ranks` times; unchanged where nobody asked for it.

    The rank's number changes, and groups of that rank alone: the default group, which always has all ranks, gets all
    of them, any other the new rank. Sends, and collectives of groups that not all ranks are in, then fail their own
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
    log.add(Check.RANKS_REPLICATED, remedy, job_example(trace.source, wanted, found), severity=severity)
    if len(trace.ranks) != 1:
        return trace
    one = trace.ranks[0]
    # What the recorded rank expected came from others with rows of their own; its copies send what it sent.
    alike = replace(one, recv_splits=None)
    ranks = (replace(alike, rank=rank, groups=_groups(one.groups, rank, count)) for rank in range(count))
    return replace(trace, ranks=tuple(ranks))


def _groups(
    groups: dict[str, tuple[int, ...]] | None, rank: int, count: int
) -> dict[str, tuple[int, ...]] | None:
    """The groups that the one rank recorded, as `rank` would have."""
    if groups is None:
        return None
    everyone = tuple(range(count))
    alone = {key: everyone if key in WORLD_KEYS else (rank,) for key in groups}
    return {key: alone[key] if members == (0,) else members for key, members in groups.items()}
