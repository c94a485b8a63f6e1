"""Properties of a device under test, a switch or a NIC, as values.

Terms follow SAI (opencompute/SAI:inc): a packet's DSCP gives its traffic class; the class gives the priority group that
accounts for it on ingress, and the queue that it leaves by. Every property is a `Stated`: declared, configured and measured
values are kept apart, with sources. `profile_file` decides how a profile is written; `rules` finds what contradicts itself or a
job.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, TypeVar

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterObject
from etloop.contract.model.topology import HashField
from etloop.dut_profiles.model.stated import Source, Stated

P = TypeVar("P", "Maps", "Pfc")

PRIORITIES: Final = 8
"""Of PFC (IEEE 802.1Qbb); there are as many priority groups, and at least as many traffic classes."""
MOST_CLASSES: Final = 16
DSCPS: Final = 64
MOST_QUEUES: Final = 16


class DutKind(StrEnum):
    """Kinds of device under test."""

    SWITCH = "switch"
    NIC = "nic"


class Scheduler(StrEnum):
    """Scheduling of an egress queue."""

    STRICT = "strict"
    DWRR = "dwrr"
    WRR = "wrr"


class MarkingPoint(StrEnum):
    """Where the length of a queue decides on a packet's ECN mark."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"


class Trust(StrEnum):
    """The field of a packet that gives its traffic class."""

    DSCP = "dscp"
    PCP = "pcp"


class WatchdogAction(StrEnum):
    """Action of a PFC watchdog on a queue in a pause storm."""

    DROP = "drop"
    FORWARD = "forward"
    ALERT = "alert"


class BalancingMode(StrEnum):
    """Load balancing over paths of equal cost."""

    ECMP = "ecmp"
    FLOWLET = "flowlet"
    SPRAY = "spray"
    ADAPTIVE = "adaptive"
    """Per packet, by the load of the ports."""


class ForwardingMode(StrEnum):
    """When a frame may leave: while it still arrives, or once it is complete."""

    CUT_THROUGH = "cut_through"
    STORE_AND_FORWARD = "store_and_forward"


class Retransmission(StrEnum):
    """Retransmission schemes of a NIC after a loss."""

    GO_BACK_N = "go_back_n"
    SELECTIVE_REPEAT = "selective_repeat"


class CnpScope(StrEnum):
    """The object whose CNPs the minimum interval of a NIC separates."""

    QUEUE_PAIR = "queue_pair"
    ADDRESS = "address"
    PORT = "port"


class CounterReader(StrEnum):
    """Kinds of sources of counters."""

    SOFT_SWITCH = "soft_switch"
    LINUX = "linux"
    """ethtool and RDMA counters of an interface of this or another host."""
    SNMP = "snmp"
    GNMI = "gnmi"


class CounterPaths(StrEnum):
    """Naming schemes of counters."""

    CANONICAL = "canonical"
    """The soft switch's names, which are ETLoop's own."""
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
    """Identification of the device for a report (the identification table of the BMWG AI-fabric draft)."""

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
    """A possible split of one port: into `count` ports of `speed_bps`."""

    count: int
    speed_bps: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A shared part of the buffer."""

    name: str
    size_bytes: Stated[int] = Stated()
    headroom_bytes: Stated[int] = Stated()
    """Shared headroom in addition to the pool's size; SONiC calls it the pool's xoff."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The packet buffer of the device."""

    total_bytes: Stated[int] = Stated()
    cell_bytes: Stated[int] = Stated()
    headroom_bytes: Stated[int] = Stated()
    """Headroom for all lossless groups of all ports together."""
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True)
class PriorityGroup:
    """Ingress accounting of one priority group of a port."""

    group: int
    lossless: Stated[bool] = Stated()
    reserved_bytes: Stated[int] = Stated()
    alpha: Stated[Fraction] = Stated()
    """The group may use alpha times the free shared buffer."""
    headroom_bytes: Stated[int] = Stated()
    """For packets that arrive after the xoff decision; a SONiC buffer profile calls it xoff."""
    xoff_bytes: Stated[int] = Stated()
    """Occupancy at which senders are paused, where it is fixed; with alpha it moves with the free buffer."""
    xon_bytes: Stated[int] = Stated()
    """Occupancy below which senders may resume, where it is fixed."""
    xon_offset_bytes: Stated[int] = Stated()
    """Senders may resume this far below the occupancy that paused them."""


@dataclass(frozen=True, slots=True)
class Ecn:
    """ECN marking of one queue: no packet up to Kmin, a share rising to Pmax at Kmax, every packet above."""

    enabled: Stated[bool] = Stated()
    kmin_bytes: Stated[int] = Stated()
    kmax_bytes: Stated[int] = Stated()
    pmax_per_million: Stated[int] = Stated()
    at: Stated[MarkingPoint] = Stated()


@dataclass(frozen=True, slots=True)
class Queue:
    """One egress queue of a port."""

    queue: int
    scheduler: Stated[Scheduler] = Stated()
    weight: Stated[int] = Stated()
    alpha: Stated[Fraction] = Stated()
    reserved_bytes: Stated[int] = Stated()
    ecn: Ecn = Ecn()


