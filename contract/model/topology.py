"""A network of switches as values: what each switch is, which links join them, and where the rig's ports are attached.

Decides the types that the twin, the soft switch and the file format share, but no defaults (`switch_presets`).
`traffic.routes` computes the paths of packets, traffic/native/switch/switch_model models the switches. Terms follow SAI
(opencompute/SAI:inc): traffic class, priority group, queue, pool.
"""

from __future__ import annotations

from collections import Counter
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
    """Choice of a switch among equal-cost paths. Numbers as in traffic/native/switch/switch_config.h."""

    ECMP = 0
    """By a seeded hash of the five-tuple: a flow keeps its path."""
    SPRAY = 1
    """At random, packet by packet."""
    FLOWLET = 2
    """At random, but packets of a flow that follow within `flowlet_gap_ns` keep their path."""
    ADAPTIVE = 3
    """To the port whose queue for the packet is shortest, packet by packet."""
    ADAPTIVE_FLOWLET = 4
    """As ADAPTIVE for the first packet of a flowlet; the rest of it follows."""
    STRUCTURED = 5
    """By bits of the UDP source port: consecutive entropy values take consecutive paths, as planes do."""

    @property
    def reorders(self) -> bool:
        """Return whether packets of one flow may take several paths."""
        return self not in (LoadBalancing.ECMP, LoadBalancing.STRUCTURED)

    @property
    def has_gap(self) -> bool:
        """Return whether `flowlet_gap_ns` is used."""
        return self in (LoadBalancing.FLOWLET, LoadBalancing.ADAPTIVE_FLOWLET)


class HashField(StrEnum):
    """Fields that a hash over a packet may cover. In the order of traffic/native/switch/flow_hash.h."""

    SRC_IP = "src_ip"
    DST_IP = "dst_ip"
    PROTOCOL = "protocol"
    SRC_PORT = "src_port"
    DST_PORT = "dst_port"
    DEST_QP = "dest_qp"
    """Destination queue pair of RoCEv2 on UDP port 4791 (SAI_NATIVE_HASH_FIELD_RDMA_BTH_DEST_QP)."""
    IN_PORT = "in_port"
    """Ingress port of the switch."""
    FLOW_LABEL = "flow_label"
    """Flow label of IPv6."""
    INNER_SRC_IP = "inner_src_ip"
    """Source address of the inner packet, where IP carries IP; likewise for the other inner fields."""
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
    """Treatment of a queue in a pause storm. Numbers as in traffic/native/switch/switch_config.h."""

    DROP = 0
    FORWARD = 1


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One port of a switch and the link on it."""

    name: str
    rate_bps: int
    delay_ns: int
    """One-way propagation delay to the other end."""
    weight: int = 1
    """Share of traffic that has several equal-cost paths."""
    honours_pause: bool = True
    """False: a fault; the port goes on sending while its neighbour pauses it."""
    rules: int = 0
    """0: the groups, queues and pauses of the switch; i: those of `SwitchSettings.port_rules[i - 1]`."""


@dataclass(frozen=True, slots=True)
class PriorityGroup:
    """Accounting of packets of one priority group that arrive at a port."""

    lossless: bool = False
    reserved_bytes: int = 0
    alpha_log2: int = 0
    """A port's group may use 2^alpha_log2 times the shared buffer that is free (dynamic threshold)."""
    headroom_bytes: int = 0
    """Buffer for bytes that arrive beyond the threshold, after a pause was sent. Lossless groups only."""
    resume_offset_bytes: int = 0
    """Senders may resume when the group's share is this far below its threshold."""


@dataclass(frozen=True, slots=True)
class Marking:
    """WRED-ECN of one queue: no mark below `kmin_bytes`, all from `kmax_bytes` on, in proportion between (RFC 3168)."""

    kmin_bytes: int
    kmax_bytes: int
    pmax_per_million: int
    """Share of packets that is marked just below `kmax_bytes`."""
    at_dequeue: bool = True
    """True: the queue length is tested when the packet leaves; False: when it is queued."""


@dataclass(frozen=True, slots=True)
class SwitchQueue:
    """One egress queue of a port."""

    strict: bool = False
    """Served before all queues that are not strict, the highest number first."""
    weight: int = 1
    """Weight of deficit round robin among queues that are not strict."""
    alpha_log2: int = 0
    """A port's queue may hold 2^alpha_log2 times the shared buffer that is free. Lossless traffic is not limited here."""
    reserved_bytes: int = 0
    marking: Marking | None = None
    trims: bool = True
    """True if packets that it refuses may be trimmed, where the switch trims."""


