"""Reads interfaces of the host and namespace that it runs in: a line on standard input, a line of JSON on standard output.

Run as `etloop dut linux-counters INTERFACE...`, also by ssh or inside a namespace, which is why it is a process of its own;
without interfaces it reads all but the loopback. It tells Linux's own names; what they mean is `linux_names`. An interface or
a group of counters that cannot be read is a complaint in the answer, never an end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from etloop.counters.readers.linux_names import VERSION
from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool
from pyroute2.netlink.exceptions import NetlinkError

MOST_INTERFACES: Final = 1024
_SYSFS: Final = Path("/sys/class")
_LOOPBACK_FLAG: Final = 0x8
"""IFF_LOOPBACK (linux/if.h)."""


def main(interfaces: Sequence[str]) -> int:
    """Answers every line of standard input until it ends."""
    with IPRoute() as route:
        for _ in sys.stdin:
            sys.stdout.write(json.dumps(_answer(route, interfaces)) + "\n")
            sys.stdout.flush()
    return 0


def _answer(route: Any, wanted: Sequence[str]) -> dict[str, object]:
    complaints: list[str] = []
    links = _links(route, wanted, complaints)
    interfaces: dict[str, object] = {}
    for name, stats in list(links.items())[:MOST_INTERFACES]:
        interfaces[name] = {
            "link": stats,
            "ethtool": _driver_counters(name),
            "rdma": rdma_counters(_SYSFS, name),
        }
    if len(links) > MOST_INTERFACES:
        complaints.append(f"{len(links)} interfaces, read {MOST_INTERFACES} of them")
    return {"version": VERSION, "interfaces": interfaces, "complaints": complaints}


def _links(route: Any, wanted: Sequence[str], complaints: list[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    if not wanted:
        for link in route.get_links():
            if not link["flags"] & _LOOPBACK_FLAG:
                found[link.get_attr("IFLA_IFNAME")] = _stats(link)
        return found
    for name in wanted:
        try:
            found[name] = _stats(route.link("get", ifname=name)[0])
        except (NetlinkError, OSError, ValueError, IndexError):
            complaints.append(f"there is no interface {name} here")
    return found


def _stats(link: Any) -> dict[str, int]:
    stats = link.get_attr("IFLA_STATS64")
    return {} if stats is None else {name: int(stats[name]) for name in dict(stats) if name != "__pad"}


def _driver_counters(name: str) -> dict[str, int]:
    """`ethtool -S`, which only the ioctl has: netlink tells standard groups only (linux: net/ethtool/stats.c)."""
    try:
        device = IoctlEthtool(name)
        try:
            statistics = device.get_statistics()
        finally:
            device.close()
    except Exception:  # noqa: BLE001 - a driver without statistics, or one whose list changed meanwhile: nothing is told
        return {}
    return {_plain(label): int(value) for label, value in statistics}


def _plain(label: object) -> str:
    text = label.decode(errors="replace") if isinstance(label, bytes) else str(label)
    return text.split("\0", 1)[0].strip()


def rdma_counters(sysfs: Path, interface: str) -> dict[str, int]:
    """`counters` and `hw_counters` of the RDMA ports that stand on an interface, added up; {} where there is none."""
    found: dict[str, int] = {}
    for port in sorted((sysfs / "infiniband").glob("*/ports/*")):
        if _interface_of(port) != interface:
            continue
        for file in sorted([*port.glob("counters/*"), *port.glob("hw_counters/*")]):
            try:
                value = int(file.read_text())
            except (OSError, ValueError):
                continue  # some cannot be read by users, and `lifespan` is no counter
            if file.name != "lifespan":
                found[file.name] = found.get(file.name, 0) + value
    return found


def _interface_of(port: Path) -> str:
    """The interface under an RDMA port: that of its first address, else, for software devices, its parent."""
    for source in (port / "gid_attrs" / "ndevs" / "0", port.parent.parent / "parent"):
        try:
            return source.read_text().strip()
        except OSError:
            continue
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
