"""Reads what this host can do from /proc and /sys, without a privilege and without another program. A shell: files only.

Every file may be missing, unreadable or odd: such a part is left unknown, see `contract/model/capabilities.py`. An exhausted
host (`EXHAUSTED`), or a table of the kernel that fails to be read, shows nothing about addresses or devices, and is an error.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import re
import resource
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from etloop.agent.unread_host import EXHAUSTED, raising_unread
from etloop.contract.model.capabilities import (
    MOST_ADDRESSES,
    MOST_INTERFACES,
    Capabilities,
    Interface,
    RoceDevice,
)

_UDP_SEGMENT: Final = 103
"""linux/udp.h"""
_UDP_GRO: Final = 104
XDP_SINCE: Final = (6, 6)
"""First Linux version whose AF_XDP sockets accept multi-buffer frames, which frames with 4 KiB payload are."""
_VERBS_LIBRARIES: Final = tuple(
    f"usr/{place}/libibverbs.so.1" for place in ("lib/*", "lib64", "lib", "local/lib")
)
"""Paths of the library in multiarch and other distributions."""
_SIOCGIFCONF: Final = 0x8912
"""linux/sockios.h"""
_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFMTU: Final = 0x8921
_IFREQ: Final = struct.Struct("16s2x2x4s16x")
"""struct ifreq with a sockaddr_in: name, family and port, address."""
_NO_CARRIER: Final = 1 << 31
"""Drivers report a speed of -1 without a link, which may read as an unsigned 32-bit number."""
_NO_GID: Final = "0000:0000:0000:0000:0000:0000:0000:0000"
_MBPS: Final = 1_000_000
_PRIVILEGES: Final[Mapping[int, str]] = {
    12: "CAP_NET_ADMIN",
    13: "CAP_NET_RAW",
    14: "CAP_IPC_LOCK",
    21: "CAP_SYS_ADMIN",
    23: "CAP_SYS_NICE",
    39: "CAP_BPF",
}
"""linux/capability.h"""


def read_capabilities(root: Path = Path("/")) -> Capabilities:
    """Read what this host can do; `root` is the directory with `proc`, `sys` and `usr`.

    Raises `RigError` if this host cannot be read now, as without file descriptors.
    """
    with raising_unread("the addresses and devices of this host"):
        return _read_capabilities(root)


def _read_capabilities(root: Path) -> Capabilities:
    addresses = _addresses(root)
    interfaces = _interfaces(root, addresses)
    complete = len(interfaces) <= MOST_INTERFACES and sum(map(len, addresses.values())) <= MOST_ADDRESSES
    networks = tuple(_local_networks(root))
    known_everywhere = bool(interfaces) and bool(networks)
    privileges = _privileges(root)
    devices = tuple(_roce_devices(root / "sys/class/infiniband"))
    return Capabilities(
        cores=len(os.sched_getaffinity(0)),
        core_ids=tuple(sorted(os.sched_getaffinity(0))),
        quota_millicores=_quota_millicores(root),
        machine=_text_of(root / "proc/sys/kernel/random/boot_id"),
        interfaces=interfaces[:MOST_INTERFACES] if complete else (),
        local_networks=networks,
        complete=complete and known_everywhere,
        backends=_backends(root, privileges, devices),
        roce_devices=devices,
        clock_source=_text_of(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ptp_clocks=tuple(_ptp_clocks(root / "sys/class/ptp")),
        governor=_text_of(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        privileges=privileges,
        receive_buffer_bytes=_number_of(root / "proc/sys/net/core/rmem_max"),
        open_files=max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        udp_segmentation=_has_udp_option(_UDP_SEGMENT, 1024),
        udp_coalescing=_has_udp_option(_UDP_GRO, 1),
    )


def _text_of(path: Path, most_chars: int = 256) -> str:
    """Return the content of a file without surrounding white space, at most `most_chars`; "" if the host does not give it.

    Raises `OSError` if the host is exhausted. Drivers answer with other errors, EIO too, for what they do not know.
    """
    try:
        return path.read_text(encoding="ascii")[:most_chars].strip()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return ""
    except ValueError:
        return ""


def _table_of(path: Path) -> str:
    """Return a table of the kernel; "" if it has none or hides it. Raises `OSError` if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError, UnicodeDecodeError):
        return ""


