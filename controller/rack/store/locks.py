"""Locks that end with their holder, however it ends: of a state directory, of a run's process. A shell: flock.

The kernel holds the lock on an open file; the file and the process id in it remain, and mean nothing by themselves.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def acquire(path: Path) -> int | None:
    """Take a lock and return its descriptor; None if another process holds it. Closing the last copy releases it.

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
    """Write the holder's process id into a lock's file."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(pid).encode(), 0)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock."""
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
    """Return the process id last written into the lock's file; None if there is no file, or none in it. Raises `OSError`."""
    try:
        return int(path.read_text(encoding="ascii", errors="replace"))
    except (FileNotFoundError, ValueError):
        return None
