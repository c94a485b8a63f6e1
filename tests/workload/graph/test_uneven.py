"""Uneven collectives that state no splits: refused with the right remedy, or split as the user chose."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import TraceError
from etloop.contract.base.units import QuantityError
from etloop.workload.graph.analysis import analyse
from etloop.workload.graph.uneven import drawn_rows
from etloop.workload.job import build_job
from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.trace.findings import Check
from etloop.workload.trace.program import Communicator, Job
from etloop.workload.trace.settings import Uneven, UnevenChoice, WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.json_traces_by_hand import comms, groups, host, tensor
from tests.support.traces.splits_by_hand import with_splits
from tests.support.traces.traces_by_hand import all_reduce, collective, trace_of

EVEN = WorkloadSettings(uneven=Uneven(UnevenChoice.EVEN))
SKEW = WorkloadSettings(uneven=Uneven.parse("skew=2,seed=5"))
A2A, GATHER, SCATTER = CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


def of_sizes(kind: CollectiveKind, *sizes: int) -> Trace:
    return trace_of(*([collective(1, kind, size)] for size in sizes))


def matrix_of(job: Job) -> list[list[int]]:
    (matrix,) = job.splits
    return matrix.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [A2A, GATHER, SCATTER], ids=lambda kind: kind.name)
def test_without_a_choice_the_remedy_names_it(kind: CollectiveKind) -> None:
    with pytest.raises(TraceError) as raised:
        build_job(of_sizes(kind, 30, 60, 90), WorkloadSettings())
    assert "if uneven sizes are intended" in str(raised.value)
    assert "workload.uneven (--uneven) even or skew" in str(raised.value)


def test_other_collectives_of_different_sizes_are_a_mistake_with_any_choice() -> None:
    with pytest.raises(TraceError) as raised:
        build_job(trace_of([all_reduce(1, 64)], [all_reduce(1, 128)]), EVEN)
    assert "must issue the same operations in the same order: correct the exporter" in str(raised.value)
    assert "uneven" not in str(raised.value)


CHOSEN = [
    (A2A, [[10, 10, 10], [20, 20, 20], [30, 30, 30]], "each splits its own buffer"),
    (GATHER, [[30, 30, 30], [60, 60, 60], [90, 90, 90]], "each brings all it has to every other"),
    (SCATTER, [[30, 60, 90], [30, 60, 90], [30, 60, 90]], "each gets as much as it states"),
]


@pytest.mark.parametrize(("kind", "matrix", "why"), CHOSEN, ids=[row[2] for row in CHOSEN])
def test_even_splits(kind: CollectiveKind, matrix: list[list[int]], why: str) -> None:
    job = build_job(of_sizes(kind, 30, 60, 90), EVEN)
    assert matrix_of(job) == matrix, why
    for rank in range(3):
        program = job.programs[job.ranks[rank].program]
        assert program.collective.tolist() == [A2A]
        assert program.message_bytes.tolist() == [sum(matrix[rank])]


def test_what_is_assumed_is_told() -> None:
    trace = trace_of(*([collective(1, A2A, size), collective(2, A2A, 64)] for size in (30, 60, 90)))
    (finding,) = [one for one in analyse(trace, EVEN).findings if one.check is Check.UNEVEN_ASSUMED]
    assert finding.count == 1, "what is of one size on all members is split evenly anyway"
    assert finding.examples[0].found == "ALL_TO_ALL whose members contribute different sizes"
    assert finding.remedy.startswith("workload.uneven is even: all-to-all splits are even")


def test_skew_keeps_what_each_member_puts_in_and_repeats_by_its_seed() -> None:
    drawn = matrix_of(build_job(of_sizes(A2A, 30_000, 60_000, 90_000), SKEW))
    assert [sum(row) for row in drawn] == [30_000, 60_000, 90_000]
    assert drawn == matrix_of(build_job(of_sizes(A2A, 30_000, 60_000, 90_000), SKEW))
    other = WorkloadSettings(uneven=Uneven.parse("skew=2,seed=6"))
    assert drawn != matrix_of(build_job(of_sizes(A2A, 30_000, 60_000, 90_000), other))
    columns = sorted(sum(row[at] for row in drawn) for at in range(3))
    assert columns[2] > 2 * columns[0], "one member is more popular than another"


@given(st.lists(st.integers(0, 1 << 44), min_size=2, max_size=5), st.fractions(0, 16), st.integers(0, 9))
def test_drawn_rows_sum_to_what_is_put_in(sizes: list[int], skew: Fraction, seed: int) -> None:
    communicator = Communicator(0, "ep", tuple(range(len(sizes))))
    rows = drawn_rows(np.array([sizes]), communicator, Uneven(UnevenChoice.SKEW, skew, seed))
    assert rows.sum(axis=2).tolist() == [sizes]
    assert bool((rows >= 0).all())


def test_stated_rows_are_obeyed_whatever_was_chosen() -> None:
    rows = {(0, 1): (1, 29), (1, 1): (40, 20)}
    assert matrix_of(build_job(with_splits(of_sizes(A2A, 30, 60), rows), SKEW)) == [[1, 29], [40, 20]]


PARSED = [
    ("refused", "refused"),
    ("even", "even"),
    ("skew", "skew=1,seed=0"),
    ("skew=0.5", "skew=0.5,seed=0"),
    ("skew=1.25,seed=7", "skew=1.25,seed=7"),
]


@pytest.mark.parametrize(("text", "spelled"), PARSED)
def test_choices_are_written_as_they_are_read(text: str, spelled: str) -> None:
    assert str(Uneven.parse(text)) == spelled
    assert Uneven.parse(spelled) == Uneven.parse(text)


@pytest.mark.parametrize(
    "text", ["", "odd", "skew=", "skew=-1", "skew=1,seed=x", "skew=17", "even,seed=1", "skew=1e9"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        Uneven.parse(text)


def ranks_read(name: str, given_of: list[list[int]], made_of: list[list[int]]) -> Trace:
    """Ranks whose one operation has lists of tensors of so many elements."""
    ranks = []
    for rank, (put_in, made) in enumerate(zip(given_of, made_of, strict=True)):
        inputs = [tensor(10 + at, 100 + at, count) for at, count in enumerate(put_in)]
        outputs = [tensor(20 + at, 200 + at, count) for at, count in enumerate(made)]
        text = host(groups(3, {"pg_name": "0", "ranks": [0, 1, 2]}), comms(4, name, [inputs], [outputs]))
        ranks.append(rank_of((read_document(iter([text])),), "w", rank, 3, False)[0])
    return Trace("w", tuple(ranks), None)


def test_lists_of_a_host_trace_state_what_is_uneven() -> None:
    gathered = ranks_read("all_gather", [[1], [2], [3]], [[1, 2, 3]] * 3)
    assert matrix_of(build_job(gathered, WorkloadSettings())) == [[4, 4, 4], [8, 8, 8], [12, 12, 12]]
    reduced = ranks_read("reduce_scatter", [[1, 2, 3]] * 3, [[1], [2], [3]])
    assert matrix_of(build_job(reduced, WorkloadSettings())) == [[4, 8, 12]] * 3
    assert build_job(ranks_read("all_gather", [[2]] * 3, [[2, 2, 2]] * 3), WorkloadSettings()).splits == ()
    coalesced = ranks_read("reduce_scatter_tensor_coalesced", [[3, 6]] * 3, [[1, 2]] * 3)
    assert build_job(coalesced, WorkloadSettings()).splits == (), "several operations, each of even parts"


def test_lists_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(TraceError, match="the sender's and the receiver's split sizes must agree"):
        build_job(
            ranks_read("all_gather", [[1], [2], [3]], [[1, 2, 3], [1, 2, 4], [1, 2, 3]]), WorkloadSettings()
        )
    with pytest.raises(TraceError, match="all members must reduce parts of the same sizes"):
        build_job(
            ranks_read("reduce_scatter", [[1, 2, 3], [2, 1, 3], [1, 2, 3]], [[1], [2], [3]]),
            WorkloadSettings(),
        )
