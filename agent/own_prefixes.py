"""Reads the prefix lengths of this host's own addresses from the kernel. A shell: a socket and /proc."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from etloop.agent.unread_host import raising_unread

_SIOCGIFCONF: Final = 0x8912
_SIOCGIFNETMASK: Final = 0x891B
_IFREQ_BYTES: Final = 40
_NAME_BYTES: Final = 16
_MOST_ADDRESSES: Final = 4096


def own_prefixes() -> dict[str, int]:
    """Return the prefix length of every address of this network namespace; an address whose prefix is unknown is left
    out. Raises `RigError` if this host cannot be read now: without prefixes, peers would lie in no network of a port.
    """
    with raising_unread("the prefixes of this host's addresses"):
        return _ipv4() | _ipv6(Path("/proc/net/if_inet6"))


def _ipv4() -> dict[str, int]:
    """Return prefix length by IPv4 address. An alias address needs label and address in the mask request (netdevice(7))."""
    prefix_lengths: dict[str, int] = {}
    buffer = bytearray(_IFREQ_BYTES * _MOST_ADDRESSES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        c_buffer = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        used_bytes, _ = struct.unpack(
            "iP",
            fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", len(buffer), ctypes.addressof(c_buffer))),
        )
        for offset in range(0, used_bytes - used_bytes % _IFREQ_BYTES, _IFREQ_BYTES):
            request = bytes(buffer[offset : offset + _IFREQ_BYTES])
            address = socket.inet_ntoa(request[_NAME_BYTES + 4 : _NAME_BYTES + 8])
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFNETMASK, request)
            except OSError as error:
                if error.errno not in {errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO}:
                    raise
                continue  # Removed since it was listed.
            mask = int.from_bytes(answer[_NAME_BYTES + 4 : _NAME_BYTES + 8], "big")
            prefix_lengths[address] = mask.bit_count()
        del c_buffer
    return prefix_lengths


def _ipv6(path: Path) -> dict[str, int]:
    prefix_lengths: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return prefix_lengths  # A host without IPv6, or one that hides it.
    for line in lines[:_MOST_ADDRESSES]:
        words = line.split()
        with suppress(ValueError, IndexError):
            prefix_lengths[str(ipaddress.IPv6Address(bytes.fromhex(words[0])))] = int(words[2], 16)
    return prefix_lengths
