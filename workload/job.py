"""Builds the job that the network will carry from a trace, or reports every reason why it cannot."""

from __future__ import annotations

from etloop.contract.base.errors import Severity, TraceError
from etloop.workload.graph.analysis import analyse
from etloop.workload.graph.baseline import recorded_baselines
from etloop.workload.lint.report import edge_counts, report_of
from etloop.workload.program.builder import build_programs
from etloop.workload.trace.program import Job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import Trace


def build_job(trace: Trace, settings: WorkloadSettings) -> Job:
    """Return the programs of all ranks, matched across ranks and free of deadlock. Raises TraceError with every error
    found."""
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
        notes=(
            *(finding.sentence() for finding in analysis.findings if finding.severity is not Severity.ERROR),
            *built.notes,
        ),
        splits=built.splits,
        split_trace_bytes=built.split_trace_bytes,
        baselines=recorded_baselines(analysis, built.sequence),
        op_names=built.op_names,
    )
