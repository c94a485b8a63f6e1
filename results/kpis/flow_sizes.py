"""Flow completion times and slowdowns by size, of runs that have only sends and receives.

Slowdown is the completion time of a flow divided by its time alone in an empty network (`lone_flow`). That time follows
from links and switches as a topology states them, or from port rates and a latency that is stated or was measured before
the load; never from a flow of the same run. Studies of congestion control plot these (HPCC, SIGCOMM 2019, 5.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.empty_network import LatencySource, LoneNetwork
from etloop.contract.model.run import PlanTables
from etloop.results.kpis.lone_flow import lone_flow_ns
from etloop.results.kpis.transfers import send_of_receive
from etloop.results.measure.job_shares import mark_counted_ops
from etloop.results.schema.flow_sizes import FlowSizeRow, FlowSizes
from etloop.results.schema.kinds import OpCode
from etloop.results.verdict.evaluation import aggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput

GRANT_BYTES: Final = 64.0
"""Payload of the clear-to-send message (traffic/native/wire/clear_to_send.h)."""
_BOUNDS: Final = (0, *(10**power for power in range(3, 13)), 1 << 62)
NO_FLOWS: Final = "the run is not of sends and receives alone"
NONE_COMPLETED: Final = "no flow crossed the device and completed"
NO_NETWORK: Final = "what a flow takes alone is not known: the run kept no rates and latencies of its network"
NO_LATENCY: Final = (
    "what a flow takes alone is not known: no round trip was measured before the load, no topology is given, and "
    "verdict.base_latency is not stated"
)
NOT_ALL_PAIRS: Final = "what a flow takes alone is not known for every pair of ranks"


def has_flows(plan: PlanTables) -> bool:
    """Return whether all counted ops are sends and receives, and some of them cross the device."""
    ops, is_counted = plan.ops, mark_counted_ops(plan)
    sends = is_counted & (ops.kind == OpCode.SEND) & (ops.wire_tx_bytes > 0)
    return bool(sends.any()) and not (is_counted & (ops.kind == OpCode.COLLECTIVE)).any()


def flow_sizes(inputs: KpiInput) -> FlowSizes | None:
    """Return completion by size; None if the jobs have collectives, or no flow is planned to cross the device."""
    if not has_flows(inputs.plan):
        return None
    ops, is_counted = inputs.plan.ops, mark_counted_ops(inputs.plan)
    sends = is_counted & (ops.kind == OpCode.SEND) & (ops.wire_tx_bytes > 0)
    planned_bytes = np.repeat(ops.message_bytes[sends], inputs.plan.iterations)
    completed_flows = _complete_flows(inputs)
    network = inputs.lone_network
    alone_ns = np.full(len(completed_flows.size_bytes), np.nan)
    if network is not None:
        alone_ns = lone_flow_ns(network, completed_flows.src, completed_flows.dst, completed_flows.wire_bytes)
        grant_ns = lone_flow_ns(
            network, completed_flows.src, completed_flows.dst, np.full(len(alone_ns), GRANT_BYTES)
        )
        # A receiver that grants a send only at its intended time gets the data one grant later, even in an empty network.
        alone_ns += np.clip(completed_flows.asked_ns + grant_ns - completed_flows.due_ns, 0, grant_ns)
    slowdown = completed_flows.fct_ns / alone_ns
    rows = []
    for above, upto in (*itertools.pairwise(_BOUNDS), (0, _BOUNDS[-1])):
        planned = int(((planned_bytes > above) & (planned_bytes <= upto)).sum())
        if planned:
            is_in_range = (completed_flows.size_bytes > above) & (completed_flows.size_bytes <= upto)
            bounds = above, min(upto, int(planned_bytes.max()))
            rows.append(
                _row(
                    bounds,
                    planned,
                    completed_flows.fct_ns[is_in_range],
                    slowdown[is_in_range],
                    alone_ns[is_in_range],
                )
            )
    source = LatencySource.UNKNOWN if network is None else network.latency
    return FlowSizes(tuple(rows), source, _why_absent(network, alone_ns))


def _why_absent(network: LoneNetwork | None, alone_ns: NDArray[np.float64]) -> str:
    """Return why there is no slowdown; "" if there is one for every flow."""
    if network is None:
        return NO_NETWORK
    if network.latency is LatencySource.UNKNOWN:
        return NO_LATENCY
    return "" if np.isfinite(alone_ns).all() else NOT_ALL_PAIRS


def flow_figures(inputs: KpiInput) -> Iterator[tuple[str, float | str]]:
    """Yield the key figures of all flows."""
    sizes = inputs.summary.flow_sizes
    all_flows = sizes.rows[-1] if sizes is not None else None
    for name in ("fct_p50_ns", "fct_p99_ns", "slowdown_p50", "slowdown_p95", "slowdown_p99"):
        value = getattr(all_flows, name) if all_flows is not None else None
        figure = name if name.startswith("fct") else f"fct_{name}"
        if value is not None:
            yield figure, float(value)
        elif sizes is None or all_flows is None:
            yield figure, NO_FLOWS
        else:
            yield figure, NONE_COMPLETED if not all_flows.completed else sizes.why_no_slowdown


def _row(
    bounds: tuple[int, int],
    planned: int,
    fct_ns: NDArray[np.float64],
    slowdown: NDArray[np.float64],
    alone_ns: NDArray[np.float64],
) -> FlowSizeRow:
    """Return the figures of the flows in one range of sizes."""

    def of(function: str, values: NDArray[np.float64]) -> float | None:
        return aggregate(function, values) if values.size and bool(np.isfinite(values).all()) else None

    p50_ns, p99_ns, lone_ns = of("p50", fct_ns), of("p99", fct_ns), of("p50", alone_ns)
    return FlowSizeRow(
        above_bytes=bounds[0],
        upto_bytes=bounds[1],
        planned=planned,
        completed=len(fct_ns),
        fct_p50_ns=None if p50_ns is None else int(p50_ns),
        fct_p99_ns=None if p99_ns is None else int(p99_ns),
        alone_p50_ns=None if lone_ns is None else int(lone_ns),
        slowdown_p50=of("p50", slowdown),
        slowdown_p95=of("p95", slowdown),
        slowdown_p99=of("p99", slowdown),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Completed:
    """Columns over the flows with a record at both ends."""

    size_bytes: NDArray[np.float64]
    wire_bytes: NDArray[np.float64]
    """Payload that the flow sends through the device: some protocols send flags in addition to the data."""
    due_ns: NDArray[np.float64]
    asked_ns: NDArray[np.float64]
    """When the receiver was to grant the send."""
    fct_ns: NDArray[np.float64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]


def _complete_flows(inputs: KpiInput) -> _Completed:
    """Return the flows with a record at both ends."""
    received, sent = send_of_receive(inputs.frames["ops"])
    crosses_device = sent >= 0
    crosses_device[crosses_device] = inputs.column("ops", "planned_wire_tx_bytes")[sent[crosses_device]] > 0
    sent, received = sent[crosses_device], received[crosses_device]
    due_ns = inputs.column("ops", "intended_ns")[sent]
    fct_ns = inputs.column("ops", "completed_ns")[received] - due_ns
    src, dst = (inputs.column("ops", name)[sent].astype(np.int64) for name in ("rank", "peer"))
    return _Completed(
        size_bytes=inputs.column("ops", "message_bytes")[sent],
        wire_bytes=inputs.column("ops", "planned_wire_tx_bytes")[sent],
        due_ns=due_ns,
        asked_ns=inputs.column("ops", "intended_ns")[received],
        fct_ns=fct_ns,
        src=src,
        dst=dst,
    )
