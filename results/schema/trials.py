"""The content of trials.json: the trials of a search over several axes, the best of them, and their confirmation by repeats."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

TRIALS_SCHEMA: Final = "etloop-trials/1"
TRIALS_FILE: Final = "trials.json"
TRIALS_PAGE: Final = "trials.html"
STUDY_FILE: Final = "study.log"
"""Journal of Optuna's study; `optuna-dashboard study.log` opens it."""


class TrialState(StrEnum):
    """How a trial ended."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    """A condition did not hold."""
    PRUNED = "pruned"
    """Ended after its early iterations."""
    FAILED = "failed"
    """Not planned, broken off, or without a figure."""


@dataclass(frozen=True, slots=True)
class SettingTrial:
    """One combination of settings that was tried."""

    name: str
    """Directory below `points`."""
    labels: dict[str, str]
    """Setting by axis."""
    state: TrialState
    values: tuple[float, ...]
    """Values of the objectives, in their order; after the early iterations if it was pruned, none if it failed."""
    reason: str
    """The first condition that did not hold, or why it failed; "" otherwise."""
    findings: tuple[str, ...] = ()
    """As those of a `RunRecord`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the best trials, repeated."""

    name: str
    """Name of the trial; `start` is the scenario without changes."""
    runs: int
    passed: int
    """Runs that met all conditions."""
    means: tuple[float | None, ...]
    """Means of the objectives over the repeats; None if the runs have no such figure."""
    outcome: str
    """Comparison of the job's time with that of `start`; "" for `start`, or if it was not compared."""


@dataclass(frozen=True, slots=True)
class TrialsRecord:
    """The content of trials.json."""

    schema: str
    source: str
    objectives: tuple[str, ...]
    """Such as "minimize jct_avg_ns"."""
    figures: tuple[str, ...]
    """Names of the objectives' figures."""
    axes: dict[str, tuple[str, ...]]
    combinations: int
    trials: tuple[SettingTrial, ...]
    best: tuple[str, ...] = ()
    """Names of the best trials: of one objective the first is the optimum, of several they are the Pareto set."""
    importances: tuple[dict[str, float], ...] = ()
    """For each objective the share of every axis."""
    candidates: tuple[Candidate, ...] = ()
    conclusion: str = ""
    """Whether repeats confirm the optimum, as a sentence; "" before they are made."""
    is_confirmed: bool = False
