"""TCP ports for tests that state where a process listens.

A port that the kernel chooses for a probe may become the source of a connection before the process under test listens
there. These are below the range from which the kernel chooses, and each belongs to one process of the tests.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_candidates: Final = itertools.count(os.getpid() * 101)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which no process listens, another one at each call and in each process."""
    range_start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    count = range_start - _FIRST
    for candidate in itertools.islice(_candidates, count):
        port = _FIRST + candidate % count
        with socket.socket() as probe:
            reservation = socket.socket(socket.AF_UNIX)
            try:
                reservation.bind(f"\0etloop-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                reservation.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
        # Open to the end of the process: keeps other processes of this network namespace from the port.
        reservation.detach()
        return port
    raise OSError(errno.EADDRINUSE, f"no TCP port from {_FIRST} to {range_start - 1} is free")


def free_endpoint() -> str:
    """Return the endpoint of a `free_port`."""
    return f"tcp://127.0.0.1:{free_port()}"
