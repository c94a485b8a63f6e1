"""Several jobs as one: each keeps its operations, groups and byte counts, in the order that rounds say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.contract.model.run import RecordedBaselines
from etloop.controller.inputs.scenario.loads import CollectiveLoad
from etloop.controller.plan.load_jobs import job_of as load_job
from etloop.workload.program.merge import BARRIER, Part, Together, side_by_side
from etloop.workload.trace.program import Job, OpKind
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, Msg, job_of

AR, A2A = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL
PAIR = job_of(2, Coll(AR, (0, 1), 64), Msg(0, 1, 32), Coll(AR, (0, 1), 96))
WIDE = job_of(4, Coll(A2A, (0, 1, 2, 3), 128), Coll(AR, (1, 3), 8), Msg(2, 0, 5))
JOBS = (PAIR, WIDE, job_of(3, Msg(0, 2, 7), Msg(0, 2, 9)))


def messages(job: Job, first_rank: int = 0, ranks: int = 0, prefix: str = "") -> Counter[tuple[object, ...]]:
    """What every rank of a range does on the network: kind, members or peer, bytes; ranks counted from the range's first."""
    found: Counter[tuple[object, ...]] = Counter()
    for rank in job.ranks[first_rank : first_rank + (ranks or len(job.ranks))]:
        program = job.programs[rank.program]
        for op in range(len(program)):
            kind, slot = OpKind(program.kind[op]), int(program.slot[op])
            where: object = None
            if kind is OpKind.COLLECTIVE:
                group = job.communicators[rank.communicators[slot]]
                if group.name == BARRIER:
                    continue
                where = (group.name.removeprefix(prefix), tuple(one - first_rank for one in group.members))
            elif kind is not OpKind.DELAY:
                where = rank.peers[slot] - first_rank
            else:
                continue
            found[
                rank.rank - first_rank,
                kind,
                int(program.collective[op]),
                where,
                int(program.message_bytes[op]),
            ] += 1
    return found


def end_of(job: Job) -> dict[tuple[int, int], int]:
    """Follows all ranks at once, op by op, collectives and pairs by their numbers: (rank, op) -> place in one possible order.

    Fails when nobody can go on: a deadlock, or numbers that do not fit.
    """
    done: dict[tuple[int, int], int] = {}
    waiting = {(rank.rank, op) for rank in job.ranks for op in range(len(job.programs[rank.program]))}
    while waiting:
        ready: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        for rank_number, op in waiting:
            rank = job.ranks[rank_number]
            program = job.programs[rank.program]
            deps = program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]].tolist()
            if any((rank_number, dep) not in done for dep in deps):
                continue
            kind, slot, number = OpKind(program.kind[op]), int(program.slot[op]), int(program.sequence[op])
            if kind is OpKind.DELAY:
                ready.setdefault(("delay", rank_number, op), []).append((rank_number, op))
            elif kind is OpKind.COLLECTIVE:
                ready.setdefault(("group", rank.communicators[slot], number), []).append((rank_number, op))
            else:
                pair = (
                    (rank_number, rank.peers[slot])
                    if kind is OpKind.SEND
                    else (rank.peers[slot], rank_number)
                )
                ready.setdefault(("pair", *pair, number), []).append((rank_number, op))
        finished = [
            op
            for key, ops in ready.items()
            if key[0] == "delay"
            or (key[0] == "pair" and len(ops) == 2)
            or (key[0] == "group" and len(ops) == len(job.communicators[int(str(key[1]))].members))
            for op in ops
        ]
        assert finished, f"nobody can go on: {sorted(waiting)[:5]}"
        for one in finished:
            done[one] = len(done)
            waiting.discard(one)
    return done


