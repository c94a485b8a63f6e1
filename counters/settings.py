"""Where a device's counters are read, as the rig states it: one `SourceSettings` per source, checked before a reader is opened.

Decides the keys that all sources share and those of the soft switch and Linux; SNMP's and gNMI's are in `snmp_settings` and
`gnmi_settings`. The reader finds out which objects a device has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError, format_duration, parse_duration_ns, parse_name
from etloop.contract.base.value_form import formed, pattern_form
from etloop.contract.base.value_parsers import bounded, word_of
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.counters import MOST_NAME_CHARACTERS
from etloop.counters.readers.gnmi_settings import GnmiSource, read_gnmi
from etloop.counters.readers.snmp_settings import SnmpSource, read_snmp
from etloop.dut_profiles.model.profile import CounterReader

DEFAULT_INTERVAL_NS: Final = NS_PER_S
"""SONiC's polling interval of its ports, too (sonic-net/SONiC wiki, flex counters)."""
LEAST_INTERVAL_NS: Final = 20 * NS_PER_MS
MOST_INTERVAL_NS: Final = 3600 * NS_PER_S
DEFAULT_TIMEOUT_NS: Final = 2 * NS_PER_S
MOST_TIMEOUT_NS: Final = 30 * NS_PER_S
MOST_SOURCES: Final = 64
MOST_WORDS: Final = 32
"""Of a command that reads on another host."""


@dataclass(frozen=True, slots=True)
class SoftSwitchSource:
    """The Unix socket of a lab of this user."""

    lab: str


class Side(StrEnum):
    """The end of the cable at which an interface is."""

    HOST = "host"
    """The rig's interface: what it sends goes to the device. Also a NIC under test."""
    DEVICE = "device"
    """An interface of a switch that is a Linux host."""


@dataclass(frozen=True, slots=True)
class LinuxSource:
    """Interfaces of a Linux host, local or remote."""

    command: tuple[str, ...] = ()
    """Command that reads as `etloop dut linux-counters` does, such as (ssh, host-a, etloop, dut, linux-counters); the
    interfaces are appended to it. () reads on this host."""
    side: Side | None = None
    """None: the profile's kind of device decides."""


CounterSource = SoftSwitchSource | LinuxSource | SnmpSource | GnmiSource


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source of the counters of one device."""

    name: str
    """Name in the results: of the device, or of the host whose interfaces are read."""
    reader: CounterReader
    reader_settings: CounterSource
    interval_ns: int | None
    """Time between the starts of two readings during a run; None: the profile's, else DEFAULT_INTERVAL_NS."""
    timeout_ns: int
    """Of opening and of every reading."""
    ports: tuple[tuple[str, str], ...]
    """Rig port as AGENT/PORT, and the device's name of the port at the other end of its cable. For a NIC under test it is the
    interface itself. () reads every port and reconciles none."""


def read_source(section: Section, directory: Path) -> SourceSettings:
    """Parse one entry of a rig's `dut.counters` and close the section; mistakes are reported to the section's file.

    File names in it are relative to `directory`.
    """
    reader_names = ", ".join(_SOURCES)
    reader = section.required("reader", word_of(_SOURCES), None, f"write one of {reader_names}")
    duration = bounded(parse_duration_ns, LEAST_INTERVAL_NS, MOST_INTERVAL_NS, format_duration)
    timeout = bounded(parse_duration_ns, LEAST_INTERVAL_NS, MOST_TIMEOUT_NS, format_duration)
    name = section.optional("name", parse_name, str(reader or "?"))
    interval_ns = section.optional("interval", duration, None)
    timeout_ns = section.optional("timeout", timeout, DEFAULT_TIMEOUT_NS)
    ports = _read_ports(section.section("ports"))
    source: CounterSource = SoftSwitchSource("?")
    if reader is not None:
        source = _SOURCES[reader](section, directory)
        section.close()
    return SourceSettings(name, reader or CounterReader.SOFT_SWITCH, source, interval_ns, timeout_ns, ports)


def _read_ports(section: Section) -> tuple[tuple[str, str], ...]:
    remedy = "write the device's name of the port, such as Ethernet0"
    return tuple((port, section.required(port, _object_name, "?", remedy)) for port in section.entry_names())


@formed(pattern_form("device port name", "[^\\x00-\\x1f]+"))
def _object_name(text: str) -> str:
    if not 0 < len(text) <= MOST_NAME_CHARACTERS or not text.isprintable():
        problem = f'"{text[:64]}" is not the name of a port'
        raise QuantityError(
            problem, f"write it as the device does, at most {MOST_NAME_CHARACTERS} characters"
        )
    return text


def _read_soft_switch(section: Section, _: Path) -> SoftSwitchSource:
    return SoftSwitchSource(section.optional("lab", parse_name, "lab"))


def _read_linux(section: Section, _: Path) -> LinuxSource:
    command = section.texts("command", _word, "?")
    if len(command) > MOST_WORDS:
        section.mistake("command", f"{len(command)} words", f"write at most {MOST_WORDS}")
    return LinuxSource(command, section.optional("side", word_of(Side), None))


@formed(pattern_form("argument of a command", "[^\\x00-\\x1f]{1,256}"))
def _word(text: str) -> str:
    if not text or len(text) > 256 or not text.isprintable():
        raise QuantityError(
            f'"{text[:64]}" is not an argument of a command', "write the command as a list of words"
        )
    return text


_SOURCES: Final[Mapping[CounterReader, Callable[[Section, Path], CounterSource]]] = {
    CounterReader.SOFT_SWITCH: _read_soft_switch,
    CounterReader.LINUX: _read_linux,
    CounterReader.SNMP: read_snmp,
    CounterReader.GNMI: read_gnmi,
}
"""Reader -> parser of its own keys."""
