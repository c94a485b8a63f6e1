"""Settings of queue pairs: of `transport:` in a scenario, and of the assignments in which they travel to agents.

Every key is declared here once, with its bounds, default and meaning; docs/transport.md says where the defaults come from.
Rules that concern several keys are in `controller.inputs.scenario`; what the settings do is in traffic/native.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, list_setting, setting
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_ns,
    parse_share_per_million,
)
from etloop.contract.base.value_form import FormedParser, choice_form
from etloop.contract.base.value_parsers import integer, one_of, with_bounds, yes_or_no
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.fault_rules import FaultRule
from etloop.contract.model.transport_forms import factor_text, path_mtu, percent_of, rnr_timer, share_text
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS, TransportKind

dscp_value: Final = integer(0, 63)
_wait: Final = with_bounds(parse_duration_ns, 0, 60 * NS_PER_S, format_duration)


class TrimAnswer(IntEnum):
    """How a receiver answers a trimmed packet. Numbers as in the engine."""

    NONE = 0
    NAK = 1
    """A NAK of a sequence error, which any requester of a reliable connection understands."""
    SELECTIVE = 2
    """A NAK of that packet alone; both ends are ETLoop's and retransmit selectively."""


@dataclass(frozen=True, slots=True)
class TrimSettings:
    """Packets that a switch trimmed instead of dropping them."""

    dscps: tuple[int, ...] = list_setting("dscp", dscp_value)
    """DSCPs that switches give to trimmed packets. Left out, a trimmed packet counts as damaged."""
    answer: TrimAnswer = setting(
        "answer",
        one_of({"off": TrimAnswer.NONE, "nak": TrimAnswer.NAK, "selective": TrimAnswer.SELECTIVE}),
        TrimAnswer.NONE,
    )
    """How a receiver answers one. Left out, nak, or selective with selective_repeat; `off` only counts them."""
    last_hop_dscps: tuple[int, ...] = list_setting("last_hop", dscp_value)
    """DSCPs that the last switch gives, at ports with a host; MRC and UET report it to the sender, which keeps the path."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Retransmission and resources of queue pairs."""

    selective_repeat: bool = setting(
        "retransmission", one_of({"go_back_n": False, "selective_repeat": True}), False
    )
    """Which packets are sent again after a loss. selective_repeat needs an ETLoop endpoint at both ends."""
    accept_out_of_order: bool = setting("out_of_order", one_of({"nak": False, "accept": True}), False)
    """How a receiver handles packets ahead of their turn. Switches that spray need accept."""
    adaptive_timeout: bool = setting("adaptive_timeout", yes_or_no, True)
    """Adapt the timeout to measured round trips and double it on each retry; else every wait is `timeout`."""
    # Above the pauses of a loaded host without a spare core, so that a clean run retransmits nothing.
    timeout_floor_ns: int = setting("timeout_floor", _wait, 20_000_000)
    """The shortest adaptive timeout. A plan may lengthen the default."""
    tail_probe_ns: int = setting("tail_probe", _wait, -1)
    """With selective_repeat and MRC, the shortest silence after which the oldest and newest packets under way are sent again,
    or MRC asks for a SACK; 0 never. Left out, a quarter of `timeout_floor`."""
    reorder_packets: int = setting("reorder_packets", integer(1, 256), 64)
    """With `out_of_order: accept`, how far ahead a packet may be before the missing one counts as lost."""
    rnr_retry_limit: int = setting("rnr_retry", integer(0, 7), 7)
    """Retries after receiver-not-ready NAKs in a row; 7 retries for ever."""
    min_rnr_timer_code: int = setting("min_rnr_timer", rnr_timer, 12)
    """How long a receiver that is not ready asks its sender to wait."""
    outstanding_reads: int = setting("outstanding_reads", integer(1, 128), 16)
    """READs and atomics of a queue pair that may be outstanding."""
    initial_psn: int = setting("initial_psn", integer(0, 2**24 - 1), 0)
    """First packet sequence number; drawn for every run if left out."""
    trimming: TrimSettings = TrimSettings()


