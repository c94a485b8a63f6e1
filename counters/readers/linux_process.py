"""Reads interfaces of its own host and namespace: for each line on standard input it writes a line of JSON to standard output.

Run as `etloop dut linux-counters INTERFACE...`, also over ssh or inside a namespace, which is why it is a separate process;
without interfaces it reads all but the loopback. It reports Linux's own names; `linux_names` maps them. An interface or a group
of counters that cannot be read is a complaint in the answer and never ends the process.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError
from pyroute2.netlink.exceptions import NetlinkError

from etloop.counters.readers.linux_names import VERSION

MOST_INTERFACES: Final = 1024
_SYSFS: Final = Path("/sys/class")
_LOOPBACK_FLAG: Final = 0x8
"""IFF_LOOPBACK (linux/if.h)."""


def main(interfaces: Sequence[str]) -> int:
    """Answer every line of standard input until it ends, and return the exit code."""
    with IPRoute() as route:
        for _ in sys.stdin:
            sys.stdout.write(json.dumps(_answer(route, interfaces)) + "\n")
            sys.stdout.flush()
    return 0


def _answer(route: Any, wanted: Sequence[str]) -> dict[str, object]:
    complaints: list[str] = []
    links = read_links(route, wanted, complaints)
    interfaces: dict[str, object] = {}
    for name, stats in list(links.items())[:MOST_INTERFACES]:
        interfaces[name] = {
            "link": stats,
            "ethtool": driver_counters(name, complaints),
            "rdma": rdma_counters(_SYSFS, name),
        }
    if len(links) > MOST_INTERFACES:
        complaints.append(f"{len(links)} interfaces, read {MOST_INTERFACES} of them")
    return {"version": VERSION, "interfaces": interfaces, "complaints": complaints}


def read_links(route: Any, wanted: Sequence[str], complaints: list[str]) -> dict[str, dict[str, int]]:
    """Return the kernel's statistics of interfaces by name, all but the loopback if none is named; add why one is missing."""
    stats_by_name: dict[str, dict[str, int]] = {}
    if not wanted:
        for link in route.get_links():
            if not link["flags"] & _LOOPBACK_FLAG:
                stats_by_name[link.get_attr("IFLA_IFNAME")] = _stats(link)
        return stats_by_name
    for name in wanted:
        try:
            stats_by_name[name] = _stats(route.link("get", ifname=name)[0])
        except (NetlinkError, OSError, ValueError, IndexError) as error:
            code = error.code if isinstance(error, NetlinkError) else getattr(error, "errno", None)
            if code in (None, errno.ENODEV):
                complaints.append(f"no interface {name} on this host")
            else:
                complaints.append(f"cannot read interface {name}: {os.strerror(code)}")
    return stats_by_name


def _stats(link: Any) -> dict[str, int]:
    stats = link.get_attr("IFLA_STATS64")
    return {} if stats is None else {name: int(stats[name]) for name in dict(stats) if name != "__pad"}


def driver_counters(name: str, complaints: list[str]) -> dict[str, int]:
    """Return `ethtool -S`, which only the ioctl has: netlink reports standard groups only (linux: net/ethtool/stats.c).

    {} for a driver without them; also if they cannot be read, which is added to the complaints.
    """
    try:
        device = IoctlEthtool(name)
        try:
            statistics = device.get_statistics()
        finally:
            device.close()
    except NotSupportedError:
        return {}
    except Exception as error:  # noqa: BLE001 - such as a list that changed during the call
        complaints.append(f"cannot read the driver's counters of {name}: {error or type(error).__name__}")
        return {}
    return {_plain(label): int(value) for label, value in statistics}


def _plain(label: object) -> str:
    text = label.decode(errors="replace") if isinstance(label, bytes) else str(label)
    return text.split("\0", 1)[0].strip()


def rdma_counters(sysfs: Path, interface: str) -> dict[str, int]:
    """Return `counters` and `hw_counters` of an interface's RDMA ports, summed by name; {} if it has none.

    A counter that cannot be read at one of the ports is left out: the sum of the others is none of the interface.
    """
    totals: dict[str, int] = {}
    unread = {"lifespan"}  # no counter
    for port in sorted((sysfs / "infiniband").glob("*/ports/*")):
        if _interface_of(port) != interface:
            continue
        for file in sorted([*port.glob("counters/*"), *port.glob("hw_counters/*")]):
            try:
                value = int(file.read_text())
            except (OSError, ValueError):
                unread.add(file.name)  # some need root
                continue
            totals[file.name] = totals.get(file.name, 0) + value
    return {name: total for name, total in totals.items() if name not in unread}


def _interface_of(port: Path) -> str:
    """Return the interface under an RDMA port: that of its first GID, else (software devices) the content of `parent`."""
    for source in (port / "gid_attrs" / "ndevs" / "0", port.parent.parent / "parent"):
        try:
            return source.read_text().strip()
        except OSError:
            continue
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
