"""A transfer begins with its send, however early its receive was posted: in figures over time, on pages, in a viewer."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from etloop.results.artifacts import kpi_input
from etloop.results.export.perfetto import perfetto_json
from etloop.results.html.curves import timeline_figure
from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.port_series import port_series
from etloop.results.kpis.transfers import begin_ns, send_of_receive
from etloop.results.schema.kpis import KpiBasis
from etloop.results.tables.frames import frame_by_hand
from tests.support.runs.records_by_hand import run_by_hand

SENT_NS = 20_000
"""The send of rank 0 is issued then; rank 3 has the data at 39 us."""
ARRIVED_NS = 39_000


def posted_at(posted_ns: int, *, sends: bool = True) -> KpiInput:
    """Return the first iteration of the run by hand, whose receive was posted at some time; `sends`: with its send."""
    given = kpi_input(run_by_hand(), KpiBasis({"a/p0": 10**9, "b/p0": 10**9}, None, 4096))
    ops = given.frames["ops"]
    rows = ops.columns["iteration"] == 0
    if not sends:
        rows &= ops.columns["kind"] != "send"
    columns = {name: ops.columns[name][rows] for name in ops.columns}
    issued = columns["issued_ns"].astype(np.float64)
    issued[columns["kind"] == "receive"] = posted_ns
    made = frame_by_hand("ops", {**columns, "issued_ns": issued}, ops.units)
    return replace(given, frames={**given.frames, "ops": made}, load=None)


def receive_row(given: KpiInput) -> int:
    """Return the row of the only receive."""
    return int(np.flatnonzero(given.frames["ops"].columns["kind"] == "receive")[0])


@pytest.mark.parametrize(
    ("why", "posted_ns", "sends", "begin"),
    [
        ("posted ahead", -2_000_000, True, SENT_NS),
        ("posted with the send", SENT_NS, True, SENT_NS),
        ("posted late: the send waits for it", 30_000, True, 30_000),
        ("no record of the send", -2_000_000, False, -2_000_000),
        ("clocks that differ: nothing ends before it begins", 50_000, True, ARRIVED_NS),
    ],
)
def test_a_receive_begins_with_the_later_of_its_ends(
    why: str, posted_ns: int, sends: bool, begin: int
) -> None:
    given = posted_at(posted_ns, sends=sends)
    ops = given.frames["ops"]
    assert begin_ns(ops)[receive_row(given)] == begin, why
    others = ops.columns["kind"] != "receive"
    assert (begin_ns(ops)[others] == ops.columns["issued_ns"][others]).all(), why


def test_a_receive_is_found_its_own_send() -> None:
    """Of two iterations each has its own."""
    ops = kpi_input(run_by_hand(), KpiBasis({}, None, 4096)).frames["ops"]
    receives, sends = send_of_receive(ops)
    assert ops.columns["iteration"][receives].tolist() == ops.columns["iteration"][sends].tolist() == [0, 1]
    assert set(ops.columns["kind"][sends]) == {"send"}


def test_a_port_receives_nothing_before_the_send() -> None:
    series = port_series(posted_at(-2_000_000))
    assert series is not None
    received = series.rx_bps[series.ports.index("b/p0")] * np.diff(series.edges_ns) / 8e9
    assert received[series.edges_ns[1:] <= 0].sum() == 0
    assert received.sum() == pytest.approx(6000 + 1000 + 500)


def test_the_bar_of_a_receive_begins_with_the_send() -> None:
    given = posted_at(-2_000_000)
    (bars,) = (one for one in timeline_figure(given.frames["ops"]).data if one.name == "receive")
    assert list(bars.base) == [SENT_NS / 1e6]
    assert list(bars.x) == [pytest.approx((ARRIVED_NS - SENT_NS) / 1e6)]


def test_the_slice_of_a_receive_begins_with_the_send() -> None:
    early, with_send = (json.loads(perfetto_json(posted_at(at_ns))) for at_ns in (-2_000_000, SENT_NS))
    for trace in (early, with_send):
        slices = [one for one in trace["traceEvents"] if one["ph"] == "X" and one.get("cat") == "op"]
        (receive,) = (one for one in slices if one["args"]["kind"] == "receive")
        assert receive["dur"] == pytest.approx((ARRIVED_NS - SENT_NS) / 1000)
        first = min(one["ts"] for one in slices)
        assert receive["ts"] - first == pytest.approx(SENT_NS / 1000)