@dataclass(frozen=True, slots=True)
class PortRules:
    """Groups, queues and pauses of ports that differ from the other ports of their switch."""

    groups: tuple[PriorityGroup, ...]
    queues: tuple[SwitchQueue, ...]
    pfc: bool


@dataclass(frozen=True, slots=True)
class Watchdog:
    """PFC watchdog: a queue paused for `detect_ns` with something to send is in a storm until `restore_ns` without pause."""

    detect_ns: int
    restore_ns: int
    action: WatchdogAction = WatchdogAction.DROP


@dataclass(frozen=True, slots=True)
class Trimming:
    """Trimming of packets instead of dropping them."""

    frame_bytes: int
    """Length of the trimmed Ethernet frame."""
    dscp: int
    """DSCP of the trimmed packet, which selects its queue."""
    last_hop_dscp: int | None = None
    """DSCP at ports with a host attached; None: `dscp`."""
    queue: int | None = None
    """Queue of the trimmed packet at the switch that trims it; None: that of its DSCP."""
    exempt_dscps: tuple[int, ...] = ()
    """Packets of these DSCPs are dropped instead."""


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
    longer_than_bytes: int = 0
    """Only frames (with FCS) longer than this, as by a port whose MTU is smaller."""
    corrupt: bool = False
    """Flip a bit instead of dropping: the receiver's ICRC check fails."""


@dataclass(frozen=True, slots=True)
class SettingsOrigin:
    """Origin of the settings of a switch that a device profile describes. Entries are "key: value" of the profile."""

    profile: str
    stated: tuple[str, ...]
    """Settings taken from the profile."""
    defaults: tuple[str, ...]
    """Settings that the profile does not state, with the value used instead."""
    left_out: tuple[str, ...]
    """Settings of the profile that the model does not have."""
    overridden: tuple[str, ...]
    """Keys of the topology file that override the profile."""
    most_ports: int | None
    """Number of ports of the device; None: unknown."""


@dataclass(frozen=True, slots=True)
class OtherNode:
    """Another switch by its node segment, with the ports towards it."""

    node: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Usids:
    """Micro segments of SRv6 that a switch knows (RFC 9800, blocks of 32 bits and identifiers of 16)."""

    block: int
    """First 32 bits of the addresses that carry them."""
    node: int
    """The switch's node segment (uN): removed, and the next segment is processed."""
    adjacencies: tuple[int, ...]
    """Adjacency segment of each port (uA): removed, and the packet leaves by that port."""
    others: tuple[OtherNode, ...] = ()
    """Paths to other switches, whose node segments are not removed here."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Form in which addresses of a network carry micro segments."""

    block: int
    decapsulation: int
    """Segment after the last one: hosts remove the outer header."""


@dataclass(frozen=True, slots=True)
class SwitchSeeds:
    """Seeds of one kind of draws each, which the seed of a run does not replace; None: the switch's `seed`."""

    hash: int | None = None
    """Seed of the hash, and of ways that are drawn at random."""
    marks: int | None = None
    faults: int | None = None


