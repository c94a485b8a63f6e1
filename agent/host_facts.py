"""Reads versions, kernel limits and socket features of this host, without evaluating them."""

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
from etloop.runtime.version import UNKNOWN, installed_version
from etloop.traffic.threads.loop_threads import REALTIME_PRIORITY

_PACKAGES: Final = ("numpy", "pyzmq", "msgpack")
_NOT_INSTALLED: Final = "not installed as a package"


def versions() -> dict[str, str]:
    """Return the versions of the protocol, Python, kernel and packages that run here, by name."""
    version_by_name = {
        "protocol": str(PROTOCOL_VERSION),
        MESSAGES: messages_digest(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    etloop = installed_version()
    version_by_name["etloop"] = _NOT_INSTALLED if etloop == UNKNOWN else etloop
    for package in _PACKAGES:
        try:
            version_by_name[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            version_by_name[package] = _NOT_INSTALLED
    return version_by_name


def host_facts() -> HostFacts:
    """Read the facts of this host."""
    return HostFacts(
        read_capabilities(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],
        realtime=_may_be_realtime(),
    )


def _may_be_realtime() -> bool:
    """Return whether this process may be real-time, by trying: capabilities, limits and control groups all matter."""
    before, settings = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    except PermissionError:
        return False
    os.sched_setscheduler(0, before, settings)
    return True
