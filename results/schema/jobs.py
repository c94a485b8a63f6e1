"""Figures of one job of several: how long it took alone and together with others."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

BARRIER_GROUP: Final = "rounds"
"""Name of the communicator whose barriers end phases (workload/program/merge.py)."""


class Phase(StrEnum):
    """What else ran."""

    ALONE = "alone"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """A job in all its phases of one sort, over those of which every op completed."""

    count: int
    jct_min_ns: int
    jct_avg_ns: int
    jct_max_ns: int
    pass_avg_ns: int
    """Of one pass of the job through its programs. Passes may overlap, so it is a phase's time by its number of passes."""


@dataclass(frozen=True, slots=True)
class JobShare:
    """One job of several, or background beside jobs."""

    name: str
    background: bool
    first_rank: int
    ranks: int
    passes: int
    ops_planned: int
    """Of all rounds. Of background as much as there would have been if the jobs had gone on."""
    ops_recorded: int
    sent_bytes: int
    """Payload of its ops that were recorded, through the device."""
    start_ns: int | None
    end_ns: int | None
    alone: PhaseTimes | None
    together: PhaseTimes | None
    interference: float | None
    """Mean over rounds of the time together divided by the time alone of the same round."""
    interference_min: float | None
    interference_max: float | None
    interference_by_round: tuple[float, ...]
    beside_share: float | None
    """Share of its time together in which at least one other job was under way."""
