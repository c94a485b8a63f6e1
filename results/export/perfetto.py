"""The run as a trace for ui.perfetto.dev: iterations, a track for every rank with its ops, arrows, counters over time.

Decides names and how overlapping ops of a rank are arranged on lanes. The format is Chrome's JSON trace events (Trace
Event Format, google/perfetto:docs/reference/synthetic-track-event.md names it as readable). Times are microseconds since
the first slice: an importer drops negative times, and devices are read seconds before a job begins, which is not worth
showing.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.export.perfetto_arrows import Slice, arrows
from etloop.results.export.perfetto_counters import Event, counters, counters_from, name_event
from etloop.results.kpis.transfers import begin_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput

MOST_OPS: Final = 200_000
"""Limit of ops; beyond it only the first complete iterations are written, because the viewer holds everything in memory."""
MOST_OPS_OF_PART: Final = 20_000
"""The same limit for a run whose tables were already too long for memory."""
ITERATIONS_PROCESS: Final = 1_000_002


def perfetto_json(inputs: KpiInput, most_ops: int = MOST_OPS) -> str:
    """Return trace.perfetto.json with at most `most_ops` ops."""
    left_out = _left_out(inputs, most_ops)
    shown_run = inputs.with_first_ops(inputs.frames["ops"].rows - left_out)
    iterations = list(_iteration_events(shown_run))
    iteration_begins = [event.time_ns for event in iterations if event.time_ns is not None]
    # An arrow begins within a slice, so slices alone set the origin.
    origin_ns = min((*iteration_begins, *_first(shown_run.column("ops", "issued_ns"))), default=0.0)
    # Encode event by event: all event objects together take four times as much memory as their text.
    events = chain(iterations, _op_events(shown_run), counters_from(origin_ns, counters(inputs)))
    encode = [
        json.dumps(event.encode(origin_ns), ensure_ascii=False, separators=(",", ":")) for event in events
    ]
    other_data = {
        "run_id": inputs.summary.run_id,
        "workload": inputs.summary.workload.source,
        "ops_left_out": left_out,
        "zero_is_ns_of_run": round(origin_ns),
    }
    # Join once: the text may have fifty megabytes, and further copies would triple that.
    head = (
        f'{{"displayTimeUnit":"ns","otherData":{json.dumps(other_data, ensure_ascii=False)},"traceEvents":[\n'
    )
    if encode:
        encode[0] = head + encode[0]
        encode[-1] += "\n]}\n"
        return ",\n".join(encode)
    return f"{head}\n]}}\n"


def _first(time_ns: NDArray[np.float64]) -> list[float]:
    return [float(time_ns.min())] if len(time_ns) else []


def _iteration_events(inputs: KpiInput) -> Iterator[Event]:
    """Yield a slice for each iteration with a shown op, from the end of the previous iteration to its own end."""
    shown_iterations = inputs.column("ops", "iteration")
    last = int(shown_iterations[-1]) if len(shown_iterations) else -1
    iterations = [summary for summary in inputs.summary.job.per_iteration if summary.iteration <= last]
    if iterations:
        yield name_event("process_name", ITERATIONS_PROCESS, 0, "iterations of the job")
    for summary in iterations:
        arguments = {
            "jct_ns": summary.jct_ns,
            "ops_recorded": summary.ops_recorded,
            "complete": summary.complete,
        }
        fields = {
            "tid": 1,
            "dur": summary.jct_ns / 1000,
            "name": f"iteration {summary.iteration}",
            "cat": "iteration",
        }
        yield Event(
            "X", ITERATIONS_PROCESS, float(summary.end_ns - summary.jct_ns), {**fields, "args": arguments}
        )


def _op_events(inputs: KpiInput) -> Iterator[Event]:
    """Yield the slices of ops, by host and rank, and their arrows."""
    ops = inputs.frames["ops"].columns
    rank = inputs.column("ops", "rank").astype(np.int64)
    hosts = dict(zip(range(len(inputs.plan.rank_host)), inputs.plan.rank_host, strict=True))
    for host in sorted(set(hosts.values())):
        yield name_event("process_name", host, 0, f"host {host}")
    began, completed = begin_ns(inputs.frames["ops"]), inputs.column("ops", "completed_ns")
    threads = np.zeros(len(rank), np.int64)
    for rank_number in range(len(inputs.plan.rank_agent)):
        rows = np.flatnonzero(rank == rank_number)
        rows = rows[np.argsort(began[rows], kind="stable")]
        lanes = lanes_of(began[rows], completed[rows])
        for lane in range(int(lanes.max(initial=0)) + 1):
            name = f"rank {rank_number} ({inputs.plan.rank_agent[rank_number]})" + (
                f", also {lane}" if lane else ""
            )
            yield name_event("thread_name", hosts[rank_number], _thread(rank_number, lane), name)
        threads[rows] = _thread(rank_number, 0) + lanes
        for row in rows.tolist():
            fields = {
                "tid": int(threads[row]),
                "dur": float(completed[row] - began[row]) / 1000,
                "name": str(ops["name"][row] or ops["collective"][row] or ops["kind"][row]),
                "cat": "op",
                "args": _arguments(inputs, row),
            }
            yield Event("X", hosts[rank_number], float(began[row]), fields)
    yield from arrows(inputs, _Places(hosts, threads, rank).slice_of)


@dataclass(frozen=True, slots=True)
class _Places:
    """Process and thread of the slices of ops."""

    hosts: dict[int, int]
    threads: NDArray[np.int64]
    rank: NDArray[np.int64]

    def slice_of(self, row: int) -> Slice:
        """Return process and thread of the slice of a row of ops."""
        return Slice(self.hosts[int(self.rank[row])], int(self.threads[row]))


def _left_out(inputs: KpiInput, most_ops: int) -> int:
    """Return the number of ops in the last iterations that are left out; rows are sorted by iteration."""
    iteration = inputs.column("ops", "iteration")
    if len(iteration) <= most_ops:
        return 0
    first_left_out = int(np.searchsorted(iteration, iteration[most_ops]))
    return len(iteration) - (first_left_out or most_ops)


def _thread(rank: int, lane: int) -> int:
    return rank * 64 + lane + 1


def _arguments(inputs: KpiInput, row: int) -> dict[str, object]:
    ops = inputs.frames["ops"].columns
    arguments: dict[str, object] = {}
    for name in "iteration op peer sequence message_bytes wire_tx_bytes wire_rx_bytes slip_ns".split():
        value = float(ops[name][row])
        if not np.isnan(value):
            arguments[name] = int(value)
    for name in ("kind", "collective", "communicator", "algorithm"):
        if ops[name][row]:
            arguments[name] = str(ops[name][row])
    return arguments


def lanes_of(begin_ns: NDArray[np.float64], end_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a lane for each span (int64), so that spans of a lane do not overlap; begins are ascending. At most 64
    lanes, the last takes the rest."""
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