def _number_of(path: Path) -> int:
    """Return the number in a file; 0 if there is none."""
    text = _text_of(path)
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _quota_millicores(root: Path) -> int:
    """Return the tightest CPU quota of this process's control groups (version 2), in 1/1000 cores; 0 if there is none."""
    unified = [line for line in _table_of(root / "proc/self/cgroup").splitlines() if line.startswith("0::/")]
    group = Path(unified[0].removeprefix("0::/")) if unified else Path()
    quotas = []
    for folder in (group, *group.parents):
        match = re.fullmatch(
            r"([0-9]{1,12}) ([1-9][0-9]{0,11})", _text_of(root / "sys/fs/cgroup" / folder / "cpu.max")
        )
        if match is not None:
            quotas.append(int(match[1]) * 1000 // int(match[2]))
    return min(quotas, default=0)


# ---- interfaces


def _interfaces(root: Path, addresses: Mapping[str, list[str]]) -> tuple[Interface, ...]:
    directory = root / "sys/class/net"
    if root == Path("/"):
        # Ask the kernel for the agent's own network namespace: /sys may show another one.
        names = sorted(name for _, name in socket.if_nameindex())
    else:
        names = [path.name for path in _entries(directory)]
    return tuple(_interface(root, name, addresses.get(name, [])) for name in names)


def _interface(root: Path, name: str, addresses: list[str]) -> Interface:
    path = root / "sys/class/net" / name
    speed_mbps = _number_of(path / "speed")  # Raises EINVAL where there is no link.
    flags = _text_of(path / "flags")
    up = re.fullmatch(r"0x[0-9a-f]{1,8}", flags) is not None and bool(int(flags, 16) & 1)
    mtu_bytes = _number_of(path / "mtu")
    if root == Path("/"):
        mtu_bytes = _ioctl(_SIOCGIFMTU, name)
        up = bool(_ioctl(_SIOCGIFFLAGS, name) & 1)
    return Interface(
        name=name,
        addresses=tuple(addresses),
        link_bps=speed_mbps * _MBPS if 0 < speed_mbps < _NO_CARRIER else 0,
        mtu_bytes=mtu_bytes,
        driver=_driver(path / "device"),
        up=up,
    )


def _ioctl(request: int, name: str) -> int:
    """Return the MTU or the flags of an interface by ioctl (netdevice(7)); 0 if the interface is gone. Raises `OSError`."""
    argument = struct.pack("16si20x", name.encode()[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, request, argument)
        except OSError as error:
            if error.errno not in {errno.ENODEV, errno.ENXIO}:
                raise
            return 0
    number: int = struct.unpack_from("i", answer, 16)[0]
    return number if request == _SIOCGIFMTU else number & 0xFFFF


def _driver(device: Path) -> str:
    try:
        return (device / "driver").resolve(strict=True).name
    except OSError:
        return ""


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _addresses(root: Path) -> dict[str, list[str]]:
    """Return the IPv4 and IPv6 addresses by interface name; IPv4 only if `root` is the real root."""
    addresses_by_interface: dict[str, list[str]] = {}
    if root == Path("/"):
        for name, address in _ipv4_addresses():
            addresses_by_interface.setdefault(name, []).append(address)
    for line in _table_of(root / "proc/net/if_inet6").splitlines():
        words = line.split()
        if len(words) == 6 and re.fullmatch(r"[0-9a-f]{32}", words[0]):
            addresses_by_interface.setdefault(words[5], []).append(
                str(ipaddress.IPv6Address(bytes.fromhex(words[0])))
            )
    return addresses_by_interface


def _ipv4_addresses() -> Iterator[tuple[str, str]]:
    """Yield interface name and address of all IPv4 addresses, secondary ones included (netdevice(7): SIOCGIFCONF)."""
    buffer = bytearray(_IFREQ.size * 2 * MOST_ADDRESSES)
    c_buffer = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    argument = struct.pack("iP", len(buffer), ctypes.addressof(c_buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        used_bytes, _ = struct.unpack("iP", fcntl.ioctl(probe, _SIOCGIFCONF, argument))
    for name, packed in _IFREQ.iter_unpack(bytes(buffer[: used_bytes - used_bytes % _IFREQ.size])):
        # An address may have a label of its own after a colon.
        yield name.split(b"\0")[0].decode(errors="replace").split(":")[0], socket.inet_ntoa(packed)


def _local_networks(root: Path) -> Iterator[str]:
    """Yield networks of which every address is local: routes of type local that are wider than one address."""
    network = ""
    networks = set()
    for line in _table_of(root / "proc/net/fib_trie").splitlines():
        if match := re.fullmatch(r"\s*\|-- ([0-9.]{7,15})", line):
            network = match[1]
        elif (match := re.fullmatch(r"\s*/(\d{1,2}) host LOCAL", line)) and int(match[1]) < 32:
            with suppress(ValueError):
                networks.add(str(ipaddress.IPv4Network(f"{network}/{match[1]}")))
    yield from sorted(networks)[:MOST_INTERFACES]


# ---- devices


def _roce_devices(directory: Path) -> Iterator[RoceDevice]:
    """Yield RDMA devices with a RoCE version 2 address; devices with RoCE switched off have none and are skipped."""
    for device in _entries(directory):
        for port in _entries(device / "ports"):
            roce_gids = [
                path.name for path in _files(port / "gid_attrs/types") if _text_of(path) == "RoCE v2"
            ]
            if not roce_gids:
                continue
            netdevs = (_text_of(path) for path in _files(port / "gid_attrs/ndevs"))
            bus = ""
            with suppress(OSError):
                bus = (device / "device").resolve(strict=True).name
            driver = _driver(device / "device")
            yield RoceDevice(
                device.name,
                next((name for name in netdevs if name), ""),
                driver,
                bus if driver else "",
                state=_text_of(port / "state").partition(": ")[2],
                addresses=sum(_text_of(port / "gids" / index) not in {"", _NO_GID} for index in roce_gids),
                firmware=_text_of(device / "fw_ver"),
            )


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())[:1024]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _ptp_clocks(directory: Path) -> Iterator[str]:
    for path in _files(directory)[:64]:
        yield f"{path.name} {_text_of(path / 'clock_name')}".rstrip()


def _privileges(root: Path) -> tuple[str, ...]:
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", _table_of(root / "proc/self/status"), re.MULTILINE)
    capability_bits = int(match[1], 16) if match else 0
    return tuple(name for bit, name in _PRIVILEGES.items() if capability_bits >> bit & 1)


def _backends(root: Path, privileges: tuple[str, ...], devices: tuple[RoceDevice, ...]) -> tuple[str, ...]:
    """Return the kinds of ports whose requirements (docs/ports.md) are met; only opening a port shows whether its
    driver works.
    """
    frames = "CAP_NET_RAW" in privileges
    programs = "CAP_NET_ADMIN" in privileges and not {"CAP_BPF", "CAP_SYS_ADMIN"}.isdisjoint(privileges)
    release = re.match(r"(\d{1,4})\.(\d{1,4})", _text_of(root / "proc/sys/kernel/osrelease"))
    joins_chunks = release is not None and (int(release[1]), int(release[2])) >= XDP_SINCE
    has_sockets = re.search(r"^XDP ", _table_of(root / "proc/net/protocols"), re.MULTILINE) is not None
    xdp = frames and programs and joins_chunks and has_sockets
    has_library = any(next(root.glob(pattern), None) for pattern in _VERBS_LIBRARIES)
    usable_by_kind = {
        "udp": True,
        "packet": frames,
        "xdp": xdp,
        "verbs": has_library and not all(device.lack for device in devices),
    }
    return tuple(name for name, usable in usable_by_kind.items() if usable)


def _has_udp_option(option: int, value: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
    return True
