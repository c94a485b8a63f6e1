"""Drives an RDMA device for experiments that another host runs on it: `etloop-agent nic-peer`. A shell: socket, device.

Decides where the device may send and which host may order it: one host, named at the start by one or two addresses.
Orders are accepted only from there, one connection at a time, and queue pairs are joined only to there, so that the
device cannot be turned on a third host.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import IPv4Address
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, ProtocolError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.card_orders import (
    MOST_LINE_BYTES,
    USUAL_PORT,
    VERSION,
    CardOrder,
    OrderLine,
    answer_line,
    parse_order,
    refusal_line,
)
from etloop.runtime.stop_signals import event_set_by_stop
from etloop.traffic._native import CardEnd

_log: Final = logging.getLogger("etloop.agent")
IDLE_S: Final = 600
"""Seconds without an order after which a connection is closed."""
MOST_PAIRS: Final = 10_240
"""Most queue pairs that exist at once."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The device under test and the host that experiments with it."""

    device: str
    address: str
    """IPv4 address of the device's network interface."""
    peers: tuple[IPv4Address, ...]
    """One or two addresses of the host that experiments with the device."""
    listen: tuple[str, int]


def peer_settings(device: str, address: str, peer: str, listen: str) -> PeerSettings:
    """Return the settings of a command line. Raises `ConfigError`."""
    problems = []
    first, comma, second = peer.partition(",")
    both = (("--peer", first), *((("--peer", second),) if comma else ()))
    for option, text in (("--address", address), *both):
        try:
            IPv4Address(text)
        except ValueError:
            problems.append(
                Problem(option, f'"{text[:64]}" is not an IPv4 address', "write for example 10.0.0.2")
            )
    if comma and first == second:
        problems.append(
            Problem("--peer", f"{first[:64]} is listed twice", "give two different addresses of one host")
        )
    host, colon, port = (listen or f"{address}:{USUAL_PORT}").rpartition(":")
    if not colon or not port.isdecimal() or int(port) >= 1 << 16:
        problems.append(
            Problem("--listen", f'"{listen[:64]}" is not ADDRESS:PORT', "write for example 10.0.0.2:7430")
        )
    if problems:
        raise ConfigError(*problems)
    return PeerSettings(device, address, tuple(IPv4Address(text) for _, text in both), (host, int(port)))


class NicPeer:
    """A device and its queue pairs."""

    def __init__(self, card: CardEnd, settings: PeerSettings) -> None:
        self._card, self._settings = card, settings
        self._pairs: set[int] = set()
        self._is_taken = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out the orders of one connection; its queue pairs are destroyed when it ends."""
        place = writer.get_extra_info("peername") or ("?", 0)
        refusal = self._refusal(str(place[0]))
        if refusal:
            _log.warning("refused %s: %s", place[0], refusal)
            writer.write(refusal_line(refusal))
        else:
            _log.info("%s orders %s", place[0], self._settings.device)
            self._is_taken = True
            try:
                await self._obey(reader, writer)
            finally:
                self._is_taken = False
                for qpn in tuple(self._pairs):
                    self._drop(qpn)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    def _refusal(self, place: str) -> str:
        if place not in map(str, self._settings.peers):
            return f"only {_words(self._settings.peers)} may control this device (--peer)"
        return "another connection controls this device" if self._is_taken else ""

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readuntil()
            except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
                return
            except asyncio.LimitOverrunError:
                writer.write(refusal_line(f"a line of more than {MOST_LINE_BYTES} bytes"))
                return
            try:
                answer = self._carry_out(parse_order(line))
            except (ProtocolError, RuntimeError) as error:
                answer = refusal_line(str(error))
            writer.write(answer)
            await writer.drain()

    def _carry_out(self, line: OrderLine) -> bytes:
        card, numbers = self._card, line.numbers
        match line.order:
            case CardOrder.HELLO:
                return answer_line(
                    VERSION,
                    self._settings.device,
                    self._settings.address,
                    *self._settings.peers,
                    card.firmware or "-",
                )
            case CardOrder.OPEN:
                if len(self._pairs) >= MOST_PAIRS:
                    return refusal_line(f"the limit of {MOST_PAIRS} queue pairs is reached; drop some")
                qpn = card.add_pair()
                self._pairs.add(qpn)
                return answer_line(qpn, card.va, card.rkey)
            case CardOrder.JOIN:
                qpn, peer_index, *settings = numbers
                if peer_index >= len(self._settings.peers):
                    return refusal_line("only one address of the peer is configured; give two with --peer")
                card.join(qpn, str(self._settings.peers[peer_index]), *settings)
            case CardOrder.WRITE:
                card.write(*numbers)
            case CardOrder.WRITE_ON_ALL:
                card.write_on_all(*numbers)
            case CardOrder.SEND:
                card.send(*numbers)
            case CardOrder.GRANT:
                card.grant(*numbers)
            case CardOrder.STATE:
                return answer_line(card.state(*numbers))
            case CardOrder.DROP:
                self._drop(numbers[0])
        return answer_line()

    def _drop(self, qpn: int) -> None:
        self._card.drop(qpn)
        self._pairs.discard(qpn)


def _words(peers: tuple[IPv4Address, ...]) -> str:
    return " and ".join(map(str, peers))


async def serve_card(settings: PeerSettings) -> None:
    """Serve until a signal ends it. Raises `ConfigError` if the device or the address cannot be used."""
    try:
        card = CardEnd.open(settings.device, settings.address)
    except RuntimeError as error:
        raise ConfigError(
            Problem("--device", str(error), "etloop-agent preflight says what is missing")
        ) from None
    stop = asyncio.Event()
    peer = NicPeer(card, settings)
    host, port = settings.listen
    try:
        server = await asyncio.start_server(peer.serve, host, port, limit=MOST_LINE_BYTES, backlog=4)
    except OSError as error:
        problem = f"{host}:{port} cannot listen: {error.strerror or error}"
        raise ConfigError(Problem("--listen", problem, "choose another address or port")) from None
    place = server.sockets[0].getsockname()
    _log.info(
        "%s at %s:%s accepts orders from %s", settings.device, place[0], place[1], _words(settings.peers)
    )
    with event_set_by_stop(stop):
        async with server:
            await stop.wait()
