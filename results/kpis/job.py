"""Key figures of time: iterations against their roofline, collectives and transfers as percentiles, skew, one-way delay.

Decides these formulas (docs/metrics.md derives them); counters are for `kpi_network`, rates over time for `kpi_rates`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from etloop.results.kpis.input import KpiInput, least_network_ns
from etloop.results.kpis.transfers import numbered_pairs
from etloop.results.measure.iterations import counted_iterations
from etloop.results.measure.job_shares import background_ranks, counted_ops
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV, bus_factor, kind_label
from etloop.results.schema.kpis import Curve, KindKpis
from etloop.results.verdict.evaluation import aggregate
from numpy.typing import NDArray

CURVE_POINTS: Final = 101
MOST_CURVES: Final = 32

NO_ITERATION: Final = "no iteration is complete"
NO_SPEED: Final = "the speed of a port is not known"
SEVERAL_JOBS: Final = "the run is of several jobs, which have no roofline together"
NO_COMPUTE: Final = "the compute of the job is not known"
Value = float | str
"""A figure, or why there is none."""


def job_figures(given: KpiInput) -> Iterator[tuple[str, Value]]:
    """Iterations: their distribution, the roofline, and what of it was reached."""
    jct = _iteration_ns(given)
    for name, function in (("min", "min"), ("avg", "mean"), ("p50", "p50"), ("p99", "p99"), ("max", "max")):
        yield f"jct_{name}_ns", aggregate(function, jct) if jct.size else NO_ITERATION
    yield "jct_cv", aggregate("cv", jct) if jct.size > 1 else "fewer than two iterations are complete"
    jct_ns: Value = float(jct.mean()) if jct.size else NO_ITERATION
    compute_ns: Value = NO_COMPUTE
    if given.compute_ns is not None:
        compute_ns = float(given.compute_ns[~background_ranks(given.plan)].max(initial=0))
    network_ns = iteration_network_ns(given)
    jobs = [one for one in given.summary.jobs if not one.background]
    if len(jobs) > 1:
        compute_ns = network_ns = SEVERAL_JOBS
    factors = [one.interference for one in jobs if one.interference is not None]
    yield "interference_max", max(factors) if factors else "no job ran alone and beside others"
    yield "compute_ns", compute_ns
    yield "network_ns", network_ns
    yield "roofline_ns", roofline_ns(compute_ns, network_ns)
    yield "jct_ratio", _ratio(jct_ns, roofline_ns(compute_ns, network_ns))
    overhead_ns = _first_word(jct_ns, compute_ns) or float(jct_ns) - float(compute_ns)
    yield "comm_overhead_ns", overhead_ns
    hidden = _ratio(overhead_ns, network_ns)
    yield "overlap_fraction", hidden if isinstance(hidden, str) else 1 - hidden
    yield "busiest_port_share", _ratio(network_ns, jct_ns)
    whole_ns = given.summary.job.jct_ns
    carried = given.summary.bytes.wire_tx_bytes
    yield "goodput_bps", carried * 8e9 / whole_ns if whole_ns else "nothing completed"
    comparison = given.summary.comparison
    for network in ("ideal", "twin"):
        value = None if comparison is None else getattr(comparison.job, f"measured_per_{network}")
        yield (
            f"jct_per_{network}",
            f"there is no {network} beside this run" if value is None else float(value),
        )


def spread(
    name: str, functions: str, times_ns: NDArray[np.float64], absent: str
) -> Iterator[tuple[str, Value]]:
    """Figures `NAME_FUNCTION_ns` of times."""
    for function in functions.split():
        yield f"{name}_{function}_ns", aggregate(function, times_ns) if times_ns.size else absent


def _iteration_ns(given: KpiInput) -> NDArray[np.float64]:
    return np.array(
        [one.jct_ns for one in counted_iterations(given.summary.job.per_iteration, 0)], np.float64
    )


def iteration_network_ns(given: KpiInput) -> Value:
    """What the busiest direction of a port needs for its payload of one iteration at line rate."""
    ops = given.plan.ops
    zero = np.zeros(len(ops.rank), np.int64)
    counted = counted_ops(given.plan)
    tx, rx = (
        np.where(counted, column, 0).astype(np.float64) for column in (ops.wire_tx_bytes, ops.wire_rx_bytes)
    )
    least = float(least_network_ns(given, ops.rank.astype(np.int64), tx, rx, zero, 1)[0])
    return NO_SPEED if np.isnan(least) else least


def roofline_ns(compute_ns: Value, network_ns: Value) -> Value:
    """Compute and network one after the other (BMWG, Roofline_seq, over the bytes that cross the device)."""
    return _first_word(compute_ns, network_ns) or float(compute_ns) + float(network_ns)


def _first_word(*values: Value) -> str:
    return next((value for value in values if isinstance(value, str)), "")


def _ratio(
    part: Value, whole: Value, absent: str = "nothing crosses the device, and nothing is computed"
) -> Value:
    """`absent`: what it means that `whole` is nothing."""
    if word := _first_word(part, whole):
        return word
    return float(part) / float(whole) if float(whole) > 0 else absent


def skew_and_transfer_figures(given: KpiInput) -> Iterator[tuple[str, Value]]:
    """How unevenly members began, and how long ranks' ops were under way."""
    rows = given.frames["collectives"].columns
    complete = rows["complete"] == 1
    skew = given.column("collectives", "skew_ns")[complete & (rows["kind"] != CONVENTIONS[SEND_RECV].name)]
    yield from spread("start_skew", "p50 p99 max", skew, "no collective completed")
    absent = "no op sent anything through the device"
    yield from spread("transfer", "p50 p99 p999 max", transfer_ns(given), absent)
    least, taken = least_and_joined_ns(given)
    known = complete & (least > 0)
    if not known.any():
        yield "share_of_ideal", NO_SPEED if np.isnan(least).any() else "no collective crossed the device"
    else:
        absent = "its collectives took no time"
        yield "share_of_ideal", _ratio(float(least[known].sum()), float(taken[known].sum()), absent)


