"""Names of communicators resolved through the group file: identity, order, and the world."""

from __future__ import annotations

from etloop.workload.job import build_job
from etloop.workload.trace.program import Communicator, Job
from etloop.workload.trace.settings import WorkloadSettings
from tests.support.traces.traces_by_hand import HandNode, all_reduce, trace_of


def job_of(*ranks: list[HandNode], groups: dict[str, tuple[int, ...]] | None = None) -> Job:
    return build_job(trace_of(*ranks, groups=groups), WorkloadSettings())


def test_only_communicators_in_use_are_kept_in_the_order_of_the_group_file() -> None:
    groups: dict[str, tuple[int, ...]] = {"z": (1, 0), "unused": (0, 1), "a": (0, 1)}
    nodes = [all_reduce(1, group="a"), all_reduce(2, group="z")]
    job = job_of(nodes, nodes, groups=groups)
    assert job.communicators == (Communicator(0, "z", (1, 0)), Communicator(1, "a", (0, 1)))


def test_two_names_over_the_same_ranks_are_two_communicators() -> None:
    nodes = [all_reduce(1, group="a"), all_reduce(2, group="b")]
    job = job_of(nodes, nodes, groups={"a": (0, 1), "b": (0, 1)})
    assert job.ranks[0].communicators == (0, 1)
    assert job.programs[0].sequence.tolist() == [0, 0]


def test_no_name_an_empty_name_and_zero_mean_all_ranks() -> None:
    nodes = [all_reduce(1), all_reduce(2, group=""), all_reduce(3, group="0")]
    job = job_of(nodes, nodes, nodes)
    assert job.communicators == (Communicator(0, "world", (0, 1, 2)),)
    assert job.programs[0].sequence.tolist() == [0, 1, 2]


def test_zero_means_what_the_group_file_says_if_it_says_so() -> None:
    nodes = [all_reduce(1, group="0")]
    job = job_of(nodes, nodes, [], groups={"0": (1, 0)})
    assert job.communicators == (Communicator(0, "0", (1, 0)),)


def test_the_implied_world_comes_last_and_keeps_a_name_of_its_own() -> None:
    nodes = [all_reduce(1), all_reduce(2, group="world")]
    job = job_of(nodes, nodes, groups={"world": (0, 1)})
    assert [one.name for one in job.communicators] == ["world", "world (implied)"]


def test_ranks_of_different_communicators_share_a_program_through_slots() -> None:
    left, right = [all_reduce(1, group="l")], [all_reduce(1, group="r")]
    job = job_of(left, left, right, right, groups={"l": (0, 1), "r": (2, 3)})
    assert len(job.programs) == 1
    assert [rank.communicators for rank in job.ranks] == [(0,), (0,), (1,), (1,)]


def test_a_communicator_of_one_rank_moves_nothing() -> None:
    alone, idle = [all_reduce(1, group="1"), all_reduce(2, group="1").after(1)], [all_reduce(9, group="2")]
    job = job_of(alone, idle, groups={"1": (0,), "2": (1,)})
    assert [len(program) for program in job.programs] == [0]
