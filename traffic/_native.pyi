"""The native engine. Each layer's section is written with its file of traffic/native/bind."""

from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.assignment import Assignment, ScheduleTables
from etloop.contract.model.topology import Topology
from etloop.contract.model.transfer_source import TransferSource
from etloop.contract.model.transport import TransportSettings
from etloop.traffic.capture import PlannedCapture
from etloop.traffic.flow_level import FlowLevelSettings, FlowNetwork
from etloop.traffic.send_limits import LoopLimits
from etloop.traffic.simulation import SimulationSettings
from etloop.traffic.soft_switch import SoftLimits, SoftPort
from etloop.traffic.threads.loop_threads import ThreadPlan
from etloop.traffic.topology.routes import Routes
from etloop.traffic.twin import StreamPath, TwinSettings

# bind/schedule.cpp

LaneTotalColumns: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
]
"""position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes."""

class StepTables:
    """Step tables that answer what a lane or a position moves.

    Raises ValueError for tables whose columns do not fit each other and for a schedule, position, lane or byte count
    that they do not have.
    """

    def __init__(self, tables: ScheduleTables) -> None: ...
    def lane_messages(
        self, schedule: int, position: int, lane: int, op_bytes: int, limit: int = 4194304
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(kind, chunk, loop, bytes) of the lane's messages in order; ValueError beyond `limit` messages."""

    def lane_steps(
        self, schedule: int, position: int, lane: int, op_bytes: int, limit: int = 4194304
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
    ]:
        """(kind, first entry, loop, slice, bytes, wire_bytes) of the lane's steps in order; ValueError beyond `limit`."""

    def lane_pieces(
        self, schedule: int, position: int, lane: int, op_bytes: int, limit: int = 4194304
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(step, entry, address, bytes) of everything that the lane's steps move, empty pieces left out."""

    def lane_totals_of(self, schedule: int, position: int, op_bytes: int) -> LaneTotalColumns:
        """A row per lane of the position."""

    def schedule_totals(self, schedule: int, op_bytes: int) -> LaneTotalColumns:
        """A row per lane of the schedule, position by position."""

    def schedule_sends(
        self, schedule: int, op_bytes: int
    ) -> tuple[
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
    ]:
        """(position, send_to, channel, tx_messages, tx_bytes, tx_data_bytes), a row per sending lane of the tables here.

        Bytes are those of the wire, data bytes those that the protocol has not yet expanded.
        """

    def position_totals(
        self, schedule: NDArray[np.int32], position: NDArray[np.int32], op_bytes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(tx_messages, tx_bytes, rx_messages, rx_bytes), a row per op asked for."""

# bind/wire.cpp

class IpFlow:
    """The IP and UDP fields that an ICRC covers; addresses as text, "10.0.0.1" or "fd00::1"."""

    def __init__(self, src_ip: str, dst_ip: str, src_port: int, dst_port: int = 4791) -> None: ...

class WirePacket:
    """One RoCEv2 packet as values; fields that the opcode does not carry are 0. ValueError for a foreign opcode."""

    ack_req: bool
    becn: bool
    dest_qpn: int
    psn: int
    va: int
    rkey: int
    dma_bytes: int
    imm: int
    syndrome: int
    msn: int
    qkey: int
    src_qpn: int
    swap_add: int
    compare: int
    original: int
    payload_bytes: int
    def __init__(self, opcode: int) -> None: ...
    @property
    def opcode(self) -> int: ...

def encode(packet: WirePacket, flow: IpFlow, ip_id: int = 0, payload: bytes = b"") -> bytes:
    """BTH to ICRC. Without a payload, `packet.payload_bytes` of the constant pattern. ValueError for values that do not fit."""

def encode_middles(flow: IpFlow, head: WirePacket, count: int, ack_every: int = 0) -> bytes:
    """The datagrams of one segmented send of WRITE_MIDDLE packets, one behind the other. ValueError for too many."""

def decode(datagram: bytes) -> tuple[WirePacket, bytes]:
    """BTH to ICRC -> the packet and its payload; the ICRC is not checked. ValueError says what is malformed."""

def check_frame(frame: bytes, udp_port: int = 4791) -> str:
    """One of good, bad_icrc, not_roce, malformed, for an Ethernet frame without FCS; not_roce goes to another UDP port."""

# bind/headers.cpp

Headers: TypeAlias = dict[str, dict[str, int]]
"""{header: {field: value}} in wire order; enumerations as numbers. A field is present if the packet has it."""

HeaderLayout: TypeAlias = tuple[str, str, str, int, list[tuple[str, str, int, int, str, dict[int, str]]]]
"""(layer, header, form, bytes, fields) of a header of traffic/native/wire; `form` is "" or the flag that changes the layout.

A field is (name, meaning, first bit, bits, kind, names of values), of kind "uint", "int" or "bool". The meaning is "" if another
header states it.
"""

def mrc_headers() -> list[HeaderLayout]: ...
def uet_headers() -> list[HeaderLayout]: ...
def mrc_defaults() -> Headers:
    """Return the fields of a new header of each kind; fields of other forms than "" are not in it and are 0."""

def uet_defaults() -> Headers:
    """Return the same for UET."""

def mrc_decode(datagram: bytes, datagram_bytes: int) -> tuple[Headers, int, str]:
    """Decode a UDP payload of `datagram_bytes`, of which `datagram` has the first; return (headers, payload bytes, malformed).

    `malformed` is "" or the reason; then `headers` has at most the base transport header. The ICRC is not checked.
    """

def uet_decode(datagram: bytes, datagram_bytes: int) -> tuple[Headers, int, str]:
    """Decode like `mrc_decode`; of a malformed or trimmed packet `headers` has at most those of packet delivery."""

def uet_datagram_headers(job_id: int, message_id: int, payload_bytes: int) -> bytes:
    """Return the headers of a UUD message of one packet: 48 bytes."""

# bind/wire.cpp

def blast_send(
    src_ip: str,
    dst_ip: str,
    udp_port: int,
    duration_ns: int,
    segment_bytes: int = 4112,
    segments: int = 15,
    backend: int = 0,
    message_packets: int = 0,
) -> tuple[int, int, int]:
    """(datagrams, UDP payload bytes, ns) that the bare kernel path took. RuntimeError says why it did not send.
    `backend`: contract.assignment.PortBackend, whose kind of socket is used. `message_packets`, of udp: in the calls that
    RC WRITE messages of so many full packets take, FIRST and LAST alone; 0: all calls are alike."""

def blast_exchange(
    src_ip: str, dst_ip: str, udp_port: int, duration_ns: int, datagram_bytes: int = 64, batch: int = 64
) -> tuple[int, int, int]:
    """(datagrams, UDP payload bytes, ns) that came, while this end and the other sent and received a batch in turn.
    RuntimeError if no datagram comes for 2 s."""

def blast_receive(ip: str, udp_port: int, duration_ns: int, backend: int = 0) -> tuple[int, int, int]:
    """(datagrams, UDP payload bytes, ns) after the first datagram. RuntimeError if no datagram comes for 2 s."""

def ping(src_ip: str, dst_ip: str, udp_port: int, count: int, message_bytes: int = 64) -> list[int]:
    """Sorted round-trip times in ns, busy-polling at both ends. RuntimeError if no answer comes for 2 s."""

def pong(ip: str, udp_port: int, count: int) -> None:
    """Answers at least `count` pings. RuntimeError when fewer come."""

def dependent_steps(
    src_ip: str,
    dst_ip: str,
    udp_port: int,
    datagram_bytes: int,
    operations: int,
    steps: int,
    waits_acknowledged: bool,
) -> list[int]:
    """Times of the operations in ns, busy-polling at both ends: in each step a datagram is sent and the peer's awaited.
    RuntimeError when the peer is silent for 2 s."""

class CoreWatch:
    """A real-time thread that looks at the clock on one core, where no engine is, and notes when it came late."""

    def stop(self) -> list[tuple[int, int]]:
        """From when it would have looked until it did, ascending, in ns of the monotonic clock."""

def watch_core(processor: int, priority: int) -> CoreWatch:
    """At that priority, as an engine's thread would be. RuntimeError where that is not permitted."""

def receive_speed(path_mtu: int, packets: int, turns: int) -> list[tuple[str, float]]:
    """Measure the receiving side's processor time per packet of one WRITE, without reads from the kernel.

    Ethernet to ICRC, BTH, queue pair and acknowledgements, by every way to hash that this processor has, in turn. Returns
    (way, processor time in ns a packet); the last way of a turn is the one that ports use. ValueError for sizes beyond
    a path MTU of 4096 and 65,536 packets.
    """

# bind/engine.cpp

class PortLoops:
    """The port loops of one agent: a thread each, running from construction to `stop`.

    Raises ValueError for an assignment that does not hold together, RuntimeError for sockets that cannot be opened.
    """

    def __init__(
        self,
        assignment: Assignment,
        threads: ThreadPlan,
        capture: PlannedCapture,
        cc_libraries: list[str],
        limits: LoopLimits,
    ) -> None: ...
    def endpoints(self) -> list[tuple[int, int, bool, int, int, int, int]]:
        """Ends on network cards: connection, queue pair of it, whether it sends data, number, address, key, address of
        the words for closing atomics (0: none)."""

    def join(self, peers: list[tuple[int, int, bool, int, int, int, int]]) -> None:
        """Ends of peers on network cards, by own connections; ValueError for rows that cannot be one."""

    def joined(self, port: int) -> bool: ...
    def start_probe(self) -> None: ...
    def expect_posts(self, signal_fd: int) -> None:
        """Let the ops of all awaited ranks be posted, and signal completed ones to an event descriptor; before `start`."""

    def post(self, ops: list[tuple[int, int, int, int]], last: bool) -> None:
        """Begin ops (rank, op, bytes, id); `last`: no more will follow. ValueError for other ops."""

    def start(self, start_ns: int) -> None: ...
    def request_waits(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None:
        """Stops and closes the sockets; only `close` may be called after."""

    def status(self) -> list[tuple[int, int, int, int, int, int, str, int]]:
        """Per port: (state, ops done, ops in all, wire tx bytes, wire rx bytes, last progress ns, failure, connection)."""

    def probes(self) -> list[tuple[int, int, int, int, int]]:
        """(connection, queue pair of it, verdict, seen traffic class, round trip ns) of every probe."""

    def records(self, port: int, first: int, most: int) -> bytes:
        """OP_RECORD rows of a port from `first` on, `most` at most; those before `first` are given up."""

    def take_waits(self, port: int) -> bytes | None: ...
    def flows(self, port: int) -> bytes:
        """FLOW_RECORD rows; call after `stop`."""

    def counters(self, port: int) -> bytes:
        """PORT_RECORD rows, one for each plane of a card; call after `stop`."""

    def turnarounds(self) -> list[tuple[int, int]]: ...
    def turnaround_parts(self) -> list[list[tuple[int, int]]]: ...
    def rates(self, port: int) -> bytes:
        """CC_RECORD rows of a port, after `stop`."""

    def late_turns(self, port: int) -> list[tuple[int, int]]:
        """When a port's thread would have taken a turn and did not, until it did, in ns; call after `stop`."""

    def degraded(self, port: int) -> list[str]:
        """Deviations of a port from its settings, a sentence each."""

    def realtime(self, port: int) -> bool:
        """Whether the port's thread is, as it was asked to be."""

    def capabilities(self, port: int) -> list[str]:
        """Optional features of the host that a port uses or lacks, with the reason, a sentence each."""

    def ports(self) -> int: ...
    def receive_buffer_bytes(self, port: int) -> int: ...

def usable_processors() -> list[int]:
    """Processors this process may run on, ascending."""

def settle_waits(waits: bytes) -> bytes:
    """WAIT_RECORD rows of all loops of an agent, after merging those in which queues report each other's queue pairs."""

def simulate(assignment: Assignment, settings: SimulationSettings) -> dict[str, Any]:
    """A run in virtual time; the keys are the fields of SimulationOutcome, records as bytes."""

# bind/twin.cpp

def twin(
    assignment: Assignment,
    topology: Topology,
    routes: Routes,
    attachments: list[int],
    streams: list[StreamPath],
    settings: TwinSettings,
    cc_libraries: list[str],
    source: TransferSource | None = None,
) -> dict[str, Any]:
    """A run through switches; the keys are the fields of TwinOutcome, records as bytes."""

# bind/flow.cpp

def flow_level(
    assignment: Assignment,
    network: FlowNetwork,
    settings: FlowLevelSettings,
    source: TransferSource | None = None,
) -> dict[str, Any]:
    """A run without packets; the keys are the fields of FlowLevelOutcome, records as bytes."""

def flow_keys(assignment: Assignment) -> bytes:
    """One uint64 for every queue pair: what switches make of its data packets' five-tuple."""

def source_port_keys(
    assignment: Assignment, queue_pairs: NDArray[np.int64], src_ports: NDArray[np.uint16], fields: int = 0x1F
) -> bytes:
    """The same of any queue pairs and UDP source ports, row by row, over the hash fields `fields` but the ingress port."""

def in_port_keys(keys: NDArray[np.uint64], in_ports: NDArray[np.int64]) -> bytes:
    """One uint64 for every key: that of a packet that arrives by this port, of a switch that hashes the ingress port."""

def ecmp_choices(keys: NDArray[np.uint64], seed: int, ways: int) -> bytes:
    """One int32 for every key: which of `ways` equal routes a switch with that seed takes."""

# bind/fair_shares.cpp

class FairShares:
    """Max-min fair rates of flows over links, as flows begin and end. ValueError for links and flows that there are not."""

    @overload
    def __init__(self, link_bps: list[int]) -> None: ...
    @overload
    def __init__(self, other: FairShares) -> None: ...
    def begin(self, links: NDArray[np.int32], parts: NDArray[np.float32]) -> int:
        """Begin a flow with a part on each link; return its number, which may be that of an ended flow."""

    def end(self, flow: int) -> None: ...
    def settle(self) -> tuple[bytes, bytes]:
        """Return the flows whose rate has changed since the last call, uint32, and their rates in bit/s, float64."""

def five_tuple_keys(src_ip: str, dst_ips: list[str], src_ports: list[int], fields: int) -> bytes:
    """One uint64 for every destination: the hash key of RoCEv2 data with that UDP source port."""

# bind/congestion.cpp

CC_ABI_VERSION: int

def cc_algorithms() -> list[tuple[Any, ...]]:
    """(name, meaning, needs, parameters, profiles) of every algorithm that is built in; `traffic.congestion` types them."""

def cc_plugin(library: str) -> tuple[Any, ...]:
    """The same of a compiled plugin. ValueError saying why it cannot be used."""

def cc_register(table_address: int) -> str:
    """Make an `etloop_cc_algorithm` in this process's memory known, and return its library name.

    The memory stays as it is until `cc_forget`. ValueError saying why the table cannot be used.
    """

def cc_forget(library: str) -> None:
    """Remove such a name; it must not be in use any more."""

def cc_mistakes(algorithm: str, library: str, profile: str, given: list[tuple[str, float]]) -> list[str]:
    """Problems of a choice of parameters; empty if it is valid."""

# bind/qp.cpp

class QueuePair:
    """One end of a queue pair with memory of its own; the caller carries the datagrams and passes the time."""

    def __init__(
        self,
        local_qpn: int,
        remote_qpn: int,
        settings: TransportSettings,
        memory_va: int = ...,
        memory_rkey: int = 0x77,
        memory_bytes: int = ...,
    ) -> None: ...
    def post(
        self,
        kind: str,
        va: int = 0,
        rkey: int = 0,
        content: bytes = b"",
        read_bytes: int = 0,
        imm: int = 0,
    ) -> int:
        """Post a write, write_imm, send, send_imm or read; return its mark."""

    def post_atomic(self, kind: str, va: int, rkey: int, swap_add: int, compare: int = 0) -> int:
        """Post a fetch_add or compare_swap; return its mark."""

    def post_receive(self, room_bytes: int) -> None: ...
    def datagrams(self, flow: IpFlow, now_ns: int) -> list[bytes]:
        """Datagrams to send now: answers, then requests, as UDP payloads with their ICRC for IPv4 identification 0."""

    def on_datagram(self, datagram: bytes, now_ns: int) -> None: ...
    def messages(self) -> list[tuple[int, int, int | None, bool]]:
        """Whole messages since the last call: address, bytes, immediate, whether it was a SEND."""

    def completions(self) -> list[tuple[int, bool, bytes, int]]:
        """Requests over since the last call: mark, flushed, what a READ returned, what an atomic found."""

    def memory(self, offset: int, count: int) -> bytes: ...
    def set_memory(self, offset: int, content: bytes) -> None: ...
    def deadline(self) -> int | None:
        """When `on_timer` is to be called; None if no packet is outstanding."""

    def on_timer(self, now_ns: int) -> None: ...
    def counters(self) -> bytes:
        """One FLOW_RECORD."""

    @property
    def fault(self) -> str:
        """Why the queue pair is in the error state, "" if it is not."""

    @property
    def pattern_rkey(self) -> int:
        """The key under which writes are forgotten and READs return the pattern."""

# bind/card_end.cpp

NOTED_BYTES: int
"""Length of the part of every frame that `answer_requests` returns."""

def answer_requests(
    fd: int, acknowledgement: bytes, our_qpn: int, most: int, until_ns: int, patience_ns: int
) -> tuple[list[int], list[int], bytes, int]:
    """Answer a card's requests to a queue pair from a socket of frames with SO_TIMESTAMPNS, until `most` came or time is over.

    `acknowledgement` is a whole frame without FCS; its PSN and ICRC are written anew for the newest request of each batch.
    `until_ns` is of the monotonic clock; negative: until no frame came for `patience_ns`. Returns arrival times (real time),
    lengths of the frames, `NOTED_BYTES` of each, and how many acknowledgements left. OSError: what the socket says.
    """

class CardEnd:
    """An RDMA device driven queue pair by queue pair. RuntimeError says what the device refuses."""

    @staticmethod
    def open(device: str, address: str) -> CardEnd: ...
    def add_pair(self) -> int:
        """Make a queue pair; return its number."""

    def join(
        self,
        qpn: int,
        peer_ip: str,
        peer_qpn: int,
        path_mtu: int,
        send_psn: int,
        receive_psn: int,
        timeout_code: int,
        retries: int,
        rnr_retries: int,
        min_rnr_timer: int,
        traffic_class: int,
        hop_limit: int,
    ) -> None: ...
    def write(self, qpn: int, size_bytes: int) -> None:
        """Post a WRITE to the peer, to an address and a key that mean nothing."""

    def write_on_all(self, count: int, size_bytes: int) -> None:
        """Post so many WRITEs on each queue pair, which take turns."""

    def send(self, qpn: int, size_bytes: int) -> None: ...
    def grant(self, qpn: int, size_bytes: int) -> None:
        """Post a receive."""

    def state(self, qpn: int) -> str: ...
    def drop(self, qpn: int) -> None:
        """Destroy a queue pair; nothing where there is none."""

    @property
    def va(self) -> int: ...
    @property
    def rkey(self) -> int: ...
    @property
    def firmware(self) -> str: ...

# bind/soft_switch.cpp

counter_sizes: dict[str, int]
"""Bytes of a row of each counter layout, for the test that compares them with contract/model/switch_counters.py."""

class SoftSwitch:
    """A soft switch whose sockets are in the network namespace of the thread that made it.

    Raises ValueError for a topology that cannot be run, RuntimeError where an interface cannot be opened.
    """

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        ports: tuple[SoftPort, ...],
        limits: SoftLimits,
    ) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def failure(self) -> str: ...
    def set_link(self, switch: int, port: int, up: bool) -> None: ...
    def snapshot(self) -> dict[str, Any]:
        """The fields of SoftSnapshot, rows as bytes."""
