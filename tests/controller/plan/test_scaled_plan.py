"""A job that is scaled down keeps its shape: who sends to whom, by which algorithm, and which share crosses the device."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from etloop.controller.plan.plan import Plan, make_plan
from etloop.workload.job import build_job
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Trace
from tests.support.runs.plan_by_hand import rig_of, scenario_of
from tests.support.traces.splits_by_hand import all_to_all_v
from tests.support.traces.traces_by_hand import all_reduce, collective, recv, send, trace_of

MIB = 1 << 20
SCALES = ("1", "1/16", "1/64", "1/256", "1/1024")
RANKS = 8


def job(*sizes: int) -> Trace:
    """Collectives of each kind at each size, over all ranks, and a send."""
    nodes = []
    for rank in range(RANKS):
        own = []
        for at, size in enumerate(sizes):
            first = 10 * at
            own += [
                all_reduce(first + 1, size),
                collective(first + 2, CollectiveKind.ALL_GATHER, size),
                collective(first + 3, CollectiveKind.REDUCE_SCATTER, size),
                collective(first + 4, CollectiveKind.ALL_TO_ALL, size),
            ]
            if rank < 2:
                own.append(send(first + 5, 1, size) if rank == 0 else recv(first + 5, 0, size))
        nodes.append(own)
    return trace_of(*nodes)


def planned(trace: Trace, scale: str, shaping: str = "nccl") -> Plan:
    made = build_job(trace, WorkloadSettings(bytes_scale=Fraction(scale)))
    text = f"scale: {{bytes: {scale}}}\ncollectives: {{shaping: {shaping}}}"
    return make_plan(scenario_of(text), rig_of({"a": 2, "b": 2}), made)


def payload(plan: Plan) -> tuple[int, int]:
    """Bytes of all, and of what crosses the device."""
    ops = plan.tables.ops
    return int((ops.wire_tx_bytes + ops.local_tx_bytes).sum()), int(ops.wire_tx_bytes.sum())


def shape(plan: Plan) -> tuple[object, ...]:
    choices = [
        (one.collective, one.ranks, one.algorithm, one.protocol, one.channels) for one in plan.tables.choices
    ]
    columns = plan.tables.connections
    pairs = np.stack([columns.src_rank, columns.dst_rank, columns.communicator, columns.channel])
    return tuple(sorted(choices)), pairs.tobytes()


@pytest.mark.parametrize("shaping", ["nccl", "gloo", "mpi", "plain"])
@pytest.mark.parametrize("scale", SCALES[1:])
def test_payload_and_what_crosses_go_with_the_scale(scale: str, shaping: str) -> None:
    trace = job(64 * MIB, 4 * MIB)
    whole, part = planned(trace, "1", shaping), planned(trace, scale, shaping)
    assert shape(part) == shape(whole)
    for got, wanted in zip(payload(part), payload(whole), strict=True):
        # LL128 sends whole lines, which cost a little more where there are few.
        assert got == pytest.approx(wanted * float(Fraction(scale)), rel=0.03)
    assert not any("whole words" in note for note in part.tables.notes)


@pytest.mark.parametrize("scale", SCALES[1:])
def test_uneven_all_to_alls_are_chosen_by_the_bytes_of_the_trace(scale: str) -> None:
    matrix = tuple(tuple((1 + src + dst) * MIB for dst in range(4)) for src in range(4))
    whole, part = planned(all_to_all_v(matrix), "1"), planned(all_to_all_v(matrix), scale)
    assert shape(part) == shape(whole)
    assert payload(part)[0] == pytest.approx(payload(whole)[0] * float(Fraction(scale)), rel=0.002)


def test_what_rounding_adds_is_told() -> None:
    plan = planned(job(4 * MIB, 64), "1/1024")
    assert not any("whole words" in note for note in plan.tables.notes), "where it is little, it is not"
    tiny = planned(job(64), "1/64")
    (note,) = [note for note in tiny.tables.notes if "whole words" in note]
    assert note == (
        "scale.bytes 1/64: rounding to whole words (at least one) changes the bytes of operations by +1617.6%; "
        "scale down less"
    )