@dataclass(frozen=True, slots=True)
class Maps:
    """Maps from a packet's mark to its treatment, and from a received pause to the paused queue. The position is the key."""

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
    """Priorities on which it is enabled; stated as none: it is off."""
    watchdog_detect_ns: Stated[int] = Stated()
    watchdog_restore_ns: Stated[int] = Stated()
    watchdog_action: Stated[WatchdogAction] = Stated()


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Ports with equal properties. `groups`, `queues`, `maps` and `pfc` override the device's for these ports."""

    name: str
    count: Stated[int] = Stated()
    interfaces: Stated[tuple[str, ...]] = Stated()
    """Names of these ports on the device."""
    speed_bps: Stated[int] = Stated()
    """Speed in use."""
    speeds_bps: Stated[tuple[int, ...]] = Stated()
    """Speeds that the ports can be set to, without breakouts."""
    breakouts: Stated[tuple[Breakout, ...]] = Stated()
    lanes: Stated[int] = Stated()
    fec: Stated[str] = Stated()
    ip_mtu_bytes: Stated[int] = Stated()
    """Largest IP packet."""
    cable_metres: Stated[int] = Stated()
    groups: tuple[PriorityGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    maps: Maps = Maps()
    pfc: Pfc = Pfc()

    @property
    def overrides(self) -> bool:
        """Return whether these ports differ from the device in groups, queues, maps or PFC."""
        return bool(self.groups or self.queues) or self.maps != Maps() or self.pfc != Pfc()


@dataclass(frozen=True, slots=True)
class Balancing:
    """Load balancing over paths of equal cost."""

    mode: Stated[BalancingMode] = Stated()
    """In use."""
    modes: Stated[tuple[BalancingMode, ...]] = Stated()
    """Supported by the device."""
    hash_fields: Stated[tuple[HashField, ...]] = Stated()
    hash_seed: Stated[int] = Stated()
    flowlet_gap_ns: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class Trimming:
    """Packet trimming: cutting packets down instead of dropping them."""

    enabled: Stated[bool] = Stated()
    size_bytes: Stated[int] = Stated()
    dscp: Stated[int] = Stated()
    """DSCP of a trimmed packet."""
    last_hop_dscp: Stated[int] = Stated()
    """DSCP of a packet trimmed at a port to a host, where it differs (asymmetric, by traffic class)."""
    queue: Stated[int] = Stated()
    """Queue of trimmed packets, where it is not the queue of their DSCP."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency from port to port, without congestion."""

    mode: Stated[ForwardingMode] = Stated()
    port_to_port_ns: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class NicTransport:
    """RoCEv2 transport of a NIC."""

    path_mtu_bytes: Stated[int] = Stated()
    """The largest path MTU, payload only."""
    retransmission: Stated[Retransmission] = Stated()
    accepts_out_of_order: Stated[bool] = Stated()
    ack_every_packets: Stated[int] = Stated()
    timeout_ns: Stated[int] = Stated()
    message_rate_per_s: Stated[int] = Stated()
    dscp: Stated[int] = Stated()
    """Of data."""
    ecn_capable: Stated[bool] = Stated()
    source_port: Stated[str] = Stated()
    """The rule by which the UDP source port is chosen."""


@dataclass(frozen=True, slots=True)
class Cnp:
    """Congestion notification packets of a NIC."""

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
    """Congestion control of a NIC's queue pairs."""

    algorithm: Stated[str] = Stated()
    sends_probes: Stated[bool] = Stated()
    """Whether it measures round trips by packets that the other end must answer in hardware."""
    parameters: tuple[CongestionParameter, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterAccess:
    """One source of the device's counters. The rig has the address of the device."""

    reader: CounterReader
    paths: CounterPaths
    objects: tuple[CounterObject, ...]
    interval_ns: Stated[int] = Stated()
    """Refresh interval of the device; reading more often gives no new values."""
    caveat: str = ""
    """Missing or misleading counters."""
    where: str = ""
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class Counters:
    """How counters are read, and how far they may differ from the agents' counts."""

    access: tuple[CounterAccess, ...] = ()
    tolerance_per_million: Stated[int] = Stated()


@dataclass(frozen=True, slots=True)
class VerdictCheck:
    """A condition that a run's results must meet; `expression` is in the language of the verdict."""

    expression: str
    why: str
    where: str
    """File, line and key, for messages."""


@dataclass(frozen=True, slots=True)
class DutProfile:
    """All known properties of a device."""

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
    """Facts that a reader should know and that have no field."""

    @property
    def lossless_groups(self) -> tuple[PriorityGroup, ...]:
        """Return the priority groups that are stated to be lossless."""
        return tuple(group for group in self.groups if group.lossless.value)

    @property
    def port_count(self) -> int | None:
        """Return the number of ports, or None if a group of ports does not state its count or there are no groups."""
        counts = [ports.count.value for ports in self.ports if ports.count.value is not None]
        return sum(counts) if counts and len(counts) == len(self.ports) else None

    def of_ports(self, ports: PortGroup) -> DutProfile:
        """Return the profile that these ports alone have: the device's, overridden by the settings of `ports`."""
        if not ports.overrides:
            return self
        groups = {group.group: group for group in (*self.groups, *ports.groups)}
        queues = {queue.queue: queue for queue in (*self.queues, *ports.queues)}
        return replace(
            self,
            groups=tuple(groups[number] for number in sorted(groups)),
            queues=tuple(queues[number] for number in sorted(queues)),
            maps=_overridden(self.maps, ports.maps),
            pfc=_overridden(self.pfc, ports.pfc),
        )

    def group(self, number: int) -> PriorityGroup:
        """Return the priority group with this number; if the profile has none, one without any stated value."""
        return next((group for group in self.groups if group.group == number), PriorityGroup(number))

    def queue(self, number: int) -> Queue:
        """Return the queue with this number; if the profile has none, one without any stated value."""
        return next((queue for queue in self.queues if queue.queue == number), Queue(number))


def _overridden(device: P, ports: P) -> P:
    """Return the values of `ports` where it states any, else those of the device."""
    stated: dict[str, Any] = {field.name: getattr(ports, field.name) for field in fields(ports)}
    return replace(device, **{name: value for name, value in stated.items() if value.best is not None})
