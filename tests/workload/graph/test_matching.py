"""Operations of different ranks joined: collectives by use, sends with receives, numbers that never deadlock."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.job import build_job
from etloop.workload.trace.program import Job, OpKind
from etloop.workload.trace.settings import DependencyPolicy, WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.traces_by_hand import (
    HandNode,
    all_reduce,
    collective,
    compute,
    recv,
    send,
    trace_of,
)

DATA_ONLY = WorkloadSettings(dependencies=DependencyPolicy.DATA)
WITHOUT_TIMES = [policy for policy in DependencyPolicy.every() if not policy.recorded]


def numbers(job: Job, rank: int) -> dict[int, int]:
    """Sequence number by node id of a rank's network operations."""
    ours = job.ranks[rank]
    program = job.programs[ours.program]
    return {
        int(node): int(program.sequence[op])
        for op, node in enumerate(ours.node_id)
        if program.kind[op] != OpKind.DELAY
    }


def test_the_kth_use_of_a_communicator_is_one_operation_whatever_the_ids_and_file_order() -> None:
    job = build_job(
        trace_of(
            [all_reduce(1, 8), all_reduce(2, 16)],
            [all_reduce(70, 16), all_reduce(30, 8)],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 0) == {1: 0, 2: 1}
    assert numbers(job, 1) == {30: 0, 70: 1}


def test_issue_order_counts_not_id_order_when_dependencies_say_otherwise() -> None:
    job = build_job(
        trace_of(
            [all_reduce(1, 8).after(2), all_reduce(2, 16)],
            [all_reduce(1, 16), all_reduce(2, 8).after(1)],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 0) == {2: 0, 1: 1}
    assert numbers(job, 1) == {1: 0, 2: 1}


def test_a_key_used_again_pairs_in_order_and_tags_keep_messages_apart() -> None:
    job = build_job(
        trace_of(
            [send(1, 1, 8, tag=5), send(2, 1, 16, tag=6), send(3, 1, 24, tag=5)],
            [recv(1, 0, 16, tag=6), recv(2, 0, 8, tag=5), recv(3, 0, 24, tag=5)],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 0) == {1: 0, 2: 1, 3: 2}
    assert numbers(job, 1) == {2: 0, 1: 1, 3: 2}


def test_without_tags_the_kth_send_goes_with_the_kth_receive() -> None:
    job = build_job(
        trace_of(
            [send(1, 1, 8).without("comm_tag"), send(2, 1, 16).without("comm_tag")],
            [recv(5, 0, 8).without("comm_tag"), recv(6, 0, 16).without("comm_tag")],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 1) == {5: 0, 6: 1}


def test_sends_are_numbered_in_the_order_in_which_they_can_really_leave() -> None:
    # Node 2 has the smaller id, but waits for an answer that only node 3 makes possible.
    job = build_job(
        trace_of(
            [recv(1, 1), send(2, 1, tag=1).after(1), send(3, 1, tag=2)],
            [recv(1, 0, tag=2), send(2, 0).after(1), recv(3, 0, tag=1)],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 0) == {1: 0, 2: 1, 3: 0}


def test_messages_are_numbered_so_that_both_ends_can_take_them_in_turn() -> None:
    # The sender could begin with either, the receiver cannot take the second before the first.
    job = build_job(
        trace_of(
            [send(1, 1, tag=2), send(2, 1, tag=1)],
            [recv(1, 0, tag=1), recv(2, 0, tag=2).after(1)],
        ),
        WorkloadSettings(),
    )
    assert numbers(job, 0) == {1: 1, 2: 0}
    assert numbers(job, 1) == {1: 0, 2: 1}


def test_without_stream_order_a_communicator_is_numbered_in_an_order_that_all_ranks_can_follow() -> None:
    ranks = (
        [all_reduce(1, group="b"), all_reduce(2, 8, group="a").after(1), all_reduce(3, 16, group="a")],
        [all_reduce(1, 8, group="a"), all_reduce(2, 16, group="a"), all_reduce(3, group="b").after(2)],
    )
    job = build_job(trace_of(*ranks, groups={"a": (0, 1), "b": (0, 1)}), DATA_ONLY)
    assert numbers(job, 0) == {1: 0, 2: 1, 3: 0}
    assert numbers(job, 1) == {1: 1, 2: 0, 3: 0}


def test_both_reduce_scatters_of_the_schema_are_one() -> None:
    job = build_job(
        trace_of(
            [collective(1, CollectiveKind.REDUCE_SCATTER, 64)],
            [collective(1, CollectiveKind.REDUCE_SCATTER_BLOCK, 64)],
        ),
        WorkloadSettings(),
    )
    assert job.programs[0].collective.tolist() == [CollectiveKind.REDUCE_SCATTER]


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens in a whole job: a collective of a group, a message, or compute on one rank."""

    group: int | None
    src: int
    dst: int


GROUPS = {"all": (0, 1, 2, 3), "low": (0, 1), "odd": (3, 1)}


def trace_from(steps: list[Step], draw: Random) -> Trace:
    """Nodes of each rank in the order of the steps, with some dependencies on earlier ones: never a deadlock."""
    ranks: list[list[HandNode]] = [[], [], [], []]

    def add(rank: int, node: HandNode) -> None:
        earlier = [one.node_id for one in ranks[rank]]
        ranks[rank].append(node.after(*draw.sample(earlier, min(len(earlier), draw.randrange(3)))))

    for number, step in enumerate(steps):
        if step.group is not None:
            name = list(GROUPS)[step.group]
            for member in GROUPS[name]:
                add(member, all_reduce(number, 8 * number + 8, group=name))
        elif step.src == step.dst:
            add(step.src, compute(number, number % 3))
        else:
            add(step.src, send(number, step.dst, 8 * number, tag=draw.randrange(2)))
            add(step.dst, replace_tag(recv(number, step.src, 8 * number), ranks[step.src][-1]))
    return trace_of(*ranks, groups=GROUPS)


def replace_tag(receive: HandNode, sent: HandNode) -> HandNode:
    return receive.having(comm_tag=sent.attributes["comm_tag"])


STEPS = st.lists(
    st.builds(
        Step,
        group=st.one_of(st.none(), st.integers(0, 2)),
        src=st.integers(0, 3),
        dst=st.integers(0, 3),
    ),
    max_size=14,
)


@given(STEPS, st.integers(0, 1 << 16), st.sampled_from(WITHOUT_TIMES))
def test_jobs_run_to_their_end_when_every_number_is_taken_strictly_in_turn(
    steps: list[Step], seed: int, policy: DependencyPolicy
) -> None:
    trace = trace_from(steps, Random(seed))
    job = build_job(trace, WorkloadSettings(dependencies=policy))
    assert left_over(job) == 0


def left_over(job: Job) -> int:
    """Operations that never finish when communicators and (src, dst) pairs are served strictly by number."""
    done: set[tuple[int, int]] = set()
    served: dict[tuple[str, int, int], int] = {}
    progress = True
    while progress:
        progress = False
        arrived: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}
        for rank in job.ranks:
            program = job.programs[rank.program]
            for op in range(len(program)):
                deps = program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]]
                if (rank.rank, op) in done or any((rank.rank, int(one)) not in done for one in deps):
                    continue
                kind, slot = OpKind(int(program.kind[op])), int(program.slot[op])
                if kind is OpKind.DELAY:
                    done.add((rank.rank, op))
                    progress = True
                    continue
                if kind is OpKind.COLLECTIVE:
                    queue = ("c", rank.communicators[slot], 0)
                elif kind is OpKind.SEND:
                    queue = ("s", rank.rank, rank.peers[slot])
                else:
                    queue = ("r", rank.peers[slot], rank.rank)
                arrived.setdefault(queue, []).append((int(program.sequence[op]), rank.rank, op))
        for queue, waiting in arrived.items():
            turn = served.get(queue, 0)
            now = [(rank, op) for number, rank, op in waiting if number == turn]
            needed = len(job.communicators[queue[1]].members) if queue[0] == "c" else 1
            sent = queue[0] != "r" or served.get(("s", *queue[1:]), 0) > turn
            if len(now) == needed and sent:
                done.update(now)
                served[queue] = turn + 1
                progress = True
    return sum(len(job.programs[rank.program]) for rank in job.ranks) - len(done)


@given(STEPS, st.integers(0, 1 << 16))
def test_both_ends_agree_on_number_and_bytes(steps: list[Step], seed: int) -> None:
    job = build_job(trace_from(steps, Random(seed)), WorkloadSettings())
    sides: dict[tuple[int, int, int, int], list[int]] = {}
    for rank in job.ranks:
        program = job.programs[rank.program]
        for op in np.flatnonzero(program.kind != OpKind.DELAY).tolist():
            kind, slot = OpKind(int(program.kind[op])), int(program.slot[op])
            if kind is OpKind.COLLECTIVE:
                key = (0, rank.communicators[slot], -1, int(program.sequence[op]))
            else:
                ends = (rank.rank, rank.peers[slot]) if kind is OpKind.SEND else (rank.peers[slot], rank.rank)
                key = (1, *ends, int(program.sequence[op]))
            sides.setdefault(key, []).append(int(program.message_bytes[op]))
    for key, seen in sides.items():
        members = 2 if key[0] else len(job.communicators[key[1]].members)
        assert len(seen) == members
        assert len(set(seen)) == 1