NO_SEEDS: Final = SwitchSeeds()


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """One switch. `traffic/native/switch/switch_config.h` is the same in C++."""

    name: str
    ports: tuple[SwitchPort, ...]
    buffer_bytes: int
    """Whole buffer: reserves and headroom of every port (or the headroom pool), and the shared part."""
    dscp_to_class: tuple[int, ...]
    """Traffic class by DSCP, 64 values."""
    class_to_queue: tuple[int, ...]
    """Queue by traffic class, 8 values, as in the maps below."""
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
    """Duration of a pause frame, in quanta of 512 bit times (IEEE 802.1Qbb)."""
    watchdog: Watchdog | None
    latency_ns: int
    """Time from the arrival of a packet's last bit to its queueing."""
    balancing: LoadBalancing
    flowlet_gap_ns: int
    trimming: Trimming | None
    seed: int
    """Seed of all draws that have no seed of their own in `seeds`; the seed of a run replaces it."""
    faults: tuple[SwitchFault, ...] = ()
    headroom_pool_bytes: int | None = None
    """Headroom pool of all groups of all ports; None: each group has its own reserve."""
    origin: SettingsOrigin | None = None
    """None: a preset."""
    hash_fields: tuple[HashField, ...] = FIVE_TUPLE
    """Fields hashed for ECMP and flowlets."""
    entropy_shift: int = 0
    """`STRUCTURED`: number of bits of the UDP source port below those that select a path."""
    entropy_bits: int = 8
    """`STRUCTURED`: number of bits that select a path."""
    usids: Usids | None = None
    """None: it knows no segments, and drops packets routed by them."""
    seeds: SwitchSeeds = NO_SEEDS
    port_rules: tuple[PortRules, ...] = ()
    """Rules that some ports have instead of `groups`, `queues` and `pfc`; see `SwitchPort.rules`."""

    def rules_at(self, port: int) -> PortRules:
        """Return the groups, queues and pauses of a port."""
        number = self.ports[port].rules
        return self.port_rules[number - 1] if number else PortRules(self.groups, self.queues, self.pfc)

    def rules_of(self, port_name: str) -> PortRules:
        """Return the groups, queues and pauses of a port by its name; those of the switch if it has no such port."""
        number = next((number for number, port in enumerate(self.ports) if port.name == port_name), None)
        return self.all_rules[0] if number is None else self.rules_at(number)

    @property
    def all_rules(self) -> tuple[PortRules, ...]:
        """Return the rules of the switch, then those of ports that differ."""
        return PortRules(self.groups, self.queues, self.pfc), *self.port_rules

    @property
    def hash_seed(self) -> int:
        """Return the seed of the hash and of spraying."""
        return self.seed if self.seeds.hash is None else self.seeds.hash

    @property
    def mark_seed(self) -> int:
        """Return the seed by which packets are marked."""
        return self.seed if self.seeds.marks is None else self.seeds.marks

    @property
    def fault_seed(self) -> int:
        """Return the seed by which random faults choose packets."""
        return self.seed if self.seeds.faults is None else self.seeds.faults

    @property
    def hash_bits(self) -> int:
        """Return the hashed fields as a bit set."""
        return sum(1 << tuple(HashField).index(field) for field in set(self.hash_fields))

    @property
    def set_aside_bytes(self) -> int:
        """Return the part of the buffer that is not shared: reserves and headroom of all ports."""
        ports = Counter(port.rules for port in self.ports)
        counts = [ports[number] for number in range(len(self.all_rules))]
        reserved, headroom = (
            sum(
                count * sum(map(size, rules.groups))
                for count, rules in zip(counts, self.all_rules, strict=True)
            )
            for size in (_reserved_bytes, _headroom_bytes)
        )
        return reserved + (headroom if self.headroom_pool_bytes is None else self.headroom_pool_bytes)


def _reserved_bytes(group: PriorityGroup) -> int:
    return group.reserved_bytes


def _headroom_bytes(group: PriorityGroup) -> int:
    return group.headroom_bytes if group.lossless else 0


@dataclass(frozen=True, slots=True)
class SwitchEnd:
    """A port of a switch, both by number."""

    switch: int
    port: int


@dataclass(frozen=True, slots=True)
class SwitchLink:
    """A link between two switches. Rate and delay are given at both ports and are equal."""

    a: SwitchEnd
    b: SwitchEnd


@dataclass(frozen=True, slots=True)
class Attachment:
    """A port of the rig on a port of a switch. Packets are routed to the number of an attachment."""

    rig_port: str
    """Port of the rig, "agent/port" as in rig files."""
    end: SwitchEnd
    addresses: tuple[str, ...] = ()
    """Addresses that the lab gives the port; empty: the lab chooses."""
    rail: int | None = None
    honours_pause: bool = True
    """True if the endpoint stops sending a priority that the switch pauses."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A link that is down for a time. It is named by one of its ends; both lose it."""

    end: SwitchEnd
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Routing:
    """Delays after which switches react to a link that went down or came up.

    A switch that has detected the loss of its own link forwards by its other ports. All switches recompute the shortest paths
    when a link between two of them has been down, or up again, for the convergence time.
    """

    detection_ns: int = 1_000_000
    """Time that both ends of a link take to detect that it is down. Packets sent there meanwhile are lost.

    Of fibres between two ports, "often detected in milliseconds" (RFC 7938, 7.1).
    """
    convergence_ns: int = 100_000_000
    """Convergence time; FOREVER_NS: switches react only to their own links.

    RFC 7938, 7, expects less than a second from BGP with immediate link detection; DentOS measured 118 ms from the withdrawal
    of 1,000 routes to the last packet on the old path (dentproject, "BGP convergence test plan for benchmark performance").
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
    """None: no switch knows segments."""

    def port_name(self, end: SwitchEnd) -> str:
        """Return the name of a switch port, such as "leaf0/4"."""
        switch = self.switches[end.switch]
        return f"{switch.name}/{switch.ports[end.port].name}"

    def cables(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of joined switch ports by name, each pair in both directions."""
        ends = [(self.port_name(link.a), self.port_name(link.b)) for link in self.links]
        return tuple(cable for a, b in ends for cable in ((a, b), (b, a)))

    def port_of(self, end: SwitchEnd) -> SwitchPort:
        """Return the port at an end."""
        return self.switches[end.switch].ports[end.port]
