"""Declares the type of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.link.figures import Finding
from etloop.experiments.nic.link.probe import Probe


@dataclass(frozen=True, slots=True)
class Experiment:
    """One question about a card, with the method that answers it."""

    name: str
    provokes: str
    """The stimulus sent to the card."""
    reads: str
    """The observed packets, and how the figures are derived from them."""
    clause: str
    """Document that specifies the behaviour."""
    figures: Mapping[str, str]
    """Names of its figures, with their units; "" for a word."""
    run: Callable[[Probe], tuple[Finding, ...]]
    """Runs the experiment. Raises `NicError` if the card does not do what the experiment needs."""
