"""Meaning of an OTG configuration on a rig: ports, queue pairs, endless flows, and the options of ports. Pure values."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.otg.collective_model import CollectiveJob


class Verb(StrEnum):
    """RDMA operation of a flow's messages. Values as OTG writes them."""

    WRITE = "write"
    WRITE_WITH_IMMEDIATE = "write_with_immediate"
    SEND = "send"
    SEND_WITH_IMMEDIATE = "send_with_immediate"
    READ = "read"


@dataclass(frozen=True, slots=True)
class QueuePair:
    """One end of a reliable connection, as the user fixed it."""

    name: str
    device: str
    peer: str
    port: str
    """Name of the OTG port."""
    source: str
    """Own address; it is one of the rig's port."""
    destination: str
    """Address of the other end; empty on a port that only receives."""
    number: int
    """Queue pair number (QPN)."""
    initial_psn: int
    udp_source_port: int
    path_mtu_bytes: int
    dscp: int
    ecn: int
    """ECN field as two bits."""


@dataclass(frozen=True, slots=True)
class EndlessFlow:
    """Messages sent one after the other over a queue pair until the flow is stopped."""

    name: str
    queue_pair: str
    verb: Verb
    immediate: int
    """Immediate data; 0 with verbs without it."""
    message_bytes: int
    rate_bps: int
    """Upper limit: the port's share of the link, divided by its flows."""
    path: str = field(default="", compare=False)
    """JSON path, for messages."""


@dataclass(frozen=True, slots=True)
class RawFlow:
    """Whole frames sent one after the other from a port, over and over."""

    name: str
    number: int
    """Number in the signature of its frames."""
    tx_port: str
    rx_ports: tuple[str, ...]
    signature_at: int
    frames: tuple[bytes, ...]
    """Without FCS."""
    cycle_ns: int
    """Time in which all frames are sent once."""
    count: int
    """Frames to send; 0: until the flow is stopped."""
    delay_ns: int
    has_latency: bool
    path: str = field(default="", compare=False)
    """JSON path, for messages."""


@dataclass(frozen=True, slots=True)
class Marks:
    """DSCP and ECN field of one kind of packet."""

    dscp: int
    ecn: int


@dataclass(frozen=True, slots=True)
class PortOptions:
    """Options of all queue pairs of a port."""

    cnp: Marks
    cnp_interval_ns: int
    """OTG calls it a delay; ETLoop sends at most one CNP in that time for each queue pair."""
    ack: Marks
    """Of ACKs and NAKs, which have the same marks."""
    timeout_ns: int
    retry_limit: int
    dcqcn: Dcqcn | None
    """None: no congestion control."""


@dataclass(frozen=True, slots=True)
class Dcqcn:
    """Parameters of DCQCN; OTG gives rates as percent of the link."""

    g: float
    """Weight of a new mark in alpha: 1 - alpha_g / 1024."""
    initial_alpha: float
    """Alpha at the first CNP: initial_alpha / 1023."""
    alpha_period_ns: int
    reduce_period_ns: int
    first_rate_bps: int
    least_rate_bps: int
    most_decrement: float
    """Largest part of the rate that one CNP takes away."""
    clamps_target_rate: bool
    increase_period_ns: int
    increase_bytes: int
    increase_threshold: int
    additive_bps: int
    hyper_bps: int


@dataclass(frozen=True, slots=True)
class OtgTest:
    """A whole configuration on a rig."""

    ports: dict[str, str]
    """Label of the rig's port, "agent/port", by name of the OTG port."""
    addresses: dict[str, tuple[str, ...]]
    """Addresses of devices by name of the OTG port."""
    queue_pairs: dict[str, QueuePair]
    flows: tuple[EndlessFlow, ...]
    options: dict[str, PortOptions]
    """By name of the OTG port; ports without options are absent."""
    raw_flows: tuple[RawFlow, ...]
    captures: tuple[str, ...]
    """OTG ports whose received frames can be captured."""
    warnings: tuple[str, ...]
    """Clamped and ineffective settings, each with its JSON path."""
    collectives: CollectiveJob | None = None

    @property
    def flow_names(self) -> tuple[str, ...]:
        """Return the names of all flows, stateful ones first."""
        return tuple(flow.name for flow in self.flows) + tuple(flow.name for flow in self.raw_flows)
