"""The passage from a door's process to its controller: sockets of loopback that no other user's process can use. A shell.

ZeroMQ has to accept what the door passes on, and of its listeners that of TCP alone outlives a lack of descriptors: that of
AF_UNIX ends the process (libzmq 4.3.5, src/ipc_listener.cpp). So the passage is TCP on loopback, where any user may connect,
with a filter at the listening socket by which the kernel drops whatever does not come from one port. That port is held by
a socket that shares it by SO_REUSEPORT alone, thus with processes of the same user only (socket(7)). The connections differ
by their addresses in 127.0.0.0/8.
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
"""Addresses of 127.0.0.0/8 without its first and its last."""


def held_port() -> socket.socket:
    """Return a socket that keeps a port for this user. Raises `OSError`."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("0.0.0.0", 0))  # noqa: S104 - it never listens
    except OSError:
        made.close()
        raise
    return made


def listening_for(port: int) -> socket.socket:
    """Return a socket that listens on loopback for connections that come from `port`. Raises `OSError`."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.bind(("127.0.0.1", 0))
        _let_in_only(made, port)
        made.listen(socket.SOMAXCONN)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


class Passage:
    """The door's end: connections to the controller's `inside` port, from the port that is held."""

    def __init__(self, inside: int, port: int) -> None:
        self._inside = inside
        self._port = port
        self._next = secrets.randbelow(_MOST_NUMBERS)
        """An address is taken again after all others: what remains of its last connection has gone by then."""

    def connect(self) -> tuple[socket.socket, str]:
        """Return a connection under way, and the address that the controller sees. Raises `OSError`."""
        self._next = (self._next + 1) % _MOST_NUMBERS
        address = str(ipaddress.IPv4Address(_LOOPBACK + 1 + self._next))
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.bind((address, self._port))
            made.setblocking(False)
            with suppress(BlockingIOError):
                made.connect(("127.0.0.1", self._inside))
        except OSError:
            made.close()
            raise
        return made, address


def _let_in_only(listener: socket.socket, port: int) -> None:
    """Have the kernel drop all packets to a socket of TCP but those from one port, by classic BPF, which needs no privilege."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_HALF, 0, 0, 0),  # The packet begins with its header of TCP, and that with the source port.
            (_JUMP_IF_EQUAL, 0, 1, port),
            (_RETURN, 0, 0, _WHOLE),
            (_RETURN, 0, 0, 0),
        )
    )
    program = ctypes.create_string_buffer(code, len(code))
    listener.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(code) // 8, ctypes.addressof(program))
    )
