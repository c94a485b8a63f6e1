"""Where a device's counters are read, as the rig states it: one `SourceSettings` per source, checked before a reader is opened.

Declares the keys that all sources share and those of the soft switch and Linux; SNMP's and gNMI's are in `snmp_settings` and
`gnmi_settings`. The reader finds out which objects a device has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import (
    list_setting,
    mapping_setting,
    required_setting,
    setting,
    setting_like,
    variant,
)
from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    parse_duration_ns,
    parse_name,
    parse_port_label,
)
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.value_parsers import with_bounds, word_of
from etloop.contract.model.counters import MOST_NAME_CHARACTERS
from etloop.counters.readers.gnmi_settings import GnmiSource
from etloop.counters.readers.snmp_settings import SnmpSource
from etloop.dut_profiles.model.profile import CounterReader

DEFAULT_INTERVAL_NS: Final = NS_PER_S
"""SONiC's polling interval of its ports, too (sonic-net/SONiC wiki, flex counters)."""
LEAST_INTERVAL_NS: Final = 20 * NS_PER_MS
MOST_INTERVAL_NS: Final = 3600 * NS_PER_S
DEFAULT_TIMEOUT_NS: Final = 2 * NS_PER_S
MOST_TIMEOUT_NS: Final = 30 * NS_PER_S
MOST_SOURCES: Final = 64
MOST_WORDS: Final = 32
"""Most words of a command that reads on another host."""


@with_form(pattern_form("the device's name of a port", "[^\\x00-\\x1f]+"))
def _object_name(text: str) -> str:
    if not 0 < len(text) <= MOST_NAME_CHARACTERS or not text.isprintable():
        problem = f'"{text[:64]}" is not the name of a port'
        raise QuantityError(
            problem, f"write it as the device does, at most {MOST_NAME_CHARACTERS} characters"
        )
    return text


@with_form(pattern_form("word of a command", "[^\\x00-\\x1f]{1,256}"))
def _word(text: str) -> str:
    if not text or len(text) > 256 or not text.isprintable():
        raise QuantityError(
            f'"{text[:64]}" is not one word of a command', "write the command as a list of words"
        )
    return text


@dataclass(frozen=True, slots=True)
class SoftSwitchSource:
    """The Unix socket of a lab of this user."""

    lab: str = setting("lab", parse_name, "lab")
    """Name of the lab."""


class Side(StrEnum):
    """The end of the cable at which an interface is."""

    HOST = "host"
    """The rig's interface: what it sends goes to the device. Also a NIC under test."""
    DEVICE = "device"
    """An interface of a switch that is a Linux host."""


@dataclass(frozen=True, slots=True)
class LinuxSource:
    """Interfaces of a Linux host, local or remote."""

    command: tuple[str, ...] = list_setting("command", _word)
    """Command that reads on another host, such as [ssh, host-a, etloop, dut, linux-counters]; the interfaces are appended to
    it. Left out, interfaces of this host are read."""
    side: Side | None = setting("side", word_of(Side), None)
    """End of the cable at which the interfaces are; by the profile's kind of device if left out."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a command that is too long."""
        if len(self.command) > MOST_WORDS:
            yield Problem("command", f"{len(self.command)} words", f"write at most {MOST_WORDS}")


CounterSource = SoftSwitchSource | LinuxSource | SnmpSource | GnmiSource
_SOURCES: Final = {
    CounterReader.SOFT_SWITCH: SoftSwitchSource,
    CounterReader.LINUX: LinuxSource,
    CounterReader.SNMP: SnmpSource,
    CounterReader.GNMI: GnmiSource,
}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source of the counters of one device: an entry of a rig's `dut.counters`."""

    reader: CounterReader = required_setting(
        "reader", word_of(_SOURCES), None, f"write one of {', '.join(_SOURCES)}"
    )
    """How the counters are read."""
    name: str = setting_like("name", parse_name, "reader")
    """Name of the source in results: of the device, or of the host whose interfaces are read. The reader's name if left out."""
    interval_ns: int | None = setting(
        "interval", with_bounds(parse_duration_ns, LEAST_INTERVAL_NS, MOST_INTERVAL_NS, format_duration), None
    )
    """Time between the starts of two readings during a run; the profile's, else 1s, if left out."""
    timeout_ns: int = setting(
        "timeout",
        with_bounds(parse_duration_ns, LEAST_INTERVAL_NS, MOST_TIMEOUT_NS, format_duration),
        DEFAULT_TIMEOUT_NS,
    )
    """Timeout of opening the source and of each reading."""
    ports: Mapping[str, str] = mapping_setting(
        _object_name, "ports", parse_port_label, "the device's name of the port, such as Ethernet0."
    )
    """Ports of the rig, and the device's port at the other end of each cable; all are read if left out."""
    reader_settings: CounterSource = variant("reader", _SOURCES)
