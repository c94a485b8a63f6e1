"""`HOST:PORT` of a device's management address, as a rig writes it. Pure: a reader finds out whether it can be reached."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import FormedParser, pattern_form

_FORMS: Final = re.compile(
    r"\[(?P<six>[0-9A-Fa-f:.]{2,45})\](?::(?P<six_port>[0-9]{1,5}))?"
    r"|(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or IP address, and one of its ports."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(default_port: int) -> Callable[[str], Address]:
    """Return a parser of `HOST`, `HOST:PORT` and `[IPv6]:PORT`. The parser raises `QuantityError`."""
    remedy = f"write HOST or HOST:PORT (port {default_port} if none is given), an IPv6 address in brackets"

    def parse(text: str) -> Address:
        match = _FORMS.fullmatch(text.strip())
        if match is None:
            raise QuantityError(f'"{text[:64]}" is not an address', remedy)
        port = int(match["six_port"] or match["port"] or default_port)
        if not 0 < port < 1 << 16:
            raise QuantityError(f"{port} is not a port", "write a port from 1 to 65535")
        return Address(match["six"] or match["host"], port)

    return FormedParser(parse, pattern_form("HOST or HOST:PORT", r"[A-Za-z0-9_\[][A-Za-z0-9_.:\[\]-]*"))
