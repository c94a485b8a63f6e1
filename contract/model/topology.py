"""A network of switches as values: what each switch is, which links join them, and where the rig's ports are attached.

Decides the shape that the twin, the soft switch and the file format have in common, and no defaults: those are
`switch_presets`. Which ways packets may take is worked out by `traffic.routes`, what a switch does with them by
traffic/native/switch/switch_model. Terms follow SAI (opencompute/SAI:inc): traffic class, priority group, queue, pool.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_RAILS: Final = 64

PRIORITIES: Final = 8
"""Traffic classes, priority groups and queues of a port, and PFC priorities."""
DSCPS: Final = 64
MOST_SWITCHES: Final = 4096
MOST_SWITCH_PORTS: Final = 1024
MOST_ATTACHMENTS: Final = 65536
FOREVER_NS: Final = 2**63 - 1
"""An end that is never reached."""


class LoadBalancing(IntEnum):
    """How a switch chooses among equally short ways. Numbers as in traffic/native/switch/switch_config.h."""

    ECMP = 0
    """By a seeded hash of the five-tuple: a flow keeps its way."""
    SPRAY = 1
    """At random, packet by packet."""
    FLOWLET = 2
    """At random, but packets of a flow that follow within `flowlet_gap_ns` keep their way."""
    ADAPTIVE = 3
    """To the way with least to send in a packet's queue, packet by packet."""
    ADAPTIVE_FLOWLET = 4
    """The same for the first packet of a flowlet, which the others follow."""
    STRUCTURED = 5
    """By bits of the UDP source port: consecutive entropy values take consecutive ways, as planes do."""

    @property
    def reorders(self) -> bool:
        """Whether packets of one flow may take several ways."""
        return self not in (LoadBalancing.ECMP, LoadBalancing.STRUCTURED)

    @property
    def has_gap(self) -> bool:
        """Whether `flowlet_gap_ns` means something."""
        return self in (LoadBalancing.FLOWLET, LoadBalancing.ADAPTIVE_FLOWLET)


class HashField(StrEnum):
    """What a hash over a packet may cover. In the order of traffic/native/switch/flow_hash.h."""

    SRC_IP = "src_ip"
    DST_IP = "dst_ip"
    PROTOCOL = "protocol"
    SRC_PORT = "src_port"
    DST_PORT = "dst_port"
    DEST_QP = "dest_qp"
    """Destination queue pair of RoCEv2 on UDP port 4791 (SAI_NATIVE_HASH_FIELD_RDMA_BTH_DEST_QP)."""
    IN_PORT = "in_port"
    """Of the switch."""
    FLOW_LABEL = "flow_label"
    """Of IPv6."""
    INNER_SRC_IP = "inner_src_ip"
    """Of the packet inside, where IP carries IP; likewise the others."""
    INNER_DST_IP = "inner_dst_ip"
    INNER_PROTOCOL = "inner_protocol"
    INNER_SRC_PORT = "inner_src_port"
    INNER_DST_PORT = "inner_dst_port"


FIVE_TUPLE: Final = (
    HashField.SRC_IP,
    HashField.DST_IP,
    HashField.PROTOCOL,
    HashField.SRC_PORT,
    HashField.DST_PORT,
)


class WatchdogAction(IntEnum):
    """What becomes of a queue in a pause storm. Numbers as in traffic/native/switch/switch_config.h."""

    DROP = 0
    FORWARD = 1


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One port of a switch and the link on it."""

    name: str
    rate_bps: int
    delay_ns: int
    """Propagation to the other end, one way."""
    weight: int = 1
    """Its share of what has several equally short ways."""


@dataclass(frozen=True, slots=True)
class PriorityGroup:
    """How arriving packets of one priority group are accounted, alike on every port."""

    lossless: bool = False
    reserved_bytes: int = 0
    alpha_log2: int = 0
    """A port's group may use 2^alpha_log2 times the shared buffer that is free (dynamic threshold)."""
    headroom_bytes: int = 0
    """For what arrives beyond the threshold, after senders were told to pause. Of lossless groups only."""
    resume_offset_bytes: int = 0
    """Senders may go on when the group's share is so far below its threshold."""


