"""The local end of a queue pair with a card under test: sends the packets of an experiment, and answers only on request.

It waits only for arrivals and the clock of the wire, so that an experiment also runs in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.errors import EtloopError
from etloop.experiments.nic.link.frames import BTH, pause_frame, trim, with_icrc
from etloop.experiments.nic.link.wire import (
    CE,
    ECT_0,
    Arrival,
    Departure,
    NicControl,
    PairEnd,
    PairSettings,
    Wire,
)
from etloop.traffic import _native

ACK, ATOMIC_ACK, CNP = 0x11, 0x12, 0x81
READ_REQUEST, READ_RESPONSES, FETCH_ADD = 0x0C, range(0x0D, 0x11), 0x14
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
SEND_FIRST, SEND_ONLY = 0x00, 0x04
NAK_SEQUENCE, RNR, CREDITS = 0x60, 0x20, 0x1F
PSNS: Final = 1 << 24
USUAL: Final = PairSettings()
USUAL_PAIRS: Final = 256
"""Queue pairs open at once, unless more are requested."""
_FIRST_QPN: Final = 0x4000
_OTHER_PARTITION: Final = b"\x9a\xbc"
TRIMMED_BYTES: Final = 128
"""Length of a trimmed frame: the default of SONiC's switches."""
PATIENCE_NS: Final = 200 * NS_PER_MS
"""Longest wait for a packet that should arrive immediately."""
QUIET_NS: Final = 20 * NS_PER_MS
"""Silence after which no more packets are expected."""


class NicError(EtloopError):
    """The card, or the server that drives it, did not do what an experiment needs."""


@dataclass(slots=True)
class Connection:
    """A queue pair of the card, joined to a local queue pair number."""

    wire: Wire
    nic: NicControl
    end: PairEnd
    our_qpn: int
    settings: PairSettings
    _kept: list[Arrival]
    """Arrivals of other queue pairs, shared by all connections of a probe."""
    sent: int = 0
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def flow(self) -> _native.IpFlow:
        """Return the addresses of its datagrams."""
        return self.wire.flows[self.settings.address]

    def _put(
        self, packet: _native.WirePacket, payload: bytes = b"", *, dscp: int = 26, ecn: int = ECT_0
    ) -> int:
        return self._leave(_native.encode(packet, self.flow, 0, payload), dscp, ecn)

    def _leave(self, datagram: bytes, dscp: int = 26, ecn: int = ECT_0) -> int:
        self.sent += 1
        return self.wire.send(Departure(datagram, dscp, ecn, address=self.settings.address))

    def write(self, psn: int, size_bytes: int = 64, *, ack: bool = True, ce: bool = False) -> int:
        """Send a WRITE of one packet; return its departure time."""
        return self._put(self._write(psn, size_bytes, ack=ack), ecn=CE if ce else ECT_0)

    def damaged_write(self, psn: int) -> int:
        """Send a WRITE whose ICRC is wrong; return its departure time."""
        datagram = bytearray(_native.encode(self._write(psn, 64, ack=True), self.flow))
        datagram[-1] ^= 0x55
        return self._leave(bytes(datagram))

    def foreign_write(self, psn: int) -> int:
        """Send a WRITE with a remote key that the card did not issue; return its departure time."""
        packet = self._write(psn, 64, ack=True)
        packet.rkey ^= 0x5A5A5A
        return self._put(packet)

    def other_partition_write(self, psn: int) -> int:
        """Send a WRITE of a partition that the card is not in."""
        frame = bytearray(self._frame(self._write(psn, 64, ack=True)))
        frame[BTH + 2 : BTH + 4] = _OTHER_PARTITION
        self.sent += 1
        return self.wire.send_frame(with_icrc(bytes(frame)))

    def trimmed_write(self, psn: int, dscp: int, *, says_so: bool) -> int:
        """Send a trimmed WRITE of a kilobyte, with its lengths corrected or not; return its departure time."""
        frame = self._frame(self._write(psn, 1024, ack=True))
        self.sent += 1
        return self.wire.send_frame(trim(frame, TRIMMED_BYTES, dscp, says_so=says_so))

    def pause(self, quanta: int) -> int:
        """Send a pause frame of `quanta` times 512 bit times to the card's port, 0: resume; return its departure time."""
        frame = self._frame(self._write(0, 64, ack=True))
        return self.wire.send_frame(pause_frame(frame[6:12], quanta))

    def read(self, psn: int, size_bytes: int) -> int:
        """Send an RDMA READ request, which consumes a PSN for every packet of its response; return its departure time."""
        packet = _native.WirePacket(READ_REQUEST)
        packet.dest_qpn, packet.psn, packet.ack_req = self.end.qpn, psn % PSNS, True
        packet.va, packet.rkey, packet.dma_bytes = self.end.va, self.end.rkey, size_bytes
        return self._put(packet)

    def fetch_add(self, psn: int) -> int:
        """Send a request for an atomic fetch-and-add."""
        packet = _native.WirePacket(FETCH_ADD)
        packet.dest_qpn, packet.psn, packet.ack_req = self.end.qpn, psn % PSNS, True
        packet.va, packet.rkey, packet.swap_add = self.end.va, self.end.rkey, 1
        return self._put(packet)

    def _frame(self, packet: _native.WirePacket) -> bytes:
        departure = Departure(_native.encode(packet, self.flow), address=self.settings.address)
        return self.wire.frame_of(departure)

    def _write(self, psn: int, size_bytes: int, *, ack: bool) -> _native.WirePacket:
        packet = _native.WirePacket(WRITE_ONLY)
        packet.dest_qpn, packet.psn, packet.ack_req = self.end.qpn, psn % PSNS, ack
        packet.va, packet.rkey = self.end.va, self.end.rkey
        packet.dma_bytes = packet.payload_bytes = size_bytes
        return packet

    def ask_send(self, psn: int, size_bytes: int = 64) -> int:
        """Send a SEND of one packet, which needs a posted receive at the card."""
        packet = _native.WirePacket(SEND_ONLY)
        packet.dest_qpn, packet.psn, packet.ack_req = self.end.qpn, psn % PSNS, True
        packet.payload_bytes = size_bytes
        return self._put(packet)

    def acknowledge_all(self, most: int, until_ns: int | None) -> list[int] | None:
        """Acknowledge requests as `Wire.answer_requests` does, and return their arrival times in ns; None if the wire
        does not.
        """
        packet = _native.WirePacket(ACK)
        packet.dest_qpn, packet.syndrome = self.end.qpn, CREDITS
        departure = Departure(_native.encode(packet, self.flow), address=self.settings.address)
        result = self.wire.answer_requests(departure, self.our_qpn, most, until_ns)
        if result is None:
            return None
        self.sent += result.acknowledgements
        return result.times_ns

    def answer(self, psn: int, syndrome: int = CREDITS, msn: int = 0, *, ce: bool = False) -> int:
        """Send an acknowledgement, or a NAK by its syndrome."""
        packet = _native.WirePacket(ACK)
        packet.dest_qpn, packet.psn, packet.syndrome, packet.msn = self.end.qpn, psn % PSNS, syndrome, msn
        return self._put(packet, ecn=CE if ce else ECT_0)

    def notify(self) -> int:
        """Send a congestion notification."""
        packet = _native.WirePacket(CNP)
        packet.dest_qpn, packet.becn = self.end.qpn, True
        return self._put(packet, dscp=48, ecn=0)

    def receive(self, until_ns: int) -> Arrival | None:
        """Return the next arrival of this queue pair; None if there is none until `until_ns`."""
        for number, earlier in enumerate(self._kept):
            if earlier.packet.dest_qpn == self.our_qpn:
                return self._kept.pop(number)
        while (arrival := self.wire.receive(until_ns)) is not None:
            if arrival.packet.dest_qpn == self.our_qpn:
                self.arrivals.append(arrival)
                return arrival
            self._kept.append(arrival)
        return None

    def until(self, wanted: Callable[[Arrival], bool], patience_ns: int = PATIENCE_NS) -> Arrival | None:
        """Return the first arrival that is wanted, dropping earlier ones; None if there is none in time."""
        end_ns = self.wire.now_ns() + patience_ns
        while (arrival := self.receive(end_ns)) is not None:
            if wanted(arrival):
                return arrival
        return None

    def collect(self, quiet_ns: int = QUIET_NS, most: int = 100_000) -> list[Arrival]:
        """Return the packets that arrive until none has arrived for `quiet_ns`, at most `most`."""
        arrivals: list[Arrival] = []
        while len(arrivals) < most and (arrival := self.receive(self.wire.now_ns() + quiet_ns)) is not None:
            arrivals.append(arrival)
        return arrivals

    def rest(self, duration_ns: int) -> None:
        """Let time pass; packets that arrive meanwhile are dropped."""
        end_ns = self.wire.now_ns() + duration_ns
        while self.receive(end_ns) is not None:
            pass

    def close(self) -> None:
        """Destroy the queue pair."""
        self.nic.close(self.end)


