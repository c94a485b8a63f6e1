"""The experiments, one file each. A new one is a new file and a line here."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery import (
    acknowledgements,
    fingerprint,
    gap,
    notifications,
    rate_cut,
    refusals,
    retransmission,
    rnr,
    timeout,
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
        retransmission,
        window,
        rnr,
        timeout,
        notifications,
        rate_cut,
    )
)
BY_NAME: Final = {experiment.name: experiment for experiment in BATTERY}
