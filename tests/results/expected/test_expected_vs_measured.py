"""Ideal, twin and measured beside each other: figures by hand, reasons for doubt, and what is kept in a run directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from etloop.contract.base.errors import InputError
from etloop.contract.base.ip_address import ip_bytes, ip_column
from etloop.contract.model.records import OP_RECORD
from etloop.contract.model.run import AgentRecords, ExpectedRun, RunOutcome
from etloop.results.artifacts import add_comparison
from etloop.results.expected.expected_vs_measured import compare, compared_rows, expected_rows
from etloop.results.measure.joined import match_ops
from etloop.results.measure.summary import Measurement, measure
from etloop.results.schema.columns import COMPARISON
from etloop.results.schema.summary import ComparisonSummary, KindComparison, Summary
from etloop.results.schema.typed_json import to_json
from etloop.results.store.run_dir import read_run, write_run
from etloop.results.text.expected import comparison_lines
from etloop.results.text.layout import WIDTH
from etloop.results.text.table import render
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    run_by_hand,
    tables_by_hand,
    with_agent,
)
from tests.support.runs.signing import sign_again

TABLES = tables_by_hand()
TIMES = ("intended_ns", "issued_ns", "completed_ns")


def expected(network: str, times: float, iterations: int = 2, **more: object) -> ExpectedRun:
    """The run by hand, with all its times so many times as long."""
    ops = match_ops(outcome_by_hand(), TABLES).records.copy()
    for name in TIMES:
        ops[name] = (ops[name] * times).astype(np.int64)
    for name in ("first_tx_ns", "acknowledged_ns"):
        ops[name] = np.maximum(ops[name], 0)
    ops = ops[ops["iteration"] < iterations]
    run = ExpectedRun(network, "packet" if network == "twin" else "flow", "", iterations, ops, 0, "", {})
    return replace(run, **more)  # type: ignore[arg-type]


def measured(outcome: RunOutcome | None = None) -> Measurement:
    return measure(outcome or outcome_by_hand(), TABLES, connection_rows_by_hand())


def compared(
    *runs: ExpectedRun, outcome: RunOutcome | None = None, absent: tuple[str, ...] = ()
) -> ComparisonSummary:
    measurement = measured(outcome)
    rows = [expected_rows(run, TABLES, measurement.groups) for run in runs]
    return compare(measurement, TABLES, rows, absent)


def kind(comparison: ComparisonSummary, name: str) -> KindComparison:
    (found,) = (each for each in comparison.kinds if each.kind == name)
    return found


def test_times_stand_beside_each_other() -> None:
    comparison = compared(expected("ideal", 0.5), expected("twin", 0.8))
    job = comparison.job
    assert (job.ideal and job.ideal.iteration_jct_avg_ns) == job.measured.iteration_jct_avg_ns // 2  # type: ignore[operator]
    assert job.measured_per_ideal == 2
    assert job.measured_per_twin == pytest.approx(1.25, rel=1e-4)
    for each in comparison.kinds:
        assert each.measured_per_ideal == 2, each.kind
        assert each.measured_per_twin == pytest.approx(1.25, rel=1e-4), each.kind
        assert each.ideal
        assert each.ideal.count == each.measured.count == 2
        # busbw is of the same bytes in half the time.
        assert each.ideal.busbw_bytes_per_s == pytest.approx(2 * (each.measured.busbw_bytes_per_s or 0))


def test_measured_figures_are_those_of_the_summary() -> None:
    comparison, summary = compared(), measured().summary
    assert {each.kind: each.measured.time_avg_ns for each in comparison.kinds} == {
        each.kind: each.time_avg_ns for each in summary.kinds
    }
    assert {each.kind: each.measured.busbw_bytes_per_s for each in comparison.kinds} == {
        each.kind: each.busbw_bytes_per_s for each in summary.kinds
    }
    assert comparison.job.measured.iteration_jct_avg_ns == summary.job.iteration_jct_avg_ns
    assert comparison.job.ideal is comparison.job.twin is None
    assert comparison.job.measured_per_ideal is None


def test_a_comparison_of_like_with_like_has_no_reason_for_doubt() -> None:
    outcome = outcome_by_hand()
    for name in ("a", "b"):
        outcome = with_agent(outcome, name, lambda agent: replace(agent, degraded=(), clock_error_ns=0))
    comparison = compared(expected("ideal", 0.5), expected("twin", 0.8), outcome=without_lateness(outcome))
    assert comparison.job.degraded == ()
    assert [each.degraded for each in comparison.kinds] == [()] * 3


def without_lateness(outcome: RunOutcome) -> RunOutcome:
    def punctual(agent: AgentRecords) -> AgentRecords:
        ops, ports = agent.ops.copy(), agent.ports.copy()
        ops["intended_ns"] = ops["issued_ns"]
        ports["receive_overflows"] = ports["injected_drops"] = 0
        return replace(agent, ops=ops, ports=ports)

    return replace(outcome, agents=tuple(map(punctual, outcome.agents)))


def test_an_aborted_run_is_told_and_compared_as_far_as_it_came() -> None:
    comparison = compared(expected("ideal", 0.5), outcome=aborted_by_hand())
    assert "the run was aborted; measured are the operations completed until then" in comparison.job.degraded
    counts = [(each.ideal.count, each.measured.count) for each in comparison.kinds if each.ideal]
    assert any(done < planned for planned, done in counts)


REASONS = (
    (
        expected("ideal", 1.5),
        "the job was faster than its ports' rates allow: the rig file states them too low",
    ),
    (expected("twin", 0.5, iterations=1), "twin is of the first 1 of 2 iterations"),
    (
        expected("twin", 0.5, failure="the time limit was reached"),
        "twin did not finish: the time limit was reached",
    ),
    (expected("twin", 0.5, level="flow", notes=("pauses",)), "the twin knows no packets: pauses"),
)


@pytest.mark.parametrize(("run", "reason"), REASONS, ids=[reason for _, reason in REASONS])
def test_what_makes_a_comparison_doubtful_is_said(run: ExpectedRun, reason: str) -> None:
    assert reason in compared(run).job.degraded


def test_lateness_and_clocks_are_held_against_each_kind() -> None:
    late = with_agent(outcome_by_hand(), "a", lambda agent: replace(agent, clock_error_ns=50_000))
    reasons = kind(compared(expected("ideal", 0.5), outcome=late), "all_reduce").degraded
    assert "clocks of agents are only known to more than 10% of its time" in reasons


@pytest.mark.parametrize("address", ["127.0.3.1", "::1"])
def test_loopback_is_no_device(address: str) -> None:
    connections = TABLES.connections
    many = ip_column(ip_bytes(address) for _ in range(len(connections.src_rank)))
    tables = replace(TABLES, connections=replace(connections, src_ip=many))
    comparison = compare(measured(), tables, [], ())
    assert (
        "ports have loopback addresses: what was measured is this machine, not a device"
        in comparison.job.degraded
    )
    assert not any("loopback" in reason for reason in compared().job.degraded)


def test_collectives_stand_beside_each_other_one_by_one() -> None:
    measurement = measured()
    rows = [
        expected_rows(run, TABLES, measurement.groups)
        for run in (expected("ideal", 0.5), expected("twin", 1, 1))
    ]
    found = compared_rows(measurement, rows)
    assert len(found.iteration) == 6
    assert np.array_equal(found.measured_ns, 2 * found.ideal_ns)
    assert np.array_equal(found.twin_ns[found.iteration == 0], found.measured_ns[found.iteration == 0])
    assert np.all(found.twin_ns[found.iteration == 1] == -1)


def test_an_op_that_the_plan_does_not_know_counts_for_nothing() -> None:
    run = expected("ideal", 0.5)
    strange = np.zeros(1, OP_RECORD)
    strange["rank"], strange["op"] = 3, 77
    comparison = compared(replace(run, ops=np.concatenate([run.ops, strange])))
    assert comparison.expected[0].complete
    assert comparison.job.measured_per_ideal == 2


# ---- run directories


def left(tmp_path: Path, *runs: ExpectedRun) -> tuple[Path, Summary]:
    run = run_by_hand(tables=TABLES)
    write_run(tmp_path, run)
    found = add_comparison(run, measured(), runs, ("twin: no topology",))
    write_run(tmp_path, found, run)
    return tmp_path, found.summary


def test_a_comparison_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run_dir, summary = left(tmp_path, expected("ideal", 0.5))
    assert read_run(run_dir).summary == summary
    assert summary.comparison
    assert summary.comparison.absent == ("twin: no topology",)
    table = pq.read_table(run_dir / "comparison.parquet")
    assert table.schema.names == [column.name for column in COMPARISON]
    assert table["twin_ns"].null_count == len(table)
    assert [path.name for path in run_dir.iterdir() if "summary" in path.name] == ["summary.json"]


def test_a_summary_of_before_there_were_comparisons_is_still_read(tmp_path: Path) -> None:
    run_dir, summary = left(tmp_path)
    kept = json.loads((run_dir / "summary.json").read_text())
    del kept["comparison"]
    (run_dir / "summary.json").write_text(json.dumps(kept))
    (run_dir / "comparison.parquet").unlink()
    sign_again(run_dir)
    assert read_run(run_dir).summary == replace(summary, comparison=None)


def test_a_damaged_comparison_is_refused_by_its_place(tmp_path: Path) -> None:
    run_dir, summary = left(tmp_path, expected("ideal", 0.5))
    damaged = json.loads(to_json(summary))
    damaged["comparison"]["kinds"][0]["measured"]["count"] = "two"
    (run_dir / "summary.json").write_text(json.dumps(damaged))
    sign_again(run_dir)
    with pytest.raises(
        InputError, match=r"summary\.json\.comparison\.kinds\[0\]\.measured\.count: expected an integer"
    ):
        read_run(run_dir)


# ---- the table


def test_the_table_has_all_three_and_marks_what_is_doubtful() -> None:
    lines = comparison_lines(
        compared(expected("ideal", 1.5), expected("twin", 0.5), absent=("this: and why",))
    )
    text = "\n".join(lines)
    (job,) = (line for line in lines if line.startswith("job, an iteration"))
    assert job.split()[-2:] == ["~0.67", "~2.00"]
    assert "not compared    this: and why" in text
    assert "~ degraded      the job was faster than its ports' rates allow" in text
    assert max(map(len, lines)) <= WIDTH


def test_a_ratio_is_marked_only_where_there_is_a_reason() -> None:
    outcome = without_lateness(outcome_by_hand())
    for name in ("a", "b"):
        outcome = with_agent(outcome, name, lambda agent: replace(agent, degraded=(), clock_error_ns=0))
    lines = comparison_lines(compared(expected("ideal", 0.5), outcome=outcome))
    (job,) = (line for line in lines if line.startswith("job, an iteration"))
    assert job.split()[-2:] == ["2.00", "-"]
    assert not any(line.startswith("~") for line in lines)


def test_counters_of_the_twin_are_told() -> None:
    counters = {"ecn_marked_packets": 12, "pfc_tx_frames": 3, "dropped_packets": 0, "trimmed_packets": 0}
    lines = comparison_lines(compared(expected("twin", 0.5, described_by="t.yaml", counters=counters)))
    text = " ".join(" ".join(lines).split())
    assert (
        "twin t.yaml, packet by packet; 12 packets marked, 3 PFC frames, 0 packets dropped, 0 trimmed" in text
    )


def test_a_run_that_was_not_compared_has_no_such_table() -> None:
    summary = measured().summary
    assert "/ideal" not in render(summary, "run")
    assert "/ideal" in render(replace(summary, comparison=compared(expected("ideal", 0.5))), "run")


def test_what_an_expected_run_leaves_out_is_why_it_is_doubtful() -> None:
    without = expected("ideal", 0.5, notes=("without background of plain UDP (bulk)",))
    assert "ideal is without background of plain UDP (bulk)" in compared(without).job.degraded
