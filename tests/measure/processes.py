"""Ports and processes of this machine, for measurements that start a rack."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

_CHOSEN: Final[set[int]] = set()
"""Ports returned before: the kernel may choose one again while nothing listens there yet."""


def free_port() -> int:
    """Return a TCP port on which no process listens, another one at each call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        if port not in _CHOSEN:
            _CHOSEN.add(port)
            return port
        return free_port()  # while this one is held


def status(pid: int, field: str) -> int:
    """Return a number of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def children(pid: int) -> list[int]:
    """Return the living child processes of all threads of a process."""
    child_lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in child_lists for child in path.read_text().split()]
