"""The history of a device over versions of its firmware: one line per figure, and dated changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

TREND_SCHEMA: Final = "etloop-trend/1"
BANDWIDTH: Final = "busbw "
"""Prefix of the names of bus bandwidths, followed by the kind of the collectives."""


class ChangeKind(StrEnum):
    """Kind of the last change of a figure."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERENT = "different"
    """Changed, and neither more nor less is better."""
    SMALL = "changed by less than the least effect"
    STEADY = "steady"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run of a history."""

    place: str
    """Directory of the run, relative to that of the history."""
    at: str
    """Start (ISO 8601, UTC); for a run in virtual time the time at which its summary was written."""
    version: str
    """Firmware or network operating system of the device, by the run's own profile; for a modelled device without one the
    digest of its topology; "" if the run does not record it."""
    device: str
    """Vendor and model by the run's profile; "" if it has none."""


@dataclass(frozen=True, slots=True)
class FigureLine:
    """One figure over all runs of a history."""

    name: str
    unit: str
    words: str
    more_is_better: bool | None
    """None: neither more nor less is better."""
    values: tuple[float | None, ...]
    levels: tuple[float | None, ...]
    """Median of each part between the figure's own changes."""
    changes: tuple[int, ...]
    """Index of the first run after each change of this figure."""
    change_kind: ChangeKind
    worse: str
    """Amount and date of its last change in words, if that was to the worse and decides; "" otherwise."""


@dataclass(frozen=True, slots=True)
class ChangedFigure:
    """A figure before and after a change, as medians up to its neighbouring changes."""

    name: str
    unit: str
    before: float
    after: float
    change: float | None
    """after / before - 1; None if before is 0."""
    change_kind: ChangeKind


@dataclass(frozen=True, slots=True)
class Change:
    """A dated change: between the last run before and the first run after it."""

    run: int
    """Index of the first run after it."""
    before: RecordedRun
    after: RecordedRun
    p_value: float
    """Probability of so clear a change without one, for all figures jointly."""
    figures: tuple[ChangedFigure, ...]
    """The clearest first."""

    @property
    def is_with_version(self) -> bool:
        """Return whether the version of the device differs between the two runs."""
        return self.before.version != self.after.version


@dataclass(frozen=True, slots=True)
class FalseAlarmRate:
    """The rate of false alarms as asked for, and as measured on the runs without their changes in shuffled blocks."""

    level: float
    alarms: int
    histories: int
    block_runs: int


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The runs of one job with one scenario and rig, by start."""

    job: str
    series: str
    """Digest of workload, scenario and rig."""
    runs: tuple[RecordedRun, ...]
    figures: tuple[FigureLine, ...]
    changes: tuple[Change, ...]
    false_alarms: FalseAlarmRate
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trend:
    """All histories of a directory."""

    schema: str
    source: str
    least_effect: float
    since: str
    """Only changes from this time on decide; "" for all."""
    histories: tuple[JobHistory, ...]
    too_short: tuple[str, ...]
    """Jobs with too few runs for a change to be found, each with their number."""
    left_out: tuple[str, ...]
    """Runs that cannot be used, each with the reason."""

    @property
    def worse(self) -> tuple[str, ...]:
        """Return the figures whose last change was to the worse, each with its date, in words."""
        return tuple(
            f"{history.job}: {line.name} {line.worse}"
            for history in self.histories
            for line in history.figures
            if line.worse
        )
