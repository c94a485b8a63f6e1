"""What an experiment is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.link.figures import Finding
from etloop.experiments.nic.link.probe import Probe


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question to a card."""

    name: str
    provokes: str
    """What is done to the card."""
    reads: str
    """What is looked at, and how the figures follow."""
    clause: str
    """Which document it is compared with."""
    figures: Mapping[str, str]
    """Names of what it may find, with their units; "" for a word."""
    run: Callable[[Probe], tuple[Finding, ...]]
    """Raises `NicError` where the card does not do what the question needs."""
