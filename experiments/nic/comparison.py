"""Compares two profiles, or a profile with the figures that a vendor states. Pure.

Decides what counts as a difference: words that differ, and numbers whose intervals do not overlap.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError, parse_duration_ns, parse_rate_bps
from etloop.experiments.nic.dut_profile import DCQCN, value_words
from etloop.experiments.nic.link.asked import CHANGED, is_as_asked
from etloop.experiments.nic.link.figures import Figure

if TYPE_CHECKING:
    from etloop.dut_profiles.model.profile import DutProfile
    from etloop.experiments.nic.document import NicProfile


_SETTING_OF: Final = {"dscp": "dscp", "timeout": "timeout_code"}
"""Figures that are the requested setting if the card follows requests: their value with another setting is unknown."""


class Agreement(StrEnum):
    """Result of comparing two values."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "not known"
    """One of them was not measured, or not stated."""


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure of two cards."""

    name: str
    a: str
    b: str
    agreement: Agreement


def compare_profiles(a: NicProfile, b: NicProfile) -> tuple[FigurePair, ...]:
    """Return the comparison of every figure of either profile, in the order of the first."""
    figures_a, figures_b = a.figures(), b.figures()
    return tuple(
        FigurePair(
            name,
            _words(figures_a.get(name)),
            _words(figures_b.get(name)),
            _agreement(figures_a.get(name), figures_b.get(name)),
        )
        for name in dict.fromkeys((*figures_a, *figures_b))
    )


def compare_with_stated(measured: NicProfile, stated: DutProfile) -> tuple[FigurePair, ...]:
    """Return the comparison of stated and measured values, where both exist.

    A stated parameter other than a time, rate or number is shown as it is written; whether it agrees is unknown.
    """
    figures = measured.figures()
    congestion, unread = _dcqcn_of(stated)
    transport, cnp = stated.transport, stated.cnp
    stated_values: dict[str, float | str | None] = {
        "recovery": _text(transport.retransmission.value),
        "early_packets": _kept_or_dropped(transport.accepts_out_of_order.value),
        "timeout": transport.timeout_ns.value,
        "ack_request_every": transport.ack_every_packets.value,
        "dscp": None if transport.dscp.value is None else f"{CHANGED}: always {transport.dscp.value}",
        "cnp_interval": cnp.interval_ns.value,
        "cnp_scope": _text(cnp.scope.value),
        "cnp_dscp": cnp.dscp.value,
        **congestion,
        **unread,
    }
    pairs = []
    for name, value in stated_values.items():
        figure = figures.get(name)
        if value is None or figure is None:
            continue
        stated_words = value if isinstance(value, str) else f"{value:g} {figure.unit}".strip()
        if name in unread or figure.samples == 0 or is_as_asked(figures.get(_SETTING_OF.get(name, ""))):
            agreement = Agreement.UNKNOWN
        else:
            agreement = Agreement.SAME if figure.holds(value) else Agreement.DIFFERENT
        pairs.append(FigurePair(name, value_words(figure), stated_words, agreement))
    return tuple(pairs)


def _dcqcn_of(stated: DutProfile) -> tuple[dict[str, float], dict[str, str]]:
    """Return DCQCN's stated parameters by the names of their figures: the parsed values, and the texts of the others."""
    values: dict[str, float] = {}
    unread: dict[str, str] = {}
    for parameter in stated.congestion.parameters:
        name, text = DCQCN.get(parameter.name), parameter.setting.value
        if name is None or text is None:
            continue
        value = _parse_value(text)
        if value is None:
            unread[name] = text
        else:
            values[name] = value
    return values, unread


def _parse_value(text: str) -> float | None:
    """Return a time, rate or number; None for another text."""
    for parse in (parse_duration_ns, parse_rate_bps, int):
        with suppress(ValueError, QuantityError):
            return parse(text)
    return None


def _agreement(a: Figure | None, b: Figure | None) -> Agreement:
    if a is None or b is None or not a.samples or not b.samples:
        return Agreement.UNKNOWN
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Agreement.SAME if a.word == b.word and a.value == b.value else Agreement.DIFFERENT
    return Agreement.SAME if a.low <= b.high and b.low <= a.high else Agreement.DIFFERENT


def _words(figure: Figure | None) -> str:
    return "not asked" if figure is None else value_words(figure)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _kept_or_dropped(value: bool | None) -> str | None:
    return None if value is None else "kept" if value else "dropped"
