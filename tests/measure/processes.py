"""Processes of this machine, for measurements that start a rack."""

from __future__ import annotations

from pathlib import Path


def status(pid: int, field: str) -> int:
    """Return a number of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def children(pid: int) -> list[int]:
    """Return the living child processes of all threads of a process."""
    child_lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in child_lists for child in path.read_text().split()]
