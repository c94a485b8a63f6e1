"""UDP beside the jobs, plain or as UET's unreliable delivery (UUD): datagrams at a rate, in a class of their own.

A shell: threads, kernel sockets, time.

Decides how a rate becomes datagrams: by the clock since the stream's begin, in bursts as short as a thread of Python can be
woken for. Congestion does not slow it down; what a socket does not take is left out and told. Nothing of it is the engine's.
Nobody is sent a stream who did not ask for it: before the run its receiver has to answer a probe that only somebody at that
address can read. So whoever says where streams go cannot aim them at a host that takes part in nothing.
"""

from __future__ import annotations

import ipaddress
import secrets
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.records import STREAM_PROBE_BYTES, UUD_HEADER_BYTES, StreamCount, StreamForm
from etloop.traffic import _native
from etloop.traffic.send_limits import UNLIMITED, SendLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etloop.contract.model.assignment import UdpStream

TICK_NS: Final = 1_000_000
MOST_BEHIND_NS: Final = 100_000_000
"""What a thread that did not run makes up for; older datagrams are left out."""
_MOST_SEGMENTS: Final = 64
_MOST_SEND_BYTES: Final = 65_000
_RECEIVE_BYTES: Final = 1 << 17
_BUFFER_BYTES: Final = 8 << 20
_PATIENCE_S: Final = 0.1
_LONGEST_REST_NS: Final = 2 * NS_PER_S
# linux/udp.h
_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
MARK: Final = b"etloop-udp"
_NUMBER_AT: Final = 6
"""Of a message of UUD, in its datagram."""
_NUMBER_BYTES: Final = 2
_PROBE: Final = b"etloop-ask"
_ANSWER: Final = b"etloop-yes"
"""An answer is as long as what it answers: nobody can have us send more to somebody than he sent."""
_NONCE_BYTES: Final = STREAM_PROBE_BYTES - len(_PROBE)
_PROBE_EACH_S: Final = 0.05
_PROBE_NS: Final = 2 * NS_PER_S
"""How long a receiver may take to answer, as those of queue pairs may."""
_MOST_READ: Final = 256


