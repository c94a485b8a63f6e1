"""Declares what one agent receives for a run: its ranks' programs, the step tables they use, and every connection it is
an end of.

All bulk data is in numpy columns, so that a job of 10^5 ops travels as a few binary arrays and enters the engine
without a Python object per op. Enumerations used in columns: `OpKind` (workload/trace/program.py), `EntryKind`
(traffic/collectives/ table.py); their numbers are part of this contract (`PROTOCOL_VERSION` changes with them).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.ip_address import IP_ADDRESS
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.fault_rules import PauseRule
from etloop.contract.model.frame_streams import FrameWork
from etloop.contract.model.records import StreamForm
from etloop.contract.model.transport import CaptureSettings, TransportSettings


class Path(IntEnum):
    """Path of the bytes of a connection."""

    WIRE = 0
    """RoCEv2 through the device under test."""
    SCALE_UP = 1
    """Inside a host, with the bandwidth and latency of the scale-up model."""
    HAIRPIN = 2
    """Between hosts on one port: a switch would not send it back, so the engine carries it at the port's rate."""


class PortBackend(IntEnum):
    """Backend that carries the packets of a port. Numbers as in traffic/native/port/device_port.h."""

    UDP = 0
    """Kernel UDP sockets: no privileges, segmentation offload."""
    PACKET = 1
    """Packet sockets (AF_PACKET): the engine writes headers, VLAN tags and pause frames. Needs CAP_NET_RAW."""
    XDP = 2
    """AF_XDP sockets: as PACKET, past most of the kernel. Needs CAP_NET_RAW and CAP_BPF."""
    VERBS = 3
    """A network card's own transport, through libibverbs."""


