"""Which columns of which MIBs hold which canonical counter, and how a row's index names its object. Pure tables.

Where several columns hold the same counter, the first that a device serves counts. From CISCO-PFC-EXT-MIB only the table by
priority is read: SONiC's agent answers the table by interface with priority 3 alone (sonic-net/sonic-snmpagent:
src/sonic_ax_impl/mibs/vendor/cisco/ciscoPfcExtMIB.py).
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterObject

SYS_UPTIME: Final = "1.3.6.1.2.1.1.3.0"
"""Hundredths of a second since the agent started (RFC 3418); it goes back when the agent restarts, and counters with it."""
_IF_X: Final = "1.3.6.1.2.1.31.1.1.1"
_IF: Final = "1.3.6.1.2.1.2.2.1"
IF_NAME: Final = f"{_IF_X}.1"
IF_ALIAS: Final = f"{_IF_X}.18"
IF_DESCR: Final = f"{_IF}.2"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table whose first index is ifIndex."""

    mib: str
    name: str
    base: str
    kind: CounterObject
    counter: str
    width_bits: int = 64
    between: str = ""
    """Index parts between ifIndex and the number of the priority or queue."""
    first_number: int = 0
    """The MIB's number of our number 0."""
    after: str = ""
    """Index parts after the number."""

    def oid(self, if_index: int, number: int = -1) -> str:
        """Return the OID of an interface's instance; in tables by priority or queue, of the one with this number."""
        numbered = "" if number < 0 else f".{number + self.first_number}"
        return f"{self.base}.{if_index}{self.between}{numbered}{self.after}"


def _port(mib: str, name: str, base: str, counter: str, width_bits: int = 64) -> Column:
    return Column(mib, name, base, CounterObject.PORT, counter, width_bits)


_IF_MIB: Final = "IF-MIB"
_ETHER: Final = "EtherLike-MIB"
_DOT1_PFC: Final = "IEEE8021-PFC-MIB"
_CISCO_PFC: Final = "CISCO-PFC-EXT-MIB"
_CISCO_QOS: Final = "CISCO-SWITCH-QOS-MIB"
_PFC_ROWS: Final = "1.3.6.1.4.1.9.9.813.1.2.1"
_QOS_ROWS: Final = "1.3.6.1.4.1.9.9.580.1.5.5.1.4"
_DOT1_PFC_ROWS: Final = "1.3.111.2.802.1.1.21.1.1.1"
_DOT3_PAUSE_ROWS: Final = "1.3.6.1.2.1.10.7.10.1"


def _qos(name: str, counter: str, statistic: int) -> Column:
    # Index: ifIndex, direction (2: egress), queue from 1, statistic (of unicast queues).
    return Column(
        _CISCO_QOS,
        name,
        _QOS_ROWS,
        CounterObject.QUEUE,
        counter,
        between=".2",
        first_number=1,
        after=f".{statistic}",
    )


COLUMNS: Final = (
    _port(_IF_MIB, "ifHCInOctets", f"{_IF_X}.6", "rx_bytes"),
    _port(_IF_MIB, "ifHCInUcastPkts", f"{_IF_X}.7", "rx_unicast_packets"),
    _port(_IF_MIB, "ifHCInMulticastPkts", f"{_IF_X}.8", "rx_multicast_packets"),
    _port(_IF_MIB, "ifHCInBroadcastPkts", f"{_IF_X}.9", "rx_broadcast_packets"),
    _port(_IF_MIB, "ifHCOutOctets", f"{_IF_X}.10", "tx_bytes"),
    _port(_IF_MIB, "ifHCOutUcastPkts", f"{_IF_X}.11", "tx_unicast_packets"),
    _port(_IF_MIB, "ifHCOutMulticastPkts", f"{_IF_X}.12", "tx_multicast_packets"),
    _port(_IF_MIB, "ifHCOutBroadcastPkts", f"{_IF_X}.13", "tx_broadcast_packets"),
    _port(_IF_MIB, "ifInDiscards", f"{_IF}.13", "rx_dropped_packets", 32),
    _port(_IF_MIB, "ifInErrors", f"{_IF}.14", "rx_error_packets", 32),
    _port(_IF_MIB, "ifOutDiscards", f"{_IF}.19", "tx_dropped_packets", 32),
    _port(_IF_MIB, "ifOutErrors", f"{_IF}.20", "tx_error_packets", 32),
    _port(_DOT1_PFC, "ieee8021PfcIndications", f"{_DOT1_PFC_ROWS}.3", "rx_pause_frames", 32),
    _port(_DOT1_PFC, "ieee8021PfcRequests", f"{_DOT1_PFC_ROWS}.2", "tx_pause_frames", 32),
    _port(_ETHER, "dot3HCInPauseFrames", f"{_DOT3_PAUSE_ROWS}.5", "rx_pause_frames"),
    _port(_ETHER, "dot3HCOutPauseFrames", f"{_DOT3_PAUSE_ROWS}.6", "tx_pause_frames"),
    Column(_CISCO_PFC, "cpfcIfPriorityRequests", f"{_PFC_ROWS}.2", CounterObject.PRIORITY, "pfc_tx"),
    Column(_CISCO_PFC, "cpfcIfPriorityIndications", f"{_PFC_ROWS}.3", CounterObject.PRIORITY, "pfc_rx"),
    # Served by SONiC under this name (sonic-snmpagent: ciscoSwitchQosMIB.py).
    _qos("csqIfQosGroupStatsValue", "packets", 1),
    _qos("csqIfQosGroupStatsValue", "bytes", 2),
    _qos("csqIfQosGroupStatsValue", "dropped_packets", 5),
    _qos("csqIfQosGroupStatsValue", "dropped_bytes", 6),
)
"""RFC 2863, RFC 3635, IEEE 802.1Q (IEEE8021-PFC-MIB), CISCO-PFC-EXT-MIB. Requests are pauses sent, indications received."""
SUMS: Final = (
    ("rx_packets", ("rx_unicast_packets", "rx_multicast_packets", "rx_broadcast_packets")),
    ("tx_packets", ("tx_unicast_packets", "tx_multicast_packets", "tx_broadcast_packets")),
)
"""IF-MIB has no count of all packets; if all parts are served, it is their sum."""
NUMBERED: Final = ((CounterObject.PRIORITY, 8), (CounterObject.QUEUE, 16))
"""Kinds of numbered objects of an interface, and how many numbers are probed."""
