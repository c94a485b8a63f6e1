"""Serves a network in virtual time to one simulator, over a socket of this machine or standard input and output. A shell."""

from __future__ import annotations

import contextlib
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, Final

from etloop.contract.base.errors import ConfigError, PlanError, Problem
from etloop.contract.model.topology import Topology
from etloop.controller.run.derived_rig import first_address
from etloop.controller.transfers.protocol import (
    MOST_LINE_BYTES,
    NetworkFailure,
    ServedNetwork,
    TransferSession,
)
from etloop.runtime.sockets.unix_socket import connect, listening
from etloop.traffic.transfer_values import TransferFigures
from etloop.traffic.transfer_ways import TransferWays
from etloop.traffic.transfers import FlowTransfers

STANDARD_STREAMS: Final = "-"
_OWNER_ONLY: Final = 0o600
_CHUNK_BYTES: Final = 1 << 16
_PROBE_S: Final = 1.0


def flow_network(topology: Topology) -> tuple[ServedNetwork, FlowTransfers]:
    """Return the flow-level network of a topology. Raises `PlanError` for settings that it does not model."""
    addresses = [first_address(number, attachment) for number, attachment in enumerate(topology.attachments)]
    ways = TransferWays(topology, addresses)
    network = FlowTransfers(ways)
    served = ServedNetwork(
        ways.endpoints,
        ways.link_names,
        "flow",
        lambda src, dst: ways.way(src, dst) is not None,
        network.expect,
    )
    return served, network


def serve(session: TransferSession, where: str, report: Callable[[str], None]) -> TransferFigures:
    """Answer one client until its input ends; return the counts after all transfers have ended.

    `where`: a path for the socket, or "-" for standard input and output. Raises `ConfigError` if the path cannot be used, and
    `PlanError` for a network that ended before its client.
    """
    if where == STANDARD_STREAMS:
        _converse(session, sys.stdin.buffer, sys.stdout.buffer)
    else:
        with _client(Path(where), report) as connection, connection.makefile("rwb") as stream:
            _converse(session, stream, stream)
    try:
        return session.drain()
    except NetworkFailure as error:
        remedy = "see its outages and switches, or use --level flow"
        raise PlanError(Problem("topology", f"the network has ended: {error}", remedy)) from None


def _converse(
    session: TransferSession, requests: BufferedIOBase | BinaryIO, answers: BufferedIOBase | BinaryIO
) -> None:
    """Answer line by line until the input ends, or until the client reads no more."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while line := requests.readline(MOST_LINE_BYTES + 1):
            if len(line) > MOST_LINE_BYTES and not line.endswith(b"\n"):
                _skip_line(requests)
            answers.write(session.answer(line))
            answers.flush()


def _skip_line(requests: BufferedIOBase | BinaryIO) -> None:
    while (rest := requests.readline(_CHUNK_BYTES)) and not rest.endswith(b"\n"):
        pass


@contextlib.contextmanager
def _client(path: Path, report: Callable[[str], None]) -> Iterator[socket.socket]:
    """Wait for a client at a new socket, which exists until it has connected. Raises `ConfigError`."""
    _refuse_used(path)
    try:
        listener = listening(path)
        path.chmod(_OWNER_ONLY)
    except OSError as error:
        problem = f"no socket can be made there: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, "name a path in a directory of yours")) from None
    try:
        with listener:
            listener.listen(1)
            report(f"serving one client at {path}")
            connection, _ = listener.accept()
    finally:
        path.unlink(missing_ok=True)
    with connection:
        report("a client has connected")
        yield connection


def _refuse_used(path: Path) -> None:
    """Raise `ConfigError` if a path is a file, or the socket of a running server; one that a killed server left is reused."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return
    if not is_socket:
        raise ConfigError(Problem(str(path), "exists and is not a socket", "name a new path"))
    with contextlib.suppress(OSError):
        connect(path, _PROBE_S).close()
        raise ConfigError(Problem(str(path), "another server listens there", "name another path"))
