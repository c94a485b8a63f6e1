"""A card behind a link: frames by a packet socket, orders to `etloop-agent nic-peer` by TCP. A shell.

Frames are stamped by the kernel on arrival and by this process on departure. Both stamps may be late because of other work of
the host; `resolution_ns` measures this lateness before the battery begins.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem, ProtocolError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.card_orders import (
    MOST_LINE_BYTES,
    VERSION,
    CardOrder,
    OrderLine,
    parse_answer,
)
from etloop.experiments.nic.link.frames import ROCE_PORT, Addresses, arrival_of, frame_of
from etloop.experiments.nic.link.probe import PATIENCE_NS, NicError
from etloop.experiments.nic.link.wire import (
    Answered,
    Arrival,
    Departure,
    NicControl,
    PairEnd,
    PairSettings,
    Wire,
)
from etloop.traffic import _native

_PATIENCE_S: Final = 10.0
_ETH_ALL: Final = 3
_OUTGOING: Final = 4
_SO_TIMESTAMPNS: Final = 35
_SO_RCVBUFFORCE: Final = 33
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_RECEIVE_BYTES: Final = 32 << 20
_TRIES: Final = 2_000


class PacketWire:
    """A `Wire` over a packet socket of one interface."""

    def __init__(self, packets: socket.socket, addresses: Addresses, resolution_ns: int) -> None:
        self._packets, self._addresses = packets, addresses
        self.resolution_ns = resolution_ns
        self.flows = tuple(
            _native.IpFlow(str(our_ip), str(addresses.their_ip), 0xC123) for our_ip in addresses.our_ips
        )
        self._ahead_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
        """The kernel stamps by the other clock."""

    def now_ns(self) -> int:
        """See `Wire`."""
        return time.monotonic_ns()

    def send(self, departure: Departure) -> int:
        """Send a datagram, see `Wire`. Raises `NicError` if the interface fails."""
        return self.send_frame(frame_of(departure, self._addresses))

    def send_frame(self, frame: bytes) -> int:
        """See `Wire`. Raises `NicError` likewise."""
        left_ns = time.monotonic_ns()
        try:
            self._packets.send(frame)
        except OSError as error:
            raise NicError(f"the interface does not send: {error.strerror or error}") from None
        return left_ns

    def receive(self, until_ns: int) -> Arrival | None:
        """See `Wire`."""
        while True:
            left_ns = until_ns - time.monotonic_ns()
            self._packets.settimeout(max(left_ns, 0) / NS_PER_S)
            try:
                frame, ancillary, _, place = self._packets.recvmsg(65536, 64)
            except (TimeoutError, BlockingIOError):
                return None
            if place[2] == _OUTGOING:
                continue
            arrival = arrival_of(frame, self._stamp_ns(ancillary), self._addresses)
            if arrival is not None:
                return arrival

    def answer_requests(
        self, acknowledgement: Departure, our_qpn: int, most: int, until_ns: int | None
    ) -> Answered | None:
        """Acknowledge requests in native code, see `Wire`. Raises `NicError` if the interface fails."""
        ends_ns = -1 if until_ns is None else until_ns
        frame = self.frame_of(acknowledgement)
        try:
            times_ns, sizes, heads, acknowledgements = _native.answer_requests(
                self._packets.fileno(), frame, our_qpn, most, ends_ns, PATIENCE_NS
            )
        except OSError as error:
            raise NicError(f"the interface: {error.strerror or error}") from None
        step = _native.NOTED_BYTES
        headers = tuple(heads[start : start + step] for start in range(0, len(heads), step))
        return Answered([at_ns - self._ahead_ns for at_ns in times_ns], headers, sizes, acknowledgements)

    def take_drop_count(self) -> int:
        """Return the frames dropped by the socket since the last call, see `Wire`."""
        statistics = self._packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        _, dropped = struct.unpack("II", statistics)
        return int(dropped)

    def frame_of(self, departure: Departure) -> bytes:
        """See `Wire`."""
        return frame_of(departure, self._addresses)

    def _stamp_ns(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(content) == 16:
                seconds, nanoseconds = struct.unpack("qq", content)
                return int(seconds * NS_PER_S + nanoseconds - self._ahead_ns)
        return time.monotonic_ns()


class RemoteNic:
    """A `NicControl` at the other end of a TCP connection. Every order raises `NicError` if it is not carried out."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def order(self, order: CardOrder, *numbers: int) -> tuple[str, ...]:
        """Send an order and return the words of its answer. Raises `NicError` if it fails."""
        try:
            self._connection.sendall(OrderLine(order, numbers).encode())
            line = self._lines.readline(MOST_LINE_BYTES + 1)
        except OSError as error:
            raise NicError(f"the card's peer does not answer: {error}") from None
        if not line.endswith(b"\n"):
            raise NicError("the card's peer closed the connection")
        try:
            return parse_answer(line)
        except ProtocolError as error:
            raise NicError(f"{order.value}: {error}") from None

    def open(self) -> PairEnd:
        """See `NicControl`."""
        words = self.order(CardOrder.OPEN)
        if len(words) != 3 or not all(word.isdigit() for word in words):
            raise NicError(f"open: {' '.join(words)[:64]!r} is not a queue pair")
        return PairEnd(*map(int, words))

    def join(self, end: PairEnd, our_qpn: int, settings: PairSettings) -> None:
        """See `NicControl`."""
        self.order(
            CardOrder.JOIN,
            end.qpn,
            settings.address,
            our_qpn,
            settings.path_mtu,
            settings.send_psn,
            settings.receive_psn,
            settings.timeout_code,
            settings.retry_count,
            settings.rnr_retry,
            settings.min_rnr_code,
            settings.dscp << 2 | settings.ecn,
            settings.hop_limit,
        )

    def write(self, end: PairEnd, size_bytes: int) -> None:
        """See `NicControl`."""
        self.order(CardOrder.WRITE, end.qpn, size_bytes)

    def write_on_all(self, count: int, size_bytes: int) -> None:
        """See `NicControl`."""
        self.order(CardOrder.WRITE_ON_ALL, count, size_bytes)

    def send_message(self, end: PairEnd, size_bytes: int) -> None:
        """See `NicControl`."""
        self.order(CardOrder.SEND, end.qpn, size_bytes)

    def grant(self, end: PairEnd, size_bytes: int) -> None:
        """See `NicControl`."""
        self.order(CardOrder.GRANT, end.qpn, size_bytes)

    def state(self, end: PairEnd) -> str:
        """See `NicControl`."""
        return " ".join(self.order(CardOrder.STATE, end.qpn))

    def close(self, end: PairEnd) -> None:
        """See `NicControl`."""
        self.order(CardOrder.DROP, end.qpn)


