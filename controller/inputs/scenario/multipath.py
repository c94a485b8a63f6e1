"""`kind:` and `mrc:` of a scenario's transport: what carries messages, and how their packets find their paths.

Decides the keys, limits and defaults; docs/mrc.md says what they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etloop.contract.base.units import format_bytes, parse_bytes
from etloop.contract.base.yaml_reader import Section, bounded, integer, one_of
from etloop.contract.model.transport import (
    MOST_MRC_WINDOW,
    TRANSPORT_KINDS,
    EntropyChoice,
    MultipathSettings,
    TransportKind,
)

MRC_UDP_PORT: Final = 4971
_CHOICES: Final = {choice.name.lower(): choice for choice in EntropyChoice}
_ROCE_ONLY: Final = {
    "retransmission": "it always repeats what is missing, and nothing else",
    "out_of_order": "it always places packets as they come",
    "rnr_retry": "it has no receiver-not-ready",
    "min_rnr_timer": "it has no receiver-not-ready",
    "outstanding_reads": "it has no READs",
    "cnp": "SACKs tell of marks",
    "faults": "packets of this kind are not yet made to misbehave",
}
"""Keys of a transport that mean nothing to MRC, each with why."""


@dataclass(frozen=True, slots=True)
class Multipath:
    """What carries messages."""

    kind: TransportKind = TransportKind.ROCE
    settings: MultipathSettings = MultipathSettings()
    udp_port: int = MRC_UDP_PORT
    """Destination port of MRC's packets; RoCEv2's is the rig's business."""

    @property
    def sprays(self) -> bool:
        """Whether the packets of a queue pair take many paths."""
        return self.kind is TransportKind.MRC


def read_multipath(transport: Section, window_packets: int) -> Multipath:
    """The keys `kind` and `mrc` of a `transport:` section; mistakes are also keys that the kind has no use for."""
    kind = transport.optional("kind", one_of(TRANSPORT_KINDS), TransportKind.ROCE)
    section = transport.section("mrc")
    read = Multipath(kind, _settings(section), section.optional("udp_port", integer(1, 65535), MRC_UDP_PORT))
    section.close()
    if kind is TransportKind.ROCE:
        if transport.has("mrc"):
            transport.mistake("mrc", "the transport is RoCEv2", "write kind: mrc, or leave it out")
        return read
    for key, why in _ROCE_ONLY.items():
        if transport.has(key):
            transport.mistake(key, f"MRC does without: {why}", "leave it out, or write kind: rocev2")
    if window_packets > MOST_MRC_WINDOW:
        what = f"an MRC queue pair has at most {MOST_MRC_WINDOW} packets under way"
        transport.mistake("window_packets", what, f"write at most {MOST_MRC_WINDOW}")
    return read


def _settings(section: Section) -> MultipathSettings:
    values = section.optional("entropy_values", integer(1, 1024), 128)
    least = section.optional("least_active", integer(1, 1024), min(8, values))
    if least > values:
        what = f"there are {values} entropy values"
        section.mistake("least_active", what, "write at most as many")
    return MultipathSettings(
        choice=section.optional("entropy", one_of(_CHOICES), EntropyChoice.ROTATION),
        # The gain of more flattens at one or two windows' worth of packets.
        entropy_values=values,
        least_active=least,
        # Of Ultra Ethernet's reference; MRC's own default is not public.
        sack_bytes=section.optional("sack_bytes", bounded(parse_bytes, 1, 1 << 24, format_bytes), 16 << 10),
    )
