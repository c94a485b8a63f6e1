"""Distributions of times, bandwidth by round, and bytes between ranks, as plots of a page.

Decides how many lines a plot has, and how the ranks of a large job are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Path
from etloop.results.html.blocks import LegendEntry, Matrix, Plot
from etloop.results.html.drawing import (
    NARROW,
    WIDE,
    Axis,
    Label,
    MatrixDrawing,
    Plotted,
    Square,
    Steps,
    draw,
)
from etloop.results.html.lanes import COLOURS
from etloop.results.html.timeline import scale_of
from etloop.results.kpis.input import number_names
from etloop.results.kpis.job import curve
from etloop.results.measure.job_shares import background_ranks
from etloop.results.report.queues import natural
from etloop.results.report.values import bytes_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.kpis import Curve

MOST_FIELDS: Final = 32
"""Most rows and columns of a matrix."""
TIMES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_SIZE: Final = 560
_MARGIN: Final = 76


def completion_plot(curves: Iterable[tuple[Curve, bool]], name: str, title: str) -> Plot | None:
    """Return cumulative distributions over time, dashed if the second value of a pair is true; None without curves."""
    usable_curves = [
        (distribution, dashed)
        for distribution, dashed in curves
        if distribution.time_ns and max(distribution.time_ns) > 0
    ][:COLOURS]
    if not usable_curves:
        return None
    least = min(
        min((time for time in distribution.time_ns if time > 0), default=1.0)
        for distribution, _ in usable_curves
    )
    most = max(max(distribution.time_ns) for distribution, _ in usable_curves)
    unit = scale_of(most, TIMES, "ns")
    begin, end = least / 1.2 / unit.size, most * 1.2 / unit.size
    steps = tuple(
        Steps(
            f"{distribution.name} ({distribution.count})",
            colour,
            np.array(distribution.time_ns) / unit.size,
            np.array(distribution.shares),
            dashed,
        )
        for colour, (distribution, dashed) in enumerate(usable_curves)
    )
    panels = (Plotted("took no longer (share)", steps, most=1.0),)
    axis = Axis(f"time ({unit.name}, each decade alike)", begin, end, is_log=True)
    return Plot(
        name=name,
        title=title,
        description=f"Cumulative distributions of {len(usable_curves)} kinds over time.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=tuple(LegendEntry(line.name, line.colour) for line in steps),
    )


def round_plot(lines: tuple[Steps, ...], name: str, title: str, unit: str) -> Plot | None:
    """Return values by round; None without lines."""
    if not lines:
        return None
    axis = Axis("round", 1, max(float(line.at.max()) for line in lines) + 1)
    panels = (Plotted(f"{title} ({unit})", lines),)
    return Plot(
        name=name,
        title=title,
        description=f"{title} of {len(lines)} series over the rounds of the run.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=tuple(LegendEntry(line.name, line.colour) for line in lines),
        note="Dashed: together with other jobs." if any(line.is_dashed for line in lines) else "",
    )


def traffic_matrix(inputs: KpiInput) -> Matrix | None:
    """Return the planned payload through the device by source and destination: by rank, port or groups of ports. None if
    there is none."""
    links = inputs.plan.connections
    wire = (links.path == Path.WIRE) & ~background_ranks(inputs.plan)[links.src_rank]
    if not wire.any():
        return None
    ranks = len(inputs.plan.rank_agent)
    names, unit_words, group = [str(rank) for rank in range(ranks)], "ranks", np.arange(ranks)
    if ranks > MOST_FIELDS:
        of_rank, ports = number_names(inputs.plan.port_names)
        ordered = sorted(ports, key=natural)
        number_of = {port: number for number, port in enumerate(ordered)}
        sorted_index = np.array([number_of[port] for port in ports], np.int64)
        ports_per_group = -(-len(ports) // MOST_FIELDS)
        group, unit_words = (
            sorted_index[of_rank] // ports_per_group,
            "ports" if ports_per_group == 1 else f"groups of {ports_per_group} ports from the one named",
        )
        names = ordered[::ports_per_group]
    count = len(names)
    key = group[links.src_rank[wire].astype(np.int64)] * count + group[links.dst_rank[wire].astype(np.int64)]
    payload_bytes = np.bincount(key, links.payload_bytes[wire] * float(inputs.plan.iterations), count * count)
    most = float(payload_bytes.max())
    size = (_SIZE - _MARGIN) / count
    squares = tuple(
        Square(
            f"{names[row]} to {names[column]}: {bytes_words(payload_bytes[row * count + column])}",
            round(_MARGIN + column * size + 0.5, 1),
            round(_MARGIN + row * size + 0.5, 1),
            round(max(size - 1, 1), 1),
            round(0.08 + 0.92 * float(payload_bytes[row * count + column]) / most, 3),
        )
        for row, column in np.argwhere(payload_bytes.reshape(count, count) > 0).tolist()
    )
    middle = [_MARGIN + (number + 0.5) * size for number in range(count)]
    short_names = [name[-11:] for name in names]
    drawing = MatrixDrawing(
        _SIZE + 20,
        _SIZE,
        squares,
        tuple(
            Label(name, _MARGIN - 6, round(position + 4, 1))
            for name, position in zip(short_names, middle, strict=True)
        ),
        tuple(
            Label(name, round(position + 4, 1), _MARGIN - 6)
            for name, position in zip(short_names, middle, strict=True)
        ),
        (Label(f"rows send, columns receive: {unit_words}", 0, 12),),
    )
    title = f"Payload through the device in the whole run; the fullest field is {bytes_words(most)}"
    return Matrix("matrix", title, f"Bytes by source and destination, {count} by {count}.", drawing)


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Times of one thing on one side, in ns."""

    side: str
    times_ns: NDArray[np.float64]


def compare_completion(things: Sequence[tuple[str, Sequence[Times]]], name: str) -> tuple[Plot, ...]:
    """Return one panel for each thing with one line for each side; () without times. The first thing is the iteration."""
    positive = [line.times_ns[line.times_ns > 0] for _, lines in things for line in lines]
    positive = [times_ns for times_ns in positive if times_ns.size]
    if not positive:
        return ()
    unit = scale_of(max(float(times_ns.max()) for times_ns in positive), TIMES, "ns")
    begin, end = (
        min(float(times_ns.min()) for times_ns in positive) / 1.1,
        max(float(times_ns.max()) for times_ns in positive) * 1.1,
    )
    panels = []
    for number, (thing, lines) in enumerate(things):
        steps = []
        for side, line in enumerate(lines):
            distribution = curve(line.side, line.times_ns)
            steps.append(
                Steps(
                    f"{line.side} ({distribution.count})",
                    side % COLOURS,
                    np.array(distribution.time_ns) / unit.size,
                    np.array(distribution.shares),
                )
            )
        panels.append(
            Plotted(f"{thing} (share)", tuple(steps), "" if number == 0 else "mean of an iteration", most=1.0)
        )
    axis = Axis(f"time ({unit.name}, each decade alike)", begin / unit.size, end / unit.size, is_log=True)
    legend = tuple(LegendEntry(line.side, number % COLOURS) for number, line in enumerate(things[0][1]))
    title = "Share of times that took no longer, a line a side"
    wide, narrow = (draw(tuple(panels), axis, width) for width in (WIDE, NARROW))
    return (Plot(name, title, f"{len(panels)} panels of cumulative distributions.", wide, narrow, legend),)
