"""The check of a trace before anything is sent: everything that is wrong or worth knowing, in one report."""

from __future__ import annotations

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.edges import EDGE_SORTS
from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.trace.findings import Finding
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class LintReport:
    """All findings, errors first, and what the trace holds."""

    source: str
    findings: tuple[Finding, ...]
    ranks: int
    nodes: int
    communicators: int
    collectives: int
    """Collective operations of the job, each counted once however many members it has."""
    sends: int
    """Sends that have their receive."""
    size_unit: str
    element_bytes: int
    """Bytes of one unit of size (1 where sizes are bytes)."""
    policy: str
    edges: dict[str, int]
    """What became of the dependencies, by the sorts of contract/model/edges.py."""

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self.of(Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self.of(Severity.WARNING)

    @property
    def replayable(self) -> bool:
        return not self.errors

    def problems(self) -> tuple[Problem, ...]:
        """The errors as `TraceError` tells them."""
        return tuple(problem for finding in self.errors for problem in finding.problems())


def lint(trace: Trace, settings: WorkloadSettings) -> LintReport:
    """Checks a trace under settings. Never raises for what the trace contains."""
    return report_of(analyse(trace, settings))


def report_of(analysis: Analysis) -> LintReport:
    """The report of an analysis made before."""
    return LintReport(
        source=analysis.trace.source,
        findings=analysis.findings,
        ranks=len(analysis.trace.ranks),
        nodes=sum(len(rank) for rank in analysis.trace.ranks),
        communicators=len(analysis.communicators),
        collectives=analysis.matching.collective_count,
        sends=len(analysis.matching.sends),
        size_unit=analysis.size_unit.value,
        element_bytes=analysis.unit_bytes,
        policy=str(analysis.settings.dependencies),
        edges=edge_counts(analysis),
    )


def edge_counts(analysis: Analysis) -> dict[str, int]:
    """What became of the dependencies of all ranks together, by the sorts of contract/model/edges.py.

    Communicator order is only known of a trace without errors.
    """
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
