"""IPv4 and IPv6 addresses as one value of 16 bytes, and columns of them.

IPv4 is kept as IPv6 maps it, ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), as traffic/native/ip_address.h does.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

IP_ADDRESS: Final = np.dtype("V16")
"""Of a column of addresses, in network order."""
NO_ADDRESS: Final = bytes(16)
_MAPPED: Final = bytes(10) + b"\xff\xff"


def ip_bytes(text: str) -> bytes:
    """The 16 bytes of "10.0.0.1" or "fd00::1". Raises ValueError for any other text."""
    address = ip_address(text)
    return _MAPPED + address.packed if isinstance(address, IPv4Address) else address.packed


def ip_text(value: np.void | bytes) -> str:
    """An address as people write it; `value` is 16 bytes or an element of a column."""
    content = value if isinstance(value, bytes) else value.tobytes()
    return str(IPv4Address(content[12:])) if content.startswith(_MAPPED) else str(IPv6Address(content))


def ip_column(addresses: Iterable[bytes]) -> NDArray[np.void]:
    """A column of addresses of 16 bytes each. Raises ValueError if their bytes are no multiple of 16."""
    return np.frombuffer(b"".join(addresses), IP_ADDRESS)
