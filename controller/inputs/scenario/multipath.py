"""`mrc:` and `uet:` of a scenario's transport: the keys that fit the kind of transport, and those that do not.

Decides the rules between keys; the keys are declared by `MultipathSettings` (docs/mrc.md and docs/uet.md say what they do).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.value_parsers import integer, word_of
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import MOST_SPRAYED_WINDOW, DeliveryOrder, MultipathSettings, UetSettings
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS, TransportKind
from etloop.traffic.congestion import Need
from etloop.traffic.topology.segment_routes import SegmentChoice

MRC_UDP_PORT: Final = 4971
UET_UDP_PORT: Final = 4793
_OF_SEVERAL_PATHS: Final = ("entropy", "entropy_values", "least_active")
_ROCE_ONLY: Final = {
    "retransmission": "it always retransmits only missing packets",
    "out_of_order": "it always accepts packets out of order",
    "rnr_retry": "it has no receiver-not-ready",
    "min_rnr_timer": "it has no receiver-not-ready",
    "outstanding_reads": "it has no READs",
    "cnp": "its ACKs report marks",
    "arbitration": "its queue pairs take turns packet by packet",
}
"""Keys of a transport that mean nothing to those that spray, each with the reason."""


@dataclass(frozen=True, slots=True)
class SprayEndpoint:
    """Where packets of a spraying transport go to: keys of `mrc:` and `uet:` that the planner alone needs."""

    udp_port: int = setting("udp_port", integer(1, 65535), 0)
    """UDP destination port of these packets; 4971 for MRC and 4793 for UET if left out."""
    srv6: SegmentChoice | None = setting("srv6", word_of(SegmentChoice), None)
    """Meaning of the micro segments of an outer IPv6 header, where every packet has one (docs/mrc.md)."""


@dataclass(frozen=True, slots=True)
class _Sprayed:
    """A transport whose packets choose their paths, as scenarios write it."""

    key: str
    udp_port: int
    an_end: str
    meaning: str


_SPRAYED: Final = {
    TransportKind.MRC: _Sprayed(
        "mrc", MRC_UDP_PORT, "an MRC queue pair", "Paths of MRC packets; needs `kind: mrc`."
    ),
    TransportKind.UET: _Sprayed(
        "uet", UET_UDP_PORT, "a UET queue pair", "Paths of UET packets; needs `kind: uet`."
    ),
}


def read_multipath(
    transport: Section, kind: TransportKind, window_packets: int
) -> tuple[MultipathSettings, SprayEndpoint]:
    """Return the `mrc:` or `uet:` settings of a `transport:` section for its kind; report keys that do not fit the kind."""
    settings, endpoint = MultipathSettings(), SprayEndpoint()
    for sprayed, written in _SPRAYED.items():
        section = transport.section(written.key, written.meaning)
        read = _settings(section, sprayed)
        place = _endpoint(section, written.udp_port)
        section.close()
        if kind is sprayed:
            settings, endpoint = read, place
        elif transport.has(written.key):
            other = next(name for name, named in TRANSPORT_KINDS.items() if named is kind)
            transport.mistake(
                written.key, f"the transport is {other}", f"write kind: {written.key}, or leave it out"
            )
    if kind not in _SPRAYED:
        return settings, endpoint
    for key, why in _ROCE_ONLY.items():
        if transport.has(key):
            problem = f"{_SPRAYED[kind].key.upper()} does not have this setting: {why}"
            transport.mistake(key, problem, "leave it out, or write kind: rocev2")
    if window_packets > MOST_SPRAYED_WINDOW:
        problem = f"{_SPRAYED[kind].an_end} has at most {MOST_SPRAYED_WINDOW} packets in flight"
        transport.mistake("window_packets", problem, f"write at most {MOST_SPRAYED_WINDOW}")
    return settings, endpoint


def _settings(section: Section, kind: TransportKind) -> MultipathSettings:
    without = {} if kind is TransportKind.UET else {"uet": UetSettings()}
    read = read_settings(MultipathSettings, section, **without)
    if not section.has("least_active"):
        read = replace(read, least_active=min(read.least_active, read.entropy_values))
    if read.least_active > read.entropy_values:
        problem = f"is above entropy_values, {read.entropy_values}"
        section.mistake("least_active", problem, "write at most entropy_values")
    if read.uet.order is not DeliveryOrder.SENT:
        return read
    for key in _OF_SEVERAL_PATHS:
        if section.has(key):
            problem = "ordered delivery (rod) uses one path per queue pair"
            section.mistake(key, problem, "leave it out, or write delivery: rud")
    return replace(read, entropy_values=1, least_active=1)


def _endpoint(section: Section, udp_port: int) -> SprayEndpoint:
    read = read_settings(SprayEndpoint, section)
    return read if section.has("udp_port") else replace(read, udp_port=udp_port)


def with_control(
    settings: MultipathSettings, kind: TransportKind, needs: Need, cc: Section
) -> MultipathSettings:
    """Return the settings with credit granted if congestion control needs it; report a kind that grants none."""
    if Need.CREDITS not in needs:
        return settings
    if kind is not TransportKind.UET:
        cc.mistake(
            "algorithm",
            "rccc needs credits, which only UET receivers grant",
            "write kind: uet, or choose another",
        )
        return settings
    credit = replace(settings.uet.credit, granted=True, alone=True)
    return replace(settings, uet=replace(settings.uet, credit=credit))
