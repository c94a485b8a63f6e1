"""The shape of sweep.json: what a sweep was to do, what it has done, and what came of every point; and of search.json: which
values were tried at every point of a search, what became of them, and what was found.

Written after every run, so that a sweep that was killed can go on. `sweep_results.py` fills in what came of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.comparison import Outcome
from etloop.results.schema.verdict import RunResult

SWEEP_SCHEMA: Final = "etloop-sweep/1"
SEARCH_SCHEMA: Final = "etloop-search/1"
SEARCH_FILE: Final = "search.json"
SEARCH_PAGE: Final = "search.html"


class Mode(StrEnum):
    """Where runs take place."""

    LIVE = "live"
    """On a rig whose agents run."""
    LAB = "lab"
    """Through switches of software that the sweep brings up."""
    TWIN = "twin"
    """In virtual time."""


@dataclass(frozen=True, slots=True)
class PointRecord:
    """One combination of settings."""

    name: str
    labels: dict[str, str]
    """Setting by axis."""
    files: str
    """Digest of the texts of its scenario, rig and topology."""
    plan: str
    """Digest of what was laid out of them and of its traces."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run that took place."""

    point: str
    repeat: int
    result: RunResult
    reason: str
    """Why it broke off; "" otherwise."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the runs of a point."""

    name: str
    unit: str
    runs: int
    mean: float
    cv: float | None
    """Standard deviation (n - 1) / mean; None for one run or a mean of 0."""
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class PointResult:
    """What came of a point."""

    name: str
    runs: int
    """That can be used."""
    left_out: tuple[str, ...]
    figures: tuple[Spread, ...]
    against: str
    """The point it was held against; "" if it is one of those itself, or cannot be held against it."""
    outcome: Outcome | None
    change: float | None
    """Of the job's time; `low` and `high` are the bounds of its interval."""
    low: float | None
    high: float | None
    reasons: tuple[str, ...]
    open_words: str = ""
    """Of an open outcome without an interval: how many more runs it takes."""


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """sweep.json."""

    schema: str
    source: str
    mode: Mode
    order: str
    seed: int
    repeats: int
    compare: str
    points: tuple[PointRecord, ...]
    runs: tuple[RunRecord, ...]
    results: tuple[PointResult, ...] = ()


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