@dataclass(frozen=True, slots=True)
class SegmentRoute:
    """Route of packets to one host: at each tier one of several micro segments, chosen by their entropy value."""

    to: str
    """Address of the host."""
    tiers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """Outer IPv6 headers of a port's packets, whose destination carries micro segments (RFC 9800)."""

    block: int
    """First 32 bits of the destination."""
    decapsulation: int
    """Segment after the last tier: this port removes the outer header."""
    routes: tuple[SegmentRoute, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PortSettings:
    """One port of the agent: an interface towards the device under test, with the addresses its ranks use."""

    name: str
    addresses: tuple[str, ...]
    udp_port: int
    link_bps: int
    qpn_base: int
    qpn_count: int
    """Queue pair numbers of this port are [qpn_base, qpn_base + qpn_count)."""
    backend: PortBackend = PortBackend.UDP
    interface: str = ""
    """Interface of the host; empty: the one that has the first address."""
    queues: int = 1
    """Threads that carry the port; an XDP port uses as many receive queues of the interface, one per thread."""
    queue: int = -1
    """Index of this queue, if an agent has divided a port whose queues share all addresses; -1: not divided."""
    planes: int = 1
    """Number of ports of the assignment that are the planes of one card; its queue pairs send over all of them. They are
    consecutive, and ranks are on the first."""
    plane: int = 0
    """Index of this plane."""
    busy_poll_us: int = 0
    """Time for which a poll of an empty queue of an XDP port busy-polls the device; 0: interrupts drive it."""
    receive_ring: bool = False
    """PACKET port: frames arrive in memory shared with the kernel, not by system calls."""
    pauses: tuple[PauseRule, ...] = ()
    device: str = ""
    """VERBS port: the RDMA device, such as "mlx5_0", which assigns other queue pair numbers than those above."""
    gid_index: int = -1
    """Entry of the device's GID table; -1: found by address."""
    segments: SegmentSettings | None = None
    """SRv6 encapsulation of its packets; None: they are routed by their own addresses."""
    transport: int = 0
    """Index into `Assignment.transports` of the transport that all its queue pairs use."""

    @property
    def engine_threads(self) -> int:
        """Return the number of threads that carry the port; 0 except for the first plane of a card, which carries all
        planes.
        """
        if self.plane:
            return 0
        return 1 if self.backend is PortBackend.VERBS else self.queues

    @property
    def shares_addresses(self) -> bool:
        """Return whether its queues divide the queue pairs of every address among themselves.

        On a UDP port with enough addresses each queue has some addresses of its own instead, so that no message crosses
        queues.
        """
        if self.engine_threads <= 1:
            return False
        return self.backend is not PortBackend.UDP or self.queues > len(self.addresses)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleColumns:
    """Columns with one value per schedule. Meaning of the values: traffic/collectives/core/table.py."""

    size: NDArray[np.int32]
    """Positions of the whole schedule."""
    chunk_rule: NDArray[np.uint8]
    chunk_bytes: NDArray[np.int64]
    chunks_per_loop: NDArray[np.int32]
    shrink_last: NDArray[np.uint8]
    slices: NDArray[np.int32]
    min_slice_bytes: NDArray[np.int64]
    slots: NDArray[np.int32]
    empty_message: NDArray[np.uint8]
    slice_align_bytes: NDArray[np.int64]
    line_data_bytes: NDArray[np.int64]
    line_wire_bytes: NDArray[np.int64]
    split: NDArray[np.uint8]
    traffic_per_byte: NDArray[np.int64]
    handshake: NDArray[np.uint8]
    completion: NDArray[np.uint8]
    eager_bytes: NDArray[np.int64]
    connection_slots: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleTables:
    """Step tables in columns: schedule -> table -> lane, each level by offsets into the next, and entries by reference.

    An agent has every schedule, and of each the tables of those positions whose ranks it hosts. Lanes may share entries.
    A column of lanes or entries has one value per row, or a single one that holds for all of them; `lane_send_to` and
    `entry_chunk` always have all rows. Meaning of the values: traffic/collectives/core/table.py.
    """

    schedules: ScheduleColumns
    table_offsets: NDArray[np.int32]
    """Schedule s has the tables [table_offsets[s], table_offsets[s + 1])."""
    # per table
    table_position: NDArray[np.int32]
    """Position of each table; ascending within a schedule."""
    lane_offsets: NDArray[np.int32]
    # per lane
    lane_batch: NDArray[np.int32]
    lane_send_to: NDArray[np.int32]
    lane_recv_from: NDArray[np.int32]
    lane_part: NDArray[np.int32]
    lane_parts: NDArray[np.int32]
    lane_span: NDArray[np.int32]
    lane_share: NDArray[np.int32]
    lane_shares: NDArray[np.int32]
    lane_bytes: NDArray[np.int64]
    """Bytes of a lane whatever the op's byte count (uneven all-to-all); -1: derived from the byte count."""
    lane_channel: NDArray[np.int32]
    lane_first_entry: NDArray[np.int32]
    lane_entry_count: NDArray[np.int32]
    # per entry
    entry_kind: NDArray[np.uint8]
    entry_chunk: NDArray[np.int32]
    entry_after_lane: NDArray[np.int32]
    """A lane of the same table, by its number there; -1: none."""
    entry_after_entry: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class ProgramColumns:
    """A `Program` as the engine runs it; `schedule` replaces the kind of collective."""

    kind: NDArray[np.uint8]
    schedule: NDArray[np.int32]
    """Index into `ScheduleTables`; for SEND and RECV the point-to-point schedule; -1 for DELAY."""
    slot: NDArray[np.int32]
    sequence: NDArray[np.int32]
    message_bytes: NDArray[np.int64]
    delay_ns: NDArray[np.int64]
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RankAssignment:
    """One rank of the agent. `communicators[slot]` is a row of `Assignment.communicator_*`, `peers[slot]` a rank."""

    rank: int
    program: int
    port: int
    address: int
    """Index into the port's addresses."""
    communicators: tuple[int, ...]
    peers: tuple[int, ...]
    background: bool = False
    """The rank executes its program once, regardless of `iterations`, and the run does not wait for it."""
    traffic_class: int = -1
    """Traffic class of all packets of its queue pairs; -1: that of the transport."""
    sends: bool = False
    """True if messages are SENDs with immediate, not WRITEs. They take receives in the order of the grants, so that each
    connection of the rank has one queue pair, on a RoCEv2 port of one queue."""


@dataclass(frozen=True, slots=True, eq=False)
class ConnectionColumns:
    """Every connection with at least one end on this agent. A connection carries messages from `src_rank` to `dst_rank`
    of one channel of one communicator (-1: point-to-point sends); clear-to-send writes travel the other way on its first
    queue pair. Its queue pairs are rows [qp_offsets[i], qp_offsets[i + 1]) of the qp columns."""

    communicator: NDArray[np.int32]
    channel: NDArray[np.int32]
    src_rank: NDArray[np.int32]
    dst_rank: NDArray[np.int32]
    path: NDArray[np.uint8]
    src_ip: Annotated[NDArray[np.void], IP_ADDRESS, "ip address"]
    dst_ip: Annotated[NDArray[np.void], IP_ADDRESS, "ip address"]
    """Both ends are of one family; `NO_ADDRESS` where path is not WIRE."""
    qp_offsets: NDArray[np.int32]
    src_qpn: NDArray[np.uint32]
    dst_qpn: NDArray[np.uint32]
    src_udp_port: NDArray[np.uint16]
    """UDP source port of packets that src sends (data); the receiver of those uses dst_udp_port (ACK, CTS)."""
    dst_udp_port: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class UdpStream:
    """One end of a background stream of UDP datagrams."""

    name: str
    sends: bool
    """True if this is the sending end."""
    src_ip: str
    dst_ip: str
    udp_port: int
    """Port that the receiving end listens on."""
    src_udp_port: int
    """Port that the sending end sends from; for UUD also the number of its job."""
    traffic_class: int
    rate_bps: int
    """Rate of the UDP payload."""
    datagram_bytes: int
    start_ns: int
    """Time after the start of the run."""
    stop_ns: int
    """Time after the start of the run; 0: at the end of the run."""
    form: StreamForm = StreamForm.UDP


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """A stream of UDP from end to end."""

    stream: UdpStream
    """The stream as its sender has it."""
    from_port: str
    """As "agent/port"."""
    to_port: str


@dataclass(frozen=True, slots=True)
class HostThreads:
    """Position of an agent's engine threads among all on its machine: each gets a core of its own, or none of them polls."""

    first: int
    """Number of this agent's first thread."""
    total: int
    """One more than the greatest number in use by this run."""
    busy: int = 0
    """The first `busy` numbers are left to other runs; `first` and `total` count them."""
    cores: tuple[int, ...] = ()
    """Core of each thread number, among the cores of all agents that share cores with this one; (): the cores of this agent."""
    sharers: tuple[str, ...] = ()
    """Agents of the run that may use the same cores."""
    contended: bool = False
    """Another user has reserved some of its cores, or the agents sharing cores have different lists: it does not poll."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """All that one agent needs for one run."""

    run_id: str
    agent: str
    iterations: int
    ports: tuple[PortSettings, ...]
    transport: TransportSettings
    scale_up_bps: int
    scale_up_latency_ns: int
    threads: HostThreads
    schedules: ScheduleTables
    programs: tuple[ProgramColumns, ...]
    ranks: tuple[RankAssignment, ...]
    communicator_offsets: NDArray[np.int32]
    communicator_members: NDArray[np.int32]
    """Communicator c has the members communicator_members[communicator_offsets[c]:communicator_offsets[c + 1]]."""
    connections: ConnectionColumns
    capture: CaptureSettings = CaptureSettings()
    streams: tuple[UdpStream, ...] = ()
    frames: FrameWork = FrameWork()
    planes: tuple[tuple[str, ...], ...] = ()
    """For cards with several planes, here and at the other ends of connections: the addresses on all planes that belong together.
    The first of each is the one in `connections`."""
    other_transports: tuple[TransportSettings, ...] = ()
    """Transports of ports that do not use `transport`. Settings that do not depend on the kind (path MTU, class, VLAN, timeouts)
    are equal in all."""

    @property
    def transports(self) -> tuple[TransportSettings, ...]:
        """Return all transports, indexed by `PortSettings.transport`."""
        return (self.transport, *self.other_transports)
