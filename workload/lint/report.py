"""Checks a trace before any traffic is sent and lists all errors, warnings and remarks in one report."""

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
    """All findings, errors first, and the size of the trace."""

    source: str
    findings: tuple[Finding, ...]
    ranks: int
    nodes: int
    communicators: int
    collectives: int
    """Number of collective operations of the job, each counted once, not per member."""
    sends: int
    """Number of sends with a matching receive."""
    size_unit: str
    element_bytes: int
    """Bytes of one unit of size (1 where sizes are bytes)."""
    policy: str
    edges: dict[str, int]
    """Number of dependencies by outcome, by the sorts of contract/model/edges.py."""

    def __repr__(self) -> str:
        """Return the source and the number of findings."""
        counts = f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        return f"<LintReport of {self.source!r}: {counts}, {self.ranks} ranks>"

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that prevent a replay."""
        return self.of(Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Return the findings of severity warning."""
        return self.of(Severity.WARNING)

    @property
    def replayable(self) -> bool:
        """Decide whether the trace can be replayed: it has no errors."""
        return not self.errors

    def problems(self) -> tuple[Problem, ...]:
        """Return the errors as the problems of a `TraceError`."""
        return tuple(problem for finding in self.errors for problem in finding.problems())


def lint(trace: Trace, settings: WorkloadSettings) -> LintReport:
    """Check a trace under settings. Raises no exception for the content of a trace."""
    return report_of(analyse(trace, settings))


def report_of(analysis: Analysis) -> LintReport:
    """Return the report of an existing analysis."""
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
    """Count the dependencies of all ranks by outcome, by the sorts of contract/model/edges.py.

    Communicator-order edges are counted only for a trace without errors.
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
        edges["communicator"] = sum(rank.order_edges for rank in analysis.lowering.ranks)
    return edges
