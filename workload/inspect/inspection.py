"""What a job is, at a glance: ranks, communicators and what they are for, bytes by kind and by pair, the ideal time.

Decides what is told; adds up what analysis.py read, with inspection_traffic.py for bytes and inspection_path.py for
time. Works on traces with errors too: operations with a mistake are left out, and there is no critical path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.graph.compute import delays_ns
from etloop.workload.inspect.critical_path import CriticalPath, critical_path, rank_durations_ns
from etloop.workload.inspect.parallelism import Role, Shape, guess_roles, guess_stages
from etloop.workload.inspect.traffic import KindBytes, Traffic, traffic_of
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.shared_columns import columns_digest
from etloop.workload.trace.trace import NodeKind, Trace


@dataclass(frozen=True, slots=True)
class CommunicatorUse:
    """One communicator of the job."""

    name: str
    members: tuple[int, ...]
    role: Role
    reason: str
    kinds: tuple[KindBytes, ...]

    @property
    def operations(self) -> int:
        return sum(one.operations for one in self.kinds)


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, mean and most over the ranks, in nanoseconds."""

    least_ns: int
    mean_ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """A job as `etloop inspect` tells it."""

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
    """Over all communicators: payload of one member each, wire bytes of all."""
    traffic: Traffic
    compute: Spread
    """What the nodes of a rank that are not communication add up to."""
    communication: Spread
    """What the operations of a rank add up to on the ideal network."""
    network: IdealNetwork
    path: CriticalPath | None
    """None for a trace with errors."""

    @property
    def compute_ratio(self) -> float | None:
        """Compute over communication, both summed over ranks; None without communication."""
        return self.compute.mean_ns / self.communication.mean_ns if self.communication.mean_ns else None


def inspect(trace: Trace, settings: WorkloadSettings, network: IdealNetwork) -> Inspection:
    """Looks at a trace under settings; never raises for what the trace contains."""
    analysis = analyse(trace, settings)
    trace = analysis.trace
    traffic = traffic_of(analysis)
    uses = _uses(analysis, traffic)
    path = None if analysis.lowering is None else critical_path(analysis, analysis.lowering, network)
    return Inspection(
        source=trace.source,
        ranks=len(trace.ranks),
        nodes=_node_counts(trace),
        size_unit=analysis.size_unit.value,
        element_bytes=analysis.unit_bytes,
        policy=str(settings.dependencies),
        errors=sum(one.severity == "error" for one in analysis.findings),
        communicators=uses,
        pipeline_stages=guess_stages(len(trace.ranks), traffic.distances),
        kinds=_totals(traffic.by_communicator),
        traffic=traffic,
        compute=_spread(_compute_ns(trace, analysis, settings)),
        communication=_spread(
            int(rank_durations_ns(analysis, rank, network).sum()) for rank in range(len(trace.ranks))
        ),
        network=network,
        path=path,
    )


def _node_counts(trace: Trace) -> dict[str, int]:
    counts = np.zeros(256, dtype=np.int64)
    for rank in trace.ranks:
        counts += np.bincount(rank.kind, minlength=256)
    named = {kind.name: int(counts[kind]) for kind in NodeKind if counts[kind]}
    unknown = int(counts[max(NodeKind) + 1 :].sum())
    return named | ({"unknown": unknown} if unknown else {})


def _uses(analysis: Analysis, traffic: Traffic) -> tuple[CommunicatorUse, ...]:
    shapes = [
        Shape(one.members, {kind.kind: kind.operations for kind in kinds})
        for one, kinds in zip(analysis.communicators, traffic.by_communicator, strict=True)
    ]
    guesses = guess_roles(len(analysis.trace.ranks), shapes)
    return tuple(
        CommunicatorUse(one.name, one.members, guess.role, guess.reason, kinds)
        for one, guess, kinds in zip(analysis.communicators, guesses, traffic.by_communicator, strict=True)
    )


def _totals(by_communicator: tuple[tuple[KindBytes, ...], ...]) -> tuple[KindBytes, ...]:
    every = [one for kinds in by_communicator for one in kinds]
    return tuple(
        KindBytes(
            kind,
            sum(one.operations for one in every if one.kind is kind),
            sum(one.payload_bytes for one in every if one.kind is kind),
            sum(one.wire_bytes for one in every if one.kind is kind),
        )
        for kind in sorted({one.kind for one in every})
    )


def _compute_ns(trace: Trace, analysis: Analysis, settings: WorkloadSettings) -> Iterator[int]:
    """Sum of the delays of each rank; ranks with equal columns are added up once."""
    known: dict[bytes, int] = {}
    for rank in trace.ranks:
        work = (
            rank.kind,
            rank.duration_us,
            rank.num_ops,
            rank.tensor_size,
            rank.moved_bytes,
            rank.duration_ns,
        )
        key = columns_digest(work)
        if key not in known:
            delays = delays_ns(rank, settings, analysis.unit_bytes)
            known[key] = sum(delays[delays > 0].tolist())
        yield known[key]


def _spread(values: Iterator[int]) -> Spread:
    every = list(values) or [0]
    return Spread(min(every), sum(every) // len(every), max(every))
