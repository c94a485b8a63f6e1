"""Flow completion times and slowdowns by size, of runs that consist of sends and receives alone.

Decides what a flow takes on an empty network: its frames at the rate of the slower of its two ports, and the latency of the
network, for which stands what the quickest flow of the run took beyond its frames. So no slowdown is below 1, and the
latency of our own hosts is not taken for the device's. Studies of congestion control plot these (HPCC, SIGCOMM 2019, 5.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.results.kpis.input import KpiInput
from etloop.results.measure.job_shares import counted_ops
from etloop.results.schema.flow_sizes import FlowSizeRow, FlowSizes
from etloop.results.schema.kinds import OpCode
from etloop.results.verdict.evaluation import aggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRAME_BYTES_BEYOND_PAYLOAD: Final = 82
"""Of a packet on the line: preamble and gap 20, Ethernet 18, IPv4 20, UDP 8, BTH 12, ICRC 4."""
_BOUNDS: Final = (0, *(10**power for power in range(3, 13)), 1 << 62)
NO_FLOWS: Final = "the run is not of sends and receives alone"
NONE_COMPLETED: Final = "no flow crossed the device and completed"
NO_SPEED: Final = "the speed of a port is not known"


def flow_sizes(given: KpiInput) -> FlowSizes | None:
    """Return completion by size; None where the jobs have collectives, or no flow is to cross the device."""
    ops, counted = given.plan.ops, counted_ops(given.plan)
    sends = counted & (ops.kind == OpCode.SEND) & (ops.wire_tx_bytes > 0)
    if not sends.any() or (counted & (ops.kind == OpCode.COLLECTIVE)).any():
        return None
    planned_bytes = np.repeat(ops.message_bytes[sends], given.plan.iterations)
    size, fct_ns, ends = _completed(given)
    line_ns = _line_ns(given, size, ends)
    beyond_ns = fct_ns - line_ns
    is_known = bool(len(beyond_ns)) and bool(np.isfinite(beyond_ns).all())
    base_ns = max(float(beyond_ns.min()), 0.0) if is_known else float("nan")
    slowdown = fct_ns / np.maximum(line_ns + base_ns, 1.0)
    rows = []
    for above, upto in (*itertools.pairwise(_BOUNDS), (0, _BOUNDS[-1])):
        planned = int(((planned_bytes > above) & (planned_bytes <= upto)).sum())
        if planned:
            of_row = (size > above) & (size <= upto)
            rows.append(
                _row(above, min(upto, int(planned_bytes.max())), planned, fct_ns[of_row], slowdown[of_row])
            )
    return FlowSizes(tuple(rows), round(base_ns) if is_known else None)


def flow_figures(given: KpiInput) -> Iterator[tuple[str, float | str]]:
    """Key figures of all flows."""
    found = given.summary.flow_sizes
    whole = found.rows[-1] if found is not None else None
    for name in ("fct_p50_ns", "fct_p99_ns", "slowdown_p50", "slowdown_p95", "slowdown_p99"):
        value = getattr(whole, name) if whole is not None else None
        figure = name if name.startswith("fct") else f"fct_{name}"
        if value is not None:
            yield figure, float(value)
        elif whole is None:
            yield figure, NO_FLOWS
        else:
            yield figure, NONE_COMPLETED if not whole.completed else NO_SPEED


def _row(
    above: int, upto: int, planned: int, fct_ns: NDArray[np.float64], slowdown: NDArray[np.float64]
) -> FlowSizeRow:
    def of(function: str, values: NDArray[np.float64]) -> float | None:
        return aggregate(function, values) if values.size and bool(np.isfinite(values).all()) else None

    p50_ns, p99_ns = of("p50", fct_ns), of("p99", fct_ns)
    return FlowSizeRow(
        above_bytes=above,
        upto_bytes=upto,
        planned=planned,
        completed=len(fct_ns),
        fct_p50_ns=None if p50_ns is None else int(p50_ns),
        fct_p99_ns=None if p99_ns is None else int(p99_ns),
        slowdown_p50=of("p50", slowdown),
        slowdown_p95=of("p95", slowdown),
        slowdown_p99=of("p99", slowdown),
    )


def _completed(
    given: KpiInput,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Of every flow with a record at both ends: its bytes, its completion time, and its two ranks."""
    ops = given.frames["ops"].columns
    kind = ops["kind"]
    crosses = given.column("ops", "planned_wire_tx_bytes") > 0
    sends = np.flatnonzero(np.asarray(kind == "send", bool) & crosses)
    receives = np.flatnonzero(np.asarray(kind == "receive", bool))
    keys = [
        np.stack([given.column("ops", name)[rows].astype(np.int64) for name in names], axis=1)
        for rows, names in (
            (sends, ("iteration", "rank", "peer", "sequence")),
            (receives, ("iteration", "peer", "rank", "sequence")),
        )
    ]
    both, number = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    of_send = np.full(len(both), -1, np.int64)
    of_receive = of_send.copy()
    number = number.reshape(-1)
    of_send[number[: len(sends)]] = sends
    of_receive[number[len(sends) :]] = receives
    whole = (of_send >= 0) & (of_receive >= 0)
    sent, received = of_send[whole], of_receive[whole]
    due_ns = given.column("ops", "intended_ns")[sent]
    fct_ns = given.column("ops", "completed_ns")[received] - due_ns
    return given.column("ops", "message_bytes")[sent], fct_ns, both[whole][:, 1:3]


def _line_ns(
    given: KpiInput, size_bytes: NDArray[np.float64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What the frames of a flow take at the slower of its two ports."""
    port, speed = given.port_of_rank()
    slower = np.minimum(speed[port[ends[:, 0]]], speed[port[ends[:, 1]]])
    packets = np.maximum(np.ceil(size_bytes / given.mtu_bytes), 1)
    return np.asarray((size_bytes + packets * FRAME_BYTES_BEYOND_PAYLOAD) * 8e9 / slower)
