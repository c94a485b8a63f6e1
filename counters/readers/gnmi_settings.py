"""The source `gnmi` as a rig states it. `counters.gnmi` defines the paths; the reader `gnmi` decides how they are requested."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, required_setting, setting
from etloop.contract.base.units import format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import file_name, with_bounds, word_of, words, yes_or_no
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

    authority: Path | None = setting("ca", file_name, None)
    """PEM file of the authority that signed the device's certificate, or of the certificate itself; the authorities that gRPC
    ships if left out."""
    certificate: Path | None = setting("cert", file_name, None)
    """PEM file of the client certificate, where the device requests one."""
    key: Path | None = setting("key", file_name, None)
    """PEM file of the client's key."""
    name: str = setting("name", words, "")
    """Name in the device's certificate, where it is not the address."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a certificate without its key, or a key without its certificate."""
        if (self.certificate is None) != (self.key is None):
            key = "key" if self.certificate is None else "cert"
            yield Problem(key, "cert and key must be given together", "give both or none")


@dataclass(frozen=True, slots=True)
class GnmiSource:
    """A gNMI server to read."""

    address: Address = required_setting(
        "address", address(GNMI_PORT), Address("?", GNMI_PORT), "write HOST or HOST:PORT"
    )
    """Management address of the device."""
    credentials: Path | None = setting("credentials", file_name, None)
    """File with user and password."""
    tls: Tls = group(Tls, "tls")
    """Files and names of the TLS connection."""
    plaintext: bool = setting("plaintext", yes_or_no, False)
    """Connect without TLS."""
    paths: CounterPaths | None = setting("paths", word_of(_PATHS), None)
    """Model whose paths are requested; the profile's, else openconfig, if left out."""
    mode: GnmiMode = setting("mode", word_of(GnmiMode), GnmiMode.GET)
    """How values are requested: one Get or one subscription ONCE per reading, or one STREAM subscription (sample)."""
    encoding: GnmiEncoding = setting("encoding", word_of(GnmiEncoding), GnmiEncoding.JSON_IETF)
    """Encoding of values."""
    target: str = setting("target", words, "")
    """Target of the prefix, where a server represents several devices."""
    sample_ns: int = setting(
        "sample_interval",
        with_bounds(parse_duration_ns, LEAST_SAMPLE_NS, MOST_SAMPLE_NS, format_duration),
        DEFAULT_SAMPLE_NS,
    )
    """Interval at which the device sends in mode sample."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield keys that contradict each other."""
        if self.plaintext and "tls" in keys:
            yield Problem("plaintext", "conflicts with tls", "keep one of them")
        if self.paths is CounterPaths.SONIC and self.encoding is GnmiEncoding.PROTO:
            yield Problem(
                "encoding", "SONiC tables are available as JSON only", "write json_ietf, or remove it"
            )
        if self.paths is CounterPaths.SONIC and self.target:
            yield Problem("target", "SONiC tables always use the target COUNTERS_DB", "remove it")
        if "sample_interval" in keys and self.mode is not GnmiMode.SAMPLE:
            yield Problem(
                "sample_interval", "applies to mode: sample only", "remove it, or write mode: sample"
            )


def with_stated_paths(source: GnmiSource, accesses: Iterable[CounterAccess]) -> GnmiSource:
    """Return the source with its paths decided: its own, else the first that a profile states for gNMI, else OpenConfig's."""
    profile_paths = (
        access.paths for access in accesses if access.reader is CounterReader.GNMI and access.paths in _PATHS
    )
    return replace(source, paths=source.paths or next(profile_paths, CounterPaths.OPENCONFIG))
