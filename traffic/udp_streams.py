"""UDP next to the jobs, plain or as UET's unreliable delivery (UUD): datagrams at a constant rate, in their own traffic
class.

This module is a shell: threads, kernel sockets, time. It is independent of the engine.

It decides how a rate becomes datagrams: from the time since the stream's start, in bursts as short as the wake-up
interval of a Python thread. Congestion does not slow a stream down; datagrams that a socket does not accept are skipped
and counted. A stream is sent only to a receiver that has agreed to it: before the run the receiver has to answer a
probe whose nonce only a host at that address can read. So a controller cannot direct streams at a host that does not
take part.
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
"""Maximum backlog that a late thread catches up on; older datagrams are skipped."""
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
"""Offset of the message number in a UUD datagram."""
_NUMBER_BYTES: Final = 2
_PROBE: Final = b"etloop-ask"
_ANSWER: Final = b"etloop-yes"
"""An answer is as long as its probe, so a forged source address gains no amplification."""
_NONCE_BYTES: Final = STREAM_PROBE_BYTES - len(_PROBE)
_PROBE_EACH_S: Final = 0.05
_PROBE_NS: Final = 2 * NS_PER_S
"""Time that a receiver has to answer, the same as for probes of queue pairs."""
_MOST_READ: Final = 256


class UdpStreams:
    """The stream ends of one agent."""

    def __init__(
        self, streams: tuple[UdpStream, ...], limits: SendLimits = UNLIMITED, probe_ns: int = _PROBE_NS
    ) -> None:
        """Open the sockets; receivers have `probe_ns` to answer.

        Raises `RigError` for an address that is not local or a port that is in use.
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
            problem = f"cannot be opened: {error.strerror or error}"
            remedy = "check that its ports have their addresses and that its UDP port is free"
            raise RigError(Problem(f"background {stream.name}", problem, remedy)) from None

    def start_probe(self) -> None:
        """Start receivers, which answer probes, and start probing from senders; see `is_answered` and `failure`."""
        for end in self._ends:
            self._begin(end.ask if isinstance(end, _Sender) else end.run)

    @property
    def is_answered(self) -> bool:
        """Return whether the receivers of all streams sent from here have answered."""
        return all(end.answered for end in self._senders())

    @property
    def failure(self) -> str:
        """Return why a stream is not sent if its receiver did not answer in time, else ""."""
        silent = next((end.stream for end in self._senders() if end.is_silent), None)
        if silent is None:
            return ""
        where = f"{silent.dst_ip} (UDP port {silent.udp_port})"
        return (
            f"background {silent.name}: no answer to probes from {where}, so no traffic is sent there; "
            "check links and addresses between the two ports, and filters of UDP"
        )

    def start(self, start_ns: int) -> None:
        """Start every stream whose receiver answered, at `start_ns` of this machine's monotonic clock."""
        for end in self._senders():
            if end.answered:
                self._begin(end.run, start_ns)

    def _senders(self) -> Iterator[_Sender]:
        return (end for end in self._ends if isinstance(end, _Sender))

    def _begin(self, work: Callable[..., None], *arguments: int) -> None:
        """Run `work` in a daemon thread."""
        thread = threading.Thread(target=work, args=(*arguments, self._stop), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Stop all threads; may be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for end in self._senders():
            end.take_answers()

    def counts(self) -> tuple[StreamCount, ...]:
        """Return the counts of all ends."""
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
        """Stop the threads and close the sockets."""
        self.stop()
        for end in self._ends:
            end.socket.close()


class _Sender:
    """The sending end of a stream."""

    def __init__(self, stream: UdpStream, hop_limit: int, probe_ns: int) -> None:
        self.stream = stream
        self.datagrams = self.payload_bytes = self.left_out = 0
        self.probes_sent = self.probes_received = 0
        self.answered = self.is_silent = False
        # A fixed source port, so that ECMP gives the same result in every run and in the twin.
        self.socket = _open_socket(stream.src_ip, stream.src_udp_port, stream)
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
        """Probe the receiver until it answers or the time limit passes."""
        last_ns = time.monotonic_ns() + self._probe_ns
        while not stop.is_set():
            try:
                self.socket.sendto(self._head + _PROBE + self._nonce, self._target)
                self.probes_sent += 1
            except OSError:
                # For example, the neighbour is not resolved yet. A missing answer is reported in the end.
                pass
            select.select([self.socket], [], [], _PROBE_EACH_S)
            self.take_answers()
            if self.answered:
                return
            if time.monotonic_ns() > last_ns:
                self.is_silent = True
                return

    def take_answers(self) -> None:
        """Read the answers to probes that have arrived, without blocking."""
        try:
            for _ in range(_MOST_READ):
                content, sender = self.socket.recvfrom(probe_bytes(self.stream) + 1)
                if content == self._head + _ANSWER + self._nonce and sender[:2] == self._target:
                    self.probes_received += 1
                    self.answered = True
        except OSError:
            return

    def run(self, start_ns: int, stop: threading.Event) -> None:
        """Send datagrams at the stream's rate until its stop time or until `stop` is set."""
        stream = self.stream
        begin_ns = start_ns + stream.start_ns
        end_ns = start_ns + stream.stop_ns if stream.stop_ns else None
        datagrams_done = 0  # datagrams sent or skipped
        while not stop.is_set():
            now_ns = time.monotonic_ns()
            if end_ns is not None and now_ns >= end_ns:
                return
            if now_ns < begin_ns:
                stop.wait(min(begin_ns - now_ns, TICK_NS * 100) / NS_PER_S)
                continue
            wanted_datagrams = self._by(now_ns - begin_ns)
            skipped = self._by(now_ns - begin_ns - MOST_BEHIND_NS) - datagrams_done
            if skipped > 0:
                self.left_out += skipped
                datagrams_done += skipped
            while datagrams_done < wanted_datagrams:
                count = min(wanted_datagrams - datagrams_done, self._batch)
                if not self._send(count):
                    break
                datagrams_done += count
            time.sleep(max(TICK_NS - (time.monotonic_ns() - now_ns), 0) / NS_PER_S)

    def _by(self, elapsed_ns: int) -> int:
        """Return the number of datagrams that the rate gives for the elapsed time."""
        return max(elapsed_ns, 0) * self.stream.rate_bps // (8 * self.stream.datagram_bytes * NS_PER_S)

    def _send(self, count: int) -> bool:
        """Send `count` datagrams in one call; return whether the socket accepted them."""
        size = count * self.stream.datagram_bytes
        segmented = self._segment if count > 1 else []
        try:
            self.socket.sendmsg([memoryview(self._content)[:size]], segmented, 0, self._target)
        except (BlockingIOError, ConnectionRefusedError, InterruptedError):
            return False
        except OSError:
            if self._batch == 1:
                return False
            self._batch = 1  # the interface does not support UDP segmentation offload
            return False
        self.datagrams += count
        self.payload_bytes += size
        return True


class _Receiver:
    """The receiving end of a stream."""

    def __init__(self, stream: UdpStream) -> None:
        self.stream = stream
        self.datagrams = self.payload_bytes = self.left_out = 0
        self.probes_sent = self.probes_received = 0
        self._source = (stream.src_ip, stream.src_udp_port)
        self._head = head_of(stream, 0, STREAM_PROBE_BYTES)
        self.socket = _open_socket(stream.dst_ip, stream.udp_port, stream)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.socket.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        self.socket.settimeout(_PATIENCE_S)

    def run(self, stop: threading.Event) -> None:
        """Answer probes and count datagrams until `stop` is set and the socket is empty."""
        content = bytearray(_RECEIVE_BYTES)
        prefix, mark_at, mark = expected_parts(self.stream)
        probe_size = probe_bytes(self.stream)
        last_ns = 0
        while True:
            # The sender stops at about the same time; limit the wait in case foreign datagrams keep arriving.
            if stop.is_set():
                last_ns = last_ns or time.monotonic_ns() + _LONGEST_REST_NS
                if time.monotonic_ns() > last_ns:
                    return
            try:
                size, control, _, sender = self.socket.recvmsg_into([content], socket.CMSG_SPACE(4))
            except TimeoutError:
                # Stop once the socket was empty for a timeout: datagrams in flight have arrived by then.
                if stop.is_set():
                    return
                continue
            gro_size = next(
                (value for level, kind, value in control if (level, kind) == (_SOL_UDP, _UDP_GRO)), b""
            )
            segment = struct.unpack_from("i", gro_size)[0] if len(gro_size) >= 4 else size
            is_probe = segment == probe_size and content.startswith(self._head + _PROBE)
            if is_probe and sender[:2] == self._source:
                for begin in range(0, size, probe_size):
                    self._answer(bytes(content[begin : begin + probe_size]))
                continue
            if not (content.startswith(prefix) and content.startswith(mark, mark_at)):
                self.left_out += 1
                continue
            self.datagrams += -(-size // segment) if segment else 0
            self.payload_bytes += size

    def _answer(self, probe: bytes) -> None:
        """Answer a probe with its nonce."""
        self.probes_received += 1
        try:
            answer = self._head + _ANSWER + probe[len(self._head) + len(_PROBE) :]
            self.socket.sendto(answer, self._source)
        except OSError:
            return  # The sender probes again.
        self.probes_sent += 1


def head_of(stream: UdpStream, number: int, carried_bytes: int) -> bytes:
    """Return the headers before a datagram's content: those of a UUD message, b"" for plain UDP."""
    if stream.form is StreamForm.UDP:
        return b""
    return _native.uet_datagram_headers(stream.src_udp_port, number, carried_bytes)


def probe_bytes(stream: UdpStream) -> int:
    """Return the length of a probe and of its answer."""
    return STREAM_PROBE_BYTES + (UUD_HEADER_BYTES if stream.form is StreamForm.UUD else 0)


def datagram(stream: UdpStream, number: int) -> bytes:
    """Return a datagram of a stream; for UUD, with message number `number`."""
    head = head_of(stream, number, stream.datagram_bytes - UUD_HEADER_BYTES)
    return (head + MARK + bytes(stream.datagram_bytes))[: stream.datagram_bytes]


def expected_parts(stream: UdpStream) -> tuple[bytes, int, bytes]:
    """Return (prefix, offset, mark): bytes that all datagrams of a stream begin with, and bytes at an offset.

    Datagrams that differ do not belong to the stream. For UUD these are the bytes before and behind the message number.
    """
    sample = datagram(stream, 0)
    if stream.form is StreamForm.UDP:
        return b"", 0, sample[: len(MARK)]
    number_at, number_end = _NUMBER_AT, _NUMBER_AT + _NUMBER_BYTES
    return sample[:number_at], number_end, sample[number_end : UUD_HEADER_BYTES + len(MARK)]


def _set_hop_limit(sender: socket.socket, hop_limit: int) -> None:
    """Set the TTL or hop limit of a socket."""
    if sender.family is socket.AF_INET6:
        sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hop_limit)
    else:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hop_limit)


def _open_socket(address: str, port: int, stream: UdpStream) -> socket.socket:
    """Return a UDP socket bound to an address and port, with the stream's traffic class. Raises OSError."""
    ipv6 = ipaddress.ip_address(address).version == 6
    udp_socket = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if ipv6:
            udp_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, stream.traffic_class)
        else:
            udp_socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, stream.traffic_class)
        udp_socket.bind((address, port))
    except OSError:
        udp_socket.close()
        raise
    return udp_socket
