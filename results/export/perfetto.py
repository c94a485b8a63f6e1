"""The run as a trace for ui.perfetto.dev: a track for every rank with its ops, a counter for every port with its load.

Decides names and how ops that overlap on a rank are put on lanes. The form is Chrome's JSON trace events (Trace Event Format,
google/perfetto:docs/reference/synthetic-track-event.md names it as readable); times are microseconds of the run's clock.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.results.kpis.port_series import port_series

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from numpy.typing import NDArray

MOST_OPS: Final = 200_000
"""Beyond it only the first whole iterations are written; the viewer holds everything in memory."""
MOST_OPS_OF_PART: Final = 50_000
"""Of a run whose tables were too long for memory already."""
PORTS_PROCESS: Final = 1_000_000
SWITCHES_PROCESS: Final = 1_000_001
_PORT_COUNTERS: Final = (("tx", "tx_bps"), ("rx", "rx_bps"))
_LANE_COUNTERS: Final = ("queued_bytes", "marked_packets", "dropped_packets", "pfc_tx", "paused_ns")


def perfetto_json(given: KpiInput, most_ops: int = MOST_OPS) -> str:
    """trace.perfetto.json, of so many ops at most."""
    encoded = [
        json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in _events(given, most_ops)
    ]
    about = {
        "run_id": given.summary.run_id,
        "workload": given.summary.workload.source,
        "ops_left_out": _left_out(given, most_ops),
    }
    # One copy of what may be fifty megabytes, not three.
    head = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about, ensure_ascii=False)},"traceEvents":[\n'
    if encoded:
        encoded[0] = head + encoded[0]
        encoded[-1] += "\n]}\n"
        return ",\n".join(encoded)
    return f"{head}\n]}}\n"


def _events(given: KpiInput, most_ops: int) -> Iterator[dict[str, object]]:
    ops = given.frames["ops"].columns
    rank = given.column("ops", "rank").astype(np.int64)
    shown = np.arange(len(rank)) < len(rank) - _left_out(given, most_ops)
    hosts = dict(zip(range(len(given.plan.rank_host)), given.plan.rank_host, strict=True))
    for host in sorted(set(hosts.values())):
        yield _named("process_name", host, 0, f"host {host}")
    issued, completed = given.column("ops", "issued_ns"), given.column("ops", "completed_ns")
    for one in range(len(given.plan.rank_agent)):
        rows = np.flatnonzero((rank == one) & shown)
        rows = rows[np.argsort(issued[rows], kind="stable")]
        lanes = lanes_of(issued[rows], completed[rows])
        for lane in range(int(lanes.max(initial=0)) + 1):
            name = f"rank {one} ({given.plan.rank_agent[one]})" + (f", also {lane}" if lane else "")
            yield _named("thread_name", hosts[one], _thread(one, lane), name)
        for row, lane in zip(rows.tolist(), lanes.tolist(), strict=True):
            yield {
                "ph": "X",
                "pid": hosts[one],
                "tid": _thread(one, lane),
                "ts": float(issued[row]) / 1000,
                "dur": float(completed[row] - issued[row]) / 1000,
                "name": str(ops["collective"][row] or ops["kind"][row]),
                "cat": "op",
                "args": _arguments(given, row),
            }
    yield from _port_events(given)
    yield from _switch_events(given)


def _left_out(given: KpiInput, most_ops: int) -> int:
    """Ops of the last iterations, if all were too many: rows are sorted by iteration."""
    iteration = given.column("ops", "iteration")
    if len(iteration) <= most_ops:
        return 0
    first_left_out = int(np.searchsorted(iteration, iteration[most_ops]))
    return len(iteration) - (first_left_out or most_ops)


def _thread(rank: int, lane: int) -> int:
    return rank * 64 + lane + 1


def _named(what: str, process: int, thread: int, name: str) -> dict[str, object]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _arguments(given: KpiInput, row: int) -> dict[str, object]:
    ops = given.frames["ops"].columns
    arguments: dict[str, object] = {}
    for name in "iteration op peer sequence message_bytes wire_tx_bytes wire_rx_bytes slip_ns".split():
        value = float(ops[name][row])
        if not np.isnan(value):
            arguments[name] = int(value)
    for name in ("communicator", "algorithm"):
        if ops[name][row]:
            arguments[name] = str(ops[name][row])
    return arguments


def lanes_of(begin_ns: NDArray[np.float64], end_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """A lane for each span, begins ascending, so that no two of a lane overlap; at most 64, the last takes the rest."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes = np.zeros(len(begin_ns), np.int64)
    opened = 0
    for row, (begin, end) in enumerate(zip(begin_ns.tolist(), end_ns.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = min(opened, 63)
            opened += 1
        lanes[row] = lane
        heapq.heappush(busy, (end, lane))
    return lanes


def _port_events(given: KpiInput) -> Iterator[dict[str, object]]:
    series = port_series(given)
    if series is None:
        return
    yield _named("process_name", PORTS_PROCESS, 0, "ports (payload, spread over ops)")
    for number, port in enumerate(series.ports):
        for word, field in _PORT_COUNTERS:
            rates = getattr(series, field)[number]
            for time_ns, rate in zip(series.edges_ns.tolist(), [*rates.tolist(), 0.0], strict=True):
                yield _counter(PORTS_PROCESS, f"{port} {word} Gbit/s", time_ns, rate / 1e9)


def _switch_events(given: KpiInput) -> Iterator[dict[str, object]]:
    """Queues of switches over time, of runs that sampled them."""
    queues = given.frames.get("queues")
    if queues is None or not queues.rows:
        return
    yield _named("process_name", SWITCHES_PROCESS, 0, "switches")
    columns = queues.columns
    time_ns = given.column("queues", "time_ns")
    counters = {name: given.column("queues", name) for name in _LANE_COUNTERS}
    last: dict[str, float] = {}
    for row in range(min(queues.rows, MOST_OPS)):
        place = f"{columns['switch'][row]}/{columns['port'][row]} CoS {int(columns['cos'][row].item())}"
        for name, values in counters.items():
            track, value = f"{place} {name}", float(values[row])
            # A viewer holds a counter at its last value, and most samples change nothing.
            if last.get(track) != value:
                last[track] = value
                yield _counter(SWITCHES_PROCESS, track, float(time_ns[row]), value)


def _counter(process: int, name: str, time_ns: float, value: float) -> dict[str, object]:
    return {"ph": "C", "pid": process, "ts": time_ns / 1000, "name": name, "args": {"value": round(value, 6)}}
