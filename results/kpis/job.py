"""Key figures of time: iterations against their roofline, collectives and transfers as percentiles, skew, one-way delay.

Decides these formulas (docs/metrics.md derives them); figures of counters are in `network`, rates over time in `rates`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.results.kpis.input import KpiInput, least_network_ns
from etloop.results.kpis.transfers import number_pairs
from etloop.results.measure.iterations import list_counted_iterations
from etloop.results.measure.job_shares import background_ranks, mark_counted_ops
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV, bus_factor, kind_label
from etloop.results.schema.kpis import Curve, KindKpis
from etloop.results.verdict.evaluation import aggregate

CURVE_POINTS: Final = 101
MOST_CURVES: Final = 32

NO_ITERATION: Final = "no iteration is complete"
NO_SPEED: Final = "the speed of a port is not known"
SEVERAL_JOBS: Final = "the run is of several jobs, which have no roofline together"
NO_COMPUTE: Final = "the compute of the job is not known"
Value = float | str
"""A figure, or why there is none."""


def job_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the figures of iterations: distribution, roofline, and the achieved share of it."""
    jct = _iteration_ns(inputs)
    for name, function in (("min", "min"), ("avg", "mean"), ("p50", "p50"), ("p99", "p99"), ("max", "max")):
        yield f"jct_{name}_ns", aggregate(function, jct) if jct.size else NO_ITERATION
    yield "jct_cv", aggregate("cv", jct) if jct.size > 1 else "fewer than two iterations are complete"
    jct_ns: Value = float(jct.mean()) if jct.size else NO_ITERATION
    compute_ns: Value = NO_COMPUTE
    if inputs.compute_ns is not None:
        compute_ns = float(inputs.compute_ns[~background_ranks(inputs.plan)].max(initial=0))
    network_ns = iteration_network_ns(inputs)
    jobs = [job for job in inputs.summary.jobs if not job.background]
    if len(jobs) > 1:
        compute_ns = network_ns = SEVERAL_JOBS
    factors = [job.interference for job in jobs if job.interference is not None]
    yield "interference_max", max(factors) if factors else "no job ran alone and next to others"
    yield "compute_ns", compute_ns
    yield "network_ns", network_ns
    yield "roofline_ns", roofline_ns(compute_ns, network_ns)
    yield "jct_ratio", _ratio(jct_ns, roofline_ns(compute_ns, network_ns))
    overhead_ns = _first_reason(jct_ns, compute_ns) or float(jct_ns) - float(compute_ns)
    yield "comm_overhead_ns", overhead_ns
    hidden = _ratio(overhead_ns, network_ns)
    yield "overlap_fraction", hidden if isinstance(hidden, str) else 1 - hidden
    yield "busiest_port_share", _ratio(network_ns, jct_ns)
    whole_ns = inputs.summary.job.jct_ns
    carried = inputs.summary.bytes.wire_tx_bytes
    yield "goodput_bps", carried * 8e9 / whole_ns if whole_ns else "nothing completed"
    comparison = inputs.summary.comparison
    for network in ("ideal", "twin"):
        value = None if comparison is None else getattr(comparison.job, f"measured_per_{network}")
        yield (
            f"jct_per_{network}",
            f"there is no {network} to compare with this run" if value is None else float(value),
        )


def spread(
    name: str, functions: str, times_ns: NDArray[np.float64], absent: str
) -> Iterator[tuple[str, Value]]:
    """Yield figures `NAME_FUNCTION_ns` of times."""
    for function in functions.split():
        yield f"{name}_{function}_ns", aggregate(function, times_ns) if times_ns.size else absent


def _iteration_ns(inputs: KpiInput) -> NDArray[np.float64]:
    """Return the times of complete iterations."""
    return np.array(
        [iteration.jct_ns for iteration in list_counted_iterations(inputs.summary.job.per_iteration, 0)],
        np.float64,
    )


def iteration_network_ns(inputs: KpiInput) -> Value:
    """Return the time that the busiest port direction needs for its payload of one iteration at line rate."""
    ops = inputs.plan.ops
    zero = np.zeros(len(ops.rank), np.int64)
    is_counted = mark_counted_ops(inputs.plan)
    tx, rx = (
        np.where(is_counted, column, 0).astype(np.float64)
        for column in (ops.wire_tx_bytes, ops.wire_rx_bytes)
    )
    least = float(least_network_ns(inputs, ops.rank.astype(np.int64), tx, rx, zero, 1)[0])
    return NO_SPEED if np.isnan(least) else least


def roofline_ns(compute_ns: Value, network_ns: Value) -> Value:
    """Return compute plus network time (BMWG, Roofline_seq, over the bytes that cross the device)."""
    return _first_reason(compute_ns, network_ns) or float(compute_ns) + float(network_ns)


def _first_reason(*values: Value) -> str:
    """Return the first value that is a reason for absence; "" if none is."""
    return next((value for value in values if isinstance(value, str)), "")


