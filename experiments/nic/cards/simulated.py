"""A modelled card in virtual time, for tests of experiments and for blind trials. Pure but for its own randomness.

It is written from `NicModel` alone and shares no code with the engine's queue pairs, so that an experiment that works
with it does not depend on properties of the engine. Packets are real: everything crosses as encoded bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.experiments.nic.cards.line import LineClock
from etloop.experiments.nic.cards.model import CnpScope, NicModel, Recovery
from etloop.experiments.nic.cards.pair_rate import PairRate
from etloop.experiments.nic.cards.port import CardPort
from etloop.experiments.nic.cards.virtual_time import VirtualTime
from etloop.experiments.nic.link.frames import BTH, Addresses, frame_of, quanta_of
from etloop.experiments.nic.link.probe import (
    ACK,
    ATOMIC_ACK,
    CNP,
    CREDITS,
    FETCH_ADD,
    NAK_SEQUENCE,
    PSNS,
    READ_REQUEST,
    READ_RESPONSES,
    RNR,
    SEND_FIRST,
    SEND_ONLY,
    WRITE_FIRST,
    WRITE_ONLY,
    distance,
)
from etloop.experiments.nic.link.rnr_timer import rnr_timer_ns
from etloop.experiments.nic.link.wire import (
    CE,
    NOT_ECT,
    Answered,
    Arrival,
    Departure,
    PairEnd,
    PairSettings,
)
from etloop.traffic import _native

if TYPE_CHECKING:
    from random import Random

LATENCY_NS: Final = 1_000
"""Latency of the link, one way."""
FRAMING_BYTES: Final = 24
"""FCS, preamble and gap of a frame."""
HEADERS_BYTES: Final = 82
_PACKET_BYTES: Final = 16
"""BTH and ICRC."""
_WRITE_BYTES: Final = 32
"""The same with RETH."""
_MISSES: Final = 3
"""Factor on the time of a packet if the card serves more queue pairs than it can at full rate."""
_OURS, _THEIRS = ("10.0.0.1", "10.0.0.3"), "10.0.0.2"
_THERE: Final = Addresses(
    b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", IPv4Address(_OURS[0]), IPv4Address(_THEIRS), IPv4Address(_OURS[1])
)
_BACK: Final = tuple(
    Addresses(_THERE.their_mac, _THERE.our_mac, _THERE.their_ip, our_ip) for our_ip in _THERE.our_ips
)
_TIMEOUT_CODE: Final = 14
_GATHER_NS: Final = 20_000
"""Time that an acknowledgement waits for further requests."""
_VA: Final = 0x7F0000000000
_PARTITION: Final = 0xFFFF


def request_ns(model: NicModel, size_bytes: int) -> float:
    """Return the time from one WRITE of one packet to the next, at full rate."""
    wire_ns = (size_bytes + _WRITE_BYTES + HEADERS_BYTES) * 8 * NS_PER_S / model.line_bps
    return max(wire_ns, model.message_ns)


@dataclass(slots=True)
class _Pair:
    """One queue pair of the card."""

    end: PairEnd
    rate: PairRate
    peer_qpn: int = 0
    settings: PairSettings = PairSettings()
    state: str = "INIT"
    # As requester: packets by distance from the first PSN.
    packets: list[tuple[int, int, bool]] = field(default_factory=list)
    """(opcode, payload, asks for an acknowledgement) of every packet posted."""
    acknowledged: int = 0
    next: int = 0
    resends: list[int] = field(default_factory=list)
    """Single packets to be retransmitted before the next new one."""
    pace: LineClock = field(default_factory=LineClock)
    is_held_until_ns: int = 0
    is_leaving: bool = False
    tries: int = 0
    timer: int = 0
    """Number of the valid timeout; timers with other numbers are obsolete."""
    last_nak: int = -1
    # As responder.
    expected: int = 0
    early: set[int] = field(default_factory=set)
    has_nak: bool = False
    unanswered: int = 0
    gathers: int = 0
    receives: int = 0
    msn: int = 0


def _dscp_of(model: NicModel, pair: _Pair) -> int:
    """Return the DSCP of packets of a queue pair."""
    return pair.settings.dscp if model.own_dscp < 0 else model.own_dscp


class SimulatedNic:
    """A card by its parameters, and the wire to it. A `Wire` and a `NicControl`."""

    def __init__(self, model: NicModel, random: Random) -> None:
        self._model, self._random = model, random
        self._time = VirtualTime()
        self._arrived: list[Arrival] = []
        self._pairs: dict[int, _Pair] = {}
        self._active: set[int] = set()
        """Queue pairs that were given work."""
        self._last_cnp_ns: dict[int, int] = {}
        self._port = CardPort(self._time.at, self.now_ns, self._arrived.append, LATENCY_NS)
        self._our_line = LineClock()
        self.flows = tuple(_native.IpFlow(our_ip, _THEIRS, 0xC123) for our_ip in _OURS)
        self._back = tuple(_native.IpFlow(_THEIRS, our_ip, 0xD000) for our_ip in _OURS)
        self.resolution_ns = 100

    # ---- the wire

    def now_ns(self) -> int:
        """See `Wire`."""
        return self._time.now_ns

    def send(self, departure: Departure) -> int:
        """See `Wire`."""
        left_ns = max(self._time.now_ns, self._our_line.free_ns)
        bits = (len(departure.datagram) + HEADERS_BYTES) * 8
        gone_ns = self._our_line.take(bits * NS_PER_S / self._model.line_bps, self._time.now_ns)
        self._time.at(gone_ns + LATENCY_NS, lambda: self._take(departure))
        return left_ns

    def send_frame(self, frame: bytes) -> int:
        """See `Wire`."""
        left_ns = max(self._time.now_ns, self._our_line.free_ns)
        bits = (len(frame) + FRAMING_BYTES) * 8
        gone_ns = self._our_line.take(bits * NS_PER_S / self._model.line_bps, self._time.now_ns)
        self._time.at(gone_ns + LATENCY_NS, lambda: self._take_frame(frame))
        return left_ns

    def answer_requests(
        self, acknowledgement: Departure, our_qpn: int, most: int, until_ns: int | None
    ) -> Answered | None:
        """Return None, see `Wire`: in virtual time no faster path is needed."""
        return None

    def take_drop_count(self) -> int:
        """Return 0, see `Wire`: no frame is ever dropped here."""
        return 0

    def receive(self, until_ns: int) -> Arrival | None:
        """See `Wire`."""
        while not self._arrived:
            if not self._time.next(until_ns):
                return None
        return self._arrived.pop(0)

    def frame_of(self, departure: Departure) -> bytes:
        """See `Wire`."""
        return frame_of(departure, _THERE)

    def _vary(self, latency_ns: float) -> int:
        return round(latency_ns * (1 + self._random.uniform(-1, 1) * self._model.jitter))

    def _leave(
        self, pair: _Pair, packet: _native.WirePacket, dscp: int | None = None, ecn: int | None = None
    ) -> None:
        """Send a packet; without `dscp` and `ecn` it has those that the queue pair was joined with."""
        dscp = _dscp_of(self._model, pair) if dscp is None else dscp
        ecn = pair.settings.ecn if ecn is None else ecn
        payload_bytes, address = packet.payload_bytes, pair.settings.address
        datagram = _native.encode(packet, self._back[address])
        takes_ns = (len(datagram) + HEADERS_BYTES) * 8 * NS_PER_S / self._model.line_bps
        if packet.opcode < ACK and packet.opcode not in READ_RESPONSES:
            takes_ns = max(takes_ns, self._model.message_ns)
            limit = self._model.full_rate_pairs
            takes_ns *= _MISSES if 0 < limit < len(self._active) else 1
        frame = frame_of(Departure(datagram, dscp, ecn, 0xD000), _BACK[address])
        ttl = pair.settings.hop_limit
        arrival = Arrival(0, _native.decode(datagram)[0], payload_bytes, dscp, ecn, ttl, 0, 0xD000, frame)
        self._port.leave(takes_ns, arrival)

    # ---- orders to the card

    def open(self) -> PairEnd:
        """Create a queue pair, see `NicControl`."""
        pair_end = PairEnd(0x100 + len(self._pairs), _VA, 0x1234 + len(self._pairs))
        self._pairs[pair_end.qpn] = _Pair(pair_end, PairRate(self._model))
        return pair_end

    def join(self, end: PairEnd, our_qpn: int, settings: PairSettings) -> None:
        """See `NicControl`."""
        pair = self._pairs[end.qpn]
        pair.peer_qpn, pair.settings, pair.state = our_qpn, settings, "RTS"
        pair.expected = settings.receive_psn

    def write(self, end: PairEnd, size_bytes: int) -> None:
        """See `NicControl`."""
        self._post(self._pairs[end.qpn], size_bytes, WRITE_FIRST, WRITE_ONLY)

    def send_message(self, end: PairEnd, size_bytes: int) -> None:
        """Post a SEND."""
        self._post(self._pairs[end.qpn], size_bytes, SEND_FIRST, SEND_ONLY)

    def write_on_all(self, count: int, size_bytes: int) -> None:
        """Post writes on all connected queue pairs, see `NicControl`."""
        for pair in [pair for pair in self._pairs.values() if pair.state == "RTS"]:
            for _ in range(count):
                self._post(pair, size_bytes, WRITE_FIRST, WRITE_ONLY)

    def grant(self, end: PairEnd, size_bytes: int) -> None:
        """Post a receive of any size."""
        self._pairs[end.qpn].receives += 1 if size_bytes >= 0 else 0

    def state(self, end: PairEnd) -> str:
        """See `NicControl`."""
        return self._pairs[end.qpn].state

    def close(self, end: PairEnd) -> None:
        """See `NicControl`."""
        self._pairs[end.qpn].state = "RESET"
        self._active.discard(end.qpn)

    def _post(self, pair: _Pair, size_bytes: int, first: int, only: int) -> None:
        self._active.add(pair.end.qpn)
        mtu = pair.settings.path_mtu
        count = max(-(-size_bytes // mtu), 1)
        ack_every = self._model.ack_request_every
        for number in range(count):
            opcode = only if count == 1 else first + (0 if number == 0 else 2 if number == count - 1 else 1)
            asks = number == count - 1 or (ack_every > 0 and (len(pair.packets) + 1) % ack_every == 0)
            pair.packets.append((opcode, min(mtu, size_bytes - number * mtu), asks))
        self._go_on(pair)

    # ---- the card as requester

    def _go_on(self, pair: _Pair) -> None:
        """Send the next packet when the pair's rate and the card's hold allow it."""
        if pair.is_leaving or pair.state != "RTS":
            return
        is_open = pair.next - pair.acknowledged < self._model.window_packets
        if not pair.resends and (pair.next >= len(pair.packets) or not is_open):
            return
        pair.is_leaving = True
        self._time.at(max(self._time.now_ns, pair.is_held_until_ns), lambda: self._leave_next(pair))

    def _leave_next(self, pair: _Pair) -> None:
        pair.is_leaving = False
        if pair.state != "RTS":
            return
        if self._time.now_ns < pair.is_held_until_ns:
            self._go_on(pair)
            return
        number = pair.resends.pop(0) if pair.resends else pair.next
        if number >= len(pair.packets):
            return
        if number == pair.next:
            pair.next += 1
        opcode, payload_bytes, asks = pair.packets[number]
        packet = _native.WirePacket(opcode)
        packet.dest_qpn, packet.psn = pair.peer_qpn, (pair.settings.send_psn + number) % PSNS
        packet.payload_bytes, packet.ack_req = payload_bytes, asks
        if opcode in (WRITE_FIRST, WRITE_ONLY):
            packet.va, packet.rkey, packet.dma_bytes = _VA, 7, payload_bytes
        self._leave(pair, packet)
        bits = (payload_bytes + _PACKET_BYTES + HEADERS_BYTES) * 8
        held_ns = max(bits * NS_PER_S / pair.rate.bps, self._model.message_ns)
        pair.is_held_until_ns = pair.pace.take_at(held_ns, self._time.now_ns)
        self._watch(pair)
        self._go_on(pair)

    def _watch(self, pair: _Pair) -> None:
        """Restart the timeout."""
        pair.timer += 1
        if pair.settings.timeout_code == 0:
            return
        scale = 2.0 ** (pair.settings.timeout_code - _TIMEOUT_CODE)
        wait_ns = self._model.timeout_ns * scale * self._model.timeout_growth**pair.tries
        timer = pair.timer
        self._time.at(self._time.now_ns + self._vary(wait_ns), lambda: self._time_out(pair, timer))

    def _time_out(self, pair: _Pair, timer: int) -> None:
        if timer != pair.timer or pair.acknowledged >= pair.next or pair.state != "RTS":
            return
        if pair.tries >= (self._model.own_retries or pair.settings.retry_count):
            pair.state = "ERR"
            return
        pair.tries += 1
        self._send_again(pair, pair.acknowledged, self._time.now_ns)

    def _send_again(self, pair: _Pair, number: int, from_ns: int) -> None:
        if self._model.recovery is Recovery.GO_BACK_N:
            pair.next, pair.resends = number, []
        elif number not in pair.resends:
            pair.resends.append(number)
        pair.is_held_until_ns = max(from_ns, self._time.now_ns)
        if from_ns > self._time.now_ns:
            self._time.at(from_ns, lambda: self._go_on(pair))
        self._go_on(pair)

    def _hear_answer(self, pair: _Pair, packet: _native.WirePacket) -> None:
        number = distance(packet.psn, pair.settings.send_psn)
        kind = packet.syndrome & 0xE0
        upto = number + 1 if kind == 0 else number
        if upto > pair.acknowledged:
            pair.acknowledged, pair.tries = min(upto, len(pair.packets)), 0
            pair.next = max(pair.next, pair.acknowledged)
            self._watch(pair)
        if kind == RNR:
            wait_ns = rnr_timer_ns(packet.syndrome & 31) * self._model.rnr_factor
            self._send_again(pair, number, self._time.now_ns + self._vary(wait_ns))
        elif packet.syndrome == NAK_SEQUENCE and number != pair.last_nak:
            pair.last_nak = number
            self._send_again(pair, number, self._time.now_ns + self._vary(self._model.resend_ns))
        self._go_on(pair)

    def _hear_notification(self, pair: _Pair) -> None:
        if self._model.cnp_cut > 0:
            self._raise_later(pair.rate, pair.rate.cut(self._time.now_ns))

    def _raise_later(self, rate: PairRate, number: int) -> None:
        def climb() -> None:
            if rate.climb(number):
                self._raise_later(rate, number)

        self._time.at(self._time.now_ns + self._vary(self._model.cnp_recovery_ns), climb)

    # ---- the card as responder

    def _take(self, departure: Departure) -> None:
        if _native.decode(departure.datagram)[0].opcode != CNP and not self._is_whole(departure):
            return
        packet, payload = _native.decode(departure.datagram)
        pair = self._pairs.get(packet.dest_qpn)
        if pair is None or pair.state != "RTS":
            return
        if departure.ecn == CE and (packet.opcode < ACK or self._model.notifies_acks):
            self._notify(pair)
        if packet.opcode == ACK:
            self._hear_answer(pair, packet)
        elif packet.opcode == CNP:
            self._hear_notification(pair)
        else:
            self._hear_request(pair, packet, len(payload))

    def _take_frame(self, frame: bytes) -> None:
        quanta = quanta_of(frame)
        if quanta is not None:
            if self._model.honours_pauses:
                stop_ns = -(-512 * quanta * NS_PER_S // self._model.line_bps)
                reaction_ns = self._vary(self._model.pause_reaction_ns)
                self._time.at(self._time.now_ns + reaction_ns, lambda: self._port.stop(stop_ns))
            return
        if _native.check_frame(frame) == "good":
            if int.from_bytes(frame[BTH + 2 : BTH + 4]) == _PARTITION:
                self._take(Departure(frame[BTH:], frame[15] >> 2, frame[15] & 3))
            return
        pair = self._pairs.get(int.from_bytes(frame[BTH + 5 : BTH + 8]))
        fits = int.from_bytes(frame[16:18]) == len(frame) - 14
        if self._model.answers_trims and fits and pair is not None and pair.state == "RTS":
            psn = int.from_bytes(frame[BTH + 9 : BTH + 12])
            if psn == pair.expected and not pair.has_nak:
                pair.has_nak = True
                self._time.at(
                    self._time.now_ns + self._vary(self._model.nak_ns), lambda: self._nak(pair, psn)
                )

    def _is_whole(self, departure: Departure) -> bool:
        return _native.check_frame(self.frame_of(departure)) == "good"

    def _hear_request(self, pair: _Pair, packet: _native.WirePacket, size_bytes: int) -> None:
        ahead = distance(packet.psn, pair.expected)
        if ahead < 0 and packet.opcode == READ_REQUEST:
            self._serve(pair, packet)
        elif ahead < 0:
            self._answer(pair, (pair.expected - 1) % PSNS, CREDITS)
        elif ahead > 0:
            self._hear_early(pair, packet)
        elif packet.opcode == SEND_ONLY and not pair.receives:
            self._answer(pair, packet.psn, RNR | pair.settings.min_rnr_code)
        elif packet.opcode == WRITE_ONLY and size_bytes and packet.rkey != pair.end.rkey:
            self._answer(pair, packet.psn, NAK_SEQUENCE + 2)
            pair.state = "ERR"
        elif packet.opcode in (READ_REQUEST, FETCH_ADD):
            self._serve(pair, packet)
        else:
            pair.receives -= packet.opcode == SEND_ONLY
            self._accept(pair, packet)

    def _serve(self, pair: _Pair, packet: _native.WirePacket) -> None:
        """Answer a READ, the first time or again, or an atomic."""
        mtu, size = pair.settings.path_mtu, packet.dma_bytes
        packets = max(-(-size // mtu), 1)
        if packet.psn == pair.expected:
            pair.expected, pair.msn = (packet.psn + packets) % PSNS, pair.msn + 1

        def respond() -> None:
            for number in range(packets):
                place = 3 if packets == 1 else 0 if number == 0 else 2 if number == packets - 1 else 1
                is_read = packet.opcode == READ_REQUEST
                answer = _native.WirePacket(READ_RESPONSES[place] if is_read else ATOMIC_ACK)
                answer.dest_qpn, answer.psn = pair.peer_qpn, (packet.psn + number) % PSNS
                answer.syndrome, answer.msn = (CREDITS, pair.msn % PSNS) if place != 1 else (0, 0)
                answer.payload_bytes = min(mtu, size - number * mtu) if is_read else 0
                self._leave(pair, answer)

        self._time.at(self._time.now_ns + self._vary(self._model.read_ns), respond)

    def _hear_early(self, pair: _Pair, packet: _native.WirePacket) -> None:
        if self._model.keeps_early:
            pair.early.add(packet.psn)
        if not pair.has_nak or self._model.nak_repeats:
            pair.has_nak = True
            psn = pair.expected
            self._time.at(self._time.now_ns + self._vary(self._model.nak_ns), lambda: self._nak(pair, psn))

    def _nak(self, pair: _Pair, psn: int) -> None:
        if pair.expected == psn:
            self._say(pair, psn, NAK_SEQUENCE)

    def _accept(self, pair: _Pair, packet: _native.WirePacket) -> None:
        was_early = pair.has_nak
        pair.has_nak = False
        pair.expected, pair.msn = (packet.psn + 1) % PSNS, pair.msn + 1
        while pair.expected in pair.early:
            pair.early.discard(pair.expected)
            pair.expected, pair.msn = (pair.expected + 1) % PSNS, pair.msn + 1
        if packet.ack_req or was_early:
            self._acknowledge(pair)

    def _acknowledge(self, pair: _Pair) -> None:
        pair.unanswered += 1
        pair.gathers += 1
        if pair.unanswered >= self._model.requests_per_ack:
            pair.unanswered = 0
            self._answer(pair, (pair.expected - 1) % PSNS, CREDITS)
            return
        gathers = pair.gathers

        def late() -> None:
            if pair.gathers == gathers and pair.unanswered:
                pair.unanswered = 0
                self._say(pair, (pair.expected - 1) % PSNS, CREDITS)

        self._time.at(self._time.now_ns + _GATHER_NS, late)

    def _answer(self, pair: _Pair, psn: int, syndrome: int) -> None:
        self._time.at(
            self._time.now_ns + self._vary(self._model.turnaround_ns),
            lambda: self._say(pair, psn, syndrome),
        )

    def _say(self, pair: _Pair, psn: int, syndrome: int) -> None:
        packet = _native.WirePacket(ACK)
        packet.dest_qpn, packet.psn = pair.peer_qpn, psn
        packet.syndrome, packet.msn = syndrome, pair.msn % PSNS
        self._leave(pair, packet)

    def _notify(self, pair: _Pair) -> None:
        scope = self._model.cnp_scope
        if scope is CnpScope.NONE:
            return
        key = 0
        if scope is not CnpScope.PORT:
            key = pair.end.qpn if scope is CnpScope.QUEUE_PAIR else pair.settings.address
        last_ns = self._last_cnp_ns.get(key, -NS_PER_MS * 1000)
        if self._time.now_ns - last_ns < self._model.cnp_interval_ns:
            return
        self._last_cnp_ns[key] = self._time.now_ns
        packet = _native.WirePacket(CNP)
        packet.dest_qpn, packet.becn = pair.peer_qpn, True
        dscp = _dscp_of(self._model, pair) if self._model.cnp_dscp_follows else self._model.cnp_dscp
        self._leave(pair, packet, dscp, NOT_ECT)
