"""From a trace to the job that the network will see, or all the reasons why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import TraceError
from workload.analysis import analyse
from workload.baseline import recorded_baselines
from workload.findings import Severity
from workload.lint import edge_counts, report_of
from workload.program import Job
from workload.program_builder import build_programs

if TYPE_CHECKING:
    from workload.settings import WorkloadSettings
    from workload.trace import Trace


def build_job(trace: Trace, settings: WorkloadSettings) -> Job:
    """The programs of all ranks, matched across ranks and free of deadlock. Raises TraceError with every error found."""
    analysis = analyse(trace, settings)
    if analysis.lowering is None:
        raise TraceError(*report_of(analysis).problems())
    built = build_programs(analysis, analysis.lowering)
    return Job(
        source=trace.source,
        communicators=analysis.communicators,
        programs=built.programs,
        ranks=built.ranks,
        policy=str(settings.dependencies),
        edges=edge_counts(analysis),
        notes=tuple(one.sentence() for one in analysis.findings if one.severity is not Severity.ERROR),
        splits=built.splits,
        baselines=recorded_baselines(analysis, built.sequence),
    )
