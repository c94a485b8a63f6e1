"""Makes the reader of a source. The only module that knows all readers; each is imported when it is used."""

from __future__ import annotations

from typing import assert_never

from etloop.counters.base.protocol import DeviceCounters
from etloop.counters.readers.gnmi_settings import GnmiSource
from etloop.counters.readers.snmp_settings import SnmpSource
from etloop.counters.settings import CounterSource, LinuxSource, SoftSwitchSource


def reader_of(source: CounterSource, ports: tuple[str, ...]) -> DeviceCounters:
    """Return a reader, not yet open, of at least these ports of the device (by its own names); () reads all ports."""
    match source:
        case SoftSwitchSource():
            from etloop.counters.readers.soft_switch import SoftSwitchCounters

            return SoftSwitchCounters(source.lab)
        case LinuxSource():
            from etloop.counters.readers.linux import LinuxCounters

            return LinuxCounters(source.command, ports)
        case SnmpSource():
            from etloop.counters.readers.snmp import SnmpCounters

            return SnmpCounters(source, ports)
        case GnmiSource():
            from etloop.counters.readers.gnmi import GnmiCounters

            return GnmiCounters(source, ports)
        case _:
            assert_never(source)
