"""Maps Linux's names of an interface's and its RDMA device's counters to canonical readings. Pure.

Decides which names mean the same as a canonical counter, by driver: mlx5 and bnxt_en for ethtool's counters of physical ports
and priorities (linux: drivers/net/ethernet/mellanox/mlx5/core/en_stats.c, drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c),
the kernel's own for links, pauses (`ethtool -I -a`) and RDMA (include/rdma/rdma_counter.h). All other names are ignored.
Counters of the physical port take precedence over those of the kernel's link, because RDMA bypasses the kernel.
"""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.model.counters import (
    BY_OBJECT_AND_NAME,
    CountedObject,
    CounterObject,
    CounterReading,
)
from etloop.counters.base.protocol import MOST_COMPLAINTS, sift

VERSION: Final = 1
"""Version of the text that `linux_process` writes."""
_NS_PER_US: Final = 1000
_WORD_BYTES: Final = 4
"""port_rcv_data and port_xmit_data count words (InfiniBand Architecture Specification, PortCounters)."""

_LINK: Final = {
    "rx_packets": "rx_packets",
    "tx_packets": "tx_packets",
    "rx_bytes": "rx_bytes_without_fcs",
    "tx_bytes": "tx_bytes_without_fcs",
    "rx_errors": "rx_error_packets",
    "tx_errors": "tx_error_packets",
    "rx_dropped": "rx_dropped_packets",
    "tx_dropped": "tx_dropped_packets",
    "multicast": "rx_multicast_packets",
}
"""struct rtnl_link_stats64. Bytes exclude the FCS; packets are those that the stack saw: merged ones (GRO) count once."""
_ETHTOOL: Final = {
    # mlx5: all traffic of the physical port, of the kernel or not; bytes include the FCS.
    "rx_packets_phy": "rx_packets",
    "tx_packets_phy": "tx_packets",
    "rx_bytes_phy": "rx_bytes",
    "tx_bytes_phy": "tx_bytes",
    "rx_multicast_phy": "rx_multicast_packets",
    "tx_multicast_phy": "tx_multicast_packets",
    "rx_broadcast_phy": "rx_broadcast_packets",
    "tx_broadcast_phy": "tx_broadcast_packets",
    "rx_discards_phy": "rx_dropped_packets",
    "tx_discards_phy": "tx_dropped_packets",
    "rx_crc_errors_phy": "rx_error_packets",
    "tx_errors_phy": "tx_error_packets",
    "rx_pause_ctrl_phy": "rx_pause_frames",
    "tx_pause_ctrl_phy": "tx_pause_frames",
    # bnxt_en: port statistics.
    "rx_total_frames": "rx_packets",
    "tx_total_frames": "tx_packets",
    "rx_ucast_frames": "rx_unicast_packets",
    "rx_mcast_frames": "rx_multicast_packets",
    "rx_bcast_frames": "rx_broadcast_packets",
    "tx_ucast_frames": "tx_unicast_packets",
    "tx_mcast_frames": "tx_multicast_packets",
    "tx_bcast_frames": "tx_broadcast_packets",
    "rx_stat_discard": "rx_dropped_packets",
    "rx_fcs_err_frames": "rx_error_packets",
    "rx_pause_frames": "rx_pause_frames",
    "tx_pause_frames": "tx_pause_frames",
}
_BY_PRIORITY: Final = (
    (re.compile(r"rx_prio([0-7])_pause"), "pfc_rx", 1),
    (re.compile(r"tx_prio([0-7])_pause"), "pfc_tx", 1),
    (re.compile(r"rx_prio([0-7])_pause_duration"), "pfc_rx_paused_ns", _NS_PER_US),
    (re.compile(r"tx_prio([0-7])_pause_duration"), "pfc_tx_paused_ns", _NS_PER_US),
    (re.compile(r"rx_prio([0-7])_packets"), "rx_packets", 1),
    (re.compile(r"tx_prio([0-7])_packets"), "tx_packets", 1),
    (re.compile(r"rx_prio([0-7])_bytes"), "rx_bytes", 1),
    (re.compile(r"tx_prio([0-7])_bytes"), "tx_bytes", 1),
    (re.compile(r"rx_prio([0-7])_discards"), "rx_dropped_packets", 1),
    (re.compile(r"rx_prio([0-7])_marked"), "ecn_marked_packets", 1),
    # bnxt_en
    (re.compile(r"rx_pfc_ena_frames_pri([0-7])"), "pfc_rx", 1),
    (re.compile(r"tx_pfc_ena_frames_pri([0-7])"), "pfc_tx", 1),
    (re.compile(r"pfc_pri([0-7])_rx_duration_us"), "pfc_rx_paused_ns", _NS_PER_US),
    (re.compile(r"pfc_pri([0-7])_tx_duration_us"), "pfc_tx_paused_ns", _NS_PER_US),
    (re.compile(r"rx_packets_pri([0-7])"), "rx_packets", 1),
    (re.compile(r"tx_packets_pri([0-7])"), "tx_packets", 1),
    (re.compile(r"rx_bytes_pri([0-7])"), "rx_bytes", 1),
    (re.compile(r"tx_bytes_pri([0-7])"), "tx_bytes", 1),
)
"""Name, canonical counter of the priority, factor of its unit."""
_BNXT_BYTES: Final = {"rx_bytes": "rx_bytes", "tx_bytes": "tx_bytes"}
"""Of bnxt_en's physical port, recognised by `rx_total_frames`: other drivers have software counters of these names."""
_PAUSE: Final = {"rx_pause_frames": "rx_pause_frames", "tx_pause_frames": "tx_pause_frames"}
_RDMA: Final = {
    "port_rcv_packets": ("roce_rx_packets", 1),
    "port_xmit_packets": ("roce_tx_packets", 1),
    "port_rcv_data": ("roce_rx_bytes", _WORD_BYTES),
    "port_xmit_data": ("roce_tx_bytes", _WORD_BYTES),
    # bnxt_re and rxe have other names for some of mlx5's counters.
    "cnp_rx_pkts": ("rp_cnp_handled", 1),
    "cnp_tx_pkts": ("np_cnp_sent", 1),
    "ecn_marked_rx": ("np_ecn_marked_roce_packets", 1),
    "rx_ecn_marked_pkts": ("np_ecn_marked_roce_packets", 1),
    "rx_cnp_pkts": ("rp_cnp_handled", 1),
    "tx_cnp_pkts": ("np_cnp_sent", 1),
    "rcvd_pkts": ("roce_rx_packets", 1),
    "sent_pkts": ("roce_tx_packets", 1),
    "duplicate_request": ("duplicate_request", 1),
    "out_of_seq_request": ("out_of_sequence", 1),
    "rcvd_seq_err": ("packet_seq_err", 1),
    "rcvd_rnr_err": ("rnr_nak_retry_err", 1),
}


