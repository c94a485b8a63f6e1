"""The experiments, one file each. A new experiment is a new file and a line here."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery import (
    acknowledgements,
    fingerprint,
    gap,
    increase,
    marked_answers,
    notifications,
    pauses,
    queue_pairs,
    rate_cut,
    reads,
    refusals,
    retransmission,
    rnr,
    timeout,
    trims,
    window,
)
from etloop.experiments.nic.battery.experiment import Experiment

BATTERY: Final[tuple[Experiment, ...]] = tuple(
    module.EXPERIMENT
    for module in (
        fingerprint,
        acknowledgements,
        gap,
        refusals,
        trims,
        reads,
        retransmission,
        window,
        rnr,
        timeout,
        notifications,
        rate_cut,
        increase,
        marked_answers,
        pauses,
        queue_pairs,
    )
)
FIGURES: Final = {name: unit for experiment in BATTERY for name, unit in experiment.figures.items()}
"""All figures of the battery, with their units."""
BY_NAME: Final = {experiment.name: experiment for experiment in BATTERY}
