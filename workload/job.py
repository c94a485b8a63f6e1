"""From a trace to the job that the network will see, or all the reasons why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.errors import TraceError
from workload.analysis import analyse
from workload.baseline import recorded_baselines
from workload.findings import Severity
from workload.lint import report_of
from workload.program import Job
from workload.program_builder import build_programs

if TYPE_CHECKING:
    from workload.analysis import Analysis
    from workload.settings import WorkloadSettings
    from workload.trace import Trace

EDGE_SORTS: Final = (
    *("data", "ctrl", "stream", "communicator", "recorded"),
    *("begin", "self", "dangling", "duplicate", "cycle"),
)
"""Keys of `Job.edges`: kept and added ones, then those changed or dropped."""


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
        edges=_edges(analysis),
        notes=tuple(one.sentence() for one in analysis.findings if one.severity is not Severity.ERROR),
        splits=built.splits,
        baselines=recorded_baselines(analysis, built.sequence),
    )


def _edges(analysis: Analysis) -> dict[str, int]:
    """What became of the dependencies of all ranks together; `Job.edges` says what the names mean."""
    edges = dict.fromkeys(EDGE_SORTS, 0)
    for graph in analysis.graphs:
        edges["data"] += len(graph.data.waiting)
        edges["ctrl"] += graph.ctrl_added
        edges["stream"] += graph.stream_added
        edges["recorded"] += graph.recorded_added
        edges["cycle"] += len(graph.repair.dropped)
        edges["begin"] += 0 if graph.begin_only is None else int(graph.begin_only.sum())
        for sort in (graph.data, graph.ctrl):
            if sort is not None:
                edges["self"] += len(sort.on_self)
                edges["dangling"] += len(sort.dangling)
                edges["duplicate"] += sort.duplicates
    if analysis.lowering is not None:
        edges["communicator"] = sum(one.order_edges for one in analysis.lowering.ranks)
    return edges
