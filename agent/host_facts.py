"""What this host says of itself: versions, kernel limits and socket features, read and not judged."""

from __future__ import annotations

import os
import platform
import resource
from importlib import metadata
from typing import Final

from etloop.agent.host_reading import read_capabilities
from etloop.agent.preflight import HostFacts
from etloop.contract.protocol.form_digest import MESSAGES, messages_digest
from etloop.contract.protocol.messages import PROTOCOL_VERSION
from etloop.traffic.threads.loop_threads import REALTIME_PRIORITY

_PACKAGES: Final = ("etloop", "numpy", "pyzmq", "msgpack")


def versions() -> dict[str, str]:
    """What runs here, by name."""
    found = {
        "protocol": str(PROTOCOL_VERSION),
        MESSAGES: messages_digest(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def host_facts() -> HostFacts:
    """Reads the facts of this host."""
    return HostFacts(
        read_capabilities(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        realtime=_may_be_realtime(),
    )


def _may_be_realtime() -> bool:
    """Found out by trying, for a moment: capabilities, limits and control groups all have a say."""
    before, settings = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    except OSError:
        return False
    os.sched_setscheduler(0, before, settings)
    return True