def _ratio(
    part: Value, whole: Value, absent: str = "no bytes cross the device, and no rank computes"
) -> Value:
    """Return `part / whole`; `absent` is returned if `whole` is 0."""
    if word := _first_reason(part, whole):
        return word
    return float(part) / float(whole) if float(whole) > 0 else absent


def skew_and_transfer_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the figures of members' start skew, and of the times of ranks' ops."""
    rows = inputs.frames["collectives"].columns
    complete = rows["complete"] == 1
    skew = inputs.column("collectives", "skew_ns")[complete & (rows["kind"] != CONVENTIONS[SEND_RECV].name)]
    yield from spread("start_skew", "p50 p99 max", skew, "no collective completed")
    absent = "no op sent anything through the device"
    yield from spread("transfer", "p50 p99 p999 max", transfer_ns(inputs), absent)
    least, joined_ns = least_and_joined_ns(inputs)
    has_least_time = complete & (least > 0)
    if not has_least_time.any():
        yield "share_of_ideal", NO_SPEED if np.isnan(least).any() else "no collective crossed the device"
    else:
        absent = "its collectives took no time"
        yield (
            "share_of_ideal",
            _ratio(float(least[has_least_time].sum()), float(joined_ns[has_least_time].sum()), absent),
        )


def transfer_ns(inputs: KpiInput) -> NDArray[np.float64]:
    """Return the time from first packet to completion of each op that sent through the device, in ns."""
    times_ns = inputs.column("ops", "completed_ns") - inputs.column("ops", "first_tx_ns")
    return np.asarray(times_ns[~np.isnan(times_ns)])


def one_way_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the one-way delay of single-packet sends: from the sender's first packet to the receiver's completion, on two
    clocks."""
    absent = "no send of one packet crossed the device"
    yield from spread("one_way", "min p50 p99", one_way_ns(inputs), absent)
    yield "one_way_error_ns", float(inputs.summary.clock.between_agents_error_ns)


def one_way_ns(inputs: KpiInput) -> NDArray[np.float64]:
    """Return the one-way delay of each single-packet message through the device, in ns, by iteration and pair."""
    ops = inputs.frames["ops"].columns
    kind, message = ops["kind"], inputs.column("ops", "message_bytes")
    small = (message > 0) & (message <= inputs.mtu_bytes)
    first_tx, completed = inputs.column("ops", "first_tx_ns"), inputs.column("ops", "completed_ns")
    sent: dict[tuple[int, ...], float] = {}
    for row in np.flatnonzero((kind == "send") & small & ~np.isnan(first_tx)):
        sent[_pair(ops, int(row), "rank", "peer")] = float(first_tx[row])
    delays = [
        float(completed[row]) - sent[pair]
        for row in np.flatnonzero((kind == "receive") & small)
        if (pair := _pair(ops, int(row), "peer", "rank")) in sent
    ]
    return np.array(delays, np.float64)


def _pair(ops: object, row: int, source: str, target: str) -> tuple[int, ...]:
    """Return the key of a send or receive: iteration, source, target, sequence."""
    return tuple(int(ops[name][row]) for name in ("iteration", source, target, "sequence"))  # type: ignore[index]


def collective_of_ops(inputs: KpiInput) -> NDArray[np.int64]:
    """Return for every row of ops its row of collectives.parquet (int64)."""
    rows, ops = inputs.frames["collectives"].columns, inputs.frames["ops"].columns
    receives, pair = ops["kind"] == "receive", ops["kind"] != "collective"
    rank, peer = inputs.column("ops", "rank"), inputs.column("ops", "peer")
    source = np.where(pair, np.where(receives, peer, rank), np.nan)
    target = np.where(pair, np.where(receives, rank, peer), np.nan)
    numbers: dict[object, int] = {}
    communicators = [
        np.array([numbers.setdefault(name, len(numbers)) for name in table["communicator"]], np.float64)
        for table in (rows, ops)
    ]
    count = len(communicators[0])
    number = np.zeros(count + len(rank), np.int64)
    # One pair of columns at a time: sorting all columns of millions of ops as rows takes ten times as much memory.
    for pair_of_columns in (
        communicators,
        [inputs.column("collectives", "src_rank"), source],
        [inputs.column("collectives", "dst_rank"), target],
        [inputs.column(table, "sequence") for table in ("collectives", "ops")],
        [inputs.column(table, "iteration") for table in ("collectives", "ops")],
    ):
        # An absent cell is NaN, which equals nothing.
        cells = np.nan_to_num(np.concatenate(pair_of_columns), nan=-1).astype(np.int64)
        number = number_pairs(number, cells)
    row_of = np.full(int(number.max(initial=-1)) + 1, -1, np.int64)
    row_of[number[:count]] = np.arange(count)
    collective_row = row_of[number[count:]]
    assert (collective_row >= 0).all()
    return collective_row


