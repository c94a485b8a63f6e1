"""The share of the machine that this process may use: cores and memory. A shell: affinity, control groups, /proc.

Batch systems and containers restrict a process to a part of its host: Slurm by affinity, Kubernetes by the quota of a
control group (version 2: cpu.max and memory.max of the group and of every group above it).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = "max"


def usable_cores() -> int:
    """Return the number of cores, at least one: those of the affinity mask, at most the quota of the control groups."""
    cores = len(os.sched_getaffinity(0))
    for text in _settings("cpu.max"):
        cores = min(cores, quota_cores(text) or cores)
    return max(cores, 1)


def available_memory_bytes() -> int:
    """Return the memory that is free on the machine, at most what the control groups still allow."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError):
        available = meminfo_available_bytes(Path("/proc/meminfo").read_text(encoding="ascii")) or available
    for limit, used in zip(_settings("memory.max"), _settings("memory.current"), strict=False):
        if limit.strip() != _UNLIMITED:
            available = min(available, max(int(limit) - int(used), 0))
    return available


def quota_cores(cpu_max: str) -> int | None:
    """Return the quota in cpu.max ("QUOTA PERIOD" in us) in cores, rounded up; None without a quota."""
    quota, _, period = cpu_max.strip().partition(" ")
    return None if quota == _UNLIMITED or not period else -(-int(quota) // int(period))


def meminfo_available_bytes(meminfo: str) -> int | None:
    """Return MemAvailable of /proc/meminfo in bytes; None on a kernel that does not report it."""
    lines = (line.split() for line in meminfo.splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[:1] == ["MemAvailable:"]), None)


def _settings(name: str) -> Iterator[str]:
    """Yield a setting of the own control group, and of every group above it that has the setting."""
    with contextlib.suppress(OSError):
        own = next((line for line in _OWN_GROUP.read_text().splitlines() if line.startswith("0::")), "0::/")
        group = GROUPS / own.removeprefix("0::").lstrip("/")
        for directory in (group, *group.parents):
            if not directory.is_relative_to(GROUPS):
                return
            with contextlib.suppress(OSError):
                yield (directory / name).read_text()
