"""Two profiles next to each other, and a profile next to what a maker states. Pure.

Decides what is a difference: words that are not the same, and numbers whose intervals do not touch.
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
"""Figures that are our setting where the card does as asked: what another setting would give is not known."""


class Agreement(StrEnum):
    """How two values stand to each other."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "not known"
    """One of them was not seen, or not stated."""


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure of two cards."""

    name: str
    a: str
    b: str
    agreement: Agreement


def compare_profiles(a: NicProfile, b: NicProfile) -> tuple[FigurePair, ...]:
    """Return every figure of either, in the order of the first."""
    ours, others = a.figures(), b.figures()
    return tuple(
        FigurePair(
            name,
            _words(ours.get(name)),
            _words(others.get(name)),
            _agreement(ours.get(name), others.get(name)),
        )
        for name in dict.fromkeys((*ours, *others))
    )


def compare_with_stated(measured: NicProfile, stated: DutProfile) -> tuple[FigurePair, ...]:
    """Return what a profile of a device states next to what was measured, where both can be compared."""
    figures = measured.figures()
    transport, cnp = stated.transport, stated.cnp
    known: dict[str, float | str | None] = {
        "recovery": _text(transport.retransmission.value),
        "early_packets": _kept(transport.accepts_out_of_order.value),
        "timeout": transport.timeout_ns.value,
        "ack_request_every": transport.ack_every_packets.value,
        "dscp": None if transport.dscp.value is None else f"{CHANGED}: always {transport.dscp.value}",
        "cnp_interval": cnp.interval_ns.value,
        "cnp_scope": _text(cnp.scope.value),
        "cnp_dscp": cnp.dscp.value,
        **_dcqcn_of(stated),
    }
    pairs = []
    for name, value in known.items():
        figure = figures.get(name)
        if value is None or figure is None:
            continue
        said = value if isinstance(value, str) else f"{value:g} {figure.unit}".strip()
        if figure.samples == 0 or is_as_asked(figures.get(_SETTING_OF.get(name, ""))):
            agreement = Agreement.UNKNOWN
        else:
            agreement = Agreement.SAME if figure.holds(value) else Agreement.DIFFERENT
        pairs.append(FigurePair(name, value_words(figure), said, agreement))
    return tuple(pairs)


def _dcqcn_of(stated: DutProfile) -> dict[str, float | str | None]:
    """DCQCN's parameters by the figures that they are; those that are written in another way are left out."""
    found: dict[str, float | str | None] = {}
    for parameter in stated.congestion.parameters:
        name, text = DCQCN.get(parameter.name), parameter.setting.value
        if name is None or text is None:
            continue
        for parse in (parse_duration_ns, parse_rate_bps, int):
            with suppress(ValueError, QuantityError):
                found[name] = parse(text)
                break
    return found


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


def _kept(value: bool | None) -> str | None:
    return None if value is None else "kept" if value else "dropped"