def least_and_joined_ns(inputs: KpiInput) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return per row of collectives.parquet the least time through the device, and the time since the last member's issue."""
    group, groups = collective_of_ops(inputs), inputs.frames["collectives"].rows
    rank = inputs.column("ops", "rank").astype(np.int64)
    tx, rx = inputs.column("ops", "planned_wire_tx_bytes"), inputs.column("ops", "planned_wire_rx_bytes")
    least = least_network_ns(inputs, rank, tx, rx, group, groups)
    return least, inputs.column("collectives", "time_ns") - inputs.column("collectives", "skew_ns")


def kind_kpis(inputs: KpiInput) -> tuple[KindKpis, ...]:
    """Return a row for every kind, algorithm and group size with a complete collective, in their order."""
    rows = inputs.frames["collectives"].columns
    least_ns, joined_ns = least_and_joined_ns(inputs)
    complete = rows["complete"] == 1
    names = zip(rows["kind"], rows["algorithm"], rows["ranks"], strict=True)
    keys = [(str(kind), str(algorithm or ""), int(ranks)) for kind, algorithm, ranks in names]
    kinds = []
    for key in sorted(set(keys)):
        is_of_kind = complete & np.array([other_key == key for other_key in keys], bool)
        if is_of_kind.any():
            kinds.append(_kind(inputs, key, np.flatnonzero(is_of_kind), least_ns, joined_ns))
    return tuple(kinds)


def _kind(
    inputs: KpiInput, key: tuple[str, str, int], rows: NDArray[np.int64], least: NDArray[np.float64],
    joined: NDArray[np.float64],
) -> KindKpis:  # fmt: skip
    """Return the figures of the collectives in `rows`, which are of one kind."""
    time_ns, size, busbw = (
        inputs.column("collectives", name)[rows] for name in ("time_ns", "size_bytes", "busbw_bytes_per_s")
    )
    least_ns, share = float(least[rows].mean()), float(least[rows].sum() / max(joined[rows].sum(), 1))
    crosses = not np.isnan(least_ns) and least_ns > 0
    kind = [convention.name for convention in CONVENTIONS].index(key[0])
    factor = float(bus_factor(np.array([kind]), np.array([key[2]]))[0])
    total_ns, total_bytes = float(time_ns.sum()), float(size.sum())
    return KindKpis(
        *key,
        count=len(rows),
        size_bytes=int(total_bytes),
        fabric_bytes=int(inputs.column("collectives", "fabric_bytes")[rows].sum()),
        time_avg_ns=float(time_ns.mean()),
        time_p50_ns=aggregate("p50", time_ns),
        time_p90_ns=aggregate("p90", time_ns),
        time_p95_ns=aggregate("p95", time_ns),
        time_p99_ns=aggregate("p99", time_ns),
        time_p999_ns=aggregate("p999", time_ns),
        time_max_ns=float(time_ns.max()),
        joined_avg_ns=float(joined[rows].mean()),
        skew_p99_ns=aggregate("p99", inputs.column("collectives", "skew_ns")[rows]),
        busbw_bytes_per_s=factor * total_bytes * 1e9 / total_ns if total_ns > 0 and total_bytes else None,
        busbw_p50_bytes_per_s=None if np.isnan(busbw).any() else aggregate("p50", busbw),
        least_ns=least_ns if crosses else None,
        share_of_ideal=share if crosses else None,
    )


def curves(inputs: KpiInput) -> tuple[Curve, ...]:
    """Return the distributions of completion times: of collectives by kind and group size, of ranks' transfers, of
    iterations."""
    rows = inputs.frames["collectives"].columns
    complete = rows["complete"] == 1
    times_ns = inputs.column("collectives", "time_ns")
    names = np.array(
        [kind_label(*kind_and_ranks) for kind_and_ranks in zip(rows["kind"], rows["ranks"], strict=True)],
        object,
    )
    all_curves = [
        curve(str(name), times_ns[complete & (names == name)])
        for name in sorted(set(names[complete]))[: MOST_CURVES - 2]
    ]
    all_curves += [
        curve("transfers of ranks", transfer_ns(inputs)),
        curve("iterations", _iteration_ns(inputs)),
    ]
    return tuple(distribution for distribution in all_curves if distribution.count)


def curve(name: str, values: NDArray[np.float64]) -> Curve:
    """Return at most `CURVE_POINTS` points of the distribution of `values`, each of them a value (nearest rank)."""
    ordered = np.sort(values)
    if len(ordered) <= CURVE_POINTS:
        places = np.arange(1, len(ordered) + 1)
    else:
        places = np.unique(
            np.ceil(np.linspace(1 / (CURVE_POINTS - 1), 1, CURVE_POINTS - 1) * len(ordered)).astype(int)
        )
        places = np.unique(np.concatenate([[1], places]))
    shares = tuple(float(place / len(ordered)) for place in places) if len(ordered) else ()
    return Curve(
        name, len(ordered), shares, tuple(float(value) for value in ordered[places - 1]) if shares else ()
    )
