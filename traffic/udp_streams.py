"""Plain UDP beside the jobs: datagrams at a rate, in a class of their own, from kernel sockets. A shell: threads, sockets, time.

Decides how a rate becomes datagrams: by the clock since the stream's begin, in bursts as short as a thread of Python can be
woken for. Congestion does not slow it down; what a socket does not take is left out and told. Nothing of it is the engine's.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.records import StreamCount
from etloop.traffic.send_limits import UNLIMITED, SendLimits

if TYPE_CHECKING:
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


class UdpStreams:
    """The ends of streams that are at one agent."""

    def __init__(self, streams: tuple[UdpStream, ...], limits: SendLimits = UNLIMITED) -> None:
        """Opens the sockets. Raises `RigError` for an address that is not here or a port that is taken."""
        self._stop = threading.Event()
        self._ends: list[_Sender | _Receiver] = []
        self._threads: list[threading.Thread] = []
        try:
            for stream in streams:
                self._ends.append(_Sender(stream, limits.hop_limit) if stream.sends else _Receiver(stream))
        except OSError as error:
            self.close()
            what = f"cannot be opened: {error.strerror or error}"
            remedy = "see that its ports have their addresses, and that its UDP port is free"
            raise RigError(Problem(f"background {stream.name}", what, remedy)) from None

    def start(self, start_ns: int) -> None:
        """Lets every stream begin, in time from `start_ns` of this machine's monotonic clock."""
        for end in self._ends:
            thread = threading.Thread(target=end.run, args=(start_ns, self._stop), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ends all of them; may be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def counts(self) -> tuple[StreamCount, ...]:
        """What every end counted."""
        return tuple(
            StreamCount(end.stream.name, end.stream.sends, end.datagrams, end.payload_bytes, end.left_out)
            for end in self._ends
        )

    def close(self) -> None:
        """Stops and gives the sockets back."""
        self.stop()
        for end in self._ends:
            end.socket.close()


class _Sender:
    def __init__(self, stream: UdpStream, hop_limit: int) -> None:
        self.stream = stream
        self.datagrams = self.payload_bytes = self.left_out = 0
        # Of its own port, so that switches that hash it do the same every time, and as the twin does.
        self.socket = _opened(stream.src_ip, stream.udp_port, stream)
        if hop_limit:
            _set_hop_limit(self.socket, hop_limit)
        self.socket.setblocking(False)
        self._target = (stream.dst_ip, stream.udp_port)
        size = stream.datagram_bytes
        self._batch = max(1, min(_MOST_SEGMENTS, _MOST_SEND_BYTES // size))
        self._content = (MARK + bytes(size))[:size] * self._batch
        self._segment = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("H", size))]

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
        self.socket = _opened(stream.dst_ip, stream.udp_port, stream)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.socket.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        self.socket.settimeout(_PATIENCE_S)

    def run(self, _: int, stop: threading.Event) -> None:
        content = bytearray(_RECEIVE_BYTES)
        mark = MARK[: self.stream.datagram_bytes]
        last_ns = 0
        while True:
            # The other end is told to stop at about the same time; what never ends is not its.
            if stop.is_set():
                last_ns = last_ns or time.monotonic_ns() + _LONGEST_REST_NS
                if time.monotonic_ns() > last_ns:
                    return
            try:
                size, control, _, _ = self.socket.recvmsg_into([content], socket.CMSG_SPACE(4))
            except TimeoutError:
                # Only once nothing is left: what was sent has had the time of a look to come.
                if stop.is_set():
                    return
                continue
            if not content.startswith(mark):
                self.left_out += 1
                continue
            joined = next(
                (value for level, kind, value in control if (level, kind) == (_SOL_UDP, _UDP_GRO)), b""
            )
            segment = struct.unpack_from("i", joined)[0] if len(joined) >= 4 else size
            self.datagrams += -(-size // segment) if segment else 0
            self.payload_bytes += size


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
