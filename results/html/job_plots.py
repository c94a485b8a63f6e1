"""Plots of several jobs: bus bandwidth of their collectives round by round, and completion times alone and together.

Decides what is drawn; `report_jobs` puts it on the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from etloop.results.html.plots import distributions
from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.job import curve
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.results.verdict.evaluation import Frame
from numpy.typing import NDArray

MOST_SERIES: Final = 16
MOST_POINTS: Final = 4096
_DASHES: Final = {"alone": "solid", "together": "dash"}


def bandwidth_figure(given: KpiInput) -> Any | None:
    """Bus bandwidth of every collective that has one, in the order in which they ran, by job and kind; alone and together."""
    frame = given.frames["collectives"]
    busbw = given.column("collectives", "busbw_bytes_per_s")
    figure = go.Figure()
    for name, phase, rows in _series(frame, ~np.isnan(busbw)):
        chosen = rows[np.lexsort((given.column("collectives", "start_ns")[rows],))][:MOST_POINTS]
        place = _places(given, chosen)
        figure.add_trace(
            go.Scatter(x=place, y=busbw[chosen] / 1e9, name=escape(f"{name}, {phase}"), mode="lines+markers",
                       line={"dash": _DASHES.get(phase, "dot")})
        )  # fmt: skip
    figure.update_layout(
        height=380, xaxis={"title": "round"}, yaxis={"title": "busbw (GB/s)", "rangemode": "tozero"}
    )
    return figure if figure.data else None


def completion_by_phase(given: KpiInput) -> Any | None:
    """Distributions of the times of collectives by job, kind and phase."""
    taken = given.column("collectives", "time_ns")
    series = _series(given.frames["collectives"], np.ones(len(taken), np.bool_))
    return distributions(
        (curve(f"{name}, {phase}", taken[rows]), {"line_dash": _DASHES.get(phase, "dot")})
        for name, phase, rows in series
    )


def _series(frame: Frame, usable: NDArray[np.bool_]) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """(job and kind, phase, rows) of complete collectives, at most `MOST_SERIES`."""
    columns = frame.columns
    usable = usable & (columns["complete"] == 1)
    keys = list(zip(columns["job"], columns["kind"], columns["phase"], strict=True))
    # A pair of send and receive is no collective; its bandwidth is in flows and goodput.
    pair = CONVENTIONS[SEND_RECV].name
    wanted = [key for key in dict.fromkeys(keys) if key[1] != pair or all(one[1] == pair for one in keys)]
    for job, kind, phase in wanted[:MOST_SERIES]:
        rows = np.array([key == (job, kind, phase) for key in keys], np.bool_) & usable
        if rows.any():
            yield f"{job}: {kind}", str(phase), np.flatnonzero(rows)


def _places(given: KpiInput, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """On the axis of rounds: collectives of one round evenly within it."""
    rounds = given.column("collectives", "iteration")[rows]
    places = rounds.astype(np.float64)
    for one in np.unique(rounds):
        own = np.flatnonzero(rounds == one)
        places[own] += np.arange(len(own)) / max(len(own), 1)
    return places + 1
