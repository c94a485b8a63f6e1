"""What is known of a device under test, as values: a switch or a NIC.

Terms follow SAI (opencompute/SAI:inc): a packet's DSCP gives its traffic class; the class gives the priority group that
it is accounted to on ingress, and the queue that it leaves by. Every property is a `Stated`: declared, configured and
measured apart, with sources. How a profile is written is decided by `profile_file`; what in it contradicts itself or a
job, by `contradictions`.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterObject
from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.stated import Source, Stated

PRIORITIES: Final = 8
"""Of PFC (IEEE 802.1Qbb); priority groups are as many, traffic classes at least."""
MOST_CLASSES: Final = 16
DSCPS: Final = 64
MOST_QUEUES: Final = 16


class DutKind(StrEnum):
    """What sort of device is under test."""

    SWITCH = "switch"
    NIC = "nic"


class Scheduler(StrEnum):
    """How a queue takes its turn."""

    STRICT = "strict"
    DWRR = "dwrr"
    WRR = "wrr"


class MarkingPoint(StrEnum):
    """Where the length of a queue decides on a packet's ECN mark."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"


class Trust(StrEnum):
    """Which field of a packet gives its traffic class."""

    DSCP = "dscp"
    PCP = "pcp"


class WatchdogAction(StrEnum):
    """What a PFC watchdog does with a queue that it finds in a storm."""

    DROP = "drop"
    FORWARD = "forward"
    ALERT = "alert"


class BalancingMode(StrEnum):
    """How packets are spread over paths of equal cost."""

    ECMP = "ecmp"
    FLOWLET = "flowlet"
    SPRAY = "spray"
    ADAPTIVE = "adaptive"
    """Per packet, by the load of the ports."""


class ForwardingMode(StrEnum):
    """When a frame may leave: while it is still coming in, or once it is complete."""

    CUT_THROUGH = "cut_through"
    STORE_AND_FORWARD = "store_and_forward"


class Retransmission(StrEnum):
    """What a NIC sends again after a loss."""

    GO_BACK_N = "go_back_n"
    SELECTIVE_REPEAT = "selective_repeat"


class CnpScope(StrEnum):
    """What a NIC's least time between two congestion notifications is counted for."""

    QUEUE_PAIR = "queue_pair"
    ADDRESS = "address"
    PORT = "port"


class CounterReader(StrEnum):
    """By which source counters are read."""

    SOFT_SWITCH = "soft_switch"
    LINUX = "linux"
    """ethtool and RDMA counters of an interface of this or another host."""
    SNMP = "snmp"
    GNMI = "gnmi"


class CounterPaths(StrEnum):
    """Whose names the counters have."""

    CANONICAL = "canonical"
    """Those of the soft switch: our own."""
    SONIC = "sonic"
    """SONiC's COUNTERS_DB."""
    OPENCONFIG = "openconfig"
    IF_MIB = "if_mib"
    PFC_MIB = "pfc_mib"
    MLX5 = "mlx5"
    BNXT = "bnxt"
    ETHTOOL = "ethtool"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a report must say of the device (the identification table of the BMWG AI-fabric draft)."""

    vendor: Stated[str] = Stated()
    model: Stated[str] = Stated()
    asic: Stated[str] = Stated()
    software: Stated[str] = Stated()
    """Network operating system or firmware, with its version."""
    config_hash: Stated[str] = Stated()
    buffer_architecture: Stated[str] = Stated()
    capacity_bps: Stated[int] = Stated()
    """All ports together, one direction. Never a denominator of a result."""


@dataclass(frozen=True, slots=True)
class Breakout:
    """What one port may be split into: `count` ports of `speed_bps`."""

    count: int
    speed_bps: int


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Ports that are alike."""

    name: str
    count: Stated[int] = Stated()
    speed_bps: Stated[int] = Stated()
    """As they are used."""
    speeds_bps: Stated[tuple[int, ...]] = Stated()
    """That they can be set to, without breakouts."""
    breakouts: Stated[tuple[Breakout, ...]] = Stated()
    lanes: Stated[int] = Stated()
    fec: Stated[str] = Stated()
    ip_mtu_bytes: Stated[int] = Stated()
    """Largest IP packet."""
    cable_metres: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class Pool:
    """A part of the buffer that is shared."""

    name: str
    size_bytes: Stated[int] = Stated()
    headroom_bytes: Stated[int] = Stated()
    """Shared headroom beside it; what SONiC calls a pool's xoff."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The packet buffer as a whole."""

    total_bytes: Stated[int] = Stated()
    cell_bytes: Stated[int] = Stated()
    headroom_bytes: Stated[int] = Stated()
    """Kept for all lossless groups of all ports together."""
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True)
class PriorityGroup:
    """Ingress accounting of one priority group, alike on every port."""

    group: int
    lossless: Stated[bool] = Stated()
    reserved_bytes: Stated[int] = Stated()
    alpha: Stated[Fraction] = Stated()
    """May use alpha times the free shared buffer."""
    headroom_bytes: Stated[int] = Stated()
    """For what arrives after xoff has been decided; what a SONiC buffer profile calls xoff."""
    xoff_bytes: Stated[int] = Stated()
    """Occupancy at which senders are paused, where it is fixed; with alpha it moves with the free buffer."""
    xon_bytes: Stated[int] = Stated()
    """Occupancy below which they may go on, where it is fixed."""
    xon_offset_bytes: Stated[int] = Stated()
    """They may go on this far below the occupancy that paused them."""


