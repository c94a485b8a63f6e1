"""Rates and signals of the device's ports over time, as steps, from its own counters.

Decides what a line shows: the rate of a port between two readings, or the increase of a signal between two readings, over
all lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput
    from etloop.results.verdict.evaluation import Frame

_BYTES: Final = {"rx": ("rx_bytes", "rx_bytes_without_fcs"), "tx": ("tx_bytes", "tx_bytes_without_fcs")}
_SIGNALS: Final = (
    ("marked_packets", "ECN marks"),
    ("dropped_packets", "dropped"),
    ("trimmed_packets", "trimmed"),
    ("pfc_tx", "PFC sent"),
    ("pfc_rx", "PFC received"),
)
_NIC_SIGNALS: Final = (
    ("np_ecn_marked_roce_packets", "marks received (NIC)"),
    ("np_cnp_sent", "CNPs sent (NIC)"),
    ("rp_cnp_handled", "CNPs received (NIC)"),
)
BEFORE: Final = "before"


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Steps: `values[i]` holds from `times_ns[i]` to `times_ns[i + 1]`."""

    name: str
    times_ns: NDArray[np.float64]
    values: NDArray[np.float64]


def port_rates(inputs: KpiInput, way: str) -> list[Line]:
    """Return the rate in bit/s at which each port of the device received ("rx") or sent ("tx"), by the name of its peer."""
    dut = inputs.frames.get("dut")
    if dut is None or not dut.rows:
        return []
    columns = dut.columns
    lines: list[Line] = []
    host_sources = (
        {source.name for source in inputs.summary.dut.sources if source.is_host_side}
        if inputs.summary.dut
        else set()
    )
    opposite_way = {"rx": "tx", "tx": "rx"}[way]
    for host_counter, device_counter in zip(_BYTES[opposite_way], _BYTES[way], strict=True):
        # The tx counter of the rig's own interface counts the bytes that the device receives.
        at_host = np.isin(columns["source"], list(host_sources)) if host_sources else np.zeros(dut.rows, bool)
        is_wanted_counter = np.where(
            at_host, columns["counter"] == host_counter, columns["counter"] == device_counter
        )
        counter_rows = np.flatnonzero(is_wanted_counter & (columns["kind"] == "port"))
        for rows in _series(dut, counter_rows):
            peer = columns["peer"][rows[0]]
            name = str(peer or columns["port"][rows[0]])
            if any(line.name == name for line in lines):
                continue  # an earlier source has counted it
            times, increases = _steps(dut, rows)
            lines.append(Line(name, times, np.append(increases * 8e9 / np.maximum(np.diff(times), 1), 0.0)))
    return lines


def signals(inputs: KpiInput) -> list[Line]:
    """Return marks, drops, pauses and notifications between two readings; only signals that occurred."""
    lines = []
    queues = inputs.frames.get("queues")
    if queues is not None and queues.rows:
        for column, name in _SIGNALS:
            lines.append(_sum_over_lanes(inputs, column, name, np.ones(queues.rows, bool)))
        lines.append(
            _sum_over_lanes(inputs, "tx_packets", "CNPs (their queue)", _notification_lanes(inputs, queues))
        )
    dut = inputs.frames.get("dut")
    if dut is not None and dut.rows:
        for counter, name in _NIC_SIGNALS:
            parts = [
                _steps(dut, rows) for rows in _series(dut, np.flatnonzero(dut.columns["counter"] == counter))
            ]
            lines += [Line(name, times, np.append(increases, 0.0)) for times, increases in parts]
    return [line for line in lines if line.values.any()]


def _notification_lanes(inputs: KpiInput, queues: Frame) -> NDArray[np.bool_]:
    """Return the rows of queues that carry only congestion notifications of the job (bool)."""
    classes = inputs.frames.get("classes")
    if classes is None:
        return np.zeros(queues.rows, bool)
    notification_queues = {
        (port, int(lane))
        for port, lane, carries in zip(
            classes.columns["port"], classes.columns["expected_queue"].astype(np.float64), classes.columns["carries"],
            strict=True,
        )
        if carries == "notifications"
    }  # fmt: skip
    lanes = queues.columns["cos"].astype(np.float64)
    return np.array(
        [
            (peer, int(lane)) in notification_queues
            for peer, lane in zip(queues.columns["peer"], lanes, strict=True)
        ],
        bool,
    )


def _sum_over_lanes(inputs: KpiInput, column: str, name: str, chosen: NDArray[np.bool_]) -> Line:
    """Return the increase of the sum over lanes between readings, as steps."""
    values = np.nan_to_num(inputs.column("queues", column))[chosen]
    times, member = np.unique(inputs.column("queues", "time_ns")[chosen], return_inverse=True)
    totals = np.bincount(member.reshape(-1), values, len(times))
    return Line(name, times, np.append(np.maximum(np.diff(totals), 0), 0.0) if len(times) else np.empty(0))


def _series(dut: Frame, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each (source, object) by time, from the last reading before the run on."""
    keys: dict[tuple[object, object], list[int]] = {}
    for row in rows.tolist():
        keys.setdefault((dut.columns["source"][row], dut.columns["object"][row]), []).append(row)
    series = []
    for members in keys.values():
        times = dut.columns["time_ns"][members].astype(np.float64)
        ordered = np.array(members)[np.argsort(times, kind="stable")]
        before = np.flatnonzero(dut.columns["phase"][ordered] == BEFORE)
        series.append(ordered[before[-1] :] if before.size else ordered)
    return series


def _steps(dut: Frame, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the times of readings, and the increase between each two of them (float64)."""
    times = dut.columns["time_ns"][rows].astype(np.float64)
    return times, np.maximum(np.diff(dut.columns["value"][rows].astype(np.float64)), 0)
