"""Time that the kernel has seen pass, which no step of the wall clock changes. A shell: it reads /proc."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from etloop.contract.base.clock import NS_PER_S


class SinceBoot(NamedTuple):
    """Where a kernel's own time stands."""

    boot: str
    """Which boot it is of."""
    uptime_ns: int
    """Since then, sleep included."""


def since_boot() -> SinceBoot:
    """Return where the kernel's own time stands, to 10 ms. Raises `OSError`."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    seconds, _, hundredths = Path("/proc/uptime").read_text(encoding="ascii").split()[0].partition(".")
    return SinceBoot(boot, int(seconds) * NS_PER_S + int(hundredths) * (NS_PER_S // 100))