class NotCounters(Exception):
    """A text that does not have the form of an answer."""


def linux_readings(answer: object) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Convert the parsed JSON answer of `linux_process` into readings and complaints. Raise `NotCounters` if it is something
    else."""
    if not isinstance(answer, dict) or answer.get("version") != VERSION:
        raise NotCounters(f"not the output of version {VERSION} of the reading command")
    interfaces = answer.get("interfaces")
    if not isinstance(interfaces, dict):
        raise NotCounters("no interfaces in the output")
    readings: list[CounterReading] = []
    for name, groups in interfaces.items():
        if not isinstance(name, str) or not isinstance(groups, dict):
            raise NotCounters("an interface without a name or counters")
        readings += _interface_readings(name, groups)
    complaints = answer.get("complaints")
    process_complaints = complaints[:MOST_COMPLAINTS] if isinstance(complaints, list) else []
    return sift(readings, [str(complaint)[:200] for complaint in process_complaints])


def _interface_readings(name: str, groups: dict[object, object]) -> list[CounterReading]:
    """Return the readings of one interface, each canonical counter once: the physical port's value where there is one."""
    port = CountedObject(CounterObject.PORT, name)
    values: dict[tuple[CountedObject, str], int] = {}
    driver = _valid_entries(groups.get("ethtool"))
    for linux_name, value in driver.items():
        counter = _ETHTOOL.get(linux_name) or (
            _BNXT_BYTES.get(linux_name) if "rx_total_frames" in driver else None
        )
        if counter is not None:
            values.setdefault((port, counter), value)
        for pattern, priority_counter, factor in _BY_PRIORITY:
            if match := pattern.fullmatch(linux_name):
                counted = CountedObject(CounterObject.PRIORITY, name, int(match[1]))
                values.setdefault((counted, priority_counter), value * factor)
    for linux_name, value in _valid_entries(groups.get("pause")).items():
        if linux_name in _PAUSE:
            values.setdefault((port, _PAUSE[linux_name]), value)
    physical = (port, "rx_bytes") in values
    for linux_name, value in _valid_entries(groups.get("link")).items():
        if linux_name in _LINK and not (physical and linux_name.endswith("_bytes")):
            values.setdefault((port, _LINK[linux_name]), value)
    for linux_name, value in _valid_entries(groups.get("rdma")).items():
        counter, factor = _RDMA.get(linux_name, (linux_name, 1))
        if (CounterObject.PORT, counter) in BY_OBJECT_AND_NAME and linux_name not in _LINK:
            values.setdefault((port, counter), value * factor)
    return [CounterReading(counted, counter, value) for (counted, counter), value in values.items()]


def _valid_entries(group: object) -> dict[str, int]:
    """Return the non-negative integers of a group of counters: drivers also report negative numbers and texts."""
    if not isinstance(group, dict):
        return {}
    return {
        name: value
        for name, value in group.items()
        if isinstance(name, str) and isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }
