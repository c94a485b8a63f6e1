"""Our own queue pair in the place of a card under test: a second responder and requester that `etloop nic profile` can ask.

It is the engine's, in virtual time, over a link of a microsecond: what it does is known from docs/transport.md and its settings,
not from the model that blind trials draw.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from ipaddress import IPv4Address

from etloop.contract.model.transport import RecoverySettings, TransportSettings
from etloop.experiments.nic.link.frames import BTH, Addresses, arrival_of, frame_of
from etloop.experiments.nic.link.wire import Arrival, Departure, PairEnd, PairSettings
from etloop.traffic import _native

LATENCY_NS = 1_000
_THERE = Addresses(b"\2\0\0\0\0\1", b"\2\0\0\0\0\2", IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
_BACK = Addresses(_THERE.their_mac, _THERE.our_mac, _THERE.their_ip, _THERE.our_ip)
_VA = 0x7F00_0000_0000
_RKEY = 0x77


class EngineCard:
    """A `Wire` and a `NicControl`. `window_packets` is the engine's own setting."""

    def __init__(self, window_packets: int = 48, timeout_ns: int = 20_000_000) -> None:
        self._window, self._timeout_ns = window_packets, timeout_ns
        self._now_ns = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._arrived: list[Arrival] = []
        self._pairs: dict[int, _native.QueuePair] = {}
        self.flows = (_native.IpFlow("10.0.0.1", "10.0.0.2", 0xC123),)
        self._back = _native.IpFlow("10.0.0.2", "10.0.0.1", 0xD000)
        self.resolution_ns = 100

    def now_ns(self) -> int:
        return self._now_ns

    def frame_of(self, departure: Departure) -> bytes:
        return frame_of(departure, _THERE)

    def send(self, departure: Departure) -> int:
        frame = self.frame_of(departure)
        if _native.check_frame(frame) == "good":
            self._at(self._now_ns + LATENCY_NS, lambda: self._take(departure))
        return self._now_ns

    def send_frame(self, frame: bytes) -> int:
        if _native.check_frame(frame) == "good":
            departure = Departure(frame[BTH:], frame[15] >> 2, frame[15] & 3)
            self._at(self._now_ns + LATENCY_NS, lambda: self._take(departure))
        return self._now_ns

    def answer_requests(
        self, acknowledgement: Departure, our_qpn: int, most: int, until_ns: int | None
    ) -> None:
        return None

    def take_drop_count(self) -> int:
        return 0

    def receive(self, until_ns: int) -> Arrival | None:
        while not self._arrived:
            self._let_timers_run(until_ns)
            if not self._events or self._events[0][0] > until_ns:
                self._now_ns = max(self._now_ns, until_ns)
                return None
            at_ns, _, happen = heapq.heappop(self._events)
            self._now_ns = max(self._now_ns, at_ns)
            happen()
        return self._arrived.pop(0)

    def open(self) -> PairEnd:
        return PairEnd(0x200 + len(self._pairs), _VA, _RKEY)

    def join(self, end: PairEnd, our_qpn: int, settings: PairSettings) -> None:
        wanted = TransportSettings(
            path_mtu_bytes=settings.path_mtu,
            window_packets=self._window,
            timeout_ns=self._timeout_ns << max(settings.timeout_code - 14, 0),
            retry_limit=settings.retry_count,
            recovery=RecoverySettings(
                adaptive_timeout=False,
                rnr_retry_limit=settings.rnr_retry,
                min_rnr_timer_code=settings.min_rnr_code,
                outstanding_reads=4,
                # The engine has one first number for both ways; experiments ask for another in one of them at most.
                initial_psn=max(settings.send_psn, settings.receive_psn),
            ),
        )
        self._pairs[end.qpn] = _native.QueuePair(end.qpn, our_qpn, wanted, _VA, _RKEY, 1 << 20)

    def write(self, end: PairEnd, size_bytes: int) -> None:
        self._pairs[end.qpn].post("write", va=_VA, rkey=1, content=bytes(min(size_bytes, 1 << 20)))
        self._leave(end.qpn)

    def send_message(self, end: PairEnd, size_bytes: int) -> None:
        self._pairs[end.qpn].post("send", content=bytes(size_bytes))
        self._leave(end.qpn)

    def write_on_all(self, count: int, size_bytes: int) -> None:
        for qpn, pair in self._pairs.items():
            for _ in range(count):
                pair.post("write", va=_VA, rkey=1, content=bytes(size_bytes))
            self._leave(qpn)

    def grant(self, end: PairEnd, size_bytes: int) -> None:
        self._pairs[end.qpn].post_receive(size_bytes)

    def state(self, end: PairEnd) -> str:
        return "ERR" if self._pairs[end.qpn].fault else "RTS"

    def close(self, end: PairEnd) -> None:
        del self._pairs[end.qpn]

    def _at(self, at_ns: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ns, next(self._order), happen))

    def _take(self, departure: Departure) -> None:
        packet, _ = _native.decode(departure.datagram)
        pair = self._pairs.get(packet.dest_qpn)
        if pair is not None:
            pair.on_datagram(departure.datagram, self._now_ns)
            self._leave(packet.dest_qpn)

    def _leave(self, qpn: int) -> None:
        for datagram in self._pairs[qpn].datagrams(self._back, self._now_ns):
            frame = frame_of(Departure(datagram, source_port=0xD000), _BACK)
            arrival = arrival_of(frame, self._now_ns + LATENCY_NS, _THERE)
            assert arrival is not None
            self._at(arrival.at_ns, lambda arrival=arrival: self._arrived.append(arrival))  # type: ignore[misc]

    def _let_timers_run(self, until_ns: int) -> None:
        due = [(pair.deadline(), qpn) for qpn, pair in self._pairs.items()]
        for deadline_ns, qpn in due:
            first_ns = self._events[0][0] if self._events else until_ns
            if deadline_ns is not None and deadline_ns <= min(first_ns, until_ns):
                self._now_ns = max(self._now_ns, deadline_ns)
                self._pairs[qpn].on_timer(self._now_ns)
                self._leave(qpn)
