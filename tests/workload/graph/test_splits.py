"""Split sizes from the ranks' rows to one matrix an operation: what is refused, what is shared, how they shrink."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import Severity, TraceError
from etloop.workload.graph import splits
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import Check
from etloop.workload.trace.program import Job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.splits_by_hand import PAIR, SPLIT_ERRORS, Matrix, all_to_all_v, with_splits
from tests.support.traces.traces_by_hand import all_reduce, collective, trace_of

SETTINGS = WorkloadSettings()
A2A = CollectiveKind.ALL_TO_ALL


def matrices_of(job: Job) -> list[list[list[int]]]:
    return [matrix.tolist() for matrix in job.splits]


def split_of(job: Job, rank: int) -> list[int]:
    """Matrix of each op of a rank."""
    column = job.ranks[rank].splits
    return [-1] * len(job.programs[job.ranks[rank].program]) if column is None else column.tolist()


@pytest.mark.parametrize(
    ("check", "trace", "text"), SPLIT_ERRORS, ids=[str(check) for check, _, _ in SPLIT_ERRORS]
)
def test_an_error_names_place_expectation_finding_and_cure(check: Check, trace: Trace, text: str) -> None:
    report = lint(trace, SETTINGS)
    assert [finding.check for finding in report.errors] == [check]
    with pytest.raises(TraceError) as raised:
        build_job(trace, SETTINGS)
    assert text in str(raised.value)


def test_more_splits_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "MAX_SPLITS", 7)
    with pytest.raises(TraceError) as raised:
        build_job(all_to_all_v(PAIR, ((1, 2), (3, 4))), SETTINGS)
    assert str(raised.value) == (
        "hand: expected uneven all-to-alls with at most 7 splits in total (members squared each), found more in 2 "
        "operations; replay fewer steps of the job"
    )


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("received", [True, False])
def test_every_rank_sends_its_row(sized: bool, received: bool) -> None:
    """comm_size may be left out, and so may what the ranks expect."""
    job = build_job(all_to_all_v(PAIR, sized=sized, received=received), SETTINGS)
    assert matrices_of(job) == [[[4, 8], [16, 32]]]
    for rank, total in enumerate((12, 48)):
        program = job.programs[job.ranks[rank].program]
        assert program.message_bytes.tolist() == [total]
        assert split_of(job, rank) == [0]


def test_equal_matrices_are_one_and_even_ones_are_none() -> None:
    other: Matrix = ((0, 12), (24, 24))
    job = build_job(all_to_all_v(PAIR, ((6, 6), (6, 6)), other, PAIR), SETTINGS)
    assert matrices_of(job) == [[[4, 8], [16, 32]], [[0, 12], [24, 24]]]
    assert split_of(job, 0) == split_of(job, 1) == [0, -1, 1, 0]


def test_an_even_buffer_of_another_size_on_each_rank_is_uneven() -> None:
    """Rank 0 puts in 12 bytes and rank 1 puts in 48, each of them halved."""
    job = build_job(all_to_all_v(((6, 6), (24, 24))), SETTINGS)
    assert matrices_of(job) == [[[6, 6], [24, 24]]]


def test_a_rank_without_a_row_splits_evenly() -> None:
    nodes = [[collective(1, A2A, size)] for size in (12, 30, 48)]
    job = build_job(with_splits(trace_of(*nodes), {(0, 1): (0, 12, 0)}), SETTINGS)
    assert matrices_of(job) == [[[0, 12, 0], [10, 10, 10], [16, 16, 16]]]


def test_sizes_may_only_differ_where_splits_are_stated() -> None:
    trace = trace_of(*[[collective(1, A2A, size), collective(2, A2A, size)] for size in (12, 30)])
    report = lint(with_splits(trace, {(0, 1): (6, 6)}), SETTINGS)
    assert [finding.check for finding in report.errors] == [Check.COLLECTIVE_DIFFERS]
    assert report.errors[0].examples[0].expected.startswith("operation 1 of communicator")


def test_expectations_alone_are_held_against_an_even_split() -> None:
    trace = trace_of(*[[collective(1, A2A, 8)]] * 2)
    assert build_job(with_splits(trace, {}, {(0, 1): (4, 4)}), SETTINGS).splits == ()
    with pytest.raises(TraceError, match="expected the 4 bytes that rank 1 node 1"):
        build_job(with_splits(trace, {}, {(0, 1): (4, 3)}), SETTINGS)


def test_ranks_share_a_program_if_their_messages_are_equal() -> None:
    """Rows of one sum differ in the matrix, not in the program."""
    job = build_job(all_to_all_v(((1, 2, 3), (3, 2, 1), (2, 2, 2))), SETTINGS)
    assert len(job.programs) == 1
    assert {rank.program for rank in job.ranks} == {0}


def test_communicators_have_matrices_of_their_own() -> None:
    """Members in an order of their own: splits are by position, not by rank."""
    groups: dict[str, tuple[int, ...]] = {"a": (2, 0), "b": (1, 3)}
    nodes = [[collective(1, A2A, 10, group)] for group in ("a", "b", "a", "b")]
    rows = {(0, 1): (3, 7), (2, 1): (0, 10), (1, 1): (3, 7), (3, 1): (0, 10)}
    job = build_job(with_splits(trace_of(*nodes, groups=groups), rows), SETTINGS)
    by_group = {group.name: index for index, group in enumerate(job.communicators)}
    found = {job.communicators[rank.communicators[0]].name: split_of(job, rank.rank)[0] for rank in job.ranks}
    assert matrices_of(job)[found["a"]] == [[0, 10], [3, 7]]
    assert matrices_of(job)[found["b"]] == [[3, 7], [0, 10]]
    assert set(by_group) == {"a", "b"}


def test_a_communicator_of_one_moves_nothing() -> None:
    trace = with_splits(trace_of([collective(1, A2A, 8)]), {(0, 1): (8,)})
    assert build_job(trace, SETTINGS).splits == ()


def test_lint_tells_how_uneven_they_are() -> None:
    report = lint(all_to_all_v(((0, 5, 0), (7, 0, 0), (1, 2, 3)), PAIR3), SETTINGS)
    found = [one for one in report.findings if one.check is Check.UNEVEN]
    assert [(one.severity, one.count) for one in found] == [(Severity.INFO, 2)]
    assert found[0].sentence() == (
        'uneven-all-to-all: hand/w.0.et: rank 0 node 1 "all_to_all1": expected an all-to-all, found between 0 and 7 '
        "bytes from one member to another, 2 of 6 pairs with 0 bytes (first of 2); each pair exchanges its own number "
        "of bytes; pairs of zero bytes exchange no message"
    )


PAIR3: Matrix = ((1, 2, 3), (1, 2, 3), (1, 2, 3))


@given(
    st.lists(st.lists(st.integers(0, 1 << 20), min_size=3, max_size=3), min_size=3, max_size=3),
    st.sampled_from([Fraction(1, 16), Fraction(2, 3), Fraction(1, 1000), Fraction(3)]),
)
def test_every_entry_shrinks_alone(rows: list[list[int]], scale: Fraction) -> None:
    """To whole words and never to nothing; what i sends is what j expects, and messages are sums of the scaled."""
    matrix = tuple(map(tuple, rows))
    job = build_job(all_to_all_v(matrix, ((0, 1, 2),) * 3), replace(SETTINGS, bytes_scale=scale))
    at = split_of(job, 0)[0]
    if at < 0:
        return
    scaled = job.splits[at]
    for i, row in enumerate(matrix):
        for j, entry in enumerate(row):
            wanted = max(4, int(entry * scale) // 4 * 4) if entry else 0
            assert scaled[i, j] == wanted
        rank = job.ranks[i]
        assert job.programs[rank.program].message_bytes[0] == scaled[i].sum()
        assert rank.trace_bytes is not None
        assert rank.trace_bytes[0] == sum(row)


def test_matrices_that_become_equal_are_one() -> None:
    job = build_job(all_to_all_v(PAIR, ((4, 9), (16, 32))), replace(SETTINGS, bytes_scale=Fraction(1, 4)))
    assert matrices_of(job) == [[[4, 4], [4, 8]]]
    assert split_of(job, 0) == [0, 0]


def test_other_operations_are_as_they_were() -> None:
    nodes = [[all_reduce(1, 64), collective(2, A2A, sum(row)), all_reduce(3, 32).after(2)] for row in PAIR]
    rows = {(rank, 2): row for rank, row in enumerate(PAIR)}
    job = build_job(with_splits(trace_of(*nodes), rows), SETTINGS)
    program = job.programs[job.ranks[0].program]
    assert program.message_bytes.tolist() == [64, 12, 32]
    assert split_of(job, 0) == [-1, 0, -1]
    assert isinstance(job.ranks[0].splits, np.ndarray)


def test_copies_of_one_rank_send_what_it_sent() -> None:
    """What the recorded rank expected came from ranks that are not there."""
    trace = with_splits(trace_of([collective(1, A2A, 12)]), {(0, 1): (4, 8)}, {(0, 1): (4, 16)})
    job = build_job(trace, replace(SETTINGS, replicate_ranks=2))
    assert matrices_of(job) == [[[4, 8], [4, 8]]]


ANY_ROW = st.lists(st.one_of(st.integers(0, 40), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=4).map(
    tuple
)


@given(
    st.lists(
        st.sampled_from([A2A, CollectiveKind.ALL_REDUCE, CollectiveKind.BARRIER]), min_size=1, max_size=3
    ),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(1, 3)), ANY_ROW),
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(1, 3)), ANY_ROW),
    st.booleans(),
)
def test_whatever_the_rows_say_is_a_job_or_an_error(
    kinds: list[CollectiveKind],
    sends: dict[tuple[int, int], tuple[int, ...]],
    receives: dict[tuple[int, int], tuple[int, ...]],
    sized: bool,
) -> None:
    nodes = [collective(k + 1, kind, 24) for k, kind in enumerate(kinds)]
    nodes = [node if sized else node.without("comm_size") for node in nodes]
    trace = with_splits(trace_of(nodes, nodes, nodes), sends, receives)
    report = lint(trace, SETTINGS)
    if report.errors:
        assert all(str(problem) for problem in report.problems())
        with pytest.raises(TraceError):
            build_job(trace, SETTINGS)
        return
    job = build_job(trace, SETTINGS)
    assert all((matrix >= 0).all() for matrix in job.splits)
