"""Streams of whole Ethernet frames over packet sockets (AF_PACKET), next to the jobs. A shell: threads, sockets, time.

A thread sends all streams of a port by their schedules, and another receives. A late thread catches up on `MOST_BEHIND_NS`; if
it is later, the schedule moves back, so that no frame is left out and no longer burst is sent. The time of sending is that before
the call, the time of receiving the kernel's stamp. Needs CAP_NET_RAW.
"""

from __future__ import annotations

import errno
import heapq
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import Problem, RigError
from etloop.contract.model.assignment import PortSettings
from etloop.contract.model.frame_streams import (
    CAPTURE_NUMBER,
    MARK,
    MOST_CAPTURED_BYTES,
    SIGNATURE_BYTES,
    FrameCount,
    FrameStream,
    FrameWork,
)

MOST_BEHIND_NS: Final = 100 * NS_PER_MS
_TICK_NS: Final = NS_PER_MS
_QUIET_S: Final = 0.1
_LONGEST_DRAIN_NS: Final = 2 * NS_PER_S
_BUFFER_BYTES: Final = 16 << 20
_MOST_FRAME_BYTES: Final = 65_536
# linux/if_ether.h, linux/if_packet.h, asm-generic/socket.h
_ETH_P_ALL: Final = 3
_SOL_PACKET: Final = 263
_PACKET_AUXDATA: Final = 8
_PACKET_IGNORE_OUTGOING: Final = 23
_AUXDATA: Final = struct.Struct("=IIIHHHH")
_STATUS_VLAN_VALID: Final = 1 << 4
_STATUS_VLAN_TPID_VALID: Final = 1 << 6
_VLAN_TPID: Final = 0x8100
_SO_TIMESTAMPNS: Final = 35
_SO_RCVBUFFORCE: Final = 33
_TIMESPEC: Final = struct.Struct("=qq")
_STAMP: Final = struct.Struct(">QH")
_PCAP_RECORD: Final = struct.Struct("<IIII")


