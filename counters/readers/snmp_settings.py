"""The source `snmp` as a rig states it. `snmp_objects` defines what is read, `snmp` how it is requested."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.units import format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import file_name, integer, with_bounds, word_of, yes_or_no
from etloop.counters.base.address import Address, address

SNMP_PORT: Final = 161
DEFAULT_RESPONSE_TIMEOUT_NS: Final = 500 * NS_PER_MS
MOST_RESPONSE_TIMEOUT_NS: Final = 10 * NS_PER_S
DEFAULT_TRIES: Final = 3
MOST_TRIES: Final = 10


class InterfaceNames(StrEnum):
    """The column of IF-MIB with the names by which the rig knows the device's ports."""

    IF_NAME = "if_name"
    IF_ALIAS = "if_alias"
    IF_DESCR = "if_descr"


@dataclass(frozen=True, slots=True)
class SnmpSource:
    """An SNMP agent. The credentials decide between version 2c and 3."""

    address: Address = required_setting(
        "address", address(SNMP_PORT), Address("?", SNMP_PORT), "write HOST or HOST:PORT of the agent"
    )
    """Management address of the device."""
    credentials: Path = required_setting(
        "credentials", file_name, Path("?"), "name a file with the community or the user"
    )
    """File with the community or the user."""
    names: InterfaceNames = setting("names", word_of(InterfaceNames), InterfaceNames.IF_NAME)
    """Column of IF-MIB with the names of ports."""
    octets_include_fcs: bool = setting("octets_include_fcs", yes_or_no, True)
    """Whether the device counts octets as IF-MIB defines them; an agent on Linux gives its kernel's, without the FCS."""
    response_timeout_ns: int = setting(
        "answer",
        with_bounds(parse_duration_ns, NS_PER_MS, MOST_RESPONSE_TIMEOUT_NS, format_duration),
        DEFAULT_RESPONSE_TIMEOUT_NS,
    )
    """Timeout of one request."""
    tries: int = setting("tries", integer(1, MOST_TRIES), DEFAULT_TRIES)
    """Attempts per request before its answer counts as missing."""
