"""`kind:`, `mrc:` and `uet:` of a scenario's transport: what carries messages, and how their packets find their paths.

Decides the keys, limits and defaults; docs/mrc.md and docs/uet.md say what they do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_factor,
    parse_share_per_million,
)
from etloop.contract.base.value_form import TEXT, FormedParser, choice_form, form_of, formed
from etloop.contract.base.yaml_reader import Section, bounded, integer, one_of, word_of, yes_or_no
from etloop.contract.model.transport import (
    MOST_SPRAYED_WINDOW,
    TRANSPORT_KINDS,
    CreditSettings,
    DeliveryOrder,
    EntropyChoice,
    MultipathSettings,
    TransportKind,
)
from etloop.traffic.congestion import Need
from etloop.traffic.topology.segment_routes import SegmentChoice

MRC_UDP_PORT: Final = 4971
UET_UDP_PORT: Final = 4793
_CHOICES: Final = {choice.name.lower(): choice for choice in EntropyChoice}
_DELIVERIES: Final = {"rud": DeliveryOrder.ANY, "rod": DeliveryOrder.SENT}
_NO_DELIVERIES: Final = {
    "uud": "it repeats nothing, and a collective would wait for ever for what is lost",
    "rudi": "its requests have no context, and may be carried out twice",
}
"""Deliveries of UET that no job can run over, each with why."""
_MESSAGES: Final = {"write": False, "send": True}
_OF_SEVERAL_PATHS: Final = ("entropy", "entropy_values", "least_active")
_ROCE_ONLY: Final = {
    "retransmission": "it always repeats what is missing, and nothing else",
    "out_of_order": "it always places packets as they come",
    "rnr_retry": "it has no receiver-not-ready",
    "min_rnr_timer": "it has no receiver-not-ready",
    "outstanding_reads": "it has no READs",
    "cnp": "its acknowledgements tell of marks",
}
"""Keys of a transport that mean nothing to those that spray, each with why."""


@dataclass(frozen=True, slots=True)
class _Sprayed:
    """A transport whose packets choose their paths, as scenarios write it."""

    key: str
    udp_port: int
    an_end: str


_SPRAYED: Final = {
    TransportKind.MRC: _Sprayed("mrc", MRC_UDP_PORT, "an MRC queue pair"),
    TransportKind.UET: _Sprayed("uet", UET_UDP_PORT, "a UET queue pair"),
}


@dataclass(frozen=True, slots=True)
class Multipath:
    """What carries messages."""

    kind: TransportKind = TransportKind.ROCE
    settings: MultipathSettings = MultipathSettings()
    udp_port: int = 0
    """Destination port of packets that spray; RoCEv2's is the rig's business."""
    srv6: SegmentChoice | None = None
    """By what micro segments their packets are led; None: by none."""

    @property
    def sprays(self) -> bool:
        """Whether queue pairs are of a transport whose packets can take many paths."""
        return self.kind in _SPRAYED

    @property
    def operations(self) -> str:
        """What messages can be, where they are of such a transport."""
        return "writes and sends" if self.kind is TransportKind.UET else "writes"

    @property
    def takes_any_order(self) -> bool:
        """Whether a receiver keeps packets that overtook others."""
        return self.sprays and self.settings.order is DeliveryOrder.ANY

    @property
    def name(self) -> str:
        """As people write it."""
        return _SPRAYED[self.kind].key if self.sprays else "rocev2"


def read_multipath(transport: Section, window_packets: int) -> Multipath:
    """The keys `kind`, `mrc` and `uet` of a `transport:` section; mistakes are also keys that the kind has no use for."""
    kind = transport.optional("kind", one_of(TRANSPORT_KINDS), TransportKind.ROCE)
    read = Multipath()
    for sprayed, written in _SPRAYED.items():
        section = transport.section(written.key)
        settings = _settings(section, sprayed)
        udp_port = section.optional("udp_port", integer(1, 65535), written.udp_port)
        srv6 = section.optional("srv6", word_of(SegmentChoice), None)
        section.close()
        if kind is sprayed:
            read = Multipath(kind, settings, udp_port, srv6)
        elif transport.has(written.key):
            other = next(name for name, named in TRANSPORT_KINDS.items() if named is kind)
            transport.mistake(
                written.key, f"the transport is {other}", f"write kind: {written.key}, or leave it out"
            )
    if not read.sprays:
        return read
    for key, why in _ROCE_ONLY.items():
        if transport.has(key):
            transport.mistake(
                key, f"{read.name.upper()} does without: {why}", "leave it out, or write kind: rocev2"
            )
    if window_packets > MOST_SPRAYED_WINDOW:
        what = f"{_SPRAYED[kind].an_end} has at most {MOST_SPRAYED_WINDOW} packets under way"
        transport.mistake("window_packets", what, f"write at most {MOST_SPRAYED_WINDOW}")
    return read


def _settings(section: Section, kind: TransportKind) -> MultipathSettings:
    # Of Ultra Ethernet's reference (ACK_Gen_Trigger); MRC's own default is not public.
    sack_bytes = section.optional("sack_bytes", bounded(parse_bytes, 1, 1 << 24, format_bytes), 16 << 10)
    of_uet = _settings_of_uet(section) if kind is TransportKind.UET else MultipathSettings()
    # The gain of more values flattens at one or two windows' worth of packets.
    values = section.optional("entropy_values", integer(1, 1024), 128)
    least = section.optional("least_active", integer(1, 1024), min(8, values))
    choice = section.optional("entropy", one_of(_CHOICES), EntropyChoice.ROTATION)
    if least > values:
        section.mistake("least_active", f"there are {values} entropy values", "write at most as many")
    if of_uet.order is DeliveryOrder.SENT:
        for key in _OF_SEVERAL_PATHS:
            if section.has(key):
                what = "ordered delivery (rod) keeps a queue pair to one path"
                section.mistake(key, what, "leave it out, or write delivery: rud")
        values = least = 1
    return replace(of_uet, choice=choice, entropy_values=values, least_active=least, sack_bytes=sack_bytes)


def _settings_of_uet(section: Section) -> MultipathSettings:
    rest = bounded(parse_duration_ns, 0, 60 * NS_PER_S, format_duration)
    return MultipathSettings(
        close_after_ns=section.optional("close_after", rest, 10_000_000),
        order=section.optional(
            "delivery", FormedParser(_delivery, choice_form(_DELIVERIES)), DeliveryOrder.ANY
        ),
        sends=section.optional("messages", one_of(_MESSAGES), False),
        credit=_credit(section),
    )


_percent: Final = formed(form_of(parse_factor) or TEXT)(lambda text: int(parse_factor(text) * 100))


def _factor_text(percent: int) -> str:
    return f"{percent / 100:g}"


def _share_text(per_million: int) -> str:
    return f"{per_million / 10_000:g}%"


def _credit(section: Section) -> CreditSettings:
    """Values as Ultra Ethernet's simulator has them."""
    granted = section.optional("credit", yes_or_no, False)
    window = section.optional("credit_window", bounded(_percent, 10, 10_000, _factor_text), 150)
    quantum = section.optional("credit_quantum", integer(1, 64), 4)
    share = section.optional(
        "credit_share", bounded(parse_share_per_million, 10_000, 1_000_000, _share_text), 1_000_000
    )
    return CreditSettings(granted, False, window, quantum, share)


def with_control(multipath: Multipath, needs: Need, cc: Section) -> Multipath:
    """The same beside congestion control that `needs` something; credits alone are refused where nobody grants them."""
    if Need.CREDITS not in needs:
        return multipath
    if multipath.kind is not TransportKind.UET:
        cc.mistake(
            "algorithm",
            "rccc needs credits, which receivers of UET alone grant",
            "write kind: uet, or choose another",
        )
        return multipath
    credit = replace(multipath.settings.credit, granted=True, alone=True)
    return replace(multipath, settings=replace(multipath.settings, credit=credit))


def _delivery(text: str) -> DeliveryOrder:
    if text in _NO_DELIVERIES:
        raise QuantityError(
            f"{text} carries no job: {_NO_DELIVERIES[text]}", f"write {' or '.join(_DELIVERIES)}"
        )
    return one_of(_DELIVERIES)(text)