@dataclass(frozen=True, slots=True)
class Marking:
    """WRED-ECN of one queue: no mark below `kmin_bytes`, all from `kmax_bytes` on, in proportion between (RFC 3168)."""

    kmin_bytes: int
    kmax_bytes: int
    pmax_per_million: int
    """Share of packets that is marked just below `kmax_bytes`."""
    at_dequeue: bool = True
    """Whether the queue is looked at when the packet leaves; else when it is queued."""


@dataclass(frozen=True, slots=True)
class SwitchQueue:
    """One egress queue, alike on every port."""

    strict: bool = False
    """Before all queues that are not, the highest number first."""
    weight: int = 1
    """Of deficit round robin among queues that are not strict."""
    alpha_log2: int = 0
    """A port's queue may hold 2^alpha_log2 times the shared buffer that is free. Lossless traffic is not limited here."""
    reserved_bytes: int = 0
    marking: Marking | None = None
    trims: bool = True
    """Whether what it refuses may be trimmed, where the switch trims."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """PFC watchdog: a queue paused for `detect_ns` with something to send is in a storm until `restore_ns` without pause."""

    detect_ns: int
    restore_ns: int
    action: WatchdogAction = WatchdogAction.DROP


@dataclass(frozen=True, slots=True)
class Trimming:
    """What is cut off a packet instead of dropping it."""

    frame_bytes: int
    """Length that is left of its Ethernet frame."""
    dscp: int
    """What it carries from then on, which chooses its queue."""
    last_hop_dscp: int | None = None
    """The same at ports with a host behind them; None: as everywhere."""
    queue: int | None = None
    """That it waits in at the switch which cut it; None: that of its DSCP."""
    exempt_dscps: tuple[int, ...] = ()
    """Whose packets are dropped instead."""


@dataclass(frozen=True, slots=True)
class SwitchFault:
    """Packets from one port to another that a switch loses or corrupts: every `every`-th, and `per_million` by chance."""

    in_port: int = -1
    """-1: any."""
    out_port: int = -1
    per_million: int = 0
    every: int = 0
    from_ns: int = 0
    until_ns: int = FOREVER_NS
    corrupt: bool = False
    """Flip a bit instead of dropping: the receiver's ICRC check fails."""


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """Where the settings of a switch come from that a device profile describes. Entries are "key: value" of the profile."""

    profile: str
    stated: tuple[str, ...]
    """Taken from the profile."""
    defaults: tuple[str, ...]
    """What the profile does not state, with what holds instead."""
    left_out: tuple[str, ...]
    """What it states and the model does not have."""
    overridden: tuple[str, ...]
    """Keys of the topology file that hold instead."""
    most_ports: int | None
    """How many ports the device has; None: nobody says."""


@dataclass(frozen=True, slots=True)
class OtherNode:
    """Another switch, as segments name it, and the ports that lead there."""

    node: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Usids:
    """Micro segments of SRv6 that a switch knows (RFC 9800, blocks of 32 bits and identifiers of 16)."""

    block: int
    """First 32 bits of the addresses that carry them."""
    node: int
    """Its own (uN): taken out, and what follows is looked at."""
    adjacencies: tuple[int, ...]
    """By port (uA): taken out, and the packet leaves there."""
    others: tuple[OtherNode, ...] = ()
    """Ways to other switches, along which their own stay in."""


