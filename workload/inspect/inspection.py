"""Summarises a job: ranks, communicators and their roles, bytes by kind and by pair, ideal time.

Decides what is shown. Sums the results of analysis.py, with traffic.py for bytes and critical_path.py for time.
Works on traces with errors too: operations with a mistake are left out, and there is no critical path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.graph.compute import delays_ns
from etloop.workload.inspect.critical_path import CriticalPath, critical_path, rank_durations_ns
from etloop.workload.inspect.parallelism import Shape, guess_roles, guess_stages
from etloop.workload.inspect.traffic import KindBytes, Traffic, traffic_of
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.shared_columns import DigestCache
from etloop.workload.trace.trace import NodeKind, Parallelism, Trace


@dataclass(frozen=True, slots=True)
class CommunicatorUse:
    """One communicator of the job."""

    name: str
    members: tuple[int, ...]
    role: Parallelism
    reason: str
    kinds: tuple[KindBytes, ...]

    @property
    def operations(self) -> int:
        """Return the number of operations on the communicator."""
        return sum(kind.operations for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, mean and maximum over the ranks, in nanoseconds."""

    least_ns: int
    mean_ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """A job as `etloop inspect` reports it."""

    source: str
    ranks: int
    nodes: dict[str, int]
    """Nodes of all ranks by type."""
    size_unit: str
    element_bytes: int
    policy: str
    errors: int
    communicators: tuple[CommunicatorUse, ...]
    pipeline_stages: int
    kinds: tuple[KindBytes, ...]
    """Totals over all communicators: payload bytes of one member each, wire bytes of all members."""
    traffic: Traffic
    compute: Spread
    """Total delay of a rank's nodes other than communication."""
    communication: Spread
    """Total duration of a rank's operations on the ideal network."""
    network: IdealNetwork
    path: CriticalPath | None
    """None for a trace with errors."""

    @property
    def compute_ratio(self) -> float | None:
        """Return compute over communication, both summed over ranks; None without communication."""
        return self.compute.mean_ns / self.communication.mean_ns if self.communication.mean_ns else None


def inspect(trace: Trace, settings: WorkloadSettings, network: IdealNetwork) -> Inspection:
    """Summarise a trace under settings. Raises no exception for the content of a trace."""
    analysis = analyse(trace, settings)
    trace = analysis.trace
    traffic = traffic_of(analysis)
    uses = _communicator_uses(analysis, traffic)
    path = None if analysis.lowering is None else critical_path(analysis, analysis.lowering, network)
    return Inspection(
        source=trace.source,
        ranks=len(trace.ranks),
        nodes=_node_counts(trace),
        size_unit=analysis.size_unit.value,
        element_bytes=analysis.unit_bytes,
        policy=str(settings.dependencies),
        errors=sum(finding.severity == "error" for finding in analysis.findings),
        communicators=uses,
        pipeline_stages=guess_stages(len(trace.ranks), traffic.distances),
        kinds=_totals(traffic.by_communicator),
        traffic=traffic,
        compute=_spread(_compute_ns(trace, analysis, settings)),
        communication=_spread(_communication_ns(analysis, network)),
        network=network,
        path=path,
    )


def _node_counts(trace: Trace) -> dict[str, int]:
    counts = np.zeros(256, dtype=np.int64)
    for rank in trace.ranks:
        counts += np.bincount(rank.kind, minlength=256)
    kind_counts = {kind.name: int(counts[kind]) for kind in NodeKind if counts[kind]}
    unknown = int(counts[max(NodeKind) + 1 :].sum())
    return kind_counts | ({"unknown": unknown} if unknown else {})


def _communicator_uses(analysis: Analysis, traffic: Traffic) -> tuple[CommunicatorUse, ...]:
    stated = analysis.trace.roles or {}
    shapes = [
        Shape(
            communicator.members,
            {kind.kind: kind.operations for kind in kinds},
            stated.get(communicator.name),
        )
        for communicator, kinds in zip(analysis.communicators, traffic.by_communicator, strict=True)
    ]
    guesses = guess_roles(len(analysis.trace.ranks), shapes)
    return tuple(
        CommunicatorUse(communicator.name, communicator.members, guess.role, guess.reason, kinds)
        for communicator, guess, kinds in zip(
            analysis.communicators, guesses, traffic.by_communicator, strict=True
        )
    )


def _totals(by_communicator: tuple[tuple[KindBytes, ...], ...]) -> tuple[KindBytes, ...]:
    all_uses = [kind_bytes for kinds in by_communicator for kind_bytes in kinds]
    return tuple(
        KindBytes(
            kind,
            sum(use.operations for use in all_uses if use.kind is kind),
            sum(use.payload_bytes for use in all_uses if use.kind is kind),
            sum(use.wire_bytes for use in all_uses if use.kind is kind),
        )
        for kind in sorted({use.kind for use in all_uses})
    )


def _compute_ns(trace: Trace, analysis: Analysis, settings: WorkloadSettings) -> Iterator[int]:
    """Yield the sum of each rank's delays in ns. Ranks with equal columns are summed once."""
    total_by_key: dict[bytes, int] = {}
    digests = DigestCache()
    for rank in trace.ranks:
        work = (
            rank.kind,
            rank.duration_us,
            rank.num_ops,
            rank.tensor_size,
            rank.moved_bytes,
            rank.duration_ns,
        )
        key = digests.digest(*work)
        if key not in total_by_key:
            delays = delays_ns(rank, settings, analysis.unit_bytes)
            total_by_key[key] = sum(delays[delays > 0].tolist())
        yield total_by_key[key]


def _communication_ns(analysis: Analysis, network: IdealNetwork) -> Iterator[int]:
    """Yield the sum of each rank's ideal durations in ns. Alike ranks are summed once."""
    ranks = range(len(analysis.ops))
    lowering = analysis.lowering
    first_rank_of = ranks if lowering is None else lowering.alike.first_rank[lowering.alike.of_rank].tolist()
    total_of_rank: dict[int, int] = {}
    for first_rank in first_rank_of:
        if first_rank not in total_of_rank:
            total_of_rank[first_rank] = int(rank_durations_ns(analysis, first_rank, network).sum())
        yield total_of_rank[first_rank]


def _spread(values: Iterator[int]) -> Spread:
    totals = list(values) or [0]
    return Spread(min(totals), sum(totals) // len(totals), max(totals))
