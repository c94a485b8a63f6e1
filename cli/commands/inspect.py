"""The command `inspect`: what a job is, in words, as JSON, and its traffic as a picture.

Decides wording and what is shortened; every figure comes from workload/inspect/inspection.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.cli.result import Answer, to_json
from etloop.cli.text.heat_map import character_map, svg_map
from etloop.cli.text.plan import rank_ranges, table_lines
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import approximate_bytes, approximate_duration, format_rate
from etloop.workload.inspect.critical_path import CriticalPath, IdealNetwork
from etloop.workload.inspect.inspection import Inspection, inspect
from etloop.workload.inspect.parallelism import Role
from etloop.workload.readers.files import Progress, read_trace

if TYPE_CHECKING:
    from etloop.workload.trace.settings import WorkloadSettings

MOST_PAIRS_IN_JSON: Final = 65_536
"""Pairs that the JSON lists; of a job with more, the blocks of the picture."""

_LAYOUT: Final = (Role.TENSOR, Role.DATA, Role.SHARDED_DATA, Role.EXPERT)


def answer_inspect(
    source: Path,
    groups: Path | None,
    settings: WorkloadSettings,
    network: IdealNetwork,
    svg: Path | None,
    *,
    as_json: bool,
    progress: Progress | None = None,
) -> Answer:
    """What a job is. Raises `TraceError` where files cannot be read, `ConfigError` where the picture cannot be written."""
    told = inspect(read_trace(source, groups, progress), settings, network)
    if svg is not None:
        _write(svg, svg_map(f"{source}: {told.ranks} ranks", told.traffic.matrix, told.traffic.ranks_a_cell))
    return Answer(to_json(inspection_as_json(told)) if as_json else render_inspection(told))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, "choose another file")) from None


def inspection_as_json(told: Inspection) -> dict[str, object]:
    """The inspection for a program: every communicator, and every pair that moves bytes."""
    known = asdict(told)
    matrix = told.traffic.matrix
    senders, receivers = np.nonzero(matrix)
    listed = len(senders) <= MOST_PAIRS_IN_JSON
    known["traffic"] = {
        "sends": told.traffic.sends,
        "send_bytes": told.traffic.send_bytes,
        "distances": told.traffic.distances,
        "ranks_a_cell": told.traffic.ranks_a_cell,
        "pairs": np.stack([senders, receivers, matrix[senders, receivers]], axis=1).tolist()
        if listed
        else None,
        "total_bytes": int(matrix.sum()),
    }
    for key, one in zip(known["communicators"], told.communicators, strict=True):
        key["kinds"] = _named(one.kinds)
    known["kinds"] = _named(told.kinds)
    return known | {"compute_ratio": told.compute_ratio, "layout": layout(told)}


def _named(kinds: tuple[object, ...]) -> list[dict[str, object]]:
    rows = [asdict(one) for one in kinds]  # type: ignore[call-overload]
    return [row | {"kind": row["kind"].name.lower()} for row in rows]


def layout(told: Inspection) -> dict[str, int]:
    """Degree of each sort of parallelism that was recognised: the most common size of its groups."""
    degrees = {}
    for role in _LAYOUT:
        sizes = Counter(len(one.members) for one in told.communicators if one.role is role)
        if sizes:
            degrees[role.value] = sizes.most_common(1)[0][0]
    return degrees | ({Role.PIPELINE.value: told.pipeline_stages} if told.pipeline_stages > 1 else {})


def render_inspection(told: Inspection) -> str:
    """The inspection as a person reads it; ends with a newline."""
    sizes = "bytes" if told.element_bytes == 1 else f"{told.size_unit} of {told.element_bytes} bytes"
    nodes = ", ".join(f"{count} {kind}" for kind, count in told.nodes.items()) or "no nodes"
    degrees = " x ".join(f"{role} {degree}" for role, degree in layout(told).items()) or "none recognised"
    lines = [
        f"{told.source}: {told.ranks} ranks; {nodes}; sizes in {sizes}, dependencies {told.policy}",
        f"parallelism, guessed by shape: {degrees}",
        "",
        *table_lines(("role", "groups", "ranks", "ops each", "first members", "because"), _role_rows(told)),
        "",
        *table_lines(("kind", "ops", "put in by one", "sent by all"), _kind_rows(told)),
        "",
        *character_map(told.traffic.matrix, told.traffic.ranks_a_cell),
        "",
        *_time_lines(told),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _role_rows(told: Inspection) -> list[tuple[str, ...]]:
    alike: dict[tuple[Role, int, int, str], list[str]] = {}
    for one in told.communicators:
        key = (one.role, len(one.members), one.operations, one.reason)
        alike.setdefault(key, []).append(rank_ranges(one.members))
    return [
        (role.value, str(len(members)), str(size), str(operations), members[0], reason)
        for (role, size, operations, reason), members in alike.items()
    ]


def _kind_rows(told: Inspection) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            one.kind.name.lower(),
            str(one.operations),
            approximate_bytes(one.payload_bytes),
            approximate_bytes(one.wire_bytes),
        )
        for one in told.kinds
    ]
    if told.traffic.sends:
        moved = approximate_bytes(told.traffic.send_bytes)
        rows.append(("send_recv", str(told.traffic.sends), moved, moved))
    return rows


def _time_lines(told: Inspection) -> list[str]:
    network = (
        f"{format_rate(told.network.link_bps)} and {approximate_duration(told.network.latency_ns)} a message"
    )
    compute, communication = told.compute, told.communication
    ratio = "no communication" if told.compute_ratio is None else f"{told.compute_ratio:.2f}"
    lines = [
        (
            f"a rank computes {approximate_duration(compute.mean_ns)} (least {approximate_duration(compute.least_ns)}, "
            f"most {approximate_duration(compute.most_ns)}) and communicates {approximate_duration(communication.mean_ns)} "
            f"at {network} without contention; compute / communication {ratio}"
        ),
    ]
    if told.path is None:
        lines.append(f"no critical path: the trace has {told.errors} sorts of errors, see etloop lint")
        return lines
    return [*lines, *_path_lines(told.path)]


def _path_lines(path: CriticalPath) -> list[str]:
    shares = ", ".join(
        f"{kind} {approximate_duration(taken)} ({100 * taken / path.total_ns:.0f}%)"
        for kind, taken in sorted(path.by_kind_ns.items(), key=lambda one: -one[1])
        if taken
    )
    lines = [
        f"critical path {approximate_duration(path.total_ns)} over {path.operations} operations: {shares or 'nothing'}"
    ]
    lines += [
        f'  {step.what} {approximate_duration(step.duration_ns)}: rank {step.rank} node {step.node_id} "{step.name}"'
        for step in path.longest
    ]
    return lines
