"""From a road as the rig states it to its reader. The one place that knows all readers; each is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from etloop.counters.readers.gnmi_settings import GnmiRoad
from etloop.counters.readers.snmp_settings import SnmpRoad
from etloop.counters.settings import LinuxRoad, Road, SoftSwitchRoad

if TYPE_CHECKING:
    from etloop.counters.base.protocol import DeviceCounters


def reader_of(road: Road, ports: tuple[str, ...]) -> DeviceCounters:
    """A reader, not yet open. It reads at least those ports of the device (by its own names); of () all that there are."""
    match road:
        case SoftSwitchRoad():
            from etloop.counters.readers.soft_switch import SoftSwitchCounters

            return SoftSwitchCounters(road.lab)
        case LinuxRoad():
            from etloop.counters.readers.linux import LinuxCounters

            return LinuxCounters(road.command, ports)
        case SnmpRoad():
            from etloop.counters.readers.snmp import SnmpCounters

            return SnmpCounters(road, ports)
        case GnmiRoad():
            from etloop.counters.readers.gnmi import GnmiCounters

            return GnmiCounters(road, ports)
        case _:
            assert_never(road)
