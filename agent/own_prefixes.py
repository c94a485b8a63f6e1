"""Reads how long the prefixes of this host's own addresses are, as the kernel has them. A shell: a socket and /proc."""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_SIOCGIFCONF: Final = 0x8912
_SIOCGIFNETMASK: Final = 0x891B
_IFREQ_BYTES: Final = 40
_NAME_BYTES: Final = 16
_MOST_ADDRESSES: Final = 4096


def own_prefixes() -> dict[str, int]:
    """Return the prefix length of every address of this network namespace; one that cannot be told is left out."""
    return _ipv4() | _ipv6(Path("/proc/net/if_inet6"))


def _ipv4() -> dict[str, int]:
    """netdevice(7): of an address with a label, the mask is asked for by both."""
    found: dict[str, int] = {}
    room = bytearray(_IFREQ_BYTES * _MOST_ADDRESSES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        held = (ctypes.c_char * len(room)).from_buffer(room)
        with suppress(OSError):
            used, _ = struct.unpack(
                "iP", fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", len(room), ctypes.addressof(held)))
            )
            for at in range(0, used - used % _IFREQ_BYTES, _IFREQ_BYTES):
                request = bytes(room[at : at + _IFREQ_BYTES])
                address = socket.inet_ntoa(request[_NAME_BYTES + 4 : _NAME_BYTES + 8])
                with suppress(OSError):
                    answer = fcntl.ioctl(probe, _SIOCGIFNETMASK, request)
                    mask = int.from_bytes(answer[_NAME_BYTES + 4 : _NAME_BYTES + 8], "big")
                    found[address] = mask.bit_count()
        del held
    return found


def _ipv6(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return found  # A host without IPv6.
    for line in lines[:_MOST_ADDRESSES]:
        words = line.split()
        with suppress(ValueError, IndexError):
            found[str(ipaddress.IPv6Address(bytes.fromhex(words[0])))] = int(words[2], 16)
    return found
