"""The road `snmp` as a rig states it. What lies behind the names is `snmp_objects`'s, how it is asked for `snmp`'s."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.clock import NS_PER_MS, NS_PER_S
from contract.units import QuantityError, format_duration, parse_duration_ns
from contract.yaml_reader import bounded, integer, one_of, words, yes_or_no
from controller.counters.address import Address, address
from controller.counters.credentials import CredentialsPlace

if TYPE_CHECKING:
    from contract.yaml_reader import Section

SNMP_PORT: Final = 161
DEFAULT_ANSWER_NS: Final = 500 * NS_PER_MS
MOST_ANSWER_NS: Final = 10 * NS_PER_S
DEFAULT_TRIES: Final = 3
MOST_TRIES: Final = 10


class InterfaceNames(StrEnum):
    """Which column of IF-MIB has the names by which the rig knows the device's ports."""

    IF_NAME = "if_name"
    IF_ALIAS = "if_alias"
    IF_DESCR = "if_descr"


@dataclass(frozen=True, slots=True)
class SnmpRoad:
    """An SNMP agent. Whether version 2c or 3 is spoken follows from the credentials."""

    address: Address
    credentials: CredentialsPlace
    names: InterfaceNames = InterfaceNames.IF_NAME
    octets_include_fcs: bool = True
    """Whether the device counts octets as IF-MIB says; an agent on Linux gives what its kernel has, without the FCS."""
    answer_ns: int = DEFAULT_ANSWER_NS
    """How long an answer to one request is waited for."""
    tries: int = DEFAULT_TRIES
    """How often a request is sent before its answer counts as missing."""


def read_snmp(section: Section, directory: Path) -> SnmpRoad:
    """The keys of an entry with `reader: snmp`; mistakes go to the section's file."""
    return SnmpRoad(
        address=section.required(
            "address", address(SNMP_PORT), Address("?", SNMP_PORT), "write HOST or HOST:PORT of the agent"
        ),
        credentials=read_place(section, directory),
        names=section.optional(
            "names", one_of({str(one): one for one in InterfaceNames}), InterfaceNames.IF_NAME
        ),
        octets_include_fcs=section.optional("octets_include_fcs", yes_or_no, True),
        answer_ns=section.optional(
            "answer",
            bounded(parse_duration_ns, NS_PER_MS, MOST_ANSWER_NS, format_duration),
            DEFAULT_ANSWER_NS,
        ),
        tries=section.optional("tries", integer(1, MOST_TRIES), DEFAULT_TRIES),
    )


def read_place(section: Section, directory: Path) -> CredentialsPlace:
    """`credentials` (a file) or `credentials_env` (a variable), one of which must stand."""
    place = read_optional_place(section, directory)
    if place is None:
        section.mistake(
            "credentials", "is missing", "name a file with credentials, or a variable with credentials_env"
        )
    return place or CredentialsPlace()


def read_optional_place(section: Section, directory: Path) -> CredentialsPlace | None:
    """The same, where a device may ask for no credentials."""
    file = section.optional("credentials", words, "")
    variable = section.optional("credentials_env", _variable, "")
    if file and variable:
        section.mistake("credentials", "stands beside credentials_env", "keep one of them")
    if not section.has("credentials") and not section.has("credentials_env"):
        return None
    return CredentialsPlace(directory / file if file else None, variable)


def _variable(text: str) -> str:
    if not text.isascii() or not text.isidentifier() or len(text) > 128:
        raise QuantityError(
            "not the name of a variable", "write a name such as ETLOOP_SNMP, never the secret"
        )
    return text
