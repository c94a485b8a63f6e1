"""Declares the results of a battery: a file per experiment, and the profile that combines them."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.link.figures import Curve, Figure

EXPERIMENT_SCHEMA: Final = "etloop-nic-experiment/3"
PROFILE_SCHEMA: Final = "etloop-nic-profile/3"
PROFILE_FILE: Final = "nic.json"


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """Record of one experiment."""

    schema: str
    name: str
    card: str
    """Description of the card, so that a record is not used for another card."""
    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...]
    failure: str
    """Reason why it could not be carried out, "" if it was."""
    began_at: str
    lasted_ns: int
    """Duration by the clock of the wire."""
    frames_sent: int
    frames_received: int


@dataclass(frozen=True, slots=True)
class NicProfile:
    """All results of a battery on one card."""

    schema: str
    card: str
    resolution_ns: int
    """Largest error of the timestamps taken here."""
    floor_ns: int | None
    """The card's fastest answer, an upper bound of the round-trip time of the link. None: not measured."""
    experiments: tuple[ExperimentRecord, ...]

    def curves(self) -> tuple[Curve, ...]:
        """Return all curves."""
        return tuple(curve for experiment in self.experiments for curve in experiment.curves)

    def figures(self) -> dict[str, Figure]:
        """Return all figures by name."""
        return {figure.name: figure for experiment in self.experiments for figure in experiment.figures}
