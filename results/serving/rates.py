"""A search for the highest request rate as text, and as a page with time to first token over rate."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from etloop.results.html.blocks import Block, LegendEntry, Page, Plot, Section, Source
from etloop.results.html.drawing import NARROW, WIDE, Axis, Limit, Plotted, Steps, draw
from etloop.results.html.render import render
from etloop.results.schema.serving import RatePoint, RateSearch
from etloop.results.serving.text import milliseconds

RATES_FILE: Final = "rates.json"
PAGE_FILE: Final = "report.html"
_HEADING: Final = (
    "requests/s",
    "within",
    "TTFT mean",
    "TTFT p99",
    "fabric p99",
    "ITL p99",
    "goodput/s",
    "tokens/s",
)


def rate_lines(search: RateSearch) -> list[str]:
    """Return the search as lines of text, the rates in a table."""
    limits = [f"TTFT {milliseconds(search.ttft_limit_ns)}"] if search.ttft_limit_ns else []
    limits += [f"mean ITL {milliseconds(search.itl_limit_ns)}"] if search.itl_limit_ns else []
    objective = f"{search.share:.4g} of the requests within {' and '.join(limits)}"
    rows = [_HEADING, *(_cells(point) for point in search.points)]
    table = ["".join(f"{cell:>12}" for cell in row) for row in rows]
    if not search.rate:
        return [f"no rate that was tried meets the objective: {objective}", "", *table]
    more = (
        "no higher rate fails"
        if search.failing_rate is None
        else f"{search.failing_rate:.4g} does not meet it"
    )
    return [f"highest rate: {search.rate:.4g} requests/s, {more}; {objective}", "", *table]


def _cells(point: RatePoint) -> tuple[str, ...]:
    times = (point.ttft_mean_ns, point.ttft_p99_ns, point.ttft_fabric_p99_ns, point.itl_p99_ns)
    return (
        f"{point.rate:.4g}",
        f"{point.met_share * 100:.4g} %",
        *map(milliseconds, times),
        f"{point.goodput:.4g}",
        f"{point.output_tokens_per_s:.5g}",
    )


def write_rates(directory: Path, search: RateSearch, title: str) -> None:
    """Write rates.json and report.html into a new or empty directory. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RATES_FILE).write_text(json.dumps(asdict(search), indent=1) + "\n")
    (directory / PAGE_FILE).write_text(rates_page(search, title))


def rates_page(search: RateSearch, title: str) -> str:
    """Return the page: time to first token, inter-token latency and goodput over the request rate."""
    lines = rate_lines(search)
    blocks: tuple[Block, ...] = (_plot(search), Source("", "\n".join(lines)))
    section = Section("rates", "Request rate", blocks)
    return render(Page(f"ETLoop request rate: {title}", lines[0], "", "", (), (section,)))


def _plot(search: RateSearch) -> Plot:
    at = np.array([point.rate for point in search.points])

    def line(name: str, colour: int, values: list[float]) -> Steps:
        return Steps(name, colour, at, np.array(values))

    ttft = (
        line("TTFT p99", 0, [point.ttft_p99_ns / 1e6 for point in search.points]),
        line("TTFT mean", 1, [point.ttft_mean_ns / 1e6 for point in search.points]),
        line("fabric in TTFT p99", 2, [point.ttft_fabric_p99_ns / 1e6 for point in search.points]),
    )
    limit_ms = search.ttft_limit_ns / 1e6
    panels = (
        Plotted("time to first token (ms)", ttft, limits=(Limit("objective", limit_ms),) if limit_ms else ()),
        Plotted(
            "inter-token latency p99 (ms)", (line("ITL p99", 3, [p.itl_p99_ns / 1e6 for p in search.points]),)
        ),
        Plotted("goodput (requests/s)", (line("goodput", 4, [point.goodput for point in search.points]),)),
    )
    axis = Axis("request rate (1/s)", 0.0, float(at.max()) * 1.02)
    legend = tuple(LegendEntry(steps.name, steps.colour) for panel in panels for steps in panel.steps)
    return Plot(
        name="rates",
        title="Figures by request rate",
        description=f"Figures of {len(at)} rates.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=legend,
    )
