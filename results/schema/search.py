"""The shape of search.json: which values were tried at every point of a search, what became of them, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etloop.results.schema.sweep import Mode
from etloop.results.schema.verdict import RunResult

SEARCH_SCHEMA: Final = "etloop-search/1"
SEARCH_FILE: Final = "search.json"


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One value that was tried. It passed if every run of it did."""

    name: str
    """Directory below the point's."""
    value: int
    words: str
    passed: bool
    runs: tuple[RunResult, ...]
    reason: str
    """The first condition that did not hold, or why a run broke off; "" where all passed."""
    figures: dict[str, float]
    """Of its last run, those of `TRIAL_FIGURES` that exist."""


@dataclass(frozen=True, slots=True)
class SearchedPoint:
    """What was found at one combination of settings."""

    name: str
    labels: dict[str, str]
    trials: tuple[TrialRecord, ...]
    """In the order in which they were tried."""
    best: int | None
    """The furthest value that passed."""
    fails_at: int | None
    """The nearest beyond it that did not; None where all passed."""
    done: bool


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """search.json."""

    schema: str
    source: str
    digest: str
    """Of the sweep's file and all files and plans of its points."""
    mode: Mode
    path: str
    unit: str
    begin: int
    """`from` and `to` of the file, in `unit`."""
    end: int
    repeats: int
    points: tuple[SearchedPoint, ...]


TRIAL_FIGURES: Final = ("goodput_bps", "busiest_port_share", "jct_avg_ns", "lost_share", "slip_share")
