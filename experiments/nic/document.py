"""What a battery leaves: a file an experiment, and the profile that they make together."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.link.figures import Curve, Figure

EXPERIMENT_SCHEMA: Final = "etloop-nic-experiment/3"
PROFILE_SCHEMA: Final = "etloop-nic-profile/3"
PROFILE_FILE: Final = "nic.json"


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """One experiment that was carried out."""

    schema: str
    name: str
    card: str
    """What was asked, in words: an experiment is not taken for one of another card."""
    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...]
    failure: str
    """Why it could not be carried out, "" if it was."""
    began_at: str
    lasted_ns: int
    """On the clock of the wire."""
    frames_sent: int
    frames_received: int


@dataclass(frozen=True, slots=True)
class NicProfile:
    """All that a battery found out about a card."""

    schema: str
    card: str
    resolution_ns: int
    """How late our own stamps may be."""
    floor_ns: int | None
    """The card's quickest answer: at most that is the way there and back. None: it was not asked."""
    experiments: tuple[ExperimentRecord, ...]

    def curves(self) -> tuple[Curve, ...]:
        """Return all curves."""
        return tuple(curve for one in self.experiments for curve in one.curves)

    def figures(self) -> dict[str, Figure]:
        """Return all figures by name."""
        return {figure.name: figure for one in self.experiments for figure in one.figures}
