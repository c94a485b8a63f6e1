"""MSCCL++ execution plans: which messages they send, what each waits for, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.chakra_schedules import CustomProgram, read_custom
from etloop.controller.inputs.mscclpp_plans import CHUNK_BYTES, Plan, read_plan
from etloop.workload.trace.trace import NodeKind

Json = dict[str, Any]
MEMORY = {"channel_type": "memory"}


def buffer(index: int, kind: str = "i", size: int = 1) -> Json:
    return {"type": kind, "index": index, "size": size}


def remote(index: int, number: int = 0, size: int = 1) -> Json:
    return {"buffer_id": number, "index": index, "size": size}


def op(
    name: str, *channels: int, src: list[Json] | None = None, dst: list[Json] | None = None, **more: Any
) -> Json:
    return {
        "name": name,
        "channel_ids": list(channels),
        "src_buff": src or [],
        "dst_buff": dst or [],
        **MEMORY,
        **more,
    }


def plan_of(*gpus: list[list[Json]], collective: str = "allreduce", kind: str = "i", **top: Any) -> bytes:
    """A plan whose GPUs are all connected: channel and remote buffer k of a GPU lead to the k-th of the others."""
    count = len(gpus)
    documents = []
    for rank, blocks in enumerate(gpus):
        others = [peer for peer in range(count) if peer != rank]
        numbers = list(range(len(others)))
        thread_blocks = [
            {
                "id": number,
                "ops": ops,
                "channels": [{**MEMORY, "channel_ids": numbers}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": numbers}],
            }
            for number, ops in enumerate(blocks)
        ]
        documents.append(
            {
                "id": rank,
                "input_chunks": count,
                "output_chunks": count,
                "scratch_chunks": count,
                "threadblocks": thread_blocks,
                "channels": [{**MEMORY, "connected_to": others}],
                "remote_buffers": [{"rank": peer, "type": kind} for peer in others],
            }
        )
    document = {
        "name": "p",
        "collective": collective,
        "protocol": "Simple",
        "inplace": True,
        "gpus": documents,
        **top,
    }
    return json.dumps(document).encode()


def program(text: bytes) -> tuple[Plan, CustomProgram]:
    plan = read_plan(text, "p.json")
    return plan, read_custom(plan.trace, "p.json", plan.recorded_bytes, plan.collective)


def pairs(plan: Plan) -> Counter[tuple[int, int]]:
    """Chunks by sending and receiving GPU."""
    found: Counter[tuple[int, int]] = Counter()
    for rank in plan.trace.ranks:
        for node in (rank.kind == NodeKind.COMM_SEND).nonzero()[0].tolist():
            found[int(rank.comm.src[node]), int(rank.comm.dst[node])] += (
                int(rank.comm.size[node]) // CHUNK_BYTES
            )
    return found


def test_a_read_reduces_and_sends() -> None:
    """As microsoft/mscclpp's own all-reduce of two GPUs: each reduces one chunk and writes the sum to the other."""
    gpus = [
        [
            [
                op("rlxsignal", 0),
                op("rlxwait", 0),
                op(
                    "rres",
                    src=[buffer(rank), remote(rank)],
                    dst=[buffer(rank), remote(rank)],
                    reduce_op="sum",
                ),
                op("signal", 0),
                op("wait", 0),
            ]
        ]
        for rank in (0, 1)
    ]
    plan, custom = program(plan_of(*gpus))
    assert pairs(plan) == {(0, 1): 2, (1, 0): 2}
    assert custom.pieces == 2
    own = plan.trace.ranks[0]
    kinds = [NodeKind(kind) for kind in own.kind.tolist()]
    reduced = kinds.index(NodeKind.COMP)
    (read,) = own.data_deps[reduced].tolist()
    assert kinds[own.node_id.tolist().index(read)] is NodeKind.COMM_RECV
    sent = max(
        index for index, kind in enumerate(kinds) if kind is NodeKind.COMM_SEND and own.data_deps[index].size
    )
    assert int(own.node_id[reduced]) in own.data_deps[sent].tolist(), "the sum is sent once it is there"


