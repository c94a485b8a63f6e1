"""Counts the files and sockets that this process may still open. A shell: it asks the kernel."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path


def raise_descriptor_limit() -> int:
    """Raise the descriptor limit of this process to its hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft


def count_open() -> int:
    """Return the number of open descriptors of this process. Raises `OSError`."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def can_open(count: int) -> bool:
    """Return whether `count` more descriptors can be opened now."""
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        opened += (os.dup(opened[0]) for _ in range(count - 1))
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True