class FrameStreams:
    """The ends of streams of frames of one agent."""

    def __init__(self, work: FrameWork, ports: Sequence[PortSettings]) -> None:
        """Open the sockets; ports have the names of their interfaces. Raise `RigError` without the permission."""
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._senders: list[_Sender] = []
        self._receivers: dict[int, _Receiver] = {}
        try:
            for index, port in enumerate(ports):
                sent = [stream for stream in work.streams if stream.port == index and stream.sends]
                received = [stream for stream in work.streams if stream.port == index and not stream.sends]
                if sent:
                    self._senders.append(_Sender(sent, _open_socket(port, 0)))
                if received or index in work.captures:
                    opened = _open_socket(port, _ETH_P_ALL)
                    receiver = _Receiver(index, port.name, received, opened, captures=index in work.captures)
                    self._receivers[index] = receiver
        except OSError as error:
            self.close()
            problem = f"no packet socket can be opened: {error.strerror or error}"
            raise RigError(
                Problem("raw flows", problem, "give the agent CAP_NET_RAW, or run it as root")
            ) from None

    def start(self, start_ns: int) -> None:
        """Receive from now on, and begin to send at `start_ns` of the monotonic clock."""
        for receiver in self._receivers.values():
            self._begin(receiver.run, self._stop)
        for sender in self._senders:
            self._begin(sender.run, start_ns, self._stop)

    def _begin(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether all frames of streams that end by themselves are sent, and there are no others."""
        return all(sender.is_over for sender in self._senders)

    @property
    def failure(self) -> str:
        """Return why a port cannot send or receive any more; "" if all can."""
        return next((end.failure for end in self._ends if end.failure), "")

    @property
    def _ends(self) -> tuple[_Sender | _Receiver, ...]:
        return (*self._senders, *self._receivers.values())

    def counts(self) -> tuple[FrameCount, ...]:
        """Return the counts of all ends so far."""
        return tuple(count for end in self._ends for count in end.counts())

    def captures(self) -> dict[int, bytes]:
        """Return the frames received by each captured port, as records of a pcap file with FCS."""
        return {
            index: bytes(receiver.captured)
            for index, receiver in self._receivers.items()
            if receiver.captures
        }

    def stop(self) -> None:
        """Stop sending, and receiving once nothing arrives; may be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def close(self) -> None:
        """Stop the threads and close the sockets."""
        self.stop()
        for end in self._ends:
            end.socket.close()


class _SentStream:
    """A stream of a sending port: its frames with room for the time, and its place in its schedule."""

    def __init__(self, stream: FrameStream) -> None:
        self.stream = stream
        self.frames = [bytearray(frame) for frame in stream.frames]
        self.sent = self.sent_bytes = self.first_ns = self.last_ns = self.behind_ns = 0

    @property
    def is_over(self) -> bool:
        return bool(self.stream.count) and self.sent >= self.stream.count

    def due_ns(self) -> int:
        """Return the time of the next frame, after the start of the run."""
        cycles, step = divmod(self.sent, len(self.frames))
        stream = self.stream
        in_cycle_ns = step * stream.cycle_ns // len(self.frames)
        return stream.delay_ns + self.behind_ns + cycles * stream.cycle_ns + in_cycle_ns

    def stamp_next(self) -> bytearray:
        """Return the next frame with the present time in its signature."""
        frame = self.frames[self.sent % len(self.frames)]
        now_ns = _real_time_ns()
        _STAMP.pack_into(frame, self.stream.signature_at + len(MARK) + 4, now_ns, complement_of_words(now_ns))
        return frame

    def count_sent(self, frame: bytearray) -> None:
        """Count a frame that the socket accepted."""
        self.sent += 1
        self.sent_bytes += len(frame)
        (self.last_ns,) = struct.unpack_from(">Q", frame, self.stream.signature_at + len(MARK) + 4)
        self.first_ns = self.first_ns or self.last_ns

    def count(self) -> FrameCount:
        """Return the counts so far."""
        stream = self.stream
        return FrameCount(
            stream.number,
            stream.port,
            sends=True,
            frames=self.sent,
            frame_bytes=self.sent_bytes,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            is_over=self.is_over,
            behind_ns=self.behind_ns,
        )


class _Sender:
    """The sending side of one port."""

    def __init__(self, streams: Sequence[FrameStream], opened: socket.socket) -> None:
        self.socket = opened
        self.socket.setblocking(False)
        self.failure = ""
        self._streams = [_SentStream(stream) for stream in streams]

    @property
    def is_over(self) -> bool:
        return all(stream.is_over for stream in self._streams)

    def counts(self) -> Iterator[FrameCount]:
        """Yield the counts of its streams."""
        return (stream.count() for stream in self._streams)

    def run(self, start_ns: int, stop: threading.Event) -> None:
        """Send each stream's frames at their times, until all are sent or `stop` is set."""
        queue = [(stream.due_ns(), number) for number, stream in enumerate(self._streams)]
        heapq.heapify(queue)
        while queue and not stop.is_set() and not self.failure:
            wait_ns = start_ns + queue[0][0] - time.monotonic_ns()
            if wait_ns > 0:
                # Short waits keep the rate; `stop` is looked at ten times a second at least.
                time.sleep(min(max(wait_ns, _TICK_NS), 100 * NS_PER_MS) / NS_PER_S)
                continue
            stream = self._streams[queue[0][1]]
            if -wait_ns > MOST_BEHIND_NS:
                stream.behind_ns += -wait_ns - MOST_BEHIND_NS
            if not self._send(stream):
                time.sleep(_TICK_NS / NS_PER_S)
            if stream.is_over:
                heapq.heappop(queue)
            else:
                heapq.heapreplace(queue, (stream.due_ns(), queue[0][1]))

    def _send(self, stream: _SentStream) -> bool:
        """Send the next frame of a stream; return whether the socket accepted it."""
        frame = stream.stamp_next()
        try:
            self.socket.send(frame)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return False  # The queue of the interface is full, and empties.
            self.failure = f"raw flow {stream.stream.name} cannot be sent: {error.strerror or error}"
            return False
        stream.count_sent(frame)
        return True


class _ReceivedStream:
    """Counts of a stream at a receiving port."""

    def __init__(self, stream: FrameStream) -> None:
        self.stream = stream
        self.frames = self.frame_bytes = self.first_ns = self.last_ns = 0
        self.latency_min_ns = self.latency_max_ns = self.latency_sum_ns = 0

    def take(self, frame_bytes: int, sent_ns: int, received_ns: int) -> None:
        """Count a frame."""
        latency_ns = received_ns - sent_ns
        self.latency_min_ns = min(self.latency_min_ns, latency_ns) if self.frames else latency_ns
        self.latency_max_ns = max(self.latency_max_ns, latency_ns) if self.frames else latency_ns
        self.latency_sum_ns += latency_ns
        self.frames += 1
        self.frame_bytes += frame_bytes
        self.first_ns = self.first_ns or received_ns
        self.last_ns = received_ns


class _Receiver:
    """The receiving side of one port."""

    def __init__(
        self, port: int, name: str, streams: Sequence[FrameStream], opened: socket.socket, *, captures: bool
    ) -> None:
        self.captures = captures
        self.captured = bytearray()
        self.socket = opened
        self.socket.settimeout(_QUIET_S)
        self.failure = ""
        self._interruptions = 0
        self._port = port
        self._name = name
        self._streams = {stream.number: _ReceivedStream(stream) for stream in streams}
        self._offsets = sorted({stream.signature_at for stream in streams})

    def counts(self) -> Iterator[FrameCount]:
        """Yield the counts of its streams, or one for a port that only captures."""
        if not self._streams:
            yield FrameCount(
                CAPTURE_NUMBER,
                self._port,
                sends=False,
                frames=0,
                frame_bytes=0,
                first_ns=0,
                last_ns=0,
                is_over=False,
                interruptions=self._interruptions,
            )
        for number, stream in self._streams.items():
            yield FrameCount(
                number,
                self._port,
                sends=False,
                frames=stream.frames,
                frame_bytes=stream.frame_bytes,
                first_ns=stream.first_ns,
                last_ns=stream.last_ns,
                is_over=False,
                latency_min_ns=stream.latency_min_ns,
                latency_max_ns=stream.latency_max_ns,
                latency_sum_ns=stream.latency_sum_ns,
                interruptions=self._interruptions,
            )

    def run(self, stop: threading.Event) -> None:
        """Count and capture frames until `stop` is set and nothing arrives for `_QUIET_S`, at most `_LONGEST_DRAIN_NS`.

        An interface that goes down is an interruption, after which the socket receives again; one that is gone is a failure.
        """
        content = bytearray(_MOST_FRAME_BYTES)
        control_bytes = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(_AUXDATA.size)
        last_ns = 0
        while not last_ns or time.monotonic_ns() < last_ns:
            if stop.is_set():
                last_ns = last_ns or time.monotonic_ns() + _LONGEST_DRAIN_NS
            try:
                size, control, _, _ = self.socket.recvmsg_into([content], control_bytes)
            except TimeoutError:
                if not self._has_interface():
                    self.failure = f"port {self._name} cannot receive raw flows: its interface is gone"
                if stop.is_set() or self.failure:
                    return
                continue
            except OSError as error:
                # The kernel reports it once when an interface goes down, also before it removes the interface.
                if error.errno == errno.ENETDOWN:
                    self._interruptions += 1
                    continue
                self.failure = f"port {self._name} cannot receive raw flows: {error.strerror or error}"
                return
            received_ns, tag = _read_control(control)
            frame = memoryview(content)[:size]
            self._count(frame, tag, received_ns)
            if self.captures:
                self._capture(bytes(frame[:12]) + tag + bytes(frame[12:]), received_ns)

    def _has_interface(self) -> bool:
        """Return whether the interface that the socket is bound to still exists; its name is empty if not."""
        return bool(self.socket.getsockname()[0])

    def _count(self, frame: memoryview, tag: bytes, received_ns: int) -> None:
        for offset in self._offsets:
            at = offset - len(tag)
            if at + SIGNATURE_BYTES <= len(frame) and bytes(frame[at : at + len(MARK)]) == MARK:
                number, sent_ns = struct.unpack_from(">IQ", frame, at + len(MARK))
                stream = self._streams.get(number)
                if stream is not None and stream.stream.signature_at == offset:
                    stream.take(len(frame) + len(tag), sent_ns, received_ns)
                    return

    def _capture(self, frame: bytes, received_ns: int) -> None:
        frame += struct.pack("<I", zlib.crc32(frame))
        if len(self.captured) + _PCAP_RECORD.size + len(frame) <= MOST_CAPTURED_BYTES:
            seconds, rest_ns = divmod(received_ns, NS_PER_S)
            self.captured += _PCAP_RECORD.pack(seconds, rest_ns // 1000, len(frame), len(frame)) + frame


def _real_time_ns() -> int:
    """Return the time of the clock of the kernel's receive stamps."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def complement_of_words(value: int) -> int:
    """Return the 16 bits that make the ones' complement sum of a 64-bit value's words 0xFFFF."""
    total = sum(value >> shift & 0xFFFF for shift in (0, 16, 32, 48))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def _read_control(control: Sequence[tuple[int, int, bytes]]) -> tuple[int, bytes]:
    """Return the kernel's receive time (ns, real-time clock) and the VLAN tag that it took out of the frame; b"" without one."""
    received_ns, tag = 0, b""
    for level, kind, value in control:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, rest_ns = _TIMESPEC.unpack_from(value)
            received_ns = seconds * NS_PER_S + rest_ns
        elif (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(value)
            if status & _STATUS_VLAN_VALID:
                tag = struct.pack(">HH", tpid if status & _STATUS_VLAN_TPID_VALID else _VLAN_TPID, tci)
    return received_ns or _real_time_ns(), tag


def _open_socket(port: PortSettings, protocol: int) -> socket.socket:
    """Return a packet socket on the interface of a port; protocol 0 receives nothing. Raise OSError."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        if protocol:
            opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
            opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            try:
                opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            except PermissionError:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        opened.bind((port.interface, protocol))
    except OSError:
        opened.close()
        raise
    return opened