@dataclass(frozen=True, slots=True)
class Ecn:
    """Marking of one queue: none up to Kmin, then rising to Pmax at Kmax, beyond it every packet."""

    enabled: Stated[bool] = Stated()
    kmin_bytes: Stated[int] = Stated()
    kmax_bytes: Stated[int] = Stated()
    pmax_per_million: Stated[int] = Stated()
    at: Stated[MarkingPoint] = Stated()


@dataclass(frozen=True, slots=True)
class Queue:
    """One egress queue, alike on every port."""

    queue: int
    scheduler: Stated[Scheduler] = Stated()
    weight: Stated[int] = Stated()
    alpha: Stated[Fraction] = Stated()
    reserved_bytes: Stated[int] = Stated()
    ecn: Ecn = Ecn()


@dataclass(frozen=True, slots=True)
class Maps:
    """From a packet's mark to what is done with it, and from a received pause to what stops. Position is the key."""

    trust: Stated[Trust] = Stated()
    dscp_to_class: Stated[tuple[int, ...]] = Stated()
    pcp_to_class: Stated[tuple[int, ...]] = Stated()
    class_to_queue: Stated[tuple[int, ...]] = Stated()
    class_to_group: Stated[tuple[int, ...]] = Stated()
    group_to_priority: Stated[tuple[int, ...]] = Stated()
    """PFC priority that pauses the senders of a group."""
    priority_to_queue: Stated[tuple[int, ...]] = Stated()
    """Queue that a received PFC priority pauses."""


@dataclass(frozen=True, slots=True)
class Pfc:
    """Priority flow control."""

    priorities: Stated[tuple[int, ...]] = Stated()
    """On which it is enabled; stated as none: it is off."""
    watchdog_detect_ns: Stated[int] = Stated()
    watchdog_restore_ns: Stated[int] = Stated()
    watchdog_action: Stated[WatchdogAction] = Stated()