parts_strategy = st.lists(
    st.tuples(st.sampled_from(JOBS), st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=3
)


@given(parts_strategy, st.booleans())
def test_each_job_does_what_it_does_alone_as_often_as_asked(
    chosen: list[tuple[Job, int, int]], alone_too: bool
) -> None:
    parts = [Part(f"j{at}", job, passes, start) for at, (job, passes, start) in enumerate(chosen)]
    made = side_by_side(parts, alone_too=alone_too)
    phases = 2 if alone_too else 1
    for part, planned in zip(parts, made.jobs, strict=True):
        found = messages(made.job, planned.first_rank, planned.ranks, f"{part.name}/")
        alone = messages(part.job)
        assert found == Counter({key: count * part.passes * phases for key, count in alone.items()})
    assert len(end_of(made.job)) == sum(len(made.job.programs[rank.program]) for rank in made.job.ranks)


@given(parts_strategy, st.booleans())
def test_programs_are_in_order_and_numbers_are_whole(
    chosen: list[tuple[Job, int, int]], alone_too: bool
) -> None:
    parts = [Part(f"j{at}", job, passes, start) for at, (job, passes, start) in enumerate(chosen)]
    job = side_by_side(parts, alone_too=alone_too).job
    for program in job.programs:
        op_of_dep = np.repeat(np.arange(len(program)), np.diff(program.dep_offsets))
        assert (program.deps < op_of_dep).all()
        for kind in (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV):
            for slot in np.unique(program.slot[program.kind == kind]):
                numbers = program.sequence[(program.kind == kind) & (program.slot == slot)]
                assert sorted(numbers.tolist()) == list(range(len(numbers)))


def turns_in_order(made: Together) -> list[list[int]]:
    """Per job, the turns of its ops in one possible order of the whole."""
    order = sorted(end_of(made.job).items(), key=lambda item: item[1])
    found: list[list[int]] = [[] for _ in made.jobs]
    for (rank, op), _ in order:
        job = next(
            at for at, one in enumerate(made.jobs) if one.first_rank <= rank < one.first_rank + one.ranks
        )
        turn = int(made.turns[made.job.ranks[rank].program][op])
        if turn >= 0:
            found[job].append(turn)
    return found


def test_a_round_is_each_alone_then_all_together() -> None:
    made = side_by_side([Part("a", PAIR, 2), Part("b", WIDE, 1)], alone_too=True)
    assert made.phases == ((0,), (1,), (0, 1))
    assert [group.name for group in made.job.communicators][-1] == BARRIER
    assert made.job.communicators[-1].members == (0, 1, 2, 3, 4, 5)
    of_a, of_b = turns_in_order(made)
    assert list(dict.fromkeys(of_a)) == [0, 1, 4, 5], "phases 0 and 2, two passes each"
    assert list(dict.fromkeys(of_b)) == [1, 2], "phases 1 and 2"
    everyone = [made.job.programs[rank.program] for rank in made.job.ranks]
    assert {int((program.collective == CollectiveKind.BARRIER).sum()) for program in everyone} == {3}


def test_background_meets_nobody_and_goes_through_once() -> None:
    made = side_by_side(
        [Part("a", PAIR, 2), Part("b", WIDE, 2), Part("load", PAIR, background=True)], alone_too=True
    )
    assert made.phases == ((0,), (1,), (0, 1))
    assert BARRIER not in {made.job.communicators[group].name for group in made.job.ranks[6].communicators}
    assert messages(made.job, 6, 2, "load/") == messages(PAIR)


def test_a_late_job_waits_only_where_others_are() -> None:
    made = side_by_side([Part("a", PAIR), Part("b", WIDE, start_ns=70)], alone_too=True)
    program = made.job.programs[made.job.ranks[2].program]
    waits = np.flatnonzero(program.delay_ns == 70)
    assert len(waits) == 1
    barriers = np.flatnonzero(program.collective == CollectiveKind.BARRIER)
    assert barriers[1] < waits[0] < barriers[2]


def test_compute_stays_before_its_op() -> None:
    job = load_job(CollectiveLoad(AR, 2, 64, 2, 11), "")
    made = side_by_side([Part("a", job, 2), Part("b", PAIR)], alone_too=False)
    program = made.job.programs[made.job.ranks[0].program]
    assert program.delay_ns.tolist() == [11, 0] * 4
    assert program.kind.tolist() == [OpKind.DELAY, OpKind.COLLECTIVE] * 4
    assert program.deps.tolist() == list(range(7))


def test_recordings_are_repeated_with_the_numbers_of_each_pass() -> None:
    recorded = RecordedBaselines(
        communicator=np.array([0, 0], np.int32),
        src_rank=np.array([-1, -1], np.int32),
        dst_rank=np.array([-1, -1], np.int32),
        sequence=np.array([0, 1], np.int32),
        recorded_ns=np.array([5, 6], np.int64),
        recorded_ranks=np.array([2, 2], np.int32),
    )
    with_times = Job(**{name: getattr(PAIR, name) for name in PAIR.__slots__} | {"baselines": recorded})
    made = side_by_side([Part("w", WIDE), Part("a", with_times, 2)], alone_too=False)
    baselines = made.job.baselines
    assert baselines is not None
    assert baselines.communicator.tolist() == [len(WIDE.communicators)] * 4
    assert baselines.sequence.tolist() == [0, 1, 2, 3]
    assert baselines.recorded_ns.tolist() == [5, 6, 5, 6]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Part("a", PAIR, 10_000_000), Part("b", WIDE)], "jobs: one round has [0-9]+ operations summed over all ranks"),
        ([Part("a", job_of(1025, Coll(AR, (0, 1), 8)))], "rounds: rounds end with a barrier of all foreground ranks; got 1025"),
    ],
)  # fmt: skip
def test_too_much_is_refused(parts: list[Part], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        side_by_side(parts, alone_too=True)
