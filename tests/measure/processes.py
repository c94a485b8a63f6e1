"""Runs a measurement in a process of its own, so that it has its own memory and caches."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    F = TypeVar("F", bound=DataclassInstance)

BAR_MISSED = 30
"""Exit code of a bench with --check whose bar is not met."""


def free_port() -> int:
    """Return a TCP port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def status(pid: int, field: str) -> int:
    """Return a number of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def children(pid: int) -> list[int]:
    """Return the living child processes of all threads of a process."""
    child_lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in child_lists for child in path.read_text().split()]


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def print_figures(figures: DataclassInstance) -> None:
    """Print figures for the process that waits for them in `measured_apart`."""
    sys.stdout.write(json.dumps(asdict(figures)))


def measured_apart(kind: type[F], module: str, *arguments: str) -> F:
    """Return the figures of a bench's module, run with `arguments` in a new process."""
    command = [sys.executable, "-m", module, *arguments]
    finished = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return kind(**json.loads(finished.stdout))