@dataclass(frozen=True, slots=True)
class Balancing:
    """Paths of equal cost."""

    mode: Stated[BalancingMode] = Stated()
    """In use."""
    modes: Stated[tuple[BalancingMode, ...]] = Stated()
    """That the device can do."""
    hash_fields: Stated[tuple[HashField, ...]] = Stated()
    hash_seed: Stated[int] = Stated()
    flowlet_gap_ns: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class Trimming:
    """Cutting packets down instead of dropping them."""

    enabled: Stated[bool] = Stated()
    size_bytes: Stated[int] = Stated()
    dscp: Stated[int] = Stated()
    """Of what is left of a packet."""
    last_hop_dscp: Stated[int] = Stated()
    """The same at ports with a host behind them, where it is another (asymmetric, by traffic class)."""
    queue: Stated[int] = Stated()
    """That it waits in, where that is not the queue of its DSCP."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Port to port, without congestion."""

    mode: Stated[ForwardingMode] = Stated()
    port_to_port_ns: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class NicTransport:
    """RoCEv2 as a NIC does it."""

    path_mtu_bytes: Stated[int] = Stated()
    """The largest, payload only."""
    retransmission: Stated[Retransmission] = Stated()
    accepts_out_of_order: Stated[bool] = Stated()
    ack_every_packets: Stated[int] = Stated()
    timeout_ns: Stated[int] = Stated()
    message_rate_per_s: Stated[int] = Stated()
    dscp: Stated[int] = Stated()
    """Of data."""
    ecn_capable: Stated[bool] = Stated()
    source_port: Stated[str] = Stated()
    """By which rule it is chosen."""


@dataclass(frozen=True, slots=True)
class Cnp:
    """Congestion notifications of a NIC."""

    interval_ns: Stated[int] = Stated()
    scope: Stated[CnpScope] = Stated()
    dscp: Stated[int] = Stated()
    priority: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class CongestionParameter:
    """One parameter of an algorithm, under its vendor's name and in its vendor's unit."""

    name: str
    setting: Stated[str] = Stated()


@dataclass(frozen=True, slots=True)
class CongestionControl:
    """What slows a NIC's queue pairs down."""

    algorithm: Stated[str] = Stated()
    sends_probes: Stated[bool] = Stated()
    """Whether it measures round trips by packets that the other end must answer in hardware."""
    parameters: tuple[CongestionParameter, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterAccess:
    """One source of the device's counters. Where the device is reached is the rig's business."""

    reader: CounterReader
    paths: CounterPaths
    objects: tuple[CounterObject, ...]
    interval_ns: Stated[int] = Stated()
    """How often the device refreshes them; reading them more often shows nothing new."""
    caveat: str = ""
    """What is missing or misleading."""
    where: str = ""
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class Counters:
    """How counters are read, and how far they may differ from what the agents counted."""

    access: tuple[CounterAccess, ...] = ()
    tolerance_per_million: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class VerdictCheck:
    """A condition that a run's results must meet; the language of `expression` is that of the verdict."""

    expression: str
    why: str
    where: str
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class DutProfile:
    """All that is known of a device."""

    name: str
    kind: DutKind
    summary: str
    sources: tuple[Source, ...]
    identity: Identity = Identity()
    ports: tuple[PortGroup, ...] = ()
    buffer: Buffer = Buffer()
    groups: tuple[PriorityGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    maps: Maps = Maps()
    pfc: Pfc = Pfc()
    balancing: Balancing = Balancing()
    trimming: Trimming = Trimming()
    latency: Latency = Latency()
    telemetry: Stated[tuple[str, ...]] = Stated()
    """In-band telemetry and streaming that the device offers, such as `int` and `gnmi`."""
    transport: NicTransport = NicTransport()
    cnp: Cnp = Cnp()
    congestion: CongestionControl = CongestionControl()
    counters: Counters = Counters()
    checks: tuple[VerdictCheck, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know and no field says."""

    @property
    def lossless_groups(self) -> tuple[PriorityGroup, ...]:
        """The priority groups that are stated to be lossless."""
        return tuple(group for group in self.groups if group.lossless.value)

    @property
    def port_count(self) -> int | None:
        """How many ports it has; None if some of its groups of ports do not say so, or there are none."""
        counts = [ports.count.value for ports in self.ports if ports.count.value is not None]
        return sum(counts) if counts and len(counts) == len(self.ports) else None

    def group(self, number: int) -> PriorityGroup:
        """The priority group of that number; one without any statement if the profile has none."""
        return next((group for group in self.groups if group.group == number), PriorityGroup(number))

    def queue(self, number: int) -> Queue:
        """The queue of that number; one without any statement if the profile has none."""
        return next((queue for queue in self.queues if queue.queue == number), Queue(number))
