"""Ranks of one role get the groups and peers that the script made for them; unlike ranks are an error."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.lint.report import lint
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.recording.device import Device, MeasuredTimes, OperatorTimes
from etloop.workload.recording.events import Communication, Group, RecordedRank, read_events
from etloop.workload.recording.graph import build_graph
from etloop.workload.recording.job import JobWriter, RecordedJob
from etloop.workload.recording.roles import Role, check_role, families_of, plan_roles
from etloop.workload.trace.settings import WorkloadSettings

TIMES = OperatorTimes(
    Device("d", "s", 8, Fraction(1), Fraction(1), {"float32": 1}), MeasuredTimes(), Fraction(1)
)


def operation(
    number: int, kind: str, group: str, *, peer: int | None = None, root: int | None = None
) -> Communication:
    return Communication(
        number, kind, group, 64, 16, "float32", None, root, peer, 0, (number,), (number,), 0, "", "a.py:9", ""
    )


def recording(rank: int, *operations: Communication, world: int = 8) -> RecordedRank:
    """Return a rank of a mesh of (stages 2, data world / 2)."""
    half = world // 2
    stages = [(low, low + half) for low in range(half)]
    data = [tuple(range(half)), tuple(range(half, world))]
    groups = [
        *(Group("p" if rank in members else "", members, "mesh_pp", "a.py:1") for members in stages),
        *(Group("d" if rank in members else "", members, "mesh_dp", "a.py:1") for members in data),
    ]
    return RecordedRank(rank, world, "2.13", tuple(groups), operations)


def stage(rank: int, world: int = 8) -> RecordedRank:
    """Return a rank that passes a message to the next stage, or receives it, and then reduces."""
    is_first = rank < world // 2
    message = operation(0, "send" if is_first else "recv", "p", peer=1 if is_first else 0)
    return recording(
        rank, message, operation(1, "all_reduce", "d"), operation(2, "broadcast", "d", root=1), world=world
    )


def test_roles_are_the_positions_in_groups_that_carry_messages() -> None:
    assert plan_roles(stage(0)) == (Role((0, 1, 2, 3)), Role((4, 5, 6, 7)))
    assert [role.recorded for role in plan_roles(stage(0))] == [(0, 3), (4, 7)]
    assert plan_roles(recording(0, operation(0, "all_reduce", "d"))) == (Role(tuple(range(8))),)
    known_earlier = replace(recording(0), staged=("p",))
    assert plan_roles(known_earlier) == plan_roles(stage(0))


def test_groups_made_twice_by_one_line_are_two_families() -> None:
    groups = [Group("", ranks, "", "a.py:1") for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))]
    assert [len(members) for members in families_of(groups).members.values()] == [2, 2]


def test_groups_that_do_not_divide_the_job_are_refused() -> None:
    lone = RecordedRank(0, 4, "", (Group("g", (0, 1, 2), "", "a.py:3"),), (operation(0, "all_reduce", "g"),))
    with pytest.raises(TraceError, match=r'a\.py:3: the groups "" do not divide the 4 ranks equally'):
        plan_roles(lone)


def test_unlike_ranks_of_a_role_are_reported_by_their_first_operation() -> None:
    check_role(stage(0), stage(3))
    other = replace(stage(3), events=(stage(3).operations[0], operation(1, "all_gather", "d")))
    with pytest.raises(
        TraceError, match=r"a\.py:9: ranks 0 and 3 of one role differ in operation 1: all_reduce .*all_gather"
    ):
        check_role(stage(0), other)
    shorter = replace(stage(3), events=stage(3).events[:2])
    with pytest.raises(TraceError, match="ranks 0 and 3 of one role issue 3 and 2 operations"):
        check_role(stage(0), shorter)


def test_a_job_by_role_is_the_job_of_all_ranks(tmp_path: Path) -> None:
    """The trace from four recorded ranks of 16 equals that from all of them, and can be replayed."""
    traces = []
    roles = plan_roles(stage(0, 16))
    for name, ranks in (("roles", (0, 7, 8, 15)), ("all", tuple(range(16)))):
        recordings = {rank: stage(rank, 16) for rank in ranks}
        graphs = {rank: build_graph(recorded, TIMES) for rank, recorded in recordings.items()}
        writer = JobWriter(RecordedJob(recordings, graphs, roles))
        write_trace(tmp_path / name, [writer.messages(rank) for rank in range(16)], writer.groups)
        traces.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert traces[0] == traces[1]
    trace = read_trace(tmp_path / "roles")
    assert trace.groups is not None
    assert trace.groups["mesh_dp.0.root1"] == (1, 2, 3, 4, 5, 6, 7, 0)
    assert lint(trace, WorkloadSettings()).replayable


def test_events_are_read_and_refusals_are_raised() -> None:
    lines = [
        '{"kind":"begin","rank":1,"world_size":2,"torch":"2.13"}',
        '{"kind":"text","number":0,"text":"m"}',
        '{"kind":"wait","operations":[0],"stream":0,"module":0}',
    ]
    assert read_events("rank 1", lines, partial=True).events[0].stream == 0
    with pytest.raises(TraceError, match="rank 1: ends before the script ended"):
        read_events("rank 1", lines)
    refusal = '{"kind":"refusal","place":"train.py:57","what":"no value","remedy":"declare it"}'
    with pytest.raises(TraceError, match=r"train\.py:57: no value; declare it"):
        read_events("rank 1", [*lines, refusal])
