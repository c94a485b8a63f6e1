"""Blind trials: cards drawn by seed, profiled, and held to what was drawn. Pure but for the seed's chance.

Decides what a profile must say of a modelled card. A battery that is wrong about cards whose parameters are known would be
believed about those whose parameters are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from etloop.contract.base.clock import NS_PER_US
from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.battery.timeout import RETRIES
from etloop.experiments.nic.cards.model import CnpScope, NicModel, drawn_model
from etloop.experiments.nic.cards.simulated import SimulatedNic
from etloop.experiments.nic.link.figures import Figure
from etloop.experiments.nic.link.probe import Probe

_SHORTEST_SEEN_NS: Final = 4 * NS_PER_US
"""Intervals between notifications below this are not told from none."""


@dataclass(frozen=True, slots=True)
class BlindTrial:
    """One card, and what was said of it wrongly."""

    seed: int
    model: NicModel
    figures: tuple[Figure, ...]
    wrong: tuple[str, ...]
    """In words, by figure."""


def truths(model: NicModel) -> dict[str, float | str | None]:
    """Return what a profile has to say; None: it has to say that it was not seen."""
    has_cnps = model.cnp_scope is not CnpScope.NONE
    is_paced = has_cnps and model.cnp_interval_ns > _SHORTEST_SEEN_NS
    every = model.ack_request_every
    asks = f"none within {model.window_packets} packets"
    return {
        "recovery": str(model.recovery),
        "nak_to_resend": model.resend_ns,
        "timeout": model.timeout_ns,
        "timeout_growth": model.timeout_growth,
        "timeout_retries": RETRIES,
        "rnr_factor": model.rnr_factor,
        "unacknowledged_window": model.window_packets,
        "ack_request_every": every if 0 < every <= model.window_packets else asks,
        "gap_to_nak": model.nak_ns,
        "naks_per_gap": "for every early packet" if model.nak_repeats else "once",
        "early_packets": "kept" if model.keeps_early else "dropped",
        "requests_per_ack": model.requests_per_ack,
        "cnp_scope": "none" if not has_cnps else str(model.cnp_scope) if is_paced else None,
        "cnp_interval": model.cnp_interval_ns if has_cnps else None,
        **({"cnp_dscp": model.cnp_dscp} if has_cnps else {}),
        "cnp_cut": model.cnp_cut,
        "cnp_recovery": model.cnp_recovery_ns if model.cnp_cut else None,
    }


def blind_trial(seed: int) -> BlindTrial:
    """Profile a card that the seed draws, and compare."""
    model = drawn_model(Random(seed))  # noqa: S311 -- a trial is repeated by its seed
    card = SimulatedNic(model, Random(seed + (1 << 32)))  # noqa: S311 -- likewise
    probe = Probe(card, card)
    figures = tuple(figure for experiment in BATTERY for figure in experiment.run(probe))
    by_name = {figure.name: figure for figure in figures}
    wrong = tuple(
        f"{name}: {truth} was drawn, {_said(by_name.get(name))}"
        for name, truth in truths(model).items()
        if not _is_right(by_name.get(name), truth)
    )
    return BlindTrial(seed, model, figures, wrong)


def _is_right(figure: Figure | None, truth: float | str | None) -> bool:
    if figure is None:
        return False
    if truth is None:
        return figure.samples == 0
    return figure.holds(truth)


def _said(figure: Figure | None) -> str:
    if figure is None:
        return "nothing was said"
    if figure.low is None:
        return f"{figure.word} was said"
    return f"{figure.low:g} to {figure.high:g} was said"
