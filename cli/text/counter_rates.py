"""Shows two readings of a device as rates, one line per port: sent and received against its link, and other counters that move.
Pure.

Decides the counter from which a port's rate is taken, and the order: first objects with drops, marks or pauses, then the
busiest ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CounterNature, CounterObject
from etloop.results.text.layout import align

if TYPE_CHECKING:
    from etloop.contract.model.counters import CountedObject, CounterBatch

MOST_ROWS: Final = 64
MOST_WORDS: Final = 6
"""Counters of one row in addition to its rates."""
_RATES: Final = {
    "tx": ("tx_bytes", "tx_bytes_without_fcs", "roce_tx_bytes"),
    "rx": ("rx_bytes", "rx_bytes_without_fcs", "roce_rx_bytes"),
}
"""By direction, in order of preference."""
_GRAVE: Final = ("dropped", "marked", "paus", "error", "trimmed", "watchdog", "no_route")
_ROUTINE: Final = frozenset(
    {
        *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_bytes_without_fcs", "tx_bytes_without_fcs"),
        *("rx_unicast_packets", "tx_unicast_packets", "roce_rx_packets", "roce_tx_packets"),
        *("roce_rx_bytes", "roce_tx_bytes", "sent_packets", "sent_bytes"),
    }
)
"""Counters that every packet increases: the rates cover them."""


@dataclass(frozen=True, slots=True)
class RateRow:
    """The rates of one object between two readings."""

    title: str
    tx_bps: float | None
    """None: the object counts no bytes in this direction."""
    rx_bps: float | None
    link_bps: int
    """0: unknown."""
    moved: tuple[tuple[str, float], ...]
    """Other counters with their increase per second, the most severe first."""

    @property
    def is_grave(self) -> bool:
        """Return whether packets are lost, marked or paused."""
        return any(_is_grave(name) for name, _ in self.moved)


def rate_rows(
    now: CounterBatch, before: CounterBatch, peers: Mapping[str, str], links: Mapping[str, int]
) -> tuple[RateRow, ...]:
    """Return the rates between two readings, by object; ports always, others only if one of their counters moved.

    `links`: bits per second by the attached rig port (`peers` has it by the device's name). Values that were reset count from
    0.
    """
    seconds = max(now.at_ns - before.at_ns, 1) / NS_PER_S
    previous_values = {(counted.object, counted.counter): counted.value for counted in before.readings}
    increases: dict[CountedObject, dict[str, float]] = {}
    for reading in now.readings:
        counted = reading.object
        definition = BY_OBJECT_AND_NAME.get((counted.kind, reading.counter))
        if definition is None or definition.nature is not CounterNature.CUMULATIVE:
            continue
        previous = previous_values.get((counted, reading.counter), reading.value)
        increase = reading.value - previous if reading.value >= previous else reading.value
        increases.setdefault(counted, {})[reading.counter] = increase / seconds
    rows = [_row(counted, rates, peers, links) for counted, rates in increases.items()]
    shown_rows = [row for row in rows if row.tx_bps is not None or row.rx_bps is not None or row.moved]
    return tuple(
        sorted(
            shown_rows, key=lambda row: (not row.is_grave, -(row.tx_bps or 0) - (row.rx_bps or 0), row.title)
        )
    )


def rates_text(rows: tuple[RateRow, ...], heading: str) -> str:
    """Return the table of one source; it ends with a newline."""
    cells = [("", "tx", "rx", "moving, a second")]
    cells += [
        (row.title, _rate(row.tx_bps, row), _rate(row.rx_bps, row), _words(row)) for row in rows[:MOST_ROWS]
    ]
    lines = [heading, *(line.rstrip() for line in align(cells, left=(0, 3)))]
    if len(rows) > MOST_ROWS:
        lines.append(f"and {len(rows) - MOST_ROWS} more; --json has all")
    return "\n".join(lines) + "\n"


def _row(
    counted: CountedObject, rates: Mapping[str, float], peers: Mapping[str, str], links: Mapping[str, int]
) -> RateRow:
    is_port = counted.kind is CounterObject.PORT
    peer = peers.get(counted.name, "")
    moving = [(name, rate) for name, rate in rates.items() if rate > 0 and name not in _ROUTINE]
    moving.sort(key=lambda entry: (not _is_grave(entry[0]), -entry[1]))
    return RateRow(
        title=f"{counted} ({peer})" if peer else str(counted),
        tx_bps=_port_rate_bps(rates, "tx") if is_port else None,
        rx_bps=_port_rate_bps(rates, "rx") if is_port else None,
        link_bps=links.get(peer, 0) if is_port else 0,
        moved=tuple(moving),
    )


def _port_rate_bps(rates: Mapping[str, float], direction: str) -> float | None:
    return next((8 * rates[name] for name in _RATES[direction] if name in rates), None)


def _is_grave(name: str) -> bool:
    return any(part in name for part in _GRAVE)


def _rate(rate_bps: float | None, row: RateRow) -> str:
    if rate_bps is None:
        return "-"
    share = f" ({rate_bps / row.link_bps:.0%})" if row.link_bps else ""
    return f"{rate_bps / 1e9:.3g} Gbit/s{share}"


def _words(row: RateRow) -> str:
    text = ", ".join(f"{name} {rate:,.0f}" for name, rate in row.moved[:MOST_WORDS])
    return f"{text}, ..." if len(row.moved) > MOST_WORDS else text