class EntropyChoice(IntEnum):
    """How a sender draws the entropy value of its next packet. Numbers as in the engine."""

    ROTATION = 0
    """Each in its turn; one whose packet was marked or trimmed misses a turn (MRC 1.0, 11.2.2)."""
    OBLIVIOUS = 1
    """Drawn, whatever was marked."""
    RECYCLED = 2
    """Value of a packet which arrived unmarked, as long as there is one; else drawn (REPS)."""
    PENALTIES = 3
    """In turn; each mark costs the value one more turn."""


class DeliveryOrder(IntEnum):
    """In which order a receiver of UET takes packets. Numbers as in the engine."""

    ANY = 0
    """As they come: reliable unordered delivery (RUD)."""
    SENT = 1
    """As they were numbered, and by one path: reliable ordered delivery (ROD)."""


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Credits that receivers of UET grant to their senders (RCCC); defaults as in Ultra Ethernet's simulator."""

    granted: bool = setting("credit", yes_or_no, False)
    """Whether receivers grant credit next to the sender's control (RCCC); implied by `cc` with algorithm rccc."""
    window_percent: int = setting("credit_window", with_bounds(percent_of, 10, 10_000, factor_text), 150)
    """Initial and largest credit of a sender, in bandwidth-delay products."""
    quantum_packets: int = setting("credit_quantum", integer(1, 64), 4)
    """Packets of one grant."""
    share_per_million: int = setting(
        "credit_share", with_bounds(parse_share_per_million, 10_000, 1_000_000, share_text), 1_000_000
    )
    """Share of the receiver's link rate that is granted."""
    alone: bool = False
    """Whether no other control limits the sender."""


_NO_DELIVERIES: Final = {
    "uud": "it repeats nothing, and a collective would wait for ever for lost packets",
    "rudi": "its requests have no context, and may be carried out twice",
}
"""Delivery modes of UET that no job can use, each with the reason."""
_DELIVERIES: Final = {"rud": DeliveryOrder.ANY, "rod": DeliveryOrder.SENT}


def _delivery(text: str) -> DeliveryOrder:
    if text in _NO_DELIVERIES:
        raise QuantityError(
            f"{text} carries no job: {_NO_DELIVERIES[text]}", f"write {' or '.join(_DELIVERIES)}"
        )
    return one_of(_DELIVERIES)(text)


@dataclass(frozen=True, slots=True)
class UetSettings:
    """Keys of `uet:` that MRC does not have."""

    close_after_ns: int = setting("close_after", _wait, 10_000_000)
    """Idle time after which a packet delivery context is closed; 0 keeps it for ever."""
    order: DeliveryOrder = setting(
        "delivery", FormedParser(_delivery, choice_form(_DELIVERIES)), DeliveryOrder.ANY
    )
    """rud takes packets as they arrive, each by its own path; rod takes them in order, by one path, and repeats everything
    from the missing packet on."""
    sends: bool = setting("messages", one_of({"write": False, "send": True}), False)
    """Operations that carry data: writes to the address in a grant, or sends to the receive that it names."""
    credit: CreditSettings = group(CreditSettings)


@dataclass(frozen=True, slots=True)
class MultipathSettings:
    """Path choice and acknowledgements of queue pairs whose packets take many paths: keys of `mrc:` and `uet:`."""

    choice: EntropyChoice = setting(
        "entropy", one_of({choice.name.lower(): choice for choice in EntropyChoice}), EntropyChoice.ROTATION
    )
    """How the entropy value of the next packet is drawn."""
    # The gain of more values flattens at one or two windows' worth of packets.
    entropy_values: int = setting("entropy_values", integer(1, 1024), 128)
    """Entropy values between two addresses, each a UDP source port."""
    least_active: int = setting("least_active", integer(1, 1024), 8)
    """Values that stay in use even if unanswered. Left out, 8, or all where there are fewer."""
    # ACK_Gen_Trigger of Ultra Ethernet's reference; MRC's own default is not public.
    sack_bytes: int = setting("sack_bytes", with_bounds(parse_bytes, 1, 1 << 24, format_bytes), 16 << 10)
    """Bytes that arrive between two SACKs of MRC or ACKs of UET (ACK_Gen_Trigger) that nothing else causes."""
    uet: UetSettings = group(UetSettings)


