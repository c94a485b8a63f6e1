"""The shapes of sweep.json (plan, progress and results of a sweep) and of search.json (values tried at every point, their
results, and the limits found).

Written after every run, so that a sweep that was killed can continue. `compare/sweep_results.py` fills in the results.
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
    """Where the runs of a sweep take place."""

    LIVE = "live"
    """On a rig with running agents."""
    LAB = "lab"
    """Through soft switches that the sweep starts."""
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
    """Digest of the plan made from these files and their traces."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One finished run of a point."""

    point: str
    repeat: int
    result: RunResult
    reason: str
    """Why the run ended early; "" otherwise."""
    findings: tuple[str, ...] = ()
    """Kind and first place of its faults, or of its other causes if it has none."""


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
    """Results of a point."""

    name: str
    runs: int
    """Number of usable runs."""
    left_out: tuple[str, ...]
    figures: tuple[Spread, ...]
    against: str
    """The point it was compared with; "" if it is a reference itself, or cannot be compared."""
    outcome: Outcome | None
    change: float | None
    """Change of the job's time; `low` and `high` are the bounds of its interval."""
    low: float | None
    high: float | None
    reasons: tuple[str, ...]
    open_words: str = ""
    """For an inconclusive outcome without an interval: how many more runs are needed."""


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """The content of sweep.json."""

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
    """One value that was tried. It passed if every run of it passed."""

    name: str
    """Directory below that of the point."""
    value: int
    words: str
    passed: bool
    runs: tuple[RunResult, ...]
    reason: str
    """The first condition that failed, or why a run ended early; "" if all passed."""
    figures: dict[str, float]
    """The `TRIAL_FIGURES` that exist, from its last run."""
    findings: tuple[str, ...] = ()
    """As those of a `RunRecord`, of its last run."""


@dataclass(frozen=True, slots=True)
class SearchedPoint:
    """Result of the search at one combination of settings."""

    name: str
    labels: dict[str, str]
    trials: tuple[TrialRecord, ...]
    """In the order in which they were tried."""
    best: int | None
    """The furthest value that passed; None if none did."""
    fails_at: int | None
    """The nearest value beyond `best` that failed; None if all passed."""
    done: bool


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """The content of search.json."""

    schema: str
    source: str
    digest: str
    """Digest of the sweep file and of all files and plans of its points."""
    mode: Mode
    path: str
    unit: str
    begin: int
    """`from` and `to` of the file, in `unit`."""
    end: int
    repeats: int
    points: tuple[SearchedPoint, ...]


TRIAL_FIGURES: Final = ("goodput_bps", "busiest_port_share", "jct_avg_ns", "lost_share", "slip_share")
