"""What the trace calls its operations reaches the programs: each name once, and no more of them than there is room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.workload.job import build_job
from etloop.workload.program import op_names
from etloop.workload.program.merge import Part, side_by_side
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import Trace
from tests.support.traces.traces_by_hand import HandNode, all_reduce, compute, recv, send, trace_of


def renamed(node: HandNode, name: str) -> HandNode:
    return HandNode(node.node_id, node.kind, name, node.data_deps, attributes=node.attributes)


def two_ranks(*names: str) -> Trace:
    """Two ranks with a compute node and then an all-reduce of each name."""
    nodes = [compute(1), *(renamed(all_reduce(2 + at), name) for at, name in enumerate(names))]
    return trace_of(nodes, nodes)


def test_every_operation_has_its_name_and_equal_ones_are_kept_once() -> None:
    sends = trace_of([compute(1), renamed(send(2, 1), "mb0.forward")], [renamed(recv(9, 0), "mb0.forward")])
    job = build_job(sends, WorkloadSettings())
    assert job.op_names == ("mb0.forward",)
    assert [rank.name.tolist() for rank in job.ranks if rank.name is not None] == [[-1, 0], [0]]


@pytest.mark.parametrize(
    ("sentence", "name", "kept"),
    [
        ("without a name there is none", "", ()),
        ("what a terminal would obey is escaped", "a\x1b[2Jb", ("a\\x1b[2Jb",)),
        ("a long one keeps its beginning", "x" * 9999, ("x" * op_names.MOST_CHARACTERS,)),
    ],
)
def test_names_of_others_are_short_and_harmless(sentence: str, name: str, kept: tuple[str, ...]) -> None:
    assert build_job(two_ranks(name), WorkloadSettings()).op_names == kept, sentence


def test_bytes_that_are_no_text_are_a_name_too() -> None:
    names = op_names.OpNames()
    rank = two_ranks("ab").ranks[0]
    torn = replace(rank, name_bytes=rank.name_bytes[:-2] + b"\xff\xfe")
    assert names.column(torn, np.array([1])).tolist() == [0]
    assert names.names() == ("��",)


def test_there_are_only_so_many_and_a_note_says_how_many_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_names, "MOST_NAMES", 3)
    job = build_job(two_ranks("a", "b", "c", "d", "a", "d"), WorkloadSettings())
    assert job.op_names == ("a", "b", "c")
    assert job.ranks[0].name is not None
    assert job.ranks[0].name.tolist() == [-1, 0, 1, 2, -1, 0, -1]
    assert job.notes[-1] == (
        "operations have more than 3 different names; the results use the kind in place of 1 later names"
    )


def test_jobs_side_by_side_keep_their_names_apart() -> None:
    job = build_job(two_ranks("grad"), WorkloadSettings())
    together = side_by_side([Part("a", job), Part("b", job)], alone_too=True).job
    assert together.op_names == ("a/grad", "b/grad")
    columns = [rank.name.tolist() for rank in together.ranks if rank.name is not None]
    # Alone, a barrier, not here, a barrier, together, a barrier.
    assert columns[0] == columns[1]
    assert [one for one in columns[0] if one >= 0] == [0, 0]
    assert [one for one in columns[2] if one >= 0] == [1, 1]