MOST_SPRAYED_WINDOW: Final = 1024
"""Packets that a queue pair of MRC or UET may have under way: MAX_MPR of 8, in units of 128."""

AS_DATA: Final = -1
"""Value of a mark that is the mark of data packets."""
ECN_BITS: Final = {"none": 0, "ect0": 2, "ect1": 1, "ce": 3}
_MEANING_AS_DATA: Final = "as data if left out"


def traffic_class(dscp: int, ecn: int) -> int:
    """Return the IPv4 TOS or IPv6 traffic class byte."""
    return dscp << 2 | ecn


@dataclass(frozen=True, slots=True)
class MarkSettings:
    """DSCP, ECN and VLAN priority of one kind of packet."""

    dscp: int = setting("dscp", dscp_value, AS_DATA, f"DSCP of these packets; {_MEANING_AS_DATA}.")
    ecn: int = setting("ecn", one_of(ECN_BITS), AS_DATA, f"ECN field of these packets; {_MEANING_AS_DATA}.")
    vlan_priority: int = setting(
        "pcp", integer(0, 7), AS_DATA, f"VLAN priority of these packets; needs `vlan`; {_MEANING_AS_DATA}."
    )

    @property
    def traffic_class(self) -> int:
        """Return DSCP and ECN as one byte; `AS_DATA` if both are those of data."""
        return AS_DATA if self.dscp == AS_DATA else traffic_class(self.dscp, self.ecn)


class CnpScope(IntEnum):
    """Scope of the least time between two congestion notifications."""

    QUEUE_PAIR = 0
    PORT = 1


@dataclass(frozen=True, slots=True)
class ArbitrationSettings:
    """Which queue pair of a port sends next while several have data. Cards differ, so both are settings (docs/transport.md)."""

    burst_packets: int = setting("burst_packets", integer(0, 1024), 0)
    """Packets that a queue pair sends in its turn; 1 is packet by packet. 0: 4 in virtual time, else one send call of the
    port, and on `udp` ports 64 with short messages first."""
    by_class: bool = setting("by_class", yes_or_no, False)
    """Serve a higher class strictly first. The class of a queue pair is DSCP / 8, as `mlnx_qos` maps by default; jobs have
    a DSCP each."""


