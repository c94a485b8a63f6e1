"""Times and counters of a step of collectives, and the rows that the two proposals of OTG have for them. Pure.

The time of an iteration is the longest of its ranks, each from issue to completion on its own clock, so that clocks of several
hosts need not agree. Bandwidths follow nccl-tests; `ccl` states them in Gb/s, `collective_communications` in GB/s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.controller.otg.collective_model import CollectiveJob, Operation, Step
from etloop.results.schema.kinds import bus_factor

Row: TypeAlias = dict[str, object]
_COUNTERS: Final = {
    "retransmitted_packets": "frames_retx",
    "np_ecn_marked_roce_packets": "ecn_ce_rx",
    "np_cnp_sent": "cnp_tx",
    "rp_cnp_handled": "cnp_rx",
    "rp_cnp_ignored": "cnp_rx",
}
"""Counter of a queue pair -> column of the summary."""
_FRAME_BYTES: Final = 90
"""Link bytes around the payload of a frame, as `ccl` counts them."""


class StepCounts:
    """Reports of the ranks of a step so far."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.counters = dict.fromkeys(("total_bytes_tx", "total_bytes_rx", *_COUNTERS.values()), 0)
        """Sums over all queue pairs; 0 until the end of the step."""
        self.failure = ""
        """Why the run was aborted; empty if it was not."""
        self._operation_of_rank = [
            index for index, operation in enumerate(step.operations) for _ in operation.ports
        ]
        shape = (len(step.operations), step.iterations)
        self._longest_ns = np.zeros(shape, np.int64)
        self._ranks = np.zeros(shape, np.int64)
        self._first_ns = np.zeros(len(self._operation_of_rank), np.int64)
        self._last_ns = np.zeros(len(self._operation_of_rank), np.int64)

    def take(self, records: NDArray[np.void]) -> None:
        """Count op records (`OP_RECORD`) of one agent."""
        for rank in np.unique(records["rank"]).tolist():
            if not 0 <= rank < len(self._operation_of_rank):
                continue
            rows = records[records["rank"] == rank]
            rows = rows[(rows["iteration"] >= 0) & (rows["iteration"] < self.step.iterations)]
            if not len(rows):
                continue
            operation, iterations = self._operation_of_rank[rank], rows["iteration"]
            times_ns = rows["completed_ns"] - rows["issued_ns"]
            np.maximum.at(self._longest_ns[operation], iterations, times_ns)
            np.add.at(self._ranks[operation], iterations, 1)
            first_ns = int(rows["issued_ns"].min())
            self._first_ns[rank] = min(int(self._first_ns[rank]) or first_ns, first_ns)
            self._last_ns[rank] = max(int(self._last_ns[rank]), int(rows["completed_ns"].max()))

    def finish(self, outcome: RunOutcome) -> None:
        """Take the counters of the end of the run."""
        self.failure = outcome.reason if outcome.state is RunEnd.ABORTED else ""
        for agent in outcome.agents:
            for name, column in _COUNTERS.items():
                self.counters[column] += int(agent.flows[name].sum())
            sends = agent.flows["sends_data"] != 0
            self.counters["total_bytes_tx"] += int(agent.flows["tx_payload_bytes"][sends].sum())
            self.counters["total_bytes_rx"] += int(agent.flows["rx_payload_bytes"][~sends].sum())

    def iteration_ns(self, operation: int) -> NDArray[np.int64]:
        """Return the times of the iterations that all ranks of an operation have completed."""
        ranks = len(self.step.operations[operation].ports)
        times_ns: NDArray[np.int64] = self._longest_ns[operation][self._ranks[operation] == ranks]
        return times_ns

    def total_ns(self) -> int:
        """Return the longest time of a rank from its first issue to its last completion."""
        return int((self._last_ns - self._first_ns).max(initial=0))


