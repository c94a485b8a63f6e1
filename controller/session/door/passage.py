"""The passage from a door's process to its controller: loopback sockets that no other user's process can use. A shell.

ZeroMQ has to accept the relayed connections. Only its TCP listener survives a lack of descriptors; the
AF_UNIX one aborts the process (libzmq 4.3.5, src/ipc_listener.cpp). So the passage is TCP on loopback, where any user
may connect, with a filter on the listening socket by which the kernel drops all packets that do not come from one
source port. A socket bound with SO_REUSEPORT holds that port, so only processes of the same user can share it
(socket(7)). The connections differ by their source addresses in 127.0.0.0/8.

Some hardened kernels refuse a filter to unprivileged processes. There, processes of this host can reach the passage,
and the operator is notified.
"""

from __future__ import annotations

import ctypes
import ipaddress
import secrets
import socket
import struct
from contextlib import suppress
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_LOAD_HALF: Final = 0x28
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_WHOLE: Final = 0xFFFF_FFFF
_LOOPBACK: Final = int(ipaddress.IPv4Address("127.0.0.0"))
_MOST_NUMBERS: Final = (1 << 24) - 2
"""Addresses of 127.0.0.0/8 without the first and the last."""


def held_port() -> socket.socket:
    """Return a bound socket that reserves a TCP port for this user. Raises `OSError`."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("0.0.0.0", 0))  # noqa: S104 - it never listens
    except OSError:
        holder.close()
        raise
    return holder


def listening_for(port: int) -> tuple[socket.socket, bool]:
    """Return a socket that listens on loopback for connections from source port `port`, and whether the kernel enforces the port.

    Raises `OSError`.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        is_filtered = _let_in_only(listener, port)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener, is_filtered


class Passage:
    """The door's end: connects to the controller's port `inside` from the reserved source port `port`."""

    def __init__(self, inside: int, port: int) -> None:
        self._inside = inside
        self._port = port
        self._next = secrets.randbelow(_MOST_NUMBERS)
        """Number of the last address used. An address is reused only after all remaining ones, when its last connection
        is gone."""

    def connect(self) -> tuple[socket.socket, str]:
        """Return a connecting socket, and its source address as the controller will see it. Raises `OSError`."""
        self._next = (self._next + 1) % _MOST_NUMBERS
        address = str(ipaddress.IPv4Address(_LOOPBACK + 1 + self._next))
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.bind((address, self._port))
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(("127.0.0.1", self._inside))
        except OSError:
            connection.close()
            raise
        return connection, address


def _let_in_only(listener: socket.socket, port: int) -> bool:
    """Attach a classic BPF filter that drops TCP packets from other source ports than `port`; return False if the kernel refuses
    it to this process. Linux asks for no privilege (socket(7)), hardened kernels do. Raises `OSError`."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (
                _LOAD_HALF,
                0,
                0,
                0,
            ),  # The packet begins with its TCP header, whose first field is the source port.
            (_JUMP_IF_EQUAL, 0, 1, port),
            (_RETURN, 0, 0, _WHOLE),
            (_RETURN, 0, 0, 0),
        )
    )
    program = ctypes.create_string_buffer(code, len(code))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            struct.pack("@HP", len(code) // 8, ctypes.addressof(program)),
        )
    except PermissionError:
        return False
    return True
