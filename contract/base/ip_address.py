"""IPv4 and IPv6 addresses as values of 16 bytes, and columns of them.

IPv4 is kept as IPv6 maps it, ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), as traffic/native/base/ip_address.h does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import pattern_form, with_form

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BROADCAST: Final = IPv4Address("255.255.255.255")
MOST_ADDRESSES: Final = 4096
"""Most addresses of one port; a rank needs one, and a port carries no more ranks than this."""

IP_ADDRESS: Final = np.dtype("V16")
"""Dtype of a column of addresses, in network byte order."""
NO_ADDRESS: Final = bytes(16)
_MAPPED: Final = bytes(10) + b"\xff\xff"
_MOST_TEXTS: Final = 1 << 14
"""Size of the cache of texts: tables of hundreds of thousands of queue pairs have a few thousand addresses."""


def ip_bytes(text: str) -> bytes:
    """Return the 16 bytes of "10.0.0.1" or "fd00::1". Raises ValueError for any other text."""
    address = ip_address(text)
    return _MAPPED + address.packed if isinstance(address, IPv4Address) else address.packed


def ip_text(value: np.void | bytes) -> str:
    """Return the usual text of an address; `value` is 16 bytes or an element of a column of dtype `IP_ADDRESS`."""
    return _text(value if isinstance(value, bytes) else value.tobytes())


@lru_cache(maxsize=_MOST_TEXTS)
def _text(content: bytes) -> str:
    return str(IPv4Address(content[12:])) if content.startswith(_MAPPED) else str(IPv6Address(content))


def ip_column(addresses: Iterable[bytes]) -> NDArray[np.void]:
    """Return a column of addresses of 16 bytes each, shape (n,) of dtype `IP_ADDRESS`.

    Raises ValueError if their bytes are not a multiple of 16.
    """
    return np.frombuffer(b"".join(addresses), IP_ADDRESS)


@with_form(pattern_form("address or range", r"\s*[0-9A-Fa-f.:]+\s*(-\s*[0-9A-Fa-f.:]+\s*)?"))
def parse_addresses(text: str) -> tuple[str, ...]:
    """Parse "10.0.1.1" or the range "10.0.1.1-10.0.1.8" into its addresses. Raises `QuantityError`."""
    remedy = 'write an IPv4 or IPv6 address, or a range such as "10.0.1.1-10.0.1.8"'
    first_text, dash, last_text = text.partition("-")
    try:
        first = ip_address(first_text.strip())
        last = ip_address(last_text.strip()) if dash else first
    except ValueError:
        raise QuantityError(f'"{text[:64]}" is not an IP address', remedy) from None
    if first.version != last.version:
        raise QuantityError(f'"{text[:64]}" begins and ends in different address families', remedy)
    count = int(last) - int(first) + 1
    if not 1 <= count <= MOST_ADDRESSES:
        problem = f'"{text}" holds {max(count, 0)} addresses'
        raise QuantityError(problem, f"write an ascending range of at most {MOST_ADDRESSES}")
    for address in (first, last):
        if address.is_unspecified or address.is_multicast or address == _BROADCAST:
            raise QuantityError(f"{address} is not a unicast address", remedy)
        if address.version == 6 and (address.is_link_local or address.ipv4_mapped or address.scope_id):
            problem = (
                f"{address} is a link-local or IPv4-mapped IPv6 address, which is not valid beyond its link"
            )
            raise QuantityError(
                problem, "give the port a routable or unique local address, such as fd00:1::1"
            )
    return tuple(str(first + offset) for offset in range(count))
