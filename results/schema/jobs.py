"""Figures of one job of several: its duration alone and together with the other jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

BARRIER_GROUP: Final = "rounds"
"""Name of the communicator whose barriers end phases (workload/program/merge.py)."""


class Phase(StrEnum):
    """Whether a job ran alone or together with the other jobs."""

    ALONE = "alone"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Times of a job over all phases of one kind in which every op completed."""

    count: int
    jct_min_ns: int
    jct_avg_ns: int
    jct_max_ns: int
    pass_avg_ns: int
    """Time of one pass of the job through its programs. Passes may overlap, so it is the phase's time divided by its passes."""


@dataclass(frozen=True, slots=True)
class JobShare:
    """One job of several, or background next to jobs."""

    name: str
    background: bool
    first_rank: int
    ranks: int
    passes: int
    ops_planned: int
    """Over all rounds. For background: as many as there would have been if the jobs had continued."""
    ops_recorded: int
    sent_bytes: int
    """Payload of its recorded ops that crossed the device."""
    start_ns: int | None
    end_ns: int | None
    alone: PhaseTimes | None
    together: PhaseTimes | None
    interference: float | None
    """Mean over rounds of time together / time alone in the same round."""
    interference_min: float | None
    interference_max: float | None
    interference_by_round: tuple[float, ...]
    beside_share: float | None
    """Share of its time together in which at least one other job was running."""
