"""The shape of `losses` of summary.json: every loss figure, who counted it, and the losses that remain unexplained.

Each figure has one definition (docs/metrics.md, `losses`) and one wording, which table, report, conditions and comparison
use. `results.device.losses` fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass


class CountedBy(StrEnum):
    """Source of a loss figure."""

    QUEUE_PAIRS = "queue_pairs"
    """The agents, packet by packet on the job's queue pairs, without probes."""
    PORTS = "ports"
    """The agents' ports: every packet of the session, including probes."""
    STREAMS = "streams"
    """Both ends of the background of plain UDP."""
    DEVICE = "device"
    """The device's own counters: packets of every kind, including other users' traffic on a shared device."""
    DIFFERENCE = "difference"
    """Not counted: the remainder after the other figures."""


COUNTED_BY_WORDS: Final = {
    CountedBy.QUEUE_PAIRS: "our queue pairs",
    CountedBy.PORTS: "our ports",
    CountedBy.STREAMS: "ends of the streams",
    CountedBy.DEVICE: "device",
    CountedBy.DIFFERENCE: "difference",
}


@dataclass(frozen=True, slots=True)
class LossFigure:
    """One row of the table, the same in every run."""

    name: str
    words: str
    counted_by: CountedBy
    device_counters: tuple[str, ...] = ()
    """Keys of `dut.counters`; the first one that the device has is used. () if the figure is not a device counter."""


_QP, _PORT, _STREAM, _DEVICE, _REST = CountedBy
NEVER_SENT: Final = "received_was_sent"
"""Name of the consistency check whose mismatches are the packets of the figure `never_sent`."""

SENT_FIGURES: Final = (
    LossFigure("data", "data", _QP),
    LossFigure("data_again", "  sent again; received twice", _QP),
    LossFigure("acknowledgements", "acknowledgements", _QP),
    LossFigure("naks", "NAKs", _QP),
    LossFigure("cnps", "CNPs", _QP),
    LossFigure("streams", "background of plain UDP", _STREAM),
    LossFigure("others", "probes, packets without a queue pair", _REST),
    LossFigure("all", "all", _PORT),
)
"""Packets sent and received, by kind. `all` is the ports' count; `others` is `all` minus the other kinds."""
CONTROL: Final = ("acknowledgements", "naks", "cnps")
"""Kinds of packets that answer data."""
DEVICE_FIGURES: Final = (
    LossFigure(
        "dropped_at_queue", "no room at a queue", _DEVICE, ("queue_dropped_packets", "port_tx_dropped_packets")
    ),
    LossFigure(
        "dropped_on_arrival", "no room on arrival", _DEVICE,
        ("group_dropped_packets", "port_rx_dropped_packets"),
    ),
    LossFigure("dropped_by_watchdog", "by the watchdog", _DEVICE, ("queue_watchdog_dropped_packets",)),
    LossFigure("dropped_link_down", "at a link that was down", _DEVICE, ("port_link_dropped_packets",)),
    LossFigure("dropped_no_route", "without a route", _DEVICE, ("port_no_route_packets",)),
    LossFigure("dropped_by_fault", "by faults of the topology", _DEVICE, ("port_fault_dropped_packets",)),
    LossFigure("dropped_damaged", "damaged before they came to it", _DEVICE, ("port_rx_error_packets",)),
)  # fmt: skip
"""Drops of the device, by reason. Port drops are used only if the device counts neither queue nor group drops."""
SOFT_SWITCH: Final = LossFigure(
    "soft_switch_lost", "lost by the soft switch itself", _DEVICE, ("port_overload_frames",)
)
OWN_FIGURES: Final = (
    LossFigure("lost_in_receive_buffers", "lost in our receive buffers", _PORT),
    LossFigure("came_damaged", "came damaged or cut", _PORT),
    LossFigure("came_trimmed", "came trimmed, without their payload", _PORT),
    LossFigure("dropped_on_purpose", "dropped on receipt, as the scenario asks", _PORT),
    LossFigure("lost_on_purpose", "lost by a fault rule, as the scenario asks", _PORT),
    LossFigure("repeated_on_purpose", "less: repeated by a fault rule", _PORT),
    LossFigure("never_sent", "less: received, and sent by no agent", _QP),
)
"""Losses and changes made by the emulator's own hosts."""
UNEXPLAINED: Final = LossFigure("unexplained", "not explained", _REST)
LOSS_FIGURES: Final = (*SENT_FIGURES, *DEVICE_FIGURES, SOFT_SWITCH, *OWN_FIGURES, UNEXPLAINED)
"""Every row, in the order of the table."""
_NO_ROOM: Final = DEVICE_FIGURES[:2]
_IN_PLACE: Final = ("port_rx_dropped_packets", "port_tx_dropped_packets")
"""Port drop counters that replace those of queues and groups where these do not exist."""
BY_LOSS_NAME: Final = {figure.name: figure for figure in LOSS_FIGURES}


