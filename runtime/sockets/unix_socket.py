"""The socket of a lab by a path that always fits. A shell: descriptors and sockets.

An address of AF_UNIX has room for 107 bytes of path (unix(7)), and runtime directories of test systems are longer than that.
A path through a descriptor of the directory is short wherever that lies.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Names the same socket in few bytes, for as long as the block lasts. Raises `OSError` if its directory is not there."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextlib.contextmanager
def _to_hand_out() -> Iterator[socket.socket]:
    """A socket for who asked, closed if it comes to nothing."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        yield made
    except OSError:
        made.close()
        raise


def listening(path: Path) -> socket.socket:
    """A socket bound to `path`, in the place of one that a killed process left there. Raises `OSError`."""
    path.unlink(missing_ok=True)
    with _to_hand_out() as bound, short_path(path) as short:
        bound.bind(short)
    return bound


def connected(path: Path, timeout_s: float) -> socket.socket:
    """A connection to the socket at `path`. Raises `OSError`."""
    with _to_hand_out() as connection, short_path(path) as short:
        connection.settimeout(timeout_s)
        connection.connect(short)
    return connection
