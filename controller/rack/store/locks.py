"""Locks that end with their holder, however it dies: of a state directory, of a run's process. A shell: flock.

A lock is the kernel's, on an open file; the file and the process id in it stay behind and mean nothing by themselves.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take(path: Path) -> int | None:
    """Takes the lock and returns its descriptor, whose last copy to be closed gives it back; None if it is held.

    Raises `OSError` if the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def sign(descriptor: int, pid: int) -> None:
    """Writes into a lock's file whose it is."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(pid).encode(), 0)


def held(path: Path) -> bool:
    """Whether a process has the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def signature(path: Path) -> int | None:
    """Who signed the lock's file last; None if nobody can be made out."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
