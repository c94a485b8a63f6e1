"""The source `gnmi` as a rig states it. `counters.gnmi` defines the paths; the reader `gnmi` decides how they are requested."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import bounded, word_of, words, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.counters.base.address import Address, address
from etloop.dut_profiles.model.profile import CounterAccess, CounterPaths, CounterReader

GNMI_PORT: Final = 9339
"""IANA's port of gNMI. Devices have their own: SONiC's container 8080 or 50051, Arista 6030, Cisco 57400."""
DEFAULT_SAMPLE_NS: Final = NS_PER_S
_PATHS: Final = (CounterPaths.OPENCONFIG, CounterPaths.SONIC)
LEAST_SAMPLE_NS: Final = 10 * NS_PER_MS
MOST_SAMPLE_NS: Final = 3600 * NS_PER_S


class GnmiMode(StrEnum):
    """How values are requested."""

    GET = "get"
    """One Get per reading."""
    ONCE = "once"
    """One subscription ONCE per reading, for devices whose Get returns configuration only."""
    SAMPLE = "sample"
    """One STREAM subscription; a reading waits until the device has sent every path anew."""


class GnmiEncoding(StrEnum):
    """Encodings of values; devices have at least one of the first two."""

    JSON_IETF = "json_ietf"
    JSON = "json"
    PROTO = "proto"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files and names of a TLS connection. The device's certificate is always checked."""

    authority: Path | None = None
    """PEM of the authority that signed the device's certificate, or the certificate itself; None: the authorities that gRPC
    ships."""
    certificate: Path | None = None
    """PEM of the client certificate, where the device requests one."""
    key: Path | None = None
    name: str = ""
    """The name in the device's certificate, where it is not the address."""


@dataclass(frozen=True, slots=True)
class GnmiSource:
    """A gNMI server to read."""

    address: Address
    credentials: Path | None = None
    tls: Tls | None = Tls()
    """None: clear text, which the rig must request."""
    paths: CounterPaths | None = None
    """Whose names are requested; None: those that the device's profile states, else OpenConfig's."""
    mode: GnmiMode = GnmiMode.GET
    encoding: GnmiEncoding = GnmiEncoding.JSON_IETF
    target: str = ""
    """Target of the prefix, where a server represents several devices. SONiC's tables always have the target COUNTERS_DB."""
    sample_ns: int = DEFAULT_SAMPLE_NS
    """Sample interval of the mode `sample`."""


def read_gnmi(section: Section, directory: Path) -> GnmiSource:
    """Parse the keys of an entry with `reader: gnmi`; mistakes are reported to the section's file."""
    server_address = section.required(
        "address", address(GNMI_PORT), Address("?", GNMI_PORT), "write HOST or HOST:PORT"
    )
    credentials = section.optional("credentials", words, "")
    plaintext = section.optional("plaintext", yes_or_no, False)
    tls = _read_tls(section.section("tls"), directory)
    if plaintext and section.has("tls"):
        section.mistake("plaintext", "conflicts with tls", "keep one of them")
    paths = section.optional("paths", word_of(_PATHS), None)
    mode = section.optional("mode", word_of(GnmiMode), GnmiMode.GET)
    encoding = section.optional("encoding", word_of(GnmiEncoding), GnmiEncoding.JSON_IETF)
    if paths is CounterPaths.SONIC and encoding is GnmiEncoding.PROTO:
        section.mistake(
            "encoding", "SONiC tables are available as JSON only", "write json_ietf, or remove it"
        )
    target = section.optional("target", words, "")
    if paths is CounterPaths.SONIC and target:
        section.mistake("target", "SONiC tables always use the target COUNTERS_DB", "remove it")
    duration = bounded(parse_duration_ns, LEAST_SAMPLE_NS, MOST_SAMPLE_NS, format_duration)
    sample_ns = section.optional("sample_interval", duration, DEFAULT_SAMPLE_NS)
    if section.has("sample_interval") and mode is not GnmiMode.SAMPLE:
        section.mistake("sample_interval", "applies to mode: sample only", "remove it, or write mode: sample")
    return GnmiSource(
        server_address,
        directory / credentials if credentials else None,
        None if plaintext else tls,
        paths,
        mode,
        encoding,
        target,
        sample_ns,
    )


def with_stated_paths(source: GnmiSource, accesses: Iterable[CounterAccess]) -> GnmiSource:
    """Return the source with its paths decided: its own, else the first that a profile states for gNMI, else OpenConfig's."""
    profile_paths = (
        access.paths for access in accesses if access.reader is CounterReader.GNMI and access.paths in _PATHS
    )
    return replace(source, paths=source.paths or next(profile_paths, CounterPaths.OPENCONFIG))


def _read_tls(section: Section, directory: Path) -> Tls:
    authority = section.optional("ca", words, "")
    certificate = section.optional("cert", words, "")
    key = section.optional("key", words, "")
    if bool(certificate) != bool(key):
        section.mistake(
            "cert" if certificate else "key", "cert and key must be given together", "give both or neither"
        )
    name = section.optional("name", words, "")
    section.close()
    return Tls(
        directory / authority if authority else None,
        directory / certificate if certificate else None,
        directory / key if key else None,
        name,
    )
