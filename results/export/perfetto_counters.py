"""Counters over time in a trace for ui.perfetto.dev: load of ports, queues of switches, congestion control.

Decides which series are written and with how many points. An event's time is in nanoseconds of the run until it is
encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.kpis.port_series import port_series

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput

PORTS_PROCESS: Final = 1_000_000
SWITCHES_PROCESS: Final = 1_000_001
CONTROL_PROCESS: Final = 1_000_003
MOST_POINTS: Final = 200_000
"""Limit of queue samples, and of points of all queue pairs."""
MOST_PAIRS: Final = 64
"""Queue pairs whose rates are drawn: those that carried the most bytes."""
_PORT_COUNTERS: Final = (("tx", "tx_bps"), ("rx", "rx_bps"))
_LANE_COUNTERS: Final = ("queued_bytes", "marked_packets", "dropped_packets", "pfc_tx", "paused_ns")
_CONTROL_COUNTERS: Final = (
    ("rate_bps", "rate Gbit/s", 1e9),
    ("window_bytes", "window kB", 1e3),
    ("rtt_ns", "round trip us", 1e3),
)


@dataclass(frozen=True, slots=True)
class Event:
    """One trace event."""

    phase: str
    """`ph` of the format."""
    process: int
    time_ns: float | None
    """Time in the run; None if the event has no time, such as a name."""
    fields: Mapping[str, object]

    def encode(self, origin_ns: float) -> dict[str, object]:
        """Return the event as in the file, its time in microseconds since `origin_ns`."""
        time = {} if self.time_ns is None else {"ts": round((self.time_ns - origin_ns) / 1000, 3)}
        return {"ph": self.phase, "pid": self.process, **time, **self.fields}


def name_event(kind: str, process: int, thread: int, name: str) -> Event:
    """Return the event that names a process or a thread."""
    return Event("M", process, None, {"tid": thread, "name": kind, "args": {"name": name}})


def counters(inputs: KpiInput) -> Iterator[Event]:
    """Yield every counter event of a run."""
    yield from _port_events(inputs)
    yield from _switch_events(inputs)
    yield from _control_events(inputs)


def counters_from(origin_ns: float, events: Iterable[Event]) -> Iterator[Event]:
    """Yield counter events from `origin_ns` on; the last value of each counter before that is moved to `origin_ns`."""
    before: dict[tuple[int, object], Event] = {}
    later = []
    for event in events:
        if event.time_ns is None:
            yield event
        elif event.time_ns >= origin_ns:
            later.append(event)
        else:
            before[event.process, event.fields["name"]] = replace(event, time_ns=origin_ns)
    yield from before.values()
    yield from later


def _port_events(inputs: KpiInput) -> Iterator[Event]:
    """Yield the payload rates of ports over time."""
    series = port_series(inputs)
    if series is None:
        return
    yield name_event("process_name", PORTS_PROCESS, 0, "ports (payload, spread over ops)")
    for number, port in enumerate(series.ports):
        for word, field in _PORT_COUNTERS:
            rates = getattr(series, field)[number]
            for time_ns, rate in zip(series.edges_ns.tolist(), [*rates.tolist(), 0.0], strict=True):
                yield _counter(PORTS_PROCESS, f"{port} {word} Gbit/s", time_ns, rate / 1e9)


def _switch_events(inputs: KpiInput) -> Iterator[Event]:
    """Yield the queues of switches over time, if the run sampled them."""
    queues = inputs.frames.get("queues")
    if queues is None or not queues.rows:
        return
    yield name_event("process_name", SWITCHES_PROCESS, 0, "switches")
    columns = queues.columns
    time_ns = inputs.column("queues", "time_ns")
    column_by_name = {name: inputs.column("queues", name) for name in _LANE_COUNTERS}
    last: dict[str, float] = {}
    for row in range(min(queues.rows, MOST_POINTS)):
        place = f"{columns['switch'][row]}/{columns['port'][row]} CoS {int(columns['cos'][row].item())}"
        for name, values in column_by_name.items():
            track, value = f"{place} {name}", float(values[row])
            # A viewer holds a counter at its last value, and most samples repeat it.
            if last.get(track) != value:
                last[track] = value
                yield _counter(SWITCHES_PROCESS, track, float(time_ns[row]), value)


def _control_events(inputs: KpiInput) -> Iterator[Event]:
    """Yield rate, window and round trip of the queue pairs that carried most, if the run recorded them."""
    table = inputs.frames.get("cc")
    if table is None or not table.rows:
        return
    columns = table.columns
    pairs: dict[str, list[int]] = {}
    names = zip(columns["src_rank"], columns["dst_rank"], columns["local_qpn"], strict=True)
    for row, (source, target, number) in enumerate(names):
        pairs.setdefault(f"rank {int(source)} to {int(target)}, QP {int(number):#x}", []).append(row)
    acked = inputs.column("cc", "acked_bytes")
    busiest_pairs = sorted(pairs, key=lambda name: -float(acked[pairs[name]].max()))[:MOST_PAIRS]
    yield name_event("process_name", CONTROL_PROCESS, 0, "congestion control")
    time_ns = inputs.column("cc", "time_ns")
    points_of_pair = max(MOST_POINTS // (len(busiest_pairs) * len(_CONTROL_COUNTERS)), 1)
    for name in busiest_pairs:
        rows = np.array(pairs[name], np.int64)
        rows = rows[np.argsort(time_ns[rows], kind="stable")][:points_of_pair]
        for column, label, size in _CONTROL_COUNTERS:
            values = inputs.column("cc", column)[rows]
            has_value = ~np.isnan(values) & (values > 0)
            for time, value in zip(
                time_ns[rows][has_value].tolist(), values[has_value].tolist(), strict=True
            ):
                yield _counter(CONTROL_PROCESS, f"{name} {label}", time, value / size)


def _counter(process: int, name: str, time_ns: float, value: float) -> Event:
    return Event("C", process, time_ns, {"name": name, "args": {"value": round(value, 6)}})
