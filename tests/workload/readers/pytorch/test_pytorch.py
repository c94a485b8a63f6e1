"""PyTorch host traces: what a call communicates, with whom, how much, and what waits for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.process_groups import parse_init, parse_split_text
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace
from tests.support.traces.json_traces_by_hand import call, comms, groups, host, tensor, wait

DEFAULT = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4, "group_count": 2}
PAIR = {"pg_name": "7", "pg_desc": "pp", "ranks": [3, 1], "group_size": 2, "group_count": 2}


def read(text: bytes, rank: int = 0, rank_count: int = 4) -> RankTrace:
    return rank_of((read_document(iter([text])),), "w.0.json", rank, rank_count, alone=False)[0]


def remarks(text: bytes) -> list[str]:
    printed = rank_of((read_document(iter([text])),), "w.0.json", 0, 4, alone=False)[1]
    return [remark.text for remark in printed]


def index_of(trace: RankTrace, node_id: int) -> int:
    found: int = trace.node_id.tolist().index(node_id)
    return found


def waits_for(trace: RankTrace, node_id: int) -> list[int]:
    at = index_of(trace, node_id)
    found: list[int] = trace.data_deps[at].tolist()
    return found


def splits(trace: RankTrace, node_id: int) -> list[int]:
    assert trace.send_splits is not None
    at = index_of(trace, node_id)
    found: list[int] = trace.send_splits[at].tolist()
    return found


OPERATIONS = [
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("allreduce_coalesced", CollectiveKind.ALL_REDUCE),
    ("ALLREDUCE_coalesced", CollectiveKind.ALL_REDUCE),
    ("broadcast", CollectiveKind.BROADCAST),
    ("_broadcast_oop", CollectiveKind.BROADCAST),
    ("reduce", CollectiveKind.REDUCE),
    ("_reduce_oop", CollectiveKind.REDUCE),
    ("all_gather", CollectiveKind.ALL_GATHER),
    ("_allgather_base", CollectiveKind.ALL_GATHER),
    ("allgather_into_tensor_coalesced", CollectiveKind.ALL_GATHER),
    ("reduce_scatter", CollectiveKind.REDUCE_SCATTER),
    ("_reduce_scatter_base", CollectiveKind.REDUCE_SCATTER),
    ("reduce_scatter_tensor_coalesced", CollectiveKind.REDUCE_SCATTER),
    ("all_to_all", CollectiveKind.ALL_TO_ALL),
    ("all_to_allv", CollectiveKind.ALL_TO_ALL),
    ("gather", CollectiveKind.GATHER),
    ("scatter", CollectiveKind.SCATTER),
    ("barrier", CollectiveKind.BARRIER),
]


@pytest.mark.parametrize("schema", ["1.0.1", "1.0.4"])
@pytest.mark.parametrize(("name", "kind"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_operation_of_nccl_is_known_in_both_layouts(
    schema: str, name: str, kind: CollectiveKind
) -> None:
    lists = [[tensor(5, 6, 100), tensor(7, 8, 20, 2)]]
    trace = read(host(comms(10, name, lists), schema=schema))
    at = index_of(trace, 10)
    assert (trace.kind[at], trace.comm.type[at], trace.is_cpu_op[at]) == (NodeKind.COMM_COLL, kind, 0)
    assert trace.comm.size[at] == 440
    assert (trace.kind != NodeKind.COMP).sum() == 1
    assert (trace.ctrl_deps[at][0], trace.name(at)) == (2, "record_param_comms")


def test_an_operation_that_is_not_known_is_refused_with_its_place() -> None:
    with pytest.raises(JsonFault, match=r"nodes\[0\]: record_param_comms of an unknown operation"):
        read(host(comms(10, "all_to_everything", [tensor(5, 6, 1)])))


def test_splits_count_rows_of_the_buffer() -> None:
    flat_ = comms(10, "all_to_allv", [tensor(5, 6, 12)], splits=(3, 0, 9, 0))
    rows = comms(11, "all_to_allv", [tensor(5, 6, 12, 2)], splits=(1, 0, 3, 0))
    none = comms(12, "all_to_allv", [tensor(5, 6, 0)], splits=(0, 0, 0, 0))
    even = comms(13, "all_to_all", [tensor(5, 6, 12)])
    trace = read(host(flat_, rows, none, even))
    assert [splits(trace, one) for one in (10, 11, 12, 13)] == [[12, 0, 36, 0], [6, 0, 18, 0], [0] * 4, []]
    with pytest.raises(JsonFault, match="split sizes of 5 rows in total, which do not divide its 48 bytes"):
        read(host(comms(10, "all_to_allv", [tensor(5, 6, 12)], splits=(3, 2))))


def test_peers_are_ranks_of_their_group() -> None:
    send = comms(10, "send", [tensor(5, 6, 4)], [], group=("7", "pp"), sequence=[1, True], peer=1)
    recv = comms(11, "recv", [tensor(7, 8, 4)], group=("7", "pp"), sequence=[2, True], peer=1)
    trace = read(host(groups(3, DEFAULT, PAIR), send, recv), rank=3)
    assert trace.groups == {"0": (0, 1, 2, 3), "7": (3, 1)}
    sent, received = index_of(trace, 10), index_of(trace, 11)
    assert trace.kind[[sent, received]].tolist() == [NodeKind.COMM_SEND, NodeKind.COMM_RECV]
    assert (trace.comm.src[sent], trace.comm.dst[sent], trace.comm.size[sent]) == (3, 1, 16)
    assert (trace.comm.src[received], trace.comm.dst[received]) == (1, 3)
    assert set(trace.comm.tag.tolist()) == {ABSENT}


SPELLINGS = [
    ("JSON", json.dumps([DEFAULT, PAIR])),
    ("Python repr", repr([DEFAULT, PAIR])),
    ("a list of one string", repr([json.dumps([DEFAULT, PAIR])])),
    ("a list of one repr", repr([repr([DEFAULT, PAIR])])),
]


@pytest.mark.parametrize(("sentence", "text"), SPELLINGS, ids=[one for one, _ in SPELLINGS])
def test_groups_are_read_in_every_spelling(sentence: str, text: str) -> None:
    del sentence
    assert [(one.key, one.members(4)) for one in parse_init(text, "x")] == [
        ("0", (0, 1, 2, 3)),
        ("7", (3, 1)),
    ]


def test_groups_of_2023_have_a_number_and_a_map_of_ranks() -> None:
    text = "[{'pg_id': 5, 'backend_id': 77, 'backend_config': 'cuda:nccl', 'ranks': {4: 1, 2: 0}}]"
    (record,) = parse_init(text, "x")
    assert (record.key, record.ranks, record.aliases) == ("5", (2, 4), (5, 77))
    trace = read(
        host(groups(3, spelled=text), comms(10, "allreduce", [tensor(5, 6, 1)], group=77)), rank_count=5
    )
    assert trace.pg_names == ("5",)
    assert trace.groups == {"5": (2, 4)}


BAD_GROUPS: list[tuple[str, Any, str]] = [
    ("a text that is cut off", '[{"pg_name": "0", "ranks": [0, 1', "is neither JSON nor a Python literal"),
    ("code", "__import__('os').getcwd()", "is neither JSON nor a Python literal"),
    ("brackets without end", "[" * 5000, "is too long or nested too deeply"),
    ("signs without end", "-" * 100_000 + "1", "is neither JSON nor a Python literal"),
    ("sums without end", "1+" * 100_000 + "1", "is neither JSON nor a Python literal"),
    ("a rank twice", [{"pg_name": "0", "ranks": [1, 1]}], "lists a rank twice"),
    ("a rank below 0", [{"pg_name": "0", "ranks": [-1]}], "expected an integer of 0 to 1048575, found -1"),
    ("no name", [{"ranks": [1]}], "expected a pg_name, found None"),
    ("a number", 7, "expected a list, found 7"),
]


@pytest.mark.parametrize(("sentence", "value", "message"), BAD_GROUPS, ids=[one for one, *_ in BAD_GROUPS])
def test_what_is_no_list_of_groups_is_refused(sentence: str, value: Any, message: str) -> None:
    del sentence
    with pytest.raises(JsonFault) as raised:
        parse_init(value, "x")
    assert message in str(raised.value)


def test_shortened_lists_tell_nothing() -> None:
    assert parse_split_text("[1, 2, ..., 9]", "x") == []
    assert parse_split_text("[1, 2]", "x") == [1, 2]


def test_an_operation_may_tell_the_ranks_of_its_group() -> None:
    inside = comms(10, "allreduce", [tensor(5, 6, 1)], group=("9", "dp"), where=(1, 2, 2))
    irregular = comms(11, "allreduce", [tensor(5, 6, 1)], group=("8", "ep"), where=(1, -1, 3))
    trace = read(host(inside, irregular))
    assert trace.groups == {"9": (1, 3)}
    assert [trace.pg_names[index] for index in trace.pg_name[:2]] == ["9", "8"]


def test_a_pointer_is_all_ranks_only_while_there_is_one() -> None:
    one = comms(10, "allreduce", [tensor(5, 6, 1)], group=94594108284448)
    other = comms(11, "allreduce", [tensor(5, 6, 1)], group=94594108284449)
    trace = read(host(one, schema="1.0.1"))
    assert trace.pg_name[0] == -1
    assert any("pointer inside the process" in text for text in remarks(host(one, schema="1.0.1")))
    with pytest.raises(
        JsonFault, match=r"nodes\[0\]: its group is recorded only as a pointer .* 2 groups are in use"
    ):
        read(host(one, other, schema="1.0.1"))


def gloo(node_id: int, name: str, inputs: list[Any], **keywords: Any) -> Any:
    return call(node_id, f"c10d::{name}", inputs, ["<Object>"], **keywords)


def test_gloo_operations_are_the_calls_themselves() -> None:
    one, large = tensor(5, 6, 16), tensor(7, 8, 32)
    trace = read(
        host(
            groups(3, DEFAULT, PAIR),
            gloo(10, "allreduce_", [[one], "<Object>", "<Object>", "<None>", True, -1]),
            gloo(11, "_allgather_base_", [large, one, "<Object>", False, -1]),
            gloo(12, "_reduce_scatter_base_", [one, large, "<Object>", "<Object>", False, -1]),
            gloo(13, "alltoall_base_", [large, one, "<Object>", [8, 8, 8, 8], [1, 2, 3, 10], False, -1]),
            gloo(14, "send", [[one], "<Object>", 2, 5]),
            gloo(15, "recv_", [[one], "<Object>", 3, 6]),
            gloo(16, "barrier", [tensor(9, 9, 1, 1), "<Object>", [], False, -1]),
        )
    )
    names = ["-" if index < 0 else trace.pg_names[index] for index in trace.pg_name.tolist()]
    assert names[1:8] == ["<Object>", "7", "7", "0", "-", "-", "<Object>"]
    assert trace.comm.size[1:8].tolist() == [64, 64, 128, 64, 64, 64, 0]
    assert splits(trace, 13) == [4, 8, 12, 40]
    assert (trace.comm.dst[5], trace.comm.tag[5], trace.comm.src[6], trace.comm.tag[6]) == (2, 5, 3, 6)


def test_a_scatter_over_gloo_has_the_group_of_its_root_s_parts_and_is_a_remark_elsewhere() -> None:
    part, other = tensor(5, 6, 16), tensor(7, 8, 16)
    at_root = gloo(10, "scatter_", [[part], [[part, other]], "<Object>", 0, False, -1])
    elsewhere = gloo(11, "scatter_", [[part], [], "<Object>", 0, False, -1])
    text = host(groups(3, DEFAULT, PAIR), at_root, elsewhere)
    trace = read(text)
    assert [trace.pg_names[index] for index in trace.pg_name.tolist()[1:3]] == ["7", "<Object>"]
    assert trace.comm.size[1:3].tolist() == [128, 256]
    words = "1 scatters state neither their group nor the root's bytes"
    assert [words in remark for remark in remarks(text)].count(True) == 1
    assert not any("scatters" in remark for remark in remarks(host(groups(3, DEFAULT, PAIR), at_root)))


def test_a_call_of_nccl_is_one_operation_however_many_layers_it_has() -> None:
    outer = call(10, "c10d::allreduce_", [[tensor(5, 6, 4)], "<Object>"])
    inner = comms(11, "allreduce", [tensor(5, 6, 4)], parent=10)
    mark = call(12, "nccl:all_reduce", [tensor(5, 6, 4)], parent=11)
    trace = read(host(mark, inner, outer))
    assert trace.node_id[trace.kind == NodeKind.COMM_COLL].tolist() == [11]
    assert waits_for(trace, 12) == [10]


def test_a_trace_without_communication_says_so() -> None:
    assert any("has no communication" in text for text in remarks(host(call(5, "aten::mm"))))


ORDER = [
    ("a call waits for the call before it on its thread", [call(9, "a"), call(10, "b")], 10, [9]),
    ("a call of another thread does not", [call(9, "a"), call(10, "b", thread=5)], 10, []),
    (
        "an operation does not hold up its thread",
        [call(9, "a"), comms(10, "allreduce", [tensor(5, 6, 1)]), call(11, "b")],
        11,
        [9],
    ),
    ("an operation begins at its call", [call(9, "a"), comms(10, "allreduce", [tensor(5, 6, 1)])], 10, [9]),
    (
        "a call that reads its result waits",
        [comms(10, "allreduce", [tensor(5, 6, 1)]), call(11, "b", [tensor(9, 6, 1)])],
        11,
        [2, 10],
    ),
    (
        "a call that only reads what is being sent does not",
        [comms(10, "send", [tensor(5, 6, 1)], []), call(11, "b", [tensor(9, 6, 1)])],
        11,
        [2],
    ),
    (
        "a call that writes what is being sent waits",
        [comms(10, "send", [tensor(5, 6, 1)], []), call(11, "b", [], [tensor(9, 6, 1)])],
        11,
        [2, 10],
    ),
    (
        "the next call does not wait again",
        [
            comms(10, "allreduce", [tensor(5, 6, 1)]),
            call(11, "b", [tensor(9, 6, 1)]),
            call(12, "c", [tensor(9, 6, 1)]),
        ],
        12,
        [11],
    ),
    (
        "a wait waits for its operation",
        [comms(10, "allreduce", [tensor(5, 6, 1)], sequence=33), wait(11, 33)],
        11,
        [2, 10],
    ),
    (
        "a wait for an operation before the trace waits for nothing",
        [comms(10, "allreduce", [tensor(5, 6, 1)], sequence=33), wait(11, 32)],
        11,
        [2],
    ),
    (
        "what another thread wrote is waited for",
        [call(9, "a", [], [tensor(5, 6, 1)], thread=5), call(10, "b", [tensor(5, 6, 1)])],
        10,
        [2, 9],
    ),
    (
        "an operation waits for what another thread wrote",
        [call(9, "a", [], [tensor(5, 6, 1)], thread=5), comms(10, "allreduce", [tensor(5, 6, 1)])],
        10,
        [2, 9],
    ),
    (
        "operations on one buffer run one after the other",
        [comms(10, "allreduce", [tensor(5, 6, 1)]), comms(11, "allreduce", [tensor(5, 6, 1)])],
        11,
        [2, 10],
    ),
]


@pytest.mark.parametrize(("sentence", "nodes", "node_id", "expected"), ORDER, ids=[one for one, *_ in ORDER])
def test_program_order(sentence: str, nodes: list[Any], node_id: int, expected: list[int]) -> None:
    del sentence
    assert waits_for(read(host(*nodes)), node_id) == expected


BAD_NODES = [
    (
        "a node without an id",
        {"name": "x", "inputs": {}, "outputs": {}},
        "nodes[0].id: expected an integer, found None",
    ),
    ("a node that is a number", 5, "nodes[0]: expected an object, found 5"),
    (
        "inputs that are a list",
        {"id": 1, "name": "x", "inputs": []},
        "nodes[0].inputs: expected an object, found 'list'",
    ),
    (
        "an attribute without a name",
        {"id": 1, "name": "x", "attrs": [{}]},
        "nodes[0].attrs[0].name: expected a string",
    ),
    ("an id twice", call(2, "x"), "has the id 2, which another node has"),
    (
        "tensors larger than can be",
        comms(10, "allreduce", [tensor(5, 6, 1 << 62, 64)]),
        "expected an integer of 0 to",
    ),
]


@pytest.mark.parametrize(("sentence", "node", "message"), BAD_NODES, ids=[one for one, *_ in BAD_NODES])
def test_nodes_that_are_none_are_refused_with_their_place(sentence: str, node: Any, message: str) -> None:
    del sentence
    with pytest.raises(JsonFault) as raised:
        read(host(node))
    assert message in str(raised.value)
