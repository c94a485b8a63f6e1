"""report.html of a serving run: parts of TTFT as stacked bars, a timeline of requests, and the run over time.

Decides which requests are drawn and how they are grouped. Sizes and colours are those of every page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.html.blocks import (
    Block,
    Fact,
    LegendEntry,
    Page,
    Plot,
    Section,
    Source,
    Text,
    Tile,
    Tiles,
    listing,
)
from etloop.results.html.drawing import NARROW, WIDE, Axis, Plotted, Steps, draw
from etloop.results.html.render import render
from etloop.results.html.stacks import Bar, Segment, stacks
from etloop.results.schema.serving import TTFT_PARTS, Percentiles, ServingFigures
from etloop.results.schema.verdict import RunResult
from etloop.results.serving.text import PART_NAMES, milliseconds, serving_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.serving.figures import ServingRecords
    from etloop.results.serving.run import ServingRun

BADGES: Final = {
    RunResult.PASS: "pass",
    RunResult.NO_VERDICT: "pass",
    RunResult.INCONCLUSIVE: "inconclusive",
    RunResult.FAIL: "fail",
    RunResult.BROKEN: "fail",
}
WORDS: Final = {
    RunResult.PASS: "PASS",
    RunResult.NO_VERDICT: "complete",
    RunResult.INCONCLUSIVE: "INCONCLUSIVE",
    RunResult.FAIL: "FAIL",
    RunResult.BROKEN: "broke off",
}
MOST_BARS: Final = 32
"""Groups of requests, by arrival, whose mean parts are drawn."""
MOST_REQUESTS: Final = 40
"""Requests of the timeline."""
MOST_POINTS: Final = 2000
"""Points of a line; further ones are averaged."""


def serving_page(run: ServingRun) -> str:
    """Return the page as HTML."""
    records, figures = run.records, run.figures
    plots = [plot for plot in (_itl(records), _under_way(records)) if plot is not None]
    facts = (
        Fact("model", figures.model),
        Fact("requests", figures.source),
        Fact("compute", "modelled, not measured: no GPU took part"),
    )
    badge = (BADGES[run.result], WORDS[run.result])
    sections = (
        Section("figures", "Figures", (_tiles(figures), *((Text(run.failure),) if run.failure else ()))),
        Section("ttft", "Time to first token", (*_ttft_parts(records), *_timeline(records))),
        Section("time", "The run over time", tuple(plots)),
        Section("all", "All figures", (Source("", "\n".join(serving_lines(run))),)),
        Section("notes", "Notes", listing(figures.notes)),
    )
    return render(Page(f"ETLoop serving: {figures.model}", figures.source, *badge, facts, sections))


def _tiles(figures: ServingFigures) -> Tiles:
    def tile(name: str, times: Percentiles | None) -> Tile:
        if times is None:
            return Tile(name, "none", "no request has one")
        return Tile(name, milliseconds(times.p99), f"mean {milliseconds(times.mean)}")

    return Tiles(
        (
            Tile(
                "requests",
                f"{figures.finished} of {figures.arrived}",
                f"{figures.refused} refused, {figures.running} running",
            ),
            tile("TTFT p99", figures.ttft),
            tile("of it the fabric p99", figures.ttft_fabric),
            tile("ITL p99", figures.itl),
            Tile(
                "goodput",
                f"{figures.goodput:.3g}/s",
                f"{figures.met_objective} requests within the objective",
            ),
        )
    )


def _numbers(records: ServingRecords) -> dict[str, NDArray[np.int64]]:
    """Return the columns of the requests that hold numbers."""
    texts = {"state", "reason"}
    return {
        name: np.asarray(column, np.int64) for name, column in records.requests.items() if name not in texts
    }


def _ttft_parts(records: ServingRecords) -> tuple[Block, ...]:
    """Return the mean parts of TTFT of groups of requests by arrival, stacked."""
    rows = _numbers(records)
    started = np.flatnonzero(rows["ttft_ns"] >= 0)
    if not len(started):
        return ()
    bars: list[Bar] = []
    for group in np.array_split(started, min(MOST_BARS, len(started))):
        begin = 0.0
        segments: list[Segment] = []
        for colour, name in enumerate(TTFT_PARTS):
            end = begin + float(rows[name][group].mean()) / 1e6
            part = PART_NAMES[name.removesuffix("_ns")]
            segments.append(Segment(f"{part} {end - begin:.4g} ms", begin, end, colour))
            begin = end
        first, last = (int(rows["request"][group[place]]) for place in (0, -1))
        at = f"{rows['arrival_ns'][group[0]] / 1e9:.4g} s"
        label = f"request {first}, {at}" if first == last else f"requests {first}-{last}, {at}"
        bars.append(Bar(label, tuple(segments)))
    title = "Time to first token and its parts, mean of requests by arrival"
    return stacks("ttft", title, "time to first token (ms)", tuple(bars), _part_legend())


def _part_legend() -> tuple[LegendEntry, ...]:
    return tuple(
        LegendEntry(PART_NAMES[name.removesuffix("_ns")], colour) for colour, name in enumerate(TTFT_PARTS)
    )


def _timeline(records: ServingRecords) -> tuple[Block, ...]:
    """Return the phases of single requests: of those with the longest time to first token."""
    rows = _numbers(records)
    started = np.flatnonzero(rows["ttft_ns"] >= 0)
    slowest = started[np.argsort(-rows["ttft_ns"][started], kind="stable")[:MOST_REQUESTS]]
    bars: list[Bar] = []
    for row in sorted(slowest.tolist()):
        begin = float(rows["arrival_ns"][row])
        segments: list[Segment] = []
        for colour, name in enumerate(TTFT_PARTS):
            end = begin + float(rows[name][row])
            part = PART_NAMES[name.removesuffix("_ns")]
            segments.append(Segment(f"{part} {(end - begin) / 1e6:.4g} ms", begin / 1e9, end / 1e9, colour))
            begin = end
        last = float(rows["last_token_ns"][row])
        text = f"tokens {(last - begin) / 1e6:.4g} ms"
        segments.append(Segment(text, begin / 1e9, last / 1e9, len(TTFT_PARTS)))
        bars.append(Bar(f"request {rows['request'][row]}", tuple(segments)))
    legend = (*_part_legend(), LegendEntry("further tokens", len(TTFT_PARTS)))
    title = f"Timeline of the {len(bars)} requests with the longest time to first token"
    return stacks("timeline", title, "time since the start (s)", tuple(bars), legend)


def _itl(records: ServingRecords) -> Plot | None:
    """Return the inter-token latency over time, and the share of the fabric in it."""
    steps = records.steps
    used = np.asarray(steps["continuing"], np.int64) > 0
    if not used.any():
        return None
    at = np.asarray(steps["end_ns"], np.int64)[used] / 1e9
    order = np.argsort(at, kind="stable")
    gap = np.asarray(steps["gap_ns"], np.int64)[used][order] / 1e6
    fabric = np.asarray(steps["fabric_ns"], np.int64)[used][order] / 1e6
    times, gaps, fabrics = (_thin(values) for values in (at[order], gap, fabric))
    lines = [Steps("inter-token latency", 0, times, gaps)]
    if fabric.any():
        lines.append(Steps("of it exchanges with experts", 1, times, fabrics))
    return _plot("itl", "Inter-token latency over time", "mean of steps (ms)", tuple(lines), times)


def _under_way(records: ServingRecords) -> Plot | None:
    """Return how many requests are in each phase over time."""
    rows = _numbers(records)
    phases = (
        ("waiting or in prefill", "arrival_ns", "prefill_end_ns"),
        ("in transfer", "prefill_end_ns", "kv_end_ns"),
        ("decoding", "kv_end_ns", "last_token_ns"),
    )
    lines: list[Steps] = []
    for name, begin, end in phases:
        known = (rows[begin] >= 0) & (rows[end] >= rows[begin])
        if not known.any():
            continue
        times = np.concatenate([rows[begin][known], rows[end][known]])
        changes = np.concatenate([np.ones(int(known.sum())), -np.ones(int(known.sum()))])
        order = np.argsort(times, kind="stable")
        counts = np.cumsum(changes[order])
        at = times[order] / 1e9
        lines.append(Steps(name, len(lines), _thin(at), _thin(counts)))
    if not lines:
        return None
    most = np.concatenate([line.at for line in lines])
    return _plot("phases", "Requests by phase", "requests", tuple(lines), most)


def _thin(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most `MOST_POINTS` means of neighbouring values."""
    if len(values) <= MOST_POINTS:
        return values
    return np.array([float(part.mean()) for part in np.array_split(values, MOST_POINTS)])


def _plot(name: str, title: str, unit: str, lines: tuple[Steps, ...], x: NDArray[np.float64]) -> Plot:
    end = max(float(x.max()), 1e-9)
    axis = Axis("time (s)", 0.0, end * 1.02)
    panels = (Plotted(unit, lines),)
    return Plot(
        name=name,
        title=title,
        description=f"{title}: {len(lines)} lines.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=tuple(LegendEntry(line.name, line.colour) for line in lines),
    )
