"""Declares the interfaces of experiments: frames that leave and arrive with their times, and a card that accepts orders.

Two implementations exist: a modelled card in virtual time (`simulated`), and a card behind sockets (`real_card`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.traffic._native import IpFlow, WirePacket

NOT_ECT, ECT_0, CE = 0, 2, 3
"""The two low bits of the traffic class (RFC 3168)."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A datagram to be sent to the card."""

    datagram: bytes
    """BTH to ICRC."""
    dscp: int = 26
    ecn: int = ECT_0
    source_port: int = 0xC123
    address: int = 0
    """Local address that it is sent from, an index into `Wire.flows`."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A datagram that came from the card."""

    at_ns: int
    """Time by the clock of `Wire.now_ns`: stamped by the network card or the kernel if they do, else when it was read."""
    packet: WirePacket
    payload_bytes: int
    dscp: int
    ecn: int
    ttl: int
    ip_id: int
    source_port: int
    frame: bytes = b""
    """The frame as received, without FCS."""


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Settings with which a queue pair of the card is joined to the local one."""

    path_mtu: int = 1024
    timeout_code: int = 20
    """4.096 us * 2^code; 0: no timeout. The default is longer than any experiment that does not test timeouts."""
    retry_count: int = 7
    rnr_retry: int = 7
    min_rnr_code: int = 12
    send_psn: int = 0
    """First PSN of the card."""
    receive_psn: int = 0
    """First PSN of this end."""
    address: int = 0
    """Local address that it is joined to, an index into `Wire.flows`."""
    dscp: int = 26
    ecn: int = ECT_0
    """ECN bits of the traffic class that the card is asked to send with."""
    hop_limit: int = 64


@dataclass(frozen=True, slots=True)
class PairEnd:
    """The card's end of a queue pair."""

    qpn: int
    va: int
    rkey: int


@dataclass(frozen=True, slots=True)
class Answered:
    """Requests of the card that were acknowledged below Python."""

    times_ns: list[int]
    heads: tuple[bytes, ...]
    """Beginning of each frame with all its headers."""
    frame_bytes: list[int]
    acknowledgements: int


class Wire(Protocol):
    """The link to the card, and its clock."""

    @property
    def flows(self) -> tuple[IpFlow, ...]:
        """Return the addresses of sent datagrams, which the ICRC covers: the usual ones, and a second local address if
        there is one.
        """

    @property
    def resolution_ns(self) -> int:
        """Return the largest error of local timestamps: shorter times cannot be distinguished from 0."""

    def now_ns(self) -> int:
        """Return the time of the wire's clock in ns."""

    def send(self, departure: Departure) -> int:
        """Send a datagram now; return its departure time."""

    def send_frame(self, frame: bytes) -> int:
        """Send a frame unchanged, without FCS; return its departure time."""

    def receive(self, until_ns: int) -> Arrival | None:
        """Return the next arrival; None if there is none until `until_ns`."""

    def answer_requests(
        self, acknowledgement: Departure, our_qpn: int, most: int, until_ns: int | None
    ) -> Answered | None:
        """Acknowledge requests to a local queue pair, at most `most`; `until_ns` None: until no more arrive.

        Return None if this wire is not faster than acknowledging packet by packet.
        """

    def take_drop_count(self) -> int:
        """Return the number of frames of the card that were dropped here since the last call."""

    def frame_of(self, departure: Departure) -> bytes:
        """Return the frame of a departure, without FCS."""


class NicControl(Protocol):
    """Orders to the card. Each raises `NicError` if the card does not carry it out."""

    def open(self) -> PairEnd:
        """Make a queue pair."""

    def join(self, end: PairEnd, our_qpn: int, settings: PairSettings) -> None:
        """Join it to a local queue pair, ready to send and to receive."""

    def write(self, end: PairEnd, size_bytes: int) -> None:
        """Post an RDMA WRITE to the joined local queue pair."""

    def send_message(self, end: PairEnd, size_bytes: int) -> None:
        """Post a SEND to the joined local queue pair."""

    def write_on_all(self, count: int, size_bytes: int) -> None:
        """Post `count` RDMA WRITEs on every queue pair, as close together as possible."""

    def grant(self, end: PairEnd, size_bytes: int) -> None:
        """Post a receive."""

    def state(self, end: PairEnd) -> str:
        """Return the state of the queue pair, such as RTS or ERR."""

    def close(self, end: PairEnd) -> None:
        """Destroy the queue pair."""