def ccl_rows(
    counts: Sequence[StepCounts], link_bps: int, communicators: Sequence[str], stages: Sequence[str]
) -> list[Row]:
    """Return a row for each communicator of each stage, over all loops; empty names select all."""
    rows: dict[tuple[int, str], tuple[StepCounts, Operation, list[NDArray[np.int64]]]] = {}
    for step in counts:
        for index, operation in enumerate(step.step.operations):
            if (communicators and operation.name not in communicators) or (
                stages and step.step.name not in stages
            ):
                continue
            key = step.step.stage, operation.name
            rows.setdefault(key, (step, operation, []))[2].append(step.iteration_ns(index))
    return [
        _ccl_row(step.step, operation, np.concatenate(times_ns), link_bps)
        for step, operation, times_ns in rows.values()
    ]


def _ccl_row(step: Step, operation: Operation, times_ns: NDArray[np.int64], link_bps: int) -> Row:
    """Return the row of a communicator: `jct` is the time of all iterations, computing included, the pauses between them not."""
    count = len(times_ns)
    row: Row = {
        "communicator_name": operation.name,
        "stage_index": str(step.stage),
        "stage_name": step.name,
        "iteration_count": str(count),
    }
    if not count:
        return row
    transfer_s, compute_s = float(times_ns.sum()) / NS_PER_S, count * operation.compute_ns / NS_PER_S
    jct_s, bits, factor = transfer_s + compute_s, 8 * operation.size_bytes, _factor(operation)
    ideal_s = count * bits * factor / link_bps
    alg_bw = bits * count / jct_s / 1e9
    on_link = (step.transport.path_mtu_bytes + _FRAME_BYTES) / step.transport.path_mtu_bytes
    return row | {
        "jct": jct_s,
        "avg_jct": jct_s / count,
        "min_jct": (float(times_ns.min()) + operation.compute_ns) / NS_PER_S,
        "max_jct": (float(times_ns.max()) + operation.compute_ns) / NS_PER_S,
        "ideal_jct": ideal_s,
        "jct_percent": jct_s / ideal_s * 100,
        "reduce_time": compute_s,
        "trans_time": transfer_s,
        "training_time": jct_s,
        "alg_bw": alg_bw,
        "bus_bw": alg_bw * factor,
        "l1_alg_bw": alg_bw * on_link,
        "l1_bus_bw": alg_bw * factor * on_link,
        "bus_bw_percent": alg_bw * factor * 1e9 / link_bps * 100,
    }


def summary_rows(counts: Sequence[StepCounts], link_bps: int, names: Sequence[str]) -> list[Row]:
    """Return a row of `collective_communications` for each data size; empty names select all."""
    return [_summary_row(step, link_bps) for step in counts if not names or step.step.name in names]


def _summary_row(step: StepCounts, link_bps: int) -> Row:
    (operation,) = step.step.operations
    times_ns = step.iteration_ns(0)
    count = len(times_ns)
    row: Row = {
        "data_size": str(operation.size_bytes),
        "collective": operation.name,
        "iterations": str(count),
    }
    row |= {name: str(value) if name.startswith("total") else value for name, value in step.counters.items()}
    if not count:
        return row
    mean_ns, total_ns = float(times_ns.mean()), max(step.total_ns(), 1)
    algo_bw = operation.size_bytes / mean_ns
    return row | {
        "completion_time": mean_ns / NS_PER_MS,
        "algo_bw": algo_bw,
        "bus_bw": algo_bw * _factor(operation),
        "ideal": algo_bw * _factor(operation) * 8e9 / link_bps * 100,
        "total_time": total_ns / NS_PER_S,
        "duty_cycle": min(float(times_ns.sum()) / total_ns, 1.0) * 100,
    }


def _factor(operation: Operation) -> float:
    """Return busbw / algbw of an operation."""
    return float(bus_factor(np.array([int(operation.kind)]), np.array([len(operation.ports)]))[0])


def slowest_link_bps(job: CollectiveJob, link_bps: Mapping[str, int]) -> int:
    """Return the lowest rate among the job's OTG ports."""
    return min(link_bps[port] for port in job.addresses)
