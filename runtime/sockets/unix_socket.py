"""Opens the socket of a lab by a path that always fits. A shell: descriptors and sockets.

An address of AF_UNIX has room for 107 bytes of path (unix(7)), and runtime directories of test systems are longer than
that. A path through a descriptor of the directory is short wherever the directory is.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a short path of the same socket, valid inside the block. Raises `OSError` if its directory does not exist."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextlib.contextmanager
def _closed_on_error() -> Iterator[socket.socket]:
    """Yield a new socket that outlives the block; it is closed if the block raises `OSError`."""
    unix_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        yield unix_socket
    except OSError:
        unix_socket.close()
        raise


def listening(path: Path) -> socket.socket:
    """Return a socket bound to `path`, replacing one that a killed process left there. Raises `OSError`."""
    path.unlink(missing_ok=True)
    with _closed_on_error() as bound, short_path(path) as short:
        bound.bind(short)
    return bound


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the socket at `path`. Raises `OSError`."""
    with _closed_on_error() as connection, short_path(path) as short:
        connection.settimeout(timeout_s)
        connection.connect(short)
    return connection
