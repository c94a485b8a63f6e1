"""Several jobs in one run, worked out on paper: the run by hand, its ranks given to two jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from etloop.contract.model.run import PlannedJob, PlannedJobs, PlanTables
from etloop.results.artifacts import kpi_input
from etloop.results.kpis.input import of_jobs
from etloop.results.kpis.run_kpis import key_figures
from etloop.results.measure.summary import measure
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.summary import Summary
from etloop.results.schema.typed_json import RunDirError
from etloop.results.store.run_dir import read_artifacts, write_run
from etloop.results.text.table import render
from tests.results.kpis.test_key_figures import BASIS
from tests.support.runs.records_by_hand import (
    connection_rows_by_hand,
    outcome_by_hand,
    run_by_hand,
    tables_by_hand,
)

if TYPE_CHECKING:
    from pathlib import Path


def paired() -> PlanTables:
    """Ranks 0 and 1 are job a, 2 and 3 job b; the all-reduce stands for each alone, what follows for both together."""
    jobs = (PlannedJob("a", 0, 2, 1), PlannedJob("b", 2, 2, 1))
    turn = np.array([0, 2, 0, 2, 1, 2, 1, 2], np.int32)
    return replace(tables_by_hand(), several=PlannedJobs(jobs, ((0,), (1,), (0, 1)), turn))


def with_background() -> PlanTables:
    """Ranks 0 and 1 are the job, 2 and 3 background."""
    jobs = (PlannedJob("a", 0, 2, 1), PlannedJob("load", 2, 2, 1, background=True))
    return replace(tables_by_hand(), several=PlannedJobs(jobs, ((0,),), np.zeros(8, np.int32)))


def summary_of(tables: PlanTables) -> Summary:
    return measure(outcome_by_hand(), tables, connection_rows_by_hand()).summary


def test_interference_is_time_together_by_time_alone_of_the_same_round() -> None:
    a, b = summary_of(paired()).jobs
    assert (a.alone, a.together) != (None, None)
    assert a.alone is not None
    assert a.together is not None
    assert (a.alone.jct_avg_ns, a.together.jct_avg_ns) == (20_100, 20_000), "0 to 20.1 us; 20 to 40 us"
    assert a.interference == pytest.approx(20_000 / 20_100)
    assert b.alone is not None
    assert b.together is not None
    assert (b.alone.jct_avg_ns, b.together.jct_avg_ns) == (19_950, 20_000), "0.05 to 20 us; 19 to 39 us"
    assert b.interference_by_round == pytest.approx((20_000 / 19_950, 20_000 / 19_950))
    assert (a.beside_share, b.beside_share) == pytest.approx((0.95, 0.95)), "20 to 39 us of 20 us"


def test_a_round_that_is_not_whole_gives_no_factor() -> None:
    outcome = outcome_by_hand()
    cut = [replace(agent, ops=agent.ops[:-1]) if agent.agent == "b" else agent for agent in outcome.agents]
    summary = measure(replace(outcome, agents=tuple(cut)), paired(), connection_rows_by_hand()).summary
    _, b = summary.jobs
    assert len(b.interference_by_round) == 1
    assert b.together is not None
    assert b.together.count == 1


def test_background_is_in_no_figure_of_the_job() -> None:
    summary = summary_of(with_background())
    assert (summary.ops.planned, summary.ops.recorded) == (8, 8), "four of an iteration are background's"
    assert [one.jct_ns for one in summary.job.per_iteration] == [40_000, 100_000]
    assert all(one.ops_recorded == 4 and one.complete for one in summary.job.per_iteration)
    assert summary.bytes.wire_tx_bytes == 2 * (500 + 6000 + 1000)
    assert summary.transport["tx_packets"] == 10 * 8, (
        "both ends of the four queue pairs that rank 0 or 1 sends on"
    )
    load = summary.jobs[1]
    assert load.background
    assert (load.alone, load.together, load.interference) == (None, None, None)


def test_background_that_ends_early_is_no_missing_op() -> None:
    outcome = outcome_by_hand()
    cut = [replace(agent, ops=agent.ops[:1]) if agent.agent == "b" else agent for agent in outcome.agents]
    measured = measure(replace(outcome, agents=tuple(cut)), with_background(), connection_rows_by_hand())
    assert measured.summary.ops.missing == 0
    (check,) = (one for one in measured.summary.checks if one.name == "all_ops_completed")
    assert (check.result, check.checked) == ("pass", 8)
    assert measured.summary.jobs[1].ops_recorded == 1


def test_tables_and_figures_of_a_run_directory(tmp_path: Path) -> None:
    write_run(tmp_path, run_by_hand(tables=paired()))
    rows = pq.read_table(tmp_path / "jobs.parquet").to_pylist()
    assert len(rows) == 8, "two rounds, two jobs, two phases"
    assert {(one["job"], one["phase"], one["jct_ns"]) for one in rows} == {
        ("a", "alone", 20_100), ("a", "together", 20_000), ("b", "alone", 19_950), ("b", "together", 20_000),
    }  # fmt: skip
    ops = pq.read_table(tmp_path / "ops.parquet").to_pylist()
    assert [(one["job"], one["phase"], one["pass"]) for one in ops[:2]] == [
        ("a", "alone", 0),
        ("a", "together", 0),
    ]
    run = read_artifacts(tmp_path)
    kpis = key_figures(kpi_input(run, BASIS), BASIS)
    assert kpis.value("interference_max") == pytest.approx(20_000 / 19_950)
    assert kpis.value("roofline_ns") is None
    text = render(run.summary, "d")
    assert "interference factor" in text
    assert "0.995" in text


def test_conditions_see_jobs_without_background(tmp_path: Path) -> None:
    run = run_by_hand(tables=with_background())
    write_run(tmp_path, run)
    plan, frames = run.plan, read_artifacts(tmp_path).frames()
    assert frames["ops"].rows == 16
    found = of_jobs(frames, plan)
    assert found["ops"].rows == 8
    assert set(found["ops"].columns["rank"].tolist()) == {0, 1}
    assert "rank 1" in found["ops"].label(2)
    assert set(found["flows"].columns["src_rank"].tolist()) <= {0, 1}


def test_a_plan_comes_back_from_its_file() -> None:
    several = plan_from_json(plan_to_json(paired()), "plan.json").several
    wanted = paired().several
    assert several is not None
    assert wanted is not None
    assert (several.jobs, several.phases) == (wanted.jobs, wanted.phases)
    assert several.turn.tolist() == wanted.turn.tolist()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"first_rank": 2', '"first_rank": 3'),
        ('"passes": 1', '"passes": 0'),
        ('"turn": [0, 2,', '"turn": [0, 200,'),
        ('"turn": [0, 2,', '"turn": [0,'),
        ('"phases": [[0], [1], [0, 1]]', '"phases": [[0], [1], [0, 7]]'),
    ],
)
def test_a_damaged_plan_is_refused(right: str, wrong: str) -> None:
    text = plan_to_json(paired())
    assert right in text
    with pytest.raises(RunDirError, match="restore the file"):
        plan_from_json(text.replace(right, wrong, 1), "plan.json")