def transfer_ns(given: KpiInput) -> NDArray[np.float64]:
    """Per op of a rank that sent through the device: from its first packet to its completion."""
    taken = given.column("ops", "completed_ns") - given.column("ops", "first_tx_ns")
    return np.asarray(taken[~np.isnan(taken)])


def one_way_figures(given: KpiInput) -> Iterator[tuple[str, Value]]:
    """Sends of one packet: from the sender's first packet to the receiver's completion, two clocks apart."""
    absent = "no send of one packet crossed the device"
    yield from spread("one_way", "min p50 p99", one_way_ns(given), absent)
    yield "one_way_error_ns", float(given.summary.clock.between_agents_error_ns)


def one_way_ns(given: KpiInput) -> NDArray[np.float64]:
    """Per iteration and pair whose message is one packet through the device: first packet sent to arrival."""
    ops = given.frames["ops"].columns
    kind, message = ops["kind"], given.column("ops", "message_bytes")
    small = (message > 0) & (message <= given.mtu_bytes)
    first_tx, completed = given.column("ops", "first_tx_ns"), given.column("ops", "completed_ns")
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
    return tuple(int(ops[name][row]) for name in ("iteration", source, target, "sequence"))  # type: ignore[index]


def collective_of_ops(given: KpiInput) -> NDArray[np.int64]:
    """Return for every row of ops its row of collectives.parquet."""
    rows, ops = given.frames["collectives"].columns, given.frames["ops"].columns
    receives, pair = ops["kind"] == "receive", ops["kind"] != "collective"
    rank, peer = given.column("ops", "rank"), given.column("ops", "peer")
    source = np.where(pair, np.where(receives, peer, rank), np.nan)
    target = np.where(pair, np.where(receives, rank, peer), np.nan)
    numbers: dict[object, int] = {}
    communicators = [
        np.array([numbers.setdefault(one, len(numbers)) for one in table["communicator"]], np.float64)
        for table in (rows, ops)
    ]
    count = len(communicators[0])
    number = np.zeros(count + len(rank), np.int64)
    # Pair by pair of columns: of millions of ops all columns at once, sorted as rows, take ten times as much.
    for pair_of_columns in (
        communicators,
        [given.column("collectives", "src_rank"), source],
        [given.column("collectives", "dst_rank"), target],
        [given.column(table, "sequence") for table in ("collectives", "ops")],
        [given.column(table, "iteration") for table in ("collectives", "ops")],
    ):
        # An absent cell is NaN, which equals nothing.
        cells = np.nan_to_num(np.concatenate(pair_of_columns), nan=-1).astype(np.int64)
        number = numbered_pairs(number, cells)
    row_of = np.full(int(number.max(initial=-1)) + 1, -1, np.int64)
    row_of[number[:count]] = np.arange(count)
    found = row_of[number[count:]]
    assert (found >= 0).all()
    return found