def test_a_put_behind_a_wait_follows_what_was_put() -> None:
    """A ring all-gather of three GPUs: the second put forwards the chunk that the first of the previous GPU brought."""
    gpus: list[list[list[Json]]] = []
    for rank in range(3):
        others = [peer for peer in range(3) if peer != rank]
        following, previous = others.index((rank + 1) % 3), others.index((rank - 1) % 3)
        block = []
        for step in range(2):
            chunk = (rank - step) % 3
            put = op("put", following, src=[buffer(chunk, "o")], dst=[remote(chunk, following)])
            block += [put, op("signal", following), op("wait", previous)]
        gpus.append([block])
    plan, _ = program(plan_of(*gpus, collective="allgather", kind="o"))
    assert pairs(plan) == {(0, 1): 2, (1, 2): 2, (2, 0): 2}
    middle = plan.trace.ranks[1]
    sends = (middle.kind == NodeKind.COMM_SEND).nonzero()[0].tolist()
    (first_recv, _) = (middle.kind == NodeKind.COMM_RECV).nonzero()[0].tolist()
    assert [middle.data_deps[node].tolist() for node in sends] == [[], [int(middle.node_id[first_recv])]]


def test_packets_are_read_when_they_are_there_and_barriers_join_blocks() -> None:
    """One block receives packets and reduces them; the other, behind a barrier, sends the sum."""
    barrier = op("barrier", barrier_id=0, num_threadblocks=2)
    gpus = [
        [
            [
                op("repkt", src=[buffer(rank), buffer(1 - rank, "s")], dst=[buffer(rank)]),
                barrier,
            ],
            [
                op("ppkt", 0, src=[buffer(1 - rank)], dst=[remote(rank)]),
                barrier,
                op("put", 0, src=[buffer(rank)], dst=[remote(rank)]),
            ],
        ]
        for rank in (0, 1)
    ]
    plan, _ = program(plan_of(*gpus, kind="s", protocol="LL"))
    assert plan.is_packets
    assert pairs(plan) == {(0, 1): 2, (1, 0): 2}
    first = plan.trace.ranks[0]
    last_send = (first.kind == NodeKind.COMM_SEND).nonzero()[0].tolist()[-1]
    reduce_node = (first.kind == NodeKind.COMP).nonzero()[0].tolist()[0]
    assert int(first.node_id[reduce_node]) in first.data_deps[last_send].tolist()


def test_thread_block_groups_share_a_chunk() -> None:
    def part(rank: int, number: int) -> list[Json]:
        group = {"tb_id": number, "tbg_size": 2}
        return [op("put", 0, src=[buffer(rank)], dst=[remote(rank)], tbg_info=group), op("signal", 0)]

    gpus = [[part(rank, number) for number in range(2)] for rank in (0, 1)]
    plan, _ = program(plan_of(*gpus, collective="allgather", kind="o"))
    sizes = {
        size for rank in plan.trace.ranks for size in rank.comm.size[rank.kind == NodeKind.COMM_SEND].tolist()
    }
    assert sizes == {CHUNK_BYTES // 2}


def test_semaphores_begin_with_their_value_and_packets_stay() -> None:
    """GPU 0 copies packets to its own scratch, and sends them from there; two blocks of GPU 1 read what arrives."""
    gpus = [
        [
            [
                op("sem_acquire", semaphore_ids=[0]),
                op("cpkt", src=[buffer(0)], dst=[buffer(0, "s")]),
                op("rppkt", 0, src=[buffer(0, "s")], dst=[remote(0)]),
            ]
        ],
        [[op("upkt", src=[buffer(0, "s")], dst=[buffer(index)])] for index in (0, 1)],
    ]
    document = json.loads(plan_of(*gpus, kind="s", protocol="LL"))
    document["gpus"][0]["semaphores"] = [{"init_value": 1}]
    plan = read_plan(json.dumps(document).encode(), "p.json")
    assert pairs(plan) == {(0, 1): 1}
    document["gpus"][0]["semaphores"] = [{"init_value": 0}]
    with pytest.raises(ConfigError, match="never comes"):
        read_plan(json.dumps(document).encode(), "p.json")


PUT = op("put", 0, src=[buffer(0)], dst=[remote(0)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "no JSON"),
        (plan_of([[PUT]], [[PUT]], collective="scan"), "'scan'"),
        (plan_of([[op("glres")]], [[PUT]]), "NVLink multicast"),
        (plan_of([[op("wait", 0)]], [[PUT]]), "never comes"),
        (plan_of([[op("signal", 3)]], [[PUT]]), "no memory channel 3"),
        (plan_of([[op("put", 0, src=[buffer(0)], dst=[remote(0, 5)])]], [[PUT]]), "no remote buffer"),
        (plan_of([[op("put", 0, src=[buffer(-1)], dst=[remote(0)])]], [[PUT]]), "index and size"),
        (plan_of([[op("barrier", barrier_id=0)]], [[PUT]]), "num_threadblocks"),
        (b'{"collective": "allreduce", "gpus": [{"inputChunks": 4}, {"inputChunks": 4}]}', "input_chunks"),
    ],
)
def test_a_plan_that_is_wrong_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_plan(text, "p.json")
