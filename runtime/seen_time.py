"""Reads time since boot, which no step of the wall clock changes. A shell: it reads /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from etloop.contract.base.clock import NS_PER_S


class SinceBoot(NamedTuple):
    """Time since boot of one kernel."""

    boot: str
    """Boot identifier (/proc/sys/kernel/random/boot_id)."""
    uptime_ns: int
    """Time since that boot, sleep included."""


def since_boot() -> SinceBoot:
    """Return the boot and the time since it, with a resolution of 10 ms. Raises `OSError`."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    seconds, _, hundredths = Path("/proc/uptime").read_text(encoding="ascii").split()[0].partition(".")
    return SinceBoot(boot, int(seconds) * NS_PER_S + int(hundredths) * (NS_PER_S // 100))
