"""`involved_dim`: who takes part by a logical topology that the user states, refused where nobody states one."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import Severity, TraceError
from etloop.workload.chakra.encoder import EtAttribute, ValueCase
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.graph.dimensions import partners
from etloop.workload.job import build_job
from etloop.workload.lint.fix import Rule, fix
from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.node_rows import dimension_flags
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import ABSENT, Trace
from tests.support.traces.traces_by_hand import HandNode, all_reduce, trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SQUARE = WorkloadSettings(logical_topology=(2, 2))


def reduce_in(*flags: bool, node_id: int = 1, group: str | None = None) -> HandNode:
    return all_reduce(node_id, group=group).having(involved_dims=dimension_flags(flags))


def on_all(ranks: int, *nodes: HandNode, groups: dict[str, tuple[int, ...]] | None = None) -> Trace:
    return trace_of(*([*nodes] for _ in range(ranks)), groups=groups)


def members_of(analysis: Analysis, rank: int) -> list[tuple[int, ...]]:
    return [analysis.communicators[one].members for one in analysis.communicator_of[rank].tolist()]


def findings_of(trace: Trace, settings: WorkloadSettings) -> list[tuple[Check, Severity]]:
    return [(one.check, one.severity) for one in analyse(trace, settings).findings]


PARTNERS = [
    (0, (2, 2), (0,), (0, 1), "the first dimension counts fastest"),
    (3, (2, 2), (1,), (1, 3), "the second in steps of the first"),
    (5, (2, 3, 2), (1,), (1, 3, 5), "one in the middle"),
    (7, (2, 3, 2), (0, 2), (0, 1, 6, 7), "two, in the order of the ranks"),
    (7, (2, 3, 2), (0, 1, 2), tuple(range(12)), "all are all ranks"),
    (7, (2, 3, 2), (), (7,), "none is the rank alone"),
]


@pytest.mark.parametrize(
    ("rank", "topology", "involved", "expected", "why"), PARTNERS, ids=[r[-1] for r in PARTNERS]
)
def test_partners(
    rank: int, topology: tuple[int, ...], involved: tuple[int, ...], expected: tuple[int, ...], why: str
) -> None:
    assert partners(rank, topology, involved) == expected, why


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_partners_are_those_that_numpy_finds_in_an_array_of_ranks(
    sizes: list[int], data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, prod(sizes) - 1))
    involved = tuple(at for at in range(len(sizes)) if data.draw(st.booleans()))
    ranks = np.arange(prod(sizes)).reshape(sizes, order="F")
    place = np.unravel_index(rank, sizes, order="F")
    chosen = tuple(slice(None) if at in involved else one for at, one in enumerate(place))
    assert partners(rank, tuple(sizes), involved) == tuple(sorted(ranks[chosen].reshape(-1).tolist()))


def test_a_stated_topology_is_obeyed_and_told() -> None:
    trace = on_all(
        4, reduce_in(True, False), reduce_in(False, True, node_id=2), reduce_in(True, True, node_id=3)
    )
    analysis = analyse(trace, SQUARE)
    assert members_of(analysis, 3) == [(2, 3), (1, 3), (0, 1, 2, 3)]
    (told,) = [one for one in analysis.findings if one.check is Check.INVOLVED_DIM]
    assert (told.severity, told.count) == (Severity.INFO, 8)
    assert told.remedy == "members are derived from the logical topology 2 x 2"
    assert told.examples[0].found == "involved_dim [true, false]"
    assert len(build_job(trace, SQUARE).communicators) == 5


def test_without_a_topology_some_dimensions_are_refused_and_nobody_is_taken_for_them() -> None:
    trace = on_all(4, reduce_in(True, False))
    with pytest.raises(TraceError) as raised:
        build_job(trace, WorkloadSettings())
    assert (
        'rank 0 node 1 "all_reduce1": expected a logical topology, because only some dimensions are involved, '
        "found involved_dim [true, false]; state workload.logical_topology (--logical-topology), such as [2, 4], "
        "whose first dimension counts fastest, or name the communicators"
    ) in str(raised.value)
    assert Check.COMMUNICATOR_WORLD not in [check for check, _ in findings_of(trace, WorkloadSettings())]


TAKEN: list[tuple[Sequence[HandNode], str]] = [
    ([reduce_in(True, True)], "all dimensions are all ranks"),
    ([all_reduce(1).having(involved_dims=ABSENT), reduce_in(True, node_id=2)], "absent is all ranks"),
    ([reduce_in(True, False, group="tp")], "a communicator that is named goes first"),
    ([reduce_in(False, False).having(is_cpu_op=1), all_reduce(2)], "what is not replayed needs no topology"),
]


@pytest.mark.parametrize(("nodes", "why"), TAKEN, ids=[row[1] for row in TAKEN])
def test_no_topology_is_asked_for_where_none_is_needed(nodes: Sequence[HandNode], why: str) -> None:
    trace = on_all(4, *nodes, groups={"tp": (0, 1, 2, 3)})
    assert Check.INVOLVED_DIM not in [check for check, _ in findings_of(trace, WorkloadSettings())], why


WRONG = [
    ((2, 3), (True, False), "expected a logical topology of 4 ranks, as the trace has, found 2 x 3 = 6"),
    ((2, 2), (False,), "expected a flag for each of the 2 dimensions of the logical topology 2 x 2, found"),
]


@pytest.mark.parametrize(("topology", "flags", "text"), WRONG, ids=["other-size", "too-few-flags"])
def test_a_topology_that_does_not_fit(topology: tuple[int, ...], flags: tuple[bool, ...], text: str) -> None:
    with pytest.raises(TraceError) as raised:
        build_job(on_all(4, reduce_in(*flags)), WorkloadSettings(logical_topology=topology))
    assert text in str(raised.value)


def test_flags_beyond_the_topology_are_of_dimensions_of_one() -> None:
    analysis = analyse(on_all(4, reduce_in(False, True, False, True)), SQUARE)
    assert members_of(analysis, 0) == [(0, 2)]


def test_a_name_that_is_taken_is_left_to_its_owner() -> None:
    groups: dict[str, tuple[int, ...]] = {"dim 0 from rank 0": (0, 1, 2, 3)}
    trace = on_all(4, reduce_in(True, False), all_reduce(2, group="dim 0 from rank 0"), groups=groups)
    assert members_of(analyse(trace, SQUARE), 1) == [(0, 1), (0, 1, 2, 3)]


def test_fix_names_the_communicators_by_numbers_as_other_readers_want_them() -> None:
    fixed = fix(on_all(4, reduce_in(True, False)), SQUARE)
    assert {one.rule: one.count for one in fixed.repairs}[Rule.NAME_DIMENSIONS] == 4
    assert fixed.trace.groups == {"1": (0, 1), "2": (2, 3)}
    assert [rank.pg_names for rank in fixed.trace.ranks] == [("1",), ("1",), ("2",), ("2",)]


def test_fix_without_a_topology_leaves_them_and_writes_what_they_say() -> None:
    fixed = fix(on_all(4, reduce_in(True, False)), WorkloadSettings())
    assert fixed.trace.groups is None
    (node,) = et_nodes(fixed.trace.ranks[2])
    assert EtAttribute("involved_dim", ValueCase.BOOL, (True, False)) in node.attributes
    assert (Check.INVOLVED_DIM, Severity.ERROR) in findings_of(fixed.trace, WorkloadSettings())


JSONIZER = '{"version": "0.0.4"}{"id": "1", "name": "r", "type": "COMM_COLL_NODE", "attr": [{"name": "involved_dim", %s}]}'
AMD = '{"workload_graph": [{"Id": 1, "Name": "r", "NodeType": 7, "involved_dim": %s}]}'
JSON = [
    (JSONIZER, '"boolList": {"values": [true, false]}', (True, False)),
    (JSONIZER, '"boolVal": false', (False,)),
    (JSONIZER, '"boolList": {}', ()),
    (AMD, "[false, true]", (False, True)),
]


@pytest.mark.parametrize(("form", "value", "flags"), JSON, ids=[row[1] for row in JSON])
def test_json_has_it_too(form: str, value: str, flags: tuple[bool, ...]) -> None:
    document = read_document(iter([(form % value).encode()]))
    dims = rank_of((document,), "w", 0, 1, True)[0].comm.dims
    assert (ABSENT if dims is None else dims.tolist()[0]) == dimension_flags(flags)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[1]", "expected true or false, found 1"),
        (str([True] * 33).lower(), "has 33 dimensions, the limit is 32"),
    ],
    ids=["number", "too-many"],
)
def test_json_that_is_no_list_of_flags(value: str, text: str) -> None:
    with pytest.raises(JsonFault, match=text):
        read_document(iter([(AMD % value).encode()]))