@dataclass(frozen=True, slots=True)
class LossRow:
    """One figure of one run."""

    name: str
    """One of `LOSS_FIGURES`."""
    counted_by: CountedBy
    sent: int | None
    """Packets; None if the row is about a loss only, or if it is not known."""
    received: int | None
    packets: int | None
    """Packets not received (sent - received), or lost for this reason; None if not known."""


@dataclass(frozen=True, slots=True)
class LossSummary:
    """Every packet of the session between the agents: sent, received, and where the missing ones were lost."""

    rows: tuple[LossRow, ...]
    dropped_packets: int | None
    """Dropped by the device for any reason; None: not counted over the whole run."""
    unexplained_packets: int | None
    """Not received, minus dropped by the device, minus lost by the emulator. Negative: more were dropped than are missing."""
    has_others_traffic: bool
    """Whether counters of the device may include packets of other users."""
    why: str
    """Which figures are not known, and why; "" otherwise."""
    notes: tuple[str, ...]

    def packets(self, name: str) -> int | None:
        """Return the packets of a row; None if there is no such row, or its value is not known."""
        return next((row.packets for row in self.rows if row.name == name), None)

    @property
    def lost_control_packets(self) -> int | None:
        """Return the control packets (ACKs, NAKs, CNPs) that were not received; None if that is not known.

        A packet that arrives after the end of its queue pair is counted by the port and by no queue pair, which makes the
        row `others` negative; it is not lost, so that row is added here.
        """
        control = [self.packets(name) for name in CONTROL]
        known_counts = [packets for packets in control if packets is not None]
        if self.packets("never_sent"):
            known_counts = [
                max(packets, 0) for packets in known_counts
            ]  # Forged ones hide no loss of another kind.
        if len(known_counts) < len(control):
            return None
        return max(sum(known_counts) + min(self.packets("others") or 0, 0), 0)

    @property
    def is_quiet(self) -> bool:
        """Return whether no packet is known to be lost, dropped or retransmitted."""
        again = next((row.sent for row in self.rows if row.name == "data_again"), 0)
        return not again and not any(row.packets for row in self.rows)


def device_drops(counters: Mapping[str, int] | None) -> tuple[LossRow, ...]:
    """Return the drops of the device as one row for each reason that it counts."""
    if counters is None:
        return ()
    by_queue = any(figure.device_counters[0] in counters for figure in _NO_ROOM)
    rows = []
    for figure in DEVICE_FIGURES:
        keys = [
            key for key in figure.device_counters if key in counters and not (by_queue and key in _IN_PLACE)
        ]
        if keys:
            rows.append(LossRow(figure.name, figure.counted_by, None, None, counters[keys[0]]))
    return tuple(rows)


def dropped_by_device(counters: Mapping[str, int] | None) -> int | None:
    """Return how many packets the device dropped for any reason.

    None if drops for lack of room, which every device counts at least, were not counted over the whole run.
    """
    rows = device_drops(counters)
    no_room = {figure.name for figure in _NO_ROOM}
    return sum(row.packets or 0 for row in rows) if any(row.name in no_room for row in rows) else None