@dataclass(frozen=True, slots=True)
class Segments:
    """How addresses of a network carry micro segments."""

    block: int
    decapsulation: int
    """Behind the last: hosts take the outer header off."""


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """One switch. `traffic/native/switch/switch_config.h` is the same in C++."""

    name: str
    ports: tuple[SwitchPort, ...]
    buffer_bytes: int
    """All of it: reserves and headroom of every port (or the pool for it), and what is shared."""
    dscp_to_class: tuple[int, ...]
    """64 values."""
    class_to_queue: tuple[int, ...]
    """8 values, as in the maps below."""
    class_to_group: tuple[int, ...]
    group_to_priority: tuple[int, ...]
    """The PFC priority that pauses the senders to a group."""
    priority_to_queue: tuple[int, ...]
    """The queue that a received PFC priority pauses."""
    groups: tuple[PriorityGroup, ...]
    """8 groups."""
    queues: tuple[SwitchQueue, ...]
    """8 queues."""
    pfc: bool
    pause_quanta: int
    """Of a pause frame, 512 bit times each (IEEE 802.1Qbb)."""
    watchdog: Watchdog | None
    latency_ns: int
    """From a packet's last bit in to its queue."""
    balancing: LoadBalancing
    flowlet_gap_ns: int
    trimming: Trimming | None
    seed: int
    """Of the hash, of marking, of spraying and of random faults."""
    faults: tuple[SwitchFault, ...] = ()
    headroom_pool_bytes: int | None = None
    """What all groups of all ports take their headroom from; None: each has its own reserve."""
    origin: SettingsOrigin | None = None
    """None: a preset."""
    hash_fields: tuple[HashField, ...] = FIVE_TUPLE
    """What ECMP and flowlets go by."""
    entropy_shift: int = 0
    """Of `STRUCTURED`: how many bits of the UDP source port are below those that name a way."""
    entropy_bits: int = 8
    """How many bits name it."""
    usids: Usids | None = None
    """None: it knows no segments, and drops what they lead."""

    @property
    def hash_bits(self) -> int:
        """The hashed fields as a set of bits."""
        return sum(1 << tuple(HashField).index(field) for field in set(self.hash_fields))

    @property
    def set_aside_bytes(self) -> int:
        """Reserves and headroom of all ports: what of the buffer is not shared."""
        reserved = sum(group.reserved_bytes for group in self.groups)
        own = sum(group.headroom_bytes for group in self.groups if group.lossless)
        pool = self.headroom_pool_bytes
        return len(self.ports) * reserved + (len(self.ports) * own if pool is None else pool)


@dataclass(frozen=True, slots=True)
class SwitchEnd:
    """A port of a switch, both by number."""

    switch: int
    port: int


@dataclass(frozen=True, slots=True)
class SwitchLink:
    """A link between two switches. Rate and delay stand at both ports and are the same there."""

    a: SwitchEnd
    b: SwitchEnd


@dataclass(frozen=True, slots=True)
class Attachment:
    """A port of the rig on a port of a switch. Packets are routed to the number of an attachment."""

    rig_port: str
    """As rig files name it: "agent/port"."""
    end: SwitchEnd
    addresses: tuple[str, ...] = ()
    """What the lab gives the port; empty: it chooses."""
    rail: int | None = None
    honours_pause: bool = True
    """Whether the endpoint stops sending a priority that the switch pauses."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A link that is down for a time. It is named by one of its ends; both lose it."""

    end: SwitchEnd
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Routing:
    """How soon switches act on a link that went down or came up.

    A switch that has noticed a port of its own sends nothing more there, and takes its other ways. All switches look for the
    shortest ways anew when a link between two of them has been down, or up again, for the time of convergence.
    """

    detection_ns: int = 1_000_000
    """How long both ends of a link take to notice that it is down. What is sent there meanwhile is lost.

    Of fibres between two ports, "often detected in milliseconds" (RFC 7938, 7.1).
    """
    convergence_ns: int = 100_000_000
    """FOREVER_NS: switches hear nothing of links that are not their own.

    Below a second, says RFC 7938, 7, of BGP that hears of its links at once; DentOS measured 118 ms from the withdrawal of
    1,000 routes to the last packet on the old way (dentproject, "BGP convergence test plan for benchmark performance").
    """


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole network. Numbers of switches and attachments are their places in these tuples."""

    switches: tuple[SwitchSettings, ...]
    links: tuple[SwitchLink, ...]
    attachments: tuple[Attachment, ...]
    outages: tuple[Outage, ...] = ()
    routing: Routing = Routing()
    segments: Segments | None = None
    """None: no switch knows any."""

    def port_name(self, end: SwitchEnd) -> str:
        """A switch port as people read it: "leaf0/4"."""
        switch = self.switches[end.switch]
        return f"{switch.name}/{switch.ports[end.port].name}"

    def cables(self) -> tuple[tuple[str, str], ...]:
        """Switch ports that are joined, by name and from both ends."""
        ends = [(self.port_name(link.a), self.port_name(link.b)) for link in self.links]
        return tuple(cable for a, b in ends for cable in ((a, b), (b, a)))

    def port_of(self, end: SwitchEnd) -> SwitchPort:
        """The port at an end."""
        return self.switches[end.switch].ports[end.port]
