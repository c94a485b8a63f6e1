"""Blind trials: cards drawn by seed, profiled, and compared with the drawn parameters. Pure but for the seed's
randomness.

Decides the figures that a profile of a modelled card must have. A battery that is wrong about cards with known
parameters would also be wrong about real ones, where the mistake would not be seen.
"""

from __future__ import annotations

from random import Random
from typing import Final

from etloop.contract.base.clock import NS_PER_S, NS_PER_US
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.battery.pauses import QUANTUM_BITS
from etloop.experiments.nic.battery.queue_pairs import COUNTS, SMALL_BYTES
from etloop.experiments.nic.battery.timeout import NOMINAL_NS
from etloop.experiments.nic.cards.model import CnpScope, NicModel, drawn_model
from etloop.experiments.nic.cards.simulated import SimulatedNic, request_ns
from etloop.experiments.nic.link.asked import AS_ASKED, CHANGED
from etloop.experiments.nic.link.figures import Figure
from etloop.experiments.nic.link.probe import USUAL_PAIRS, Probe

_LEAST_CUT: Final = 0.2
"""Smallest cut after which the remaining depth of a second cut can be measured."""
_SHORTEST_SEEN_NS: Final = 4 * NS_PER_US
"""Shortest interval between notifications that can be distinguished from none."""


@dataclass(frozen=True, slots=True)
class BlindTrial:
    """One card, with the mistakes of its profile."""

    seed: int
    model: NicModel
    figures: tuple[Figure, ...]
    wrong: tuple[str, ...]
    """Mistakes in words, one per figure."""


def truths(model: NicModel) -> dict[str, float | str | None]:
    """Return the figures that a profile must have; None: it must report the figure as not seen."""
    has_cnps = model.cnp_scope is not CnpScope.NONE
    is_paced = has_cnps and model.cnp_interval_ns > _SHORTEST_SEEN_NS
    every = model.ack_request_every
    asks = f"none within {model.window_packets} packets"
    return {
        "recovery": str(model.recovery),
        "nak_to_resend": model.resend_ns,
        "timeout": model.timeout_ns,
        "timeout_growth": model.timeout_growth,
        "timeout_retries": f"{CHANGED}: always {model.own_retries}" if model.own_retries else AS_ASKED,
        **({"timeout_code": AS_ASKED} if 1.1 < model.timeout_ns / NOMINAL_NS < 3.5 else {}),
        "dscp": AS_ASKED if model.own_dscp < 0 else f"{CHANGED}: always {model.own_dscp}",
        "ecn": AS_ASKED,
        "ttl": AS_ASKED,
        "rnr_factor": model.rnr_factor,
        "unacknowledged_window": model.window_packets,
        "ack_request_every": every if 0 < every <= model.window_packets else asks,
        "gap_to_nak": model.nak_ns,
        "naks_per_gap": "for every early packet" if model.nak_repeats else "once",
        "early_packets": "kept" if model.keeps_early else "dropped",
        "requests_per_ack": model.requests_per_ack,
        "cnp_scope": "none" if not has_cnps else str(model.cnp_scope) if is_paced else None,
        "cnp_interval": model.cnp_interval_ns if has_cnps else None,
        **({"cnp_dscp": _cnp_dscp(model)} if has_cnps else {}),
        "cnp_cut": model.cnp_cut,
        "cnp_recovery": model.cnp_recovery_ns if model.cnp_cut else None,
        "cnp_climb": model.cnp_climb if model.cnp_cut else None,
        **_climb_truths(model),
        **({"alpha_half_life": model.alpha_half_ns} if model.cnp_cut > _LEAST_CUT else {}),
        "marked_acknowledgements": "notified" if has_cnps and model.notifies_acks else "ignored",
        "read_response": model.read_ns,
        "trimmed_new_lengths": "nak sequence" if model.answers_trims else "dropped in silence",
        "trim_to_answer": model.nak_ns if model.answers_trims else None,
        "pauses": "stops" if model.honours_pauses else "ignored, or not forwarded by a device on the path",
        **({"pause_reaction": model.pause_reaction_ns} if model.honours_pauses else {}),
        **({"pause_quantum": QUANTUM_BITS * NS_PER_S / model.line_bps} if model.honours_pauses else {}),
        "message_rate": NS_PER_S / request_ns(model, SMALL_BYTES),
        "pairs_at_full_rate": max(
            count for count in COUNTS if count <= min(USUAL_PAIRS, model.full_rate_pairs or USUAL_PAIRS)
        ),
    }


def _cnp_dscp(model: NicModel) -> float | str:
    if not model.cnp_dscp_follows:
        return model.cnp_dscp
    return model.own_dscp if model.own_dscp >= 0 else "that of the queue pair, as asked"


def _climb_truths(model: NicModel) -> dict[str, float | str | None]:
    if not model.cnp_cut:
        return dict.fromkeys(
            ("fast_recovery_raises", "additive_increase", "additive_raises", "hyper_increase")
        )
    return {
        "fast_recovery_raises": model.fast_raises,
        "additive_increase": model.additive_bps,
        "additive_raises": model.additive_raises or None,
        "hyper_increase": model.hyper_bps if model.additive_raises else None,
    }


def blind_trial(seed: int) -> BlindTrial:
    """Profile the card that the seed draws, and compare the profile with it."""
    model = drawn_model(Random(seed))  # noqa: S311 -- a trial is repeated by its seed
    card = SimulatedNic(model, Random(seed + (1 << 32)))  # noqa: S311 -- likewise
    probe = Probe(card, card)
    findings = [finding for experiment in BATTERY for finding in experiment.run(probe)]
    figures = tuple(finding for finding in findings if isinstance(finding, Figure))
    by_name = {figure.name: figure for figure in figures}
    wrong = tuple(
        f"{name}: {truth} was set, {_report_words(by_name.get(name))}"
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


def _report_words(figure: Figure | None) -> str:
    if figure is None:
        return "no figure was reported"
    if figure.low is None:
        return f"{figure.word} was reported"
    return f"{figure.low:g} to {figure.high:g} was reported"
