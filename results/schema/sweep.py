"""The shape of sweep.json: what a sweep was to do, what it has done, and what came of every point.

Written after every run, so that a sweep that was killed can go on. `sweep_results.py` fills in what came of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from etloop.results.schema.comparison import Outcome
from etloop.results.schema.verdict import RunResult

SWEEP_SCHEMA: Final = "etloop-sweep/1"


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
