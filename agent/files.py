"""What this host says of itself: versions, kernel limits and socket features, read and not judged."""

from __future__ import annotations

import os
import platform
import resource
import socket
from importlib import metadata
from pathlib import Path
from typing import Final

from agent.preflight import HostFacts

_UDP_SEGMENT: Final = 103
"""linux/udp.h"""
_UDP_GRO: Final = 104
_PACKAGES: Final = ("etloop", "numpy", "pyzmq", "msgpack")


def versions() -> dict[str, str]:
    """What runs here, by name."""
    found = {"python": platform.python_version(), "kernel": platform.release(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def host_facts() -> HostFacts:
    """Reads the facts of this host."""
    return HostFacts(
        cores=len(os.sched_getaffinity(0)),
        rmem_max_bytes=_number(Path("/proc/sys/net/core/rmem_max")),
        wmem_max_bytes=_number(Path("/proc/sys/net/core/wmem_max")),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        udp_segmentation=_has_udp_option(_UDP_SEGMENT, 1024),
        udp_coalescing=_has_udp_option(_UDP_GRO, 1),
        clock_source=_text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None


def _has_udp_option(option: int, value: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
    return True
