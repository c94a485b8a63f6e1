"""Counters of switches, of the cards in front of them and of the soft switch: one row per port, with SAI and SONiC names.

The layouts equal traffic/native/switch/switch_counters.h, switch/soft_fabric.h and bare/soft_switch.h byte for byte,
which a test checks. All are 64-bit integers; `_bytes` of frames include the check sequence, `_ns` are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.contract.model.records import counter_fields
from etloop.contract.model.topology import PRIORITIES

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _modelled_counters(owner: CounterObject) -> np.dtype[np.void]:
    return np.dtype(counter_fields(counters_of(owner, CounterUse.MODELLED)))


QUEUE_COUNTERS: Final = _modelled_counters(CounterObject.QUEUE)
"""SAI_QUEUE_STAT_* of one egress queue of one port."""
GROUP_COUNTERS: Final = _modelled_counters(CounterObject.GROUP)
"""SAI_INGRESS_PRIORITY_GROUP_STAT_* of one priority group of one port."""
SWITCH_PORT_COUNTERS: Final = np.dtype(
    [
        *counter_fields(counters_of(CounterObject.PORT, CounterUse.MODELLED)),
        *(
            (counter.name, "<i8", PRIORITIES)
            for counter in counters_of(CounterObject.PRIORITY, CounterUse.MODELLED)
        ),
        ("queues", QUEUE_COUNTERS, PRIORITIES),
        ("groups", GROUP_COUNTERS, PRIORITIES),
    ]
)
"""SAI_PORT_STAT_* of one port of one switch, with its queues and priority groups."""
CARD_COUNTERS: Final = np.dtype(
    [
        ("frames", "<i8"),
        ("bytes", "<i8"),
        ("waiting_bytes", "<i8"),
        ("waiting_watermark_bytes", "<i8"),
        ("refused_frames", "<i8"),
        ("paused_ns", "<i8"),
        ("delivered_frames", "<i8"),
        ("delivered_bytes", "<i8"),
    ]
)
"""Counters of the network card between a host of the lab and its switch."""
SAMPLED: Final[Mapping[str, tuple[CounterObject, str]]] = {
    "queued_bytes": (CounterObject.QUEUE, "current_bytes"),
    "group_bytes": (CounterObject.GROUP, "current_bytes"),
    "headroom_bytes": (CounterObject.GROUP, "headroom_bytes"),
    "tx_packets": (CounterObject.QUEUE, "packets"),
    "tx_bytes": (CounterObject.QUEUE, "bytes"),
    "marked_packets": (CounterObject.QUEUE, "ecn_marked_packets"),
    "dropped_packets": (CounterObject.QUEUE, "dropped_packets"),
    "trimmed_packets": (CounterObject.QUEUE, "trimmed_packets"),
    "pfc_rx": (CounterObject.PRIORITY, "pfc_rx"),
    "pfc_tx": (CounterObject.PRIORITY, "pfc_tx"),
    "paused_ns": (CounterObject.QUEUE, "paused_ns"),
}
"""Field sampled over time per class of service of a port -> object and counter that it is a value of."""
LANE_SAMPLE: Final = np.dtype(
    [
        ("time_ns", "<i8"),
        *((name, "<i8") for name in SAMPLED),
        ("switch", "<i4"),
        ("port", "<u2"),
        ("cos", "<u2"),
    ]
)
"""`LaneSample` of traffic/native/virtual/twin_series.h: queue, PFC priority and priority group `cos` of a switch port at
one moment. Packets, bytes, pauses and times of pause are since the begin."""
SOFT_PORT_COUNTERS: Final = np.dtype(
    [
        ("rx_frames", "<i8"),
        ("rx_joined_frames", "<i8"),
        ("tx_frames", "<i8"),
        ("tx_pause_frames", "<i8"),
        ("rx_pause_frames", "<i8"),
        ("unknown_destination_frames", "<i8"),
        ("socket_dropped_frames", "<i8"),
        ("memory_dropped_frames", "<i8"),
        ("card_refused_frames", "<i8"),
        ("send_failed_frames", "<i8"),
        ("uncut_frames", "<i8"),
        ("late_frames", "<i8"),
    ]
)
"""Counters of the soft switch at an interface that are not part of the model."""
OVERLOAD_COUNTERS: Final = (
    "socket_dropped_frames",
    "memory_dropped_frames",
    "card_refused_frames",
    "send_failed_frames",
    "uncut_frames",
)
"""Fields of SOFT_PORT_COUNTERS: frames that the soft switch lost although the model had not dropped them."""


def rows(content: bytes, layout: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the rows of a layout that native code passed as bytes. Raises ValueError if their length does not fit."""
    return np.frombuffer(content, layout)