@dataclass(frozen=True, slots=True)
class _Link:
    interface: str
    their_mac: bytes


@contextlib.contextmanager
def open_card(peer: tuple[str, int], interface: str | None) -> Iterator[tuple[Wire, NicControl, str]]:
    """Open the link to a card and the connection to its peer; yield wire, control and the card's description.

    Raises `ConfigError` if one of them cannot be opened.
    """
    peer_text = f"{peer[0]}:{peer[1]}"
    with contextlib.ExitStack() as stack:
        try:
            control = stack.enter_context(socket.create_connection(peer, _PATIENCE_S))
        except OSError as error:
            problem = f"{peer_text} does not answer: {error.strerror or error}"
            remedy = "start etloop-agent nic-peer there, with --peer this host"
            raise ConfigError(Problem("--peer", problem, remedy)) from None
        nic = RemoteNic(control)
        try:
            words = nic.order(CardOrder.HELLO)
        except NicError as error:
            raise ConfigError(Problem("--peer", f"{peer_text}: {error}", "check its --peer")) from None
        their_ip, *our_ips = _addresses_of(words, peer_text)
        link = _link_to(their_ip, interface)
        packets = stack.enter_context(_packet_socket(link.interface))
        for our_ip in our_ips:
            stack.enter_context(_roce_port(our_ip))
        our_mac = bytes.fromhex(_read(link.interface, "address").replace(":", ""))
        addresses = Addresses(our_mac, link.their_mac, our_ips[0], their_ip, *our_ips[1:])
        wire = PacketWire(packets, addresses, _lateness_ns())
        card = f"{words[1]} at {their_ip}, firmware {words[-1]}"
        yield wire, nic, card


def _addresses_of(words: tuple[str, ...], where: str) -> list[IPv4Address]:
    """Return the card's address and the local addresses in an answer to HELLO; queue pairs are joined to a local one by
    its index.

    Raises `ConfigError` for an answer of another version.
    """
    if words[:1] == (VERSION,) and len(words) in (5, 6):
        with contextlib.suppress(ValueError):
            return [IPv4Address(word) for word in words[2:-1]]
    problem = f"{where} speaks {' '.join(words)[:64]!r}, expected {VERSION}"
    raise ConfigError(Problem("--peer", problem, "run the same version on both hosts"))


def _link_to(address: IPv4Address, interface: str | None) -> _Link:
    """Return the interface and the hardware address by which the card's address is reached. Raises `ConfigError`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), ROCE_PORT))
            probe.send(b"")
        except OSError as error:
            problem = f"{address} is not reachable: {error.strerror or error}"
            raise ConfigError(
                Problem("--peer", problem, "give an interface an address on its network")
            ) from None
    ip = shutil.which("ip")
    if ip is None:
        raise ConfigError(
            Problem("etloop nic profile", "the ip command is not installed", "install iproute2")
        )
    end_ns = time.monotonic_ns() + 3 * NS_PER_S
    while True:
        neighbour_words = subprocess.run(
            (ip, "neighbour", "show", str(address)), capture_output=True, text=True, check=False
        ).stdout.split()
        if "lladdr" in neighbour_words and "dev" in neighbour_words:
            route_interface = neighbour_words[neighbour_words.index("dev") + 1]
            mac = bytes.fromhex(neighbour_words[neighbour_words.index("lladdr") + 1].replace(":", ""))
            return _Link(interface or route_interface, mac)
        if time.monotonic_ns() > end_ns:
            problem = f"no neighbour on this link has {address}"
            raise ConfigError(
                Problem(
                    "--peer", problem, "check that no router is in between, and that the card's link is up"
                )
            )
        time.sleep(0.05)


def _packet_socket(interface: str) -> socket.socket:
    try:
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_ALL))
    except PermissionError:
        problem = "raw frames need CAP_NET_RAW"
        raise ConfigError(Problem("etloop nic profile", problem, "run it as root")) from None
    packets.setsockopt(socket.SOL_SOCKET, _receive_option(), _RECEIVE_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    try:
        packets.bind((interface, _ETH_ALL))
    except OSError as error:
        packets.close()
        problem = f'interface "{interface[:32]}" cannot be used: {error.strerror or error}'
        raise ConfigError(Problem("--interface", problem, "list the interfaces with ip link")) from None
    return packets


def _receive_option() -> int:
    """Return the socket option that sets the receive buffer; root may exceed the system's limit of some hundred frames."""
    return _SO_RCVBUFFORCE if os.geteuid() == 0 else socket.SO_RCVBUF


def _roce_port(our_ip: IPv4Address) -> socket.socket:
    """Bind the RoCE port, so that the kernel does not answer the card's packets with "port unreachable". The socket is
    never read.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    try:
        holder.bind((str(our_ip), ROCE_PORT))
    except OSError as error:
        holder.close()
        problem = f"UDP port {ROCE_PORT} of {our_ip} cannot be bound: {error.strerror or error}"
        remedy = "stop the process that uses it: an agent, or Soft-RoCE (rdma link delete)"
        if error.errno == errno.EADDRNOTAVAIL:
            remedy = "give it to the interface (ip address add), or name other addresses with nic-peer --peer"
        raise ConfigError(Problem("--peer", problem, remedy)) from None
    return holder


def _lateness_ns() -> int:
    """Return how late this process may read the clock: the 99th percentile between two readings, plus 20 us."""
    gaps = []
    last = time.monotonic_ns()
    for _ in range(_TRIES):
        time.sleep(0)
        now = time.monotonic_ns()
        gaps.append(now - last)
        last = now
    return sorted(gaps)[_TRIES * 99 // 100] + 20_000


def _read(interface: str, attribute: str) -> str:
    return Path(f"/sys/class/net/{interface}/{attribute}").read_text().strip()
