"""The last-arriver baseline: from recorded kernels, most of whose time is waiting, to a time a replay can be held to."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.model.run import RecordedBaselines
from etloop.results.measure.summary import measure
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.summary import Baselines
from etloop.results.tables.arrow_tables import collectives_table
from etloop.results.text.table import render
from etloop.workload.job import build_job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.records_by_hand import connection_rows_by_hand, outcome_by_hand, tables_by_hand
from tests.support.traces.shared_traces import SHARED_TRACES
from tests.support.traces.traces_by_hand import HandNode, all_reduce, collective, recv, send, trace_of

PROJECTION = SHARED_TRACES / "param-dlrm-8gpu" / "dlrm8_network_projection.json"


def baselines(
    *ranks: list[HandNode], settings: WorkloadSettings | None = None
) -> list[tuple[int, ...]] | None:
    """Rows (communicator, source, destination, sequence, ns)."""
    found = build_job(trace_of(*ranks), settings or WorkloadSettings()).baselines
    if found is None:
        return None
    columns = (found.communicator, found.src_rank, found.dst_rank, found.sequence, found.recorded_ns)
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]


def test_with_one_clock_it_is_the_last_end_minus_the_last_begin() -> None:
    found = baselines([all_reduce(1).seen(0, 50_000)], [all_reduce(1).seen(40_000, 52_000)])
    assert found == [(0, -1, -1, 0, 12_000)]


def test_with_clocks_of_their_own_it_is_the_duration_of_the_last_to_come() -> None:
    found = baselines([all_reduce(1).seen(0, 50_000)], [all_reduce(1).seen(900_000, 911_000)])
    assert found == [(0, -1, -1, 0, 11_000)]


def test_one_collective_that_ends_apart_shows_that_the_clocks_differ() -> None:
    ours = [all_reduce(1).seen(0, 50_000), all_reduce(2).after(1).seen(60_000, 90_000)]
    theirs = [all_reduce(1).seen(40_000, 52_000), all_reduce(2).after(1).seen(60_000, 101_000)]
    assert baselines(ours, theirs) == [(0, -1, -1, 0, 12_000), (0, -1, -1, 1, 30_000)]


def test_it_is_an_upper_bound_where_a_rank_recorded_nothing() -> None:
    ours = [all_reduce(1).seen(0, 50_000), all_reduce(2).after(1).seen(60_000, 90_000)]
    theirs = [all_reduce(1).seen(40_000, 52_000), all_reduce(2).after(1)]
    found = build_job(trace_of(ours, theirs), WorkloadSettings()).baselines
    assert found is not None
    assert (found.recorded_ns.tolist(), found.recorded_ranks.tolist()) == ([12_000, 30_000], [2, 1])
    assert baselines([all_reduce(1)], [all_reduce(1)]) is None


def test_durations_of_et_files_are_enough() -> None:
    ranks = [[replace(all_reduce(1), duration_us=us)] for us in (300, 7, 120)]
    assert baselines(*ranks) == [(0, -1, -1, 0, 7_000)]


def test_a_send_and_its_receive_have_one() -> None:
    found = baselines([send(1, 1).seen(5_000, 9_000)], [recv(1, 0).seen(0, 9_500)])
    assert found == [(-1, 0, 1, 0, 4_500)]


def test_a_rank_that_stands_in_for_others_gives_an_upper_bound() -> None:
    settings = WorkloadSettings(replicate_ranks=3)
    found = build_job(trace_of([all_reduce(1).seen(0, 50_000)]), settings).baselines
    assert found is not None
    assert (found.recorded_ns.tolist(), found.recorded_ranks.tolist()) == ([50_000], [1])


@pytest.mark.skipif(not PROJECTION.exists(), reason="the shared traces are not here")
def test_the_recording_of_eight_gpus_gives_its_known_times() -> None:
    ranks = json.loads(PROJECTION.read_text())["ranks"]
    kinds = {"all_to_all": CollectiveKind.ALL_TO_ALL, "all_to_allv": CollectiveKind.ALL_TO_ALL}
    nodes = []
    for rank in range(8):
        row: list[HandNode] = []
        for number, one in enumerate(ranks[str(rank)], 1):
            kind = kinds.get(one["op"], CollectiveKind.ALL_REDUCE)
            begin_ns = one["ts"] * 1000
            node = collective(number, kind, 4096).on_stream(one["stream"])
            row.append(node.seen(begin_ns, begin_ns + one["dur"] * 1000))
        nodes.append(row)
    found = baselines(*nodes)
    assert found is not None
    assert [row[-1] // 1000 for row in found] == [11, 8, 8, 8, 87, 11, 23, 69]


RECORDED = RecordedBaselines(
    communicator=np.array([1, -1, 0], np.int32),
    src_rank=np.array([-1, 0, -1], np.int32),
    dst_rank=np.array([-1, 3, -1], np.int32),
    sequence=np.array([0, 0, 7], np.int32),
    recorded_ns=np.array([4_000, 11_000, 99], np.int64),
    recorded_ranks=np.array([1, 2, 4], np.int32),
)
"""Of the all-gather, of the send, and of an operation that the plan does not have."""


def test_every_row_of_the_results_has_its_baseline_or_null() -> None:
    tables = replace(tables_by_hand(), baselines=RECORDED)
    found = measure(outcome_by_hand(), tables, connection_rows_by_hand())
    table = collectives_table(tables, found.groups, found.collectives).to_pydict()
    rows = zip(table["iteration"], table["kind"], table["recorded_ns"], strict=True)
    assert [row for row in rows if row[0] == 0] == [
        (0, "all_reduce", None),
        (0, "all_gather", 4_000),
        (0, "send_recv", 11_000),
    ]


def test_the_table_shows_the_replay_beside_the_recording() -> None:
    tables = replace(tables_by_hand(), baselines=RECORDED)
    summary = measure(outcome_by_hand(), tables, connection_rows_by_hand()).summary
    text = render(summary, "run")
    assert "all joined (us)" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if " -> " in line}
    assert lines["send_recv"][-3:] == ["20.000", "20.000", "11.000"]
    assert text.splitlines()[12].endswith("<= 4.000"), "one of its two ranks recorded it"
    assert summary.baselines.total == 2
    without = measure(outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary
    assert without.baselines == Baselines(0, ())
    assert "all joined" not in render(without, "run")


def test_a_plan_keeps_its_baselines() -> None:
    tables = replace(tables_by_hand(), baselines=RECORDED)
    again = plan_from_json(plan_to_json(tables), "plan.json").baselines
    assert again is not None
    assert again.recorded_ns.tolist() == RECORDED.recorded_ns.tolist()
    assert plan_from_json(plan_to_json(tables_by_hand()), "plan.json").baselines is None
