"""Figures of the objects of a device in one run: drain rates of ports, marks and drops of queues, packets by class.

Decides which counters are one figure, and how a place is named. A counter that never moved is left out: it is 0 if the run
has its figure at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterNature, CounterObject

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DRAIN: Final = "drain rate"
CLASS_PACKETS: Final = "packets by class"
BYTES: Final = "bytes sent"
LONGEST_QUEUE: Final = "longest queue"
UNITS: Final = {
    DRAIN: "bit/s",
    CLASS_PACKETS: "packets",
    "drops": "packets",
    "damaged packets": "packets",
    "watchdog storms": "count",
    "marks": "packets",
    "pauses sent": "frames",
    "pauses received": "frames",
    "paused time": "ns",
    LONGEST_QUEUE: "bytes",
    BYTES: "bytes",
}
"""Unit of each figure, the figures that explain most first."""
_PORT, _PRIORITY, _QUEUE, _GROUP = (
    kind.value
    for kind in (CounterObject.PORT, CounterObject.PRIORITY, CounterObject.QUEUE, CounterObject.GROUP)
)
_FIGURES: Final = {
    (_PORT, "fault_dropped_packets"): "drops",
    (_PORT, "link_dropped_packets"): "drops",
    (_PORT, "no_route_packets"): "drops",
    (_QUEUE, "dropped_packets"): "drops",
    (_QUEUE, "watchdog_dropped_packets"): "drops",
    (_GROUP, "dropped_packets"): "drops",
    (_PORT, "fault_corrupted_packets"): "damaged packets",
    (_PORT, "rx_error_packets"): "damaged packets",
    (_QUEUE, "watchdog_storms"): "watchdog storms",
    (_QUEUE, "ecn_marked_packets"): "marks",
    (_PRIORITY, "pfc_tx"): "pauses sent",
    (_PRIORITY, "pfc_rx"): "pauses received",
    (_QUEUE, "paused_ns"): "paused time",
    (_QUEUE, "watermark_bytes"): LONGEST_QUEUE,
    (_PORT, "tx_bytes"): BYTES,
    (_QUEUE, "packets"): CLASS_PACKETS,
}
_LEAST_STEPS: Final = 8
"""Least intervals between samples, with a queue at both ends, of which a port's drain rate is computed."""


@dataclass(frozen=True, slots=True, order=True)
class Counted:
    """One figure of one object."""

    figure: str
    """A key of `UNITS`."""
    place: str
    """Such as "leaf0/3 (to h1/p0) queue 3"."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFigures:
    """Figures of the objects of a device in one run; values above 0."""

    values: dict[Counted, float]
    known: frozenset[str]
    """Figures that the device counts, such as "marks"."""


NO_DEVICE: Final = DeviceFigures({}, frozenset())


def read_device_figures(run_dir: Path, host_side: frozenset[str]) -> DeviceFigures:
    """Return the figures of a run directory; none without counters. `host_side`: sources that read the rig's own ports."""
    path = run_dir / "counters.parquet"
    if not path.is_file():
        return NO_DEVICE
    import pyarrow.parquet as pq

    names = ("source", "kind", "port", "number", "peer", "counter", "nature", "increase", "most")
    table = pq.read_table(path, columns=list(names), page_checksum_verification=True)
    values: dict[Counted, float] = {}
    known: set[str] = set()
    peers: dict[str, str] = {}
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    for source, kind, port, number, peer, counter, nature, increase, most in rows:
        if peer:
            peers[port] = peer
        figure = _FIGURES.get((kind, counter))
        value = increase if nature == CounterNature.CUMULATIVE.value else most
        if figure is None or value is None or source in host_side:
            continue
        known.add(figure)
        if value > 0:
            of = Counted(figure, _place(figure, source, kind, port, number, peer))
            values[of] = values.get(of, 0.0) + value
    drains = _drain_rates(run_dir, peers)
    return DeviceFigures(values | drains, frozenset(known | {of.figure for of in drains}))


def _place(figure: str, source: str, kind: str, port: str, number: int, peer: str | None) -> str:
    if figure == CLASS_PACKETS:
        return f"queue {number} of all ports"
    name = port if "/" in port else f"{source}/{port}"
    name += f" (to {peer})" if peer else ""
    # Drops of a port and of its queues are one figure, so each has the most precise place that the device counts.
    return name if kind == _PORT else f"{name} {kind} {number}"


def _drain_rates(run_dir: Path, peers: dict[str, str]) -> dict[Counted, float]:
    """Return the rate at which each port of a twin sent while one of its queues held packets (bit/s)."""
    path = run_dir / "queues.parquet"
    if not path.is_file():
        return {}
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = ("switch", "port", "cos", "time_ns", "queued_bytes", "tx_bytes", "paused_ns")
    table = pq.read_table(path, columns=list(columns), page_checksum_verification=True)
    text = [pc.cast(table[name], pa.string()) for name in ("switch", "port")]
    joined = pc.binary_join_element_wise(*text, "/").combine_chunks().dictionary_encode()
    labels, number = joined.dictionary.to_pylist(), joined.indices.to_numpy().astype(np.int64)
    cos, time_ns, queued, sent, paused = (_numbers(table[name]) for name in columns[2:])
    order = np.lexsort((time_ns, cos, number))
    lane, time_ns, queued, sent, paused = (
        column[order] for column in (number * 64 + cos, time_ns, queued, sent, paused)
    )
    is_step = (lane[1:] == lane[:-1]) & (time_ns[1:] > time_ns[:-1]) & (paused[1:] == paused[:-1])
    steps = np.flatnonzero(is_step)
    sent_bytes, gap_ns = sent[steps + 1] - sent[steps], time_ns[steps + 1] - time_ns[steps]
    of_lane = np.unique(lane[steps], return_inverse=True)[1]
    # A queue that held as much as ever left it in such an interval did not run empty in it.
    most_bytes = np.zeros(int(of_lane.max(initial=-1)) + 1)
    np.maximum.at(most_bytes, of_lane, sent_bytes * gap_ns.max(initial=1) / gap_ns)
    is_busy = (queued[steps] >= most_bytes[of_lane]) & (sent_bytes > 0)
    row_of_step = (lane[steps] // 64).astype(np.int64)[is_busy]
    busy_bytes, busy_ns, count = (
        np.bincount(row_of_step, weights, len(labels))
        for weights in (sent_bytes[is_busy], gap_ns[is_busy], np.ones(len(row_of_step)))
    )
    drains = {}
    for row in np.flatnonzero(count >= _LEAST_STEPS).tolist():
        place = f"{labels[row]} (to {peers[labels[row]]})" if labels[row] in peers else labels[row]
        drains[Counted(DRAIN, place)] = float(busy_bytes[row] * 8e9 / busy_ns[row])
    return drains


def _numbers(column: Any) -> Floats:
    return np.asarray(column.to_numpy(), np.float64)
