"""Roots that a trace states: which communicator an operation with another root than position 0 runs on."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.workload.graph.analysis import Analysis, analyse
from etloop.workload.job import build_job
from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.trace.findings import Check
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.traces.json_traces_by_hand import Json, comms, groups, host, kernel, kineto, tensor
from tests.support.traces.traces_by_hand import HandNode, all_reduce, collective, compute, trace_of

SETTINGS = WorkloadSettings()
ROOTED = [CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER]


def members_of(analysis: Analysis, rank: int) -> list[tuple[int, ...]]:
    """Members of the communicator of each operation of a rank."""
    return [analysis.communicators[one].members for one in analysis.communicator_of[rank].tolist()]


def on_all(ranks: int, *nodes: HandNode) -> Trace:
    return trace_of(*([*nodes] for _ in range(ranks)))


@pytest.mark.parametrize("kind", ROOTED, ids=[kind.name for kind in ROOTED])
def test_members_are_turned_until_the_root_comes_first(kind: CollectiveKind) -> None:
    analysis = analyse(on_all(4, collective(1, kind, 64, root=2)), SETTINGS)
    assert members_of(analysis, 3) == [(2, 3, 0, 1)]
    assert [one.index for one in analysis.communicators] == [0], (
        "what nothing runs on any more is no communicator"
    )
    assert Check.ROOT_UNKNOWN not in [one.check for one in analysis.findings]


def test_operations_of_one_name_keep_their_order_wherever_their_root_is() -> None:
    nodes = [all_reduce(1), collective(2, CollectiveKind.BROADCAST, 64, root=1), all_reduce(3), compute(4)]
    analysis = analyse(on_all(2, *nodes), SETTINGS)
    assert members_of(analysis, 0) == [(0, 1), (1, 0), (0, 1)]
    assert {one.name for one in analysis.communicators} == {"world"}
    job = build_job(on_all(2, *nodes), SETTINGS)
    program = job.programs[job.ranks[0].program]
    at = np.flatnonzero(program.kind == OpKind.COLLECTIVE).tolist()
    waits = [program.deps[program.dep_offsets[one] : program.dep_offsets[one + 1]].tolist() for one in at]
    assert waits[1:] == [[at[0]], [at[1]]], "each waits for the one before it, though on another communicator"


def test_a_root_of_other_collectives_means_nothing() -> None:
    analysis = analyse(on_all(2, collective(1, CollectiveKind.ALL_REDUCE, 64, root=1)), SETTINGS)
    assert members_of(analysis, 0) == [(0, 1)]


def test_roots_that_differ_are_the_own_ranks_of_an_old_writer() -> None:
    ranks = ([collective(1, CollectiveKind.BROADCAST, 64, root=rank)] for rank in range(3))
    analysis = analyse(trace_of(*ranks), SETTINGS)
    assert members_of(analysis, 1) == [(0, 1, 2)]
    (untold,) = [one for one in analysis.findings if one.check is Check.ROOT_UNKNOWN]
    assert untold.count == 3
    assert untold.examples[0].found.startswith("different roots on different members")


def rank_read(rank: int, *nodes: Json) -> Trace:
    records = groups(3, {"pg_name": "g", "ranks": [5, 6, 7, 4]})
    text = host(records, *nodes)
    return Trace("w", (rank_of((read_document(iter([text])),), "w", rank, 8, False)[0],), None)


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_host_traces_state_the_root_as_a_rank_of_the_group(name: str) -> None:
    trace = rank_read(5, comms(4, name, [tensor(1, 11, 8)], group=("g", ""), peer=2))
    root = trace.ranks[0].comm.root
    assert root is not None
    assert [one for one in root.tolist() if one >= 0] == [2]
    assert (
        rank_read(5, comms(4, "allreduce", [tensor(1, 11, 8)], group=("g", ""), peer=2)).ranks[0].comm.root
        is None
    )


def test_members_of_a_scatter_know_its_size_by_their_part() -> None:
    parts = [tensor(index, 20 + index, 8) for index in range(4)]
    root = rank_read(7, comms(4, "scatter", [parts], [tensor(9, 30, 8)], group=("g", ""), peer=2))
    other = rank_read(5, comms(4, "scatter", [[]], [tensor(9, 30, 8)], group=("g", ""), peer=2))
    assert root.ranks[0].comm.size.max() == other.ranks[0].comm.size.max() == 4 * 8 * 4


def test_the_call_that_launched_a_kernel_knows_its_root() -> None:
    told = {"Collective name": "broadcast", "In msg nelems": 3, "dtype": "Float", "Process Group Name": "0"}
    launch = {**told, "External id": 7, "Rank": 1}
    event = kernel("ncclDevKernel_Broadcast_RING_LL(x)", 9, 2)
    event["args"] |= told | {"External id": 7}
    calls = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 1, "dur": 1, "args": launch}
    place = {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1], "pg_size": 2}]}
    document = read_document(iter([kineto(calls, event, distributedInfo=place)]))
    root = rank_of((document,), "w", 0, 2, False)[0].comm.root
    assert root is not None
    assert root.tolist() == [1]


def test_an_operation_with_a_root_moves_its_bytes_beside_a_group_of_one() -> None:
    # Turned members make "pair" a new communicator, so that "alone" takes its index.
    nodes = [collective(1, CollectiveKind.BROADCAST, 64, "pair", root=1), all_reduce(2, 64, "alone")]
    groups = {"pair": (0, 1), "alone": (0,)}
    job = build_job(trace_of(nodes, nodes[:1], groups=groups), SETTINGS)
    for rank in job.ranks:
        kinds = job.programs[rank.program].kind.tolist()
        assert kinds.count(OpKind.COLLECTIVE) == 1, f"rank {rank.rank} takes part in the broadcast"
