"""Bounds of figures and columns without the emulator's own weakness: the range in which the undisturbed value lies.

Decides one bound for each name. Lateness only adds time: an undisturbed time is at most the measured one and at least
that minus what our lateness explains; for a rate it is the other way round. Needless retransmissions explain the time
that their bytes took on the slowest link, and themselves as packets. If no bound is known, the undisturbed value may be
any better value. Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.schema.kpis import BY_NAME, Nature
from etloop.results.verdict.aggregate_bounds import cv_bounds
from etloop.results.verdict.evaluation import aggregate
from etloop.results.verdict.weakness import OwnShare, Weakness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.evaluation import Frame

Bounds = tuple[float, float]
MORE_IS_BETTER: Final = frozenset(
    "overlap_fraction goodput_bps busiest_port_share share_of_ideal rates_jain ports_jain uplinks_jain".split()
)
"""Figures that our weakness decreases."""
HEADER_BYTES: Final = 128
"""Upper bound of the headers, check sequences, preamble and gap of a packet."""
_OF_ITERATIONS: Final = {"jct_min_ns": "min", "jct_p50_ns": "p50", "jct_p99_ns": "p99", "jct_max_ns": "max"}
_OF_THE_MEAN: Final = frozenset({"jct_avg_ns", "comm_overhead_ns"})
_PER_REFERENCE: Final = frozenset({"jct_ratio", "jct_per_ideal", "jct_per_twin"})
_OF_OPS: Final = ("start_skew_", "transfer_", "fct_p")
"""Prefixes of the names of times that lie within one iteration."""
_RATES: Final = frozenset({"goodput_bps", "busiest_port_share"})
LOSSES: Final = frozenset(
    "lost_packets not_received_packets unexplained_packets missing_packets lost".split()
)
"""Counts of packets that did not arrive: our receive buffers explain as many as they lost."""
SENT_AGAIN: Final = frozenset(
    "retransmitted_packets duplicate_request retransmitted_share needless_share".split()
)
"""Counts that include needless retransmissions."""
_AFTER_SILENCE: Final = frozenset("local_ack_timeout_err roce_adp_retrans roce_adp_retrans_to".split())
TABLE_NATURES: Final = {
    **dict.fromkeys(("ops", "collectives", "iterations", "kinds", "cc", "comparison", "jobs"), Nature.TIME),
    **dict.fromkeys(("flows", "connections", "ports", "reconciliation", "classes"), Nature.TRANSPORT),
    **dict.fromkeys(("switches", "queues", "counters", "dut"), Nature.DEVICE),
    **dict.fromkeys(("findings", "examinations"), Nature.OWN),  # rules account for the emulator themselves
}
"""Nature of the columns of a table."""
_MOMENTS: Final = frozenset(
    "start_ns end_ns intended_ns issued_ns first_tx_ns completed_ns first_issue_ns last_completion_ns".split()
)
_NOT_OURS: Final = frozenset("recorded_ns least_ns slip_ns trace_bytes".split())
"""Columns of tables of times that our lateness does not affect, or that are our lateness itself."""
_UNTOUCHED_UNITS: Final = frozenset({"id", "name", "flag", "bytes", "messages", "ranks", "count"})


def figure_bounds(name: str, measured: float, own: OwnShare | None, weak: Weakness) -> Bounds:
    """Return the bounds of a figure without our weakness."""
    if name not in BY_NAME or not weak.touches(nature_of_figure(name)) or name == "needless_share":
        return measured, measured
    anything = (measured, math.inf) if name in MORE_IS_BETTER else (min(0.0, measured), measured)
    if own is None:
        return anything
    if name in LOSSES:
        return max(measured - own.lost_packets, 0.0), measured
    if name == "lost_share":
        return _share_without(measured, own.lost_packets, own.figures.get("tx_packets")), measured
    if weak.lossy or (weak.unbounded and BY_NAME[name].nature is Nature.TIME and name not in SENT_AGAIN):
        return anything
    return _time_bounds(name, measured, own) or anything


def _time_bounds(name: str, measured: float, own: OwnShare) -> Bounds | None:
    """Return bounds from our lateness and from needless retransmissions; None if none are known."""
    count = len(own.jct_ns)
    if name == "retransmitted_packets":
        return max(measured - own.again_packets, 0.0), measured
    if name == "retransmitted_share":
        return _share_without(measured, own.again_packets, own.figures.get("tx_packets")), measured
    if not count:
        return None
    mean_ns = own.explained_ns / count
    if name in _OF_THE_MEAN:
        return max(measured - mean_ns, 0.0), measured
    if name in _OF_ITERATIONS:
        least = np.maximum(own.jct_ns - own.late_ns - (own.explained_ns - own.whole_late_ns), 0.0)
        low = aggregate(_OF_ITERATIONS[name], least)
        if name == "jct_max_ns":
            low = max(low, float(own.jct_ns.mean()) - mean_ns)
        return low, measured
    if name == "jct_cv":
        return cv_bounds(np.maximum(own.jct_ns - own.late_ns - own.explained_ns, 0.0), own.jct_ns)
    if name in _PER_REFERENCE:
        share = float((np.array(list(own.by_iteration().values())) / own.jct_ns).max())
        return measured * max(1 - share, 0.0), measured
    if name.startswith(_OF_OPS):
        return max(measured - own.most_ns, 0.0), measured
    if name in _RATES:
        return measured, faster(measured, own.whole_ns, own.explained_ns)
    network_ns = own.figures.get("network_ns")
    if name == "overlap_fraction" and network_ns:
        return measured, measured + mean_ns / network_ns
    if name == "retransmissions_per_s" and own.whole_ns:
        needless_per_s = own.again_packets * 1e9 / own.whole_ns
        return max(measured - needless_per_s, 0.0), faster(measured, own.whole_ns, own.explained_ns)
    return None


def wire_time_ns(packets: float, mtu_bytes: int, speed_bps: float) -> float:
    """Return an upper bound of the time in ns that packets take on a link of `speed_bps`."""
    return packets * (mtu_bytes + HEADER_BYTES) * 8e9 / speed_bps


def _share_without(share: float, packets: float, whole: float | None) -> float:
    """Return `share` minus `packets / whole`, at least 0; 0 if `whole` is unknown or 0."""
    return max(share - packets / whole, 0.0) if whole else 0.0


def faster(rate: float, time_ns: float, explained_ns: float) -> float:
    """Return the rate if the time were shorter by `explained_ns`; infinite if no time is left."""
    left_ns = time_ns - explained_ns
    return rate * time_ns / left_ns if left_ns > 0 else math.inf


def nature_of_figure(name: str) -> Nature:
    """Return the nature of a figure."""
    return BY_NAME[name].nature


def column_nature(table: str, column: str, unit: str = "") -> Nature:
    """Return the nature of a column. In tables of times, columns that are not times count as planned values (`Nature.OWN`)."""
    if column in SENT_AGAIN or column in _AFTER_SILENCE:
        return Nature.TIME
    nature = TABLE_NATURES[table]
    untouched = column in _NOT_OURS or unit in _UNTOUCHED_UNITS
    return Nature.OWN if nature is Nature.TIME and untouched and table != "cc" else nature


def column_bounds(
    frame: Frame, place: tuple[str, str], measured: NDArray[np.float64], own: OwnShare | None, weak: Weakness
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bounds of each row of column `place` (table, column) of `frame` without our weakness, as float64."""
    table, column = place
    unit = frame.units[column]
    if not weak.touches(column_nature(table, column, unit)):
        return measured, measured
    rises = column.startswith("share_of") or unit in {"bytes/s", "bit/s"}
    at_most_zero, infinite = np.minimum(measured, 0.0), np.full(measured.shape, math.inf)
    anything = (measured, infinite) if rises else (at_most_zero, measured)
    if own is None:
        return anything
    if column in LOSSES:
        return np.maximum(measured - own.lost_packets, 0.0), measured
    if column in {"retransmitted_packets", "duplicate_request"} and not weak.lossy:
        return np.maximum(measured - own.again_packets, 0.0), measured
    if weak.lossy or weak.unbounded or table not in {"ops", "collectives", "iterations", "kinds"}:
        return anything
    explained_ns = _explained_of_rows(frame, column, own)
    if unit == "ns":
        return np.maximum(measured - explained_ns, np.minimum(measured, 0.0)), measured
    time_ns = _times_of_rows(frame, table)
    if not rises or time_ns is None:
        return anything
    left_ns = time_ns - explained_ns
    with np.errstate(all="ignore"):
        return measured, np.where(left_ns > 0, measured * time_ns / left_ns, math.inf)


def _explained_of_rows(frame: Frame, column: str, own: OwnShare) -> NDArray[np.float64]:
    """Return the time in ns that our lateness explains of each row of `column`, at most."""
    if column in _MOMENTS:
        return np.full(frame.rows, own.explained_ns)
    if "iteration" not in frame.columns:
        return np.full(frame.rows, own.most_ns)
    explained_by_iteration = own.by_iteration()
    rows = frame.columns["iteration"].astype(np.float64)
    # An iteration that is not complete may contain all lateness of the run.
    return np.array(
        [explained_by_iteration.get(int(iteration), own.explained_ns) for iteration in rows], np.float64
    )


def _times_of_rows(frame: Frame, table: str) -> NDArray[np.float64] | None:
    """Return the time in ns by which the rates of each row were divided; None if the table has none."""
    if table == "collectives":
        time_ns, skew_ns = (frame.columns[name].astype(np.float64) for name in ("time_ns", "skew_ns"))
        return np.asarray(time_ns - skew_ns)
    if table == "kinds":
        return frame.columns["joined_avg_ns"].astype(np.float64)
    return None