class Probe:
    """The wire and the card of a battery."""

    def __init__(self, wire: Wire, nic: NicControl, most_pairs: int = USUAL_PAIRS) -> None:
        self.wire, self.nic, self.most_pairs = wire, nic, most_pairs
        self._next_qpn = _FIRST_QPN
        self._kept: list[Arrival] = []
        self._floor_ns: int | None = None

    def connect(self, settings: PairSettings = USUAL) -> Connection:
        """Return a new connection. Raises `NicError`."""
        pair_end = self.nic.open()
        self._next_qpn += 1
        self.nic.join(pair_end, self._next_qpn, settings)
        return Connection(self.wire, self.nic, pair_end, self._next_qpn, settings, self._kept)

    def floor_ns(self) -> int:
        """Return the fastest answer of the card to a request in ns, an upper bound of the link's RTT. Raises `NicError`."""
        if self._floor_ns is None:
            connection = self.connect()
            times = []
            for psn in range(16):
                left_ns = connection.write(psn)
                answer = connection.until(lambda arrival: arrival.packet.opcode == ACK)
                if answer is not None:
                    times.append(answer.at_ns - left_ns)
            connection.close()
            if not times:
                raise NicError("the card does not answer: no ACK of 16 writes")
            self._floor_ns = min(times)
        return self._floor_ns


def distance(later: int, earlier: int) -> int:
    """Return the signed 24-bit distance of a PSN from another, negative if it is behind."""
    ahead = (later - earlier) % PSNS
    return ahead - PSNS if ahead >= PSNS // 2 else ahead


def is_data(arrival: Arrival) -> bool:
    """Return whether the packet is a request of the card."""
    return arrival.packet.opcode < ACK
