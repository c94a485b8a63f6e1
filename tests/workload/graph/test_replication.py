"""One rank's trace standing in for others: only when asked for, and never in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.base.errors import ConfigError, Severity
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import MAX_REPLICAS, WorkloadSettings
from tests.support.traces.traces_by_hand import all_reduce, compute, send, trace_of

FOUR = WorkloadSettings(replicate_ranks=4)


def test_every_replica_runs_the_program_of_the_one_rank_and_the_report_says_so() -> None:
    job = build_job(trace_of([compute(1), all_reduce(2).after(1)]), FOUR)
    assert [(rank.rank, rank.program) for rank in job.ranks] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert [one.members for one in job.communicators] == [(0, 1, 2, 3)]
    assert job.notes[0] == (
        "ranks-replicated: hand: expected the traces of all 4 ranks, found 1 rank; "
        "it is replicated to 4 ranks (workload.replicate_ranks)"
    )


def test_more_than_one_rank_cannot_be_replicated() -> None:
    (finding,) = lint(trace_of([all_reduce(1)], [all_reduce(1)]), FOUR).errors
    assert finding.check is Check.RANKS_REPLICATED
    assert str(finding.problems()[0]) == (
        "hand: expected the trace of one rank to replicate, found 2 ranks; remove workload.replicate_ranks"
    )


def test_groups_that_leave_replicas_out_and_sends_are_errors_of_their_own() -> None:
    grouped = trace_of([all_reduce(1, group="tp")], groups={"tp": (0, 1)})
    assert Check.COMMUNICATOR_NOT_MEMBER in {one.check for one in lint(grouped, FOUR).errors}
    assert lint(grouped, WorkloadSettings(replicate_ranks=2)).replayable
    report = lint(trace_of([send(1, 1)]), FOUR)
    assert Check.PEER_SELF in {one.check for one in report.errors}


def test_groups_of_the_rank_alone_follow_it_and_the_default_group_grows() -> None:
    trace = trace_of([all_reduce(1, group="0"), all_reduce(2, group="own")])
    (rank,) = trace.ranks
    recorded = replace(trace, ranks=(replace(rank, groups={"0": (0,), "own": (0,)}),))
    job = build_job(recorded, WorkloadSettings(replicate_ranks=2))
    assert sorted((one.name, one.members) for one in job.communicators) == [
        ("0", (0, 1)),
        ("own", (0,)),
        ("own", (1,)),
    ]


def test_a_trace_is_not_replicated_unless_asked_for() -> None:
    report = lint(trace_of([all_reduce(1)]), WorkloadSettings())
    assert report.ranks == 1
    assert Check.RANKS_REPLICATED not in {one.check for one in report.findings}
    assert lint(trace_of([all_reduce(1)]), FOUR).of(Severity.WARNING)


@pytest.mark.parametrize("count", [0, 1, MAX_REPLICAS + 1])
def test_how_many_ranks_is_checked(count: int) -> None:
    with pytest.raises(ConfigError, match=r"expected 2 to 65536 ranks, got .*; write 2 to 65536"):
        WorkloadSettings(replicate_ranks=count)