@dataclass(frozen=True, slots=True)
class CnpSettings:
    """Congestion notification packets (CNPs) that answer marked packets. Defaults of time and DSCP: ConnectX."""

    send: bool = setting("send", yes_or_no, True)
    """Whether receivers answer marks at all."""
    interval_ns: int = setting(
        "interval", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), 4_000
    )
    """Least time between two notifications."""
    scope: CnpScope = setting(
        "scope", one_of({"qp": CnpScope.QUEUE_PAIR, "port": CnpScope.PORT}), CnpScope.QUEUE_PAIR
    )
    """Whether the interval counts per queue pair or per port."""
    dscp: int = setting("dscp", dscp_value, 48)
    """DSCP of notifications."""
    # Not ECN-capable: a notification must not be marked itself.
    ecn: int = setting("ecn", one_of(ECN_BITS), ECN_BITS["none"])
    """ECN field of notifications."""
    vlan_priority: int = setting("pcp", integer(0, 7), AS_DATA)
    """VLAN priority of notifications; needs `vlan`. 6 if left out."""

    @property
    def traffic_class(self) -> int:
        """Return DSCP and ECN as one byte."""
        return traffic_class(self.dscp, self.ecn)


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Which ports of an agent are to keep their packets, if whoever started the agent allows it."""

    ports: tuple[str, ...] = ()
    """Names of the agent's own ports; none: no capture is asked for."""
    snap_bytes: int = 262_144
    """Bytes kept of each frame."""
    file_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class TransportSettings:
    """How queue pairs of a run carry their messages."""

    kind: TransportKind = setting("kind", one_of(TRANSPORT_KINDS), TransportKind.ROCE)
    """Transport of messages: RoCEv2's reliable connection, or MRC (docs/mrc.md) or Ultra Ethernet's transport (docs/uet.md),
    which send every packet on a path of its own."""
    path_mtu_bytes: int = setting("path_mtu", path_mtu, 4096)
    """Payload of a packet in bytes; 4096 needs frames of 4,158 bytes."""
    # Most RoCE guides map this DSCP to the lossless class.
    dscp: int = setting("dscp", dscp_value, 26)
    """DSCP of every packet whose kind has none of its own."""
    ecn: int = setting("ecn", one_of(ECN_BITS), ECN_BITS["ect0"])
    """ECN field of data; `none` keeps devices from marking, and data with `ce` is answered as if a device had marked all."""
    window_packets: int = setting("window_packets", integer(0, 65536), 0)
    """Packets in flight on a queue pair; 0 sets no limit but the receiver's buffer."""
    ack_every_packets: int = setting("ack_every", integer(1, 65536), 0)
    """At most so many packets between two ACK requests. Left out, 1 or 256 by the algorithm."""
    timeout_ns: int = setting(
        "timeout", with_bounds(parse_duration_ns, 100_000, 60 * NS_PER_S, format_duration), 640_000_000
    )
    """The longest wait for an ACK before packets are sent again (InfiniBand: local ACK timeout). A plan may lengthen the
    default."""
    retry_limit: int = setting("retries", integer(0, 63), 7)
    """Timeouts in a row after which a queue pair gives up."""
    split_data_on_qps: bool = setting("split_data_on_qps", yes_or_no, False)
    """Cut every message over all queue pairs (NCCL_IB_SPLIT_DATA_ON_QPS), in place of whole messages in turn."""
    arbitration: ArbitrationSettings = group(ArbitrationSettings, "arbitration")
    """Which queue pair of a port sends next."""
    recovery: RecoverySettings = group(RecoverySettings)
    cnp: CnpSettings = group(CnpSettings, "cnp")
    """Congestion notification packets."""
    ack: MarkSettings = group(MarkSettings, "ack")
    """Marks of ACKs and NAKs; as data if left out."""
    clear_to_send: MarkSettings = group(MarkSettings, "clear_to_send")
    """Marks of clear-to-send messages; as data if left out."""
    multipath: MultipathSettings = MultipathSettings()
    """For MRC and UET."""
    congestion: CongestionSettings = CongestionSettings()
    faults: tuple[FaultRule, ...] = ()
    vlan_id: int = -1
    """802.1Q tag of every frame; -1: none; 0: a tag for the priority alone."""
    vlan_priority: int = 0
    segmentation_offload: bool = True
    """Use UDP GSO and GRO. Off: every packet is its own datagram (for captures without super-frames)."""
    own_packets_apart: bool = False
    """Send probes and ACKs of clear-to-send messages with the marks of those messages, so that the classes of data and `ack`
    carry what a card would send. Probes do not show whether data keeps its DSCP then."""
    drop_per_million: int = 0
    """Received datagrams that the port drops on purpose."""
    drop_seed: int = 0

    @property
    def traffic_class(self) -> int:
        """Return DSCP and ECN of data as one byte."""
        return traffic_class(self.dscp, self.ecn)

    @property
    def sprays(self) -> bool:
        """Return whether packets of a queue pair can take many paths."""
        return self.kind is not TransportKind.ROCE

    @property
    def takes_any_order(self) -> bool:
        """Return whether a receiver of a spraying transport keeps packets that overtook others."""
        return self.sprays and self.multipath.uet.order is DeliveryOrder.ANY

    @property
    def kind_name(self) -> str:
        """Return the kind as a scenario writes it."""
        return next(name for name, kind in TRANSPORT_KINDS.items() if kind is self.kind)

    @property
    def operations(self) -> str:
        """Return the operations that a spraying transport has, for messages."""
        return "writes and sends" if self.kind is TransportKind.UET else "writes"