class UdpStreams:
    """The ends of streams that are at one agent."""

    def __init__(
        self, streams: tuple[UdpStream, ...], limits: SendLimits = UNLIMITED, probe_ns: int = _PROBE_NS
    ) -> None:
        """Opens the sockets; receivers have `probe_ns` to answer.

        Raises `RigError` for an address that is not here or a port that is taken.
        """
        self._stop = threading.Event()
        self._ends: list[_Sender | _Receiver] = []
        self._threads: list[threading.Thread] = []
        try:
            for stream in streams:
                self._ends.append(
                    _Sender(stream, limits.hop_limit, probe_ns) if stream.sends else _Receiver(stream)
                )
        except OSError as error:
            self.close()
            what = f"cannot be opened: {error.strerror or error}"
            remedy = "see that its ports have their addresses, and that its UDP port is free"
            raise RigError(Problem(f"background {stream.name}", what, remedy)) from None

    def start_probe(self) -> None:
        """Has receivers listen and answer, and senders ask them; see `is_answered` and `failure`."""
        for end in self._ends:
            self._begin(end.ask if isinstance(end, _Sender) else end.run)

    @property
    def is_answered(self) -> bool:
        """Whether every receiver of a stream that is sent from here has answered."""
        return all(end.answered for end in self._senders())

    @property
    def failure(self) -> str:
        """What kept a stream from being sent, if a receiver did not answer in time."""
        silent = next((end.stream for end in self._senders() if end.is_silent), None)
        if silent is None:
            return ""
        where = f"{silent.dst_ip} (UDP port {silent.udp_port})"
        return (
            f"background {silent.name}: nobody at {where} answered a probe, so nothing is sent there; "
            "check links and addresses between the two ports, and filters of UDP"
        )

    def start(self, start_ns: int) -> None:
        """Lets every stream begin that was answered, in time from `start_ns` of this machine's monotonic clock."""
        for end in self._senders():
            if end.answered:
                self._begin(end.run, start_ns)

    def _senders(self) -> Iterator[_Sender]:
        return (end for end in self._ends if isinstance(end, _Sender))

    def _begin(self, work: Callable[..., None], *arguments: int) -> None:
        thread = threading.Thread(target=work, args=(*arguments, self._stop), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ends all of them; may be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for end in self._senders():
            end.take_answers()

    def counts(self) -> tuple[StreamCount, ...]:
        """What every end counted."""
        return tuple(
            StreamCount(
                end.stream.name,
                end.stream.sends,
                end.datagrams,
                end.payload_bytes,
                end.left_out,
                end.probes_sent,
                end.probes_received,
                end.stream.form,
            )
            for end in self._ends
        )

    def close(self) -> None:
        """Stops and gives the sockets back."""
        self.stop()
        for end in self._ends:
            end.socket.close()


class _Sender:
    def __init__(self, stream: UdpStream, hop_limit: int, probe_ns: int) -> None:
        self.stream = stream
        self.datagrams = self.payload_bytes = self.left_out = 0
        self.probes_sent = self.probes_received = 0
        self.answered = self.is_silent = False
        # Of its own port, so that switches that hash it do the same every time, and as the twin does.
        self.socket = _opened(stream.src_ip, stream.src_udp_port, stream)
        if hop_limit:
            _set_hop_limit(self.socket, hop_limit)
        self.socket.setblocking(False)
        self._target = (stream.dst_ip, stream.udp_port)
        self._probe_ns = probe_ns
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._head = head_of(stream, 0, STREAM_PROBE_BYTES)
        size = stream.datagram_bytes
        self._batch = max(1, min(_MOST_SEGMENTS, _MOST_SEND_BYTES // size))
        self._content = b"".join(datagram(stream, number) for number in range(self._batch))
        self._segment = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("H", size))]

    def ask(self, stop: threading.Event) -> None:
        """Asks the receiver until it answers, or for as long as it may take."""
        last_ns = time.monotonic_ns() + self._probe_ns
        while not stop.is_set():
            try:
                self.socket.sendto(self._head + _PROBE + self._nonce, self._target)
                self.probes_sent += 1
            except OSError:
                # Such as a neighbour that is not known yet: that it does not answer says enough.
                pass
            select.select([self.socket], [], [], _PROBE_EACH_S)
            self.take_answers()
            if self.answered:
                return
            if time.monotonic_ns() > last_ns:
                self.is_silent = True
                return

    def take_answers(self) -> None:
        """Reads what has come in answer to probes, and does not wait for it."""
        try:
            for _ in range(_MOST_READ):
                content, sender = self.socket.recvfrom(probe_bytes(self.stream) + 1)
                if content == self._head + _ANSWER + self._nonce and sender[:2] == self._target:
                    self.probes_received += 1
                    self.answered = True
        except OSError:
            return

    def run(self, start_ns: int, stop: threading.Event) -> None:
        stream = self.stream
        begin_ns = start_ns + stream.start_ns
        end_ns = start_ns + stream.stop_ns if stream.stop_ns else None
        due = 0  # datagrams, sent or left out
        while not stop.is_set():
            now_ns = time.monotonic_ns()
            if end_ns is not None and now_ns >= end_ns:
                return
            if now_ns < begin_ns:
                stop.wait(min(begin_ns - now_ns, TICK_NS * 100) / NS_PER_S)
                continue
            wanted = self._by(now_ns - begin_ns)
            forgiven = self._by(now_ns - begin_ns - MOST_BEHIND_NS) - due
            if forgiven > 0:
                self.left_out += forgiven
                due += forgiven
            while due < wanted:
                count = min(wanted - due, self._batch)
                if not self._send(count):
                    break
                due += count
            time.sleep(max(TICK_NS - (time.monotonic_ns() - now_ns), 0) / NS_PER_S)

    def _by(self, elapsed_ns: int) -> int:
        """Datagrams that the rate has made due after so long."""
        return max(elapsed_ns, 0) * self.stream.rate_bps // (8 * self.stream.datagram_bytes * NS_PER_S)

    def _send(self, count: int) -> bool:
        size = count * self.stream.datagram_bytes
        segmented = self._segment if count > 1 else []
        try:
            self.socket.sendmsg([memoryview(self._content)[:size]], segmented, 0, self._target)
        except (BlockingIOError, ConnectionRefusedError, InterruptedError):
            return False
        except OSError:
            if self._batch == 1:
                return False
            self._batch = 1  # an interface that cannot cut for us
            return False
        self.datagrams += count
        self.payload_bytes += size
        return True


class _Receiver:
    def __init__(self, stream: UdpStream) -> None:
        self.stream = stream
        self.datagrams = self.payload_bytes = self.left_out = 0
        self.probes_sent = self.probes_received = 0
        self._source = (stream.src_ip, stream.src_udp_port)
        self._head = head_of(stream, 0, STREAM_PROBE_BYTES)
        self.socket = _opened(stream.dst_ip, stream.udp_port, stream)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.socket.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        self.socket.settimeout(_PATIENCE_S)

    def run(self, stop: threading.Event) -> None:
        content = bytearray(_RECEIVE_BYTES)
        before, between, mark = expected_parts(self.stream)
        asked = probe_bytes(self.stream)
        last_ns = 0
        while True:
            # The other end is told to stop at about the same time; what never ends is not its.
            if stop.is_set():
                last_ns = last_ns or time.monotonic_ns() + _LONGEST_REST_NS
                if time.monotonic_ns() > last_ns:
                    return
            try:
                size, control, _, sender = self.socket.recvmsg_into([content], socket.CMSG_SPACE(4))
            except TimeoutError:
                # Only once nothing is left: what was sent has had the time of a look to come.
                if stop.is_set():
                    return
                continue
            joined = next(
                (value for level, kind, value in control if (level, kind) == (_SOL_UDP, _UDP_GRO)), b""
            )
            segment = struct.unpack_from("i", joined)[0] if len(joined) >= 4 else size
            is_probe = segment == asked and content.startswith(self._head + _PROBE)
            if is_probe and sender[:2] == self._source:
                for begin in range(0, size, asked):
                    self._answer(bytes(content[begin : begin + asked]))
                continue
            if not (content.startswith(before) and content.startswith(mark, between)):
                self.left_out += 1
                continue
            self.datagrams += -(-size // segment) if segment else 0
            self.payload_bytes += size

    def _answer(self, probe: bytes) -> None:
        self.probes_received += 1
        try:
            said = self._head + _ANSWER + probe[len(self._head) + len(_PROBE) :]
            self.socket.sendto(said, self._source)
        except OSError:
            return  # It is asked again.
        self.probes_sent += 1


def head_of(stream: UdpStream, number: int, carried_bytes: int) -> bytes:
    """Return what stands in a datagram before what it carries: the headers of a message of UUD, and nothing in plain UDP."""
    if stream.form is StreamForm.UDP:
        return b""
    return _native.uet_datagram_headers(stream.src_udp_port, number, carried_bytes)


def probe_bytes(stream: UdpStream) -> int:
    """Return the length of what asks a receiver, and of its answer."""
    return STREAM_PROBE_BYTES + (UUD_HEADER_BYTES if stream.form is StreamForm.UUD else 0)


def datagram(stream: UdpStream, number: int) -> bytes:
    """Return a datagram of a stream; of UUD that with a message number."""
    head = head_of(stream, number, stream.datagram_bytes - UUD_HEADER_BYTES)
    return (head + MARK + bytes(stream.datagram_bytes))[: stream.datagram_bytes]


def expected_parts(stream: UdpStream) -> tuple[bytes, int, bytes]:
    """Return what every datagram of a stream begins with, and what stands from a place on: all else may be others'.

    Of UUD these are the bytes before and behind the number of the message.
    """
    known = datagram(stream, 0)
    if stream.form is StreamForm.UDP:
        return b"", 0, known[: len(MARK)]
    first, behind = _NUMBER_AT, _NUMBER_AT + _NUMBER_BYTES
    return known[:first], behind, known[behind : UUD_HEADER_BYTES + len(MARK)]


def _set_hop_limit(sender: socket.socket, hop_limit: int) -> None:
    if sender.family is socket.AF_INET6:
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hop_limit)
    else:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hop_limit)


def _opened(address: str, port: int, stream: UdpStream) -> socket.socket:
    ipv6 = ipaddress.ip_address(address).version == 6
    made = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if ipv6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, stream.traffic_class)
        else:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, stream.traffic_class)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
