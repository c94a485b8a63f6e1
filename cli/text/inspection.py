"""Inspections of a job -> text and values for programs. Pure: every figure comes from workload/inspect/inspection.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from math import prod
from typing import Final

import numpy as np

from etloop.cli.text.heat_map import character_map
from etloop.cli.text.plan import rank_ranges, table_lines
from etloop.contract.base.units import approximate_bytes, approximate_duration, format_rate
from etloop.workload.inspect.critical_path import CriticalPath
from etloop.workload.inspect.inspection import Inspection
from etloop.workload.inspect.parallelism import STATED
from etloop.workload.trace.trace import Parallelism

MOST_PAIRS_IN_JSON: Final = 65_536
"""Pairs that the JSON lists; a job with more has no list of pairs."""
_LAYOUT: Final = (Parallelism.TENSOR, Parallelism.DATA, Parallelism.SHARDED_DATA, Parallelism.EXPERT)


def inspection_values(inspection: Inspection) -> dict[str, object]:
    """Return the inspection for programs: every communicator, and every pair that moves bytes."""
    document = asdict(inspection)
    matrix = inspection.traffic.matrix
    senders, receivers = np.nonzero(matrix)
    lists_pairs = len(senders) <= MOST_PAIRS_IN_JSON
    document["traffic"] = {
        "sends": inspection.traffic.sends,
        "send_bytes": inspection.traffic.send_bytes,
        "distances": inspection.traffic.distances,
        "ranks_a_cell": inspection.traffic.ranks_a_cell,
        "pairs": np.stack([senders, receivers, matrix[senders, receivers]], axis=1).tolist()
        if lists_pairs
        else None,
        "total_bytes": int(matrix.sum()),
    }
    for row, communicator in zip(document["communicators"], inspection.communicators, strict=True):
        row["kinds"] = _kind_values(communicator.kinds)
    document["kinds"] = _kind_values(inspection.kinds)
    return document | {
        "compute_ratio": inspection.compute_ratio,
        "layout": layout(inspection),
        "layout_covers_ranks": covers_ranks(inspection),
    }


def _kind_values(kinds: tuple[object, ...]) -> list[dict[str, object]]:
    rows = [asdict(kind) for kind in kinds]  # type: ignore[call-overload]
    return [row | {"kind": row["kind"].name.lower()} for row in rows]


def layout(inspection: Inspection) -> dict[str, int]:
    """Return the degree of each recognised kind of parallelism: the most common size of its groups."""
    degrees = {}
    for role in _LAYOUT:
        sizes = Counter(
            len(communicator.members)
            for communicator in inspection.communicators
            if communicator.role is role
        )
        if sizes:
            degrees[role.value] = sizes.most_common(1)[0][0]
    return degrees | (
        {Parallelism.PIPELINE.value: inspection.pipeline_stages} if inspection.pipeline_stages > 1 else {}
    )


def covers_ranks(inspection: Inspection) -> bool:
    """Return whether the degrees multiply to the number of ranks; expert groups may span other groups."""
    degrees = layout(inspection)
    experts = degrees.pop(Parallelism.EXPERT.value, 1)
    return prod(degrees.values()) in (inspection.ranks, inspection.ranks // experts)


def _uncovered_text(inspection: Inspection) -> str:
    degrees = layout(inspection)
    if not degrees or covers_ranks(inspection):
        return ""
    return (
        f" (product {prod(degrees.values())}, {inspection.ranks} ranks: some parallelism was not recognised)"
    )


def render_inspection(inspection: Inspection) -> str:
    """Return the inspection as text that ends with a newline."""
    sizes = (
        "bytes"
        if inspection.element_bytes == 1
        else f"{inspection.size_unit} of {inspection.element_bytes} bytes"
    )
    nodes = ", ".join(f"{count} {kind}" for kind, count in inspection.nodes.items()) or "no nodes"
    degrees = (
        " x ".join(f"{role} {degree}" for role, degree in layout(inspection).items()) or "none recognised"
    )
    is_stated = any(communicator.reason == STATED for communicator in inspection.communicators)
    basis = STATED if is_stated else "inferred from groups"
    lines = [
        f"{inspection.source}: {inspection.ranks} ranks; {nodes}; sizes in {sizes}, dependencies {inspection.policy}",
        f"parallelism, {basis}: {degrees}{_uncovered_text(inspection)}",
        "",
        *table_lines(
            ("role", "groups", "ranks", "ops each", "first members", "because"), _role_rows(inspection)
        ),
        "",
        *table_lines(("kind", "ops", "put in by one", "sent by all"), _kind_rows(inspection)),
        "",
        *character_map(inspection.traffic.matrix, inspection.traffic.ranks_a_cell),
        "",
        *_time_lines(inspection),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _role_rows(inspection: Inspection) -> list[tuple[str, ...]]:
    members_by_key: dict[tuple[Parallelism, int, int, str], list[str]] = {}
    for communicator in inspection.communicators:
        key = (communicator.role, len(communicator.members), communicator.operations, communicator.reason)
        members_by_key.setdefault(key, []).append(rank_ranges(communicator.members))
    return [
        (role.value, str(len(members)), str(size), str(operations), members[0], reason)
        for (role, size, operations, reason), members in members_by_key.items()
    ]


def _kind_rows(inspection: Inspection) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            kind.kind.name.lower(),
            str(kind.operations),
            approximate_bytes(kind.payload_bytes),
            approximate_bytes(kind.wire_bytes),
        )
        for kind in inspection.kinds
    ]
    if inspection.traffic.sends:
        moved = approximate_bytes(inspection.traffic.send_bytes)
        rows.append(("send_recv", str(inspection.traffic.sends), moved, moved))
    return rows


def _time_lines(inspection: Inspection) -> list[str]:
    network = f"{format_rate(inspection.network.link_bps)} and {approximate_duration(inspection.network.latency_ns)} a message"
    compute, communication = inspection.compute, inspection.communication
    ratio = "no communication" if inspection.compute_ratio is None else f"{inspection.compute_ratio:.2f}"
    lines = [
        (
            f"a rank computes {approximate_duration(compute.mean_ns)} (least {approximate_duration(compute.least_ns)}, "
            f"most {approximate_duration(compute.most_ns)}) and communicates {approximate_duration(communication.mean_ns)} "
            f"at {network} without contention; compute / communication {ratio}"
        ),
    ]
    if inspection.path is None:
        lines.append(f"no critical path: the trace has {inspection.errors} sorts of errors, see etloop lint")
        return lines
    return [*lines, *_path_lines(inspection.path)]


def _path_lines(path: CriticalPath) -> list[str]:
    shares = ", ".join(
        f"{kind} {approximate_duration(spent_ns)} ({100 * spent_ns / path.total_ns:.0f}%)"
        for kind, spent_ns in sorted(path.by_kind_ns.items(), key=lambda entry: -entry[1])
        if spent_ns
    )
    lines = [
        f"critical path {approximate_duration(path.total_ns)} over {path.operations} operations: {shares or 'nothing'}"
    ]
    lines += [
        f'  {step.what} {approximate_duration(step.duration_ns)}: rank {step.rank} node {step.node_id} "{step.name}"'
        for step in path.longest
    ]
    return lines