def least_and_joined_ns(given: KpiInput) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return per row of collectives.parquet the least time through the device, and time with all members present."""
    group, groups = collective_of_ops(given), given.frames["collectives"].rows
    rank = given.column("ops", "rank").astype(np.int64)
    tx, rx = given.column("ops", "planned_wire_tx_bytes"), given.column("ops", "planned_wire_rx_bytes")
    least = least_network_ns(given, rank, tx, rx, group, groups)
    return least, given.column("collectives", "time_ns") - given.column("collectives", "skew_ns")


def kind_kpis(given: KpiInput) -> tuple[KindKpis, ...]:
    """A row for every kind, algorithm and size of group of which one completed, in their order."""
    rows = given.frames["collectives"].columns
    least, joined = least_and_joined_ns(given)
    complete = rows["complete"] == 1
    names = zip(rows["kind"], rows["algorithm"], rows["ranks"], strict=True)
    keys = [(str(kind), str(algorithm or ""), int(ranks)) for kind, algorithm, ranks in names]
    found = []
    for key in sorted(set(keys)):
        chosen = complete & np.array([one == key for one in keys], bool)
        if chosen.any():
            found.append(_kind(given, key, np.flatnonzero(chosen), least, joined))
    return tuple(found)


def _kind(
    given: KpiInput, key: tuple[str, str, int], rows: NDArray[np.int64], least: NDArray[np.float64],
    joined: NDArray[np.float64],
) -> KindKpis:  # fmt: skip
    time_ns, size, busbw = (
        given.column("collectives", name)[rows] for name in ("time_ns", "size_bytes", "busbw_bytes_per_s")
    )
    least_ns, share = float(least[rows].mean()), float(least[rows].sum() / max(joined[rows].sum(), 1))
    crosses = not np.isnan(least_ns) and least_ns > 0
    kind = [one.name for one in CONVENTIONS].index(key[0])
    factor = float(bus_factor(np.array([kind]), np.array([key[2]]))[0])
    total_ns, total_bytes = float(time_ns.sum()), float(size.sum())
    return KindKpis(
        *key,
        count=len(rows),
        size_bytes=int(total_bytes),
        fabric_bytes=int(given.column("collectives", "fabric_bytes")[rows].sum()),
        time_avg_ns=float(time_ns.mean()),
        time_p50_ns=aggregate("p50", time_ns),
        time_p90_ns=aggregate("p90", time_ns),
        time_p95_ns=aggregate("p95", time_ns),
        time_p99_ns=aggregate("p99", time_ns),
        time_p999_ns=aggregate("p999", time_ns),
        time_max_ns=float(time_ns.max()),
        joined_avg_ns=float(joined[rows].mean()),
        skew_p99_ns=aggregate("p99", given.column("collectives", "skew_ns")[rows]),
        busbw_bytes_per_s=factor * total_bytes * 1e9 / total_ns if total_ns > 0 and total_bytes else None,
        busbw_p50_bytes_per_s=None if np.isnan(busbw).any() else aggregate("p50", busbw),
        least_ns=least_ns if crosses else None,
        share_of_ideal=share if crosses else None,
    )


def curves(given: KpiInput) -> tuple[Curve, ...]:
    """Distributions of completion: of collectives by kind and size of group, of ranks' transfers, of iterations."""
    rows = given.frames["collectives"].columns
    complete = rows["complete"] == 1
    taken = given.column("collectives", "time_ns")
    names = np.array([kind_label(*one) for one in zip(rows["kind"], rows["ranks"], strict=True)], object)
    found = [
        curve(str(name), taken[complete & (names == name)])
        for name in sorted(set(names[complete]))[: MOST_CURVES - 2]
    ]
    found += [curve("transfers of ranks", transfer_ns(given)), curve("iterations", _iteration_ns(given))]
    return tuple(one for one in found if one.count)


def curve(name: str, values: NDArray[np.float64]) -> Curve:
    """At most `CURVE_POINTS` points of the distribution of `values`: each is one of them, by nearest rank."""
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
