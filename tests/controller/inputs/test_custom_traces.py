"""Custom-collective traces: what is matched and proved of them, and what is refused."""

import re

import pytest

from etloop.contract.base.errors import TraceError
from etloop.controller.inputs.chakra_schedules import read_custom, schedule_of_custom
from etloop.traffic.collectives.choice import Settings, choose
from etloop.traffic.collectives.nccl.hardware import Layout
from etloop.traffic.collectives.proof.validate import validate
from tests.support.traces.traces_by_hand import HandNode, compute, recv, send, trace_of

KIB = 1024


def swap() -> tuple[list[HandNode], list[HandNode]]:
    """Two ranks: each sends its buffer, adds what comes, and is done."""
    return (
        [send(0, 1, KIB), recv(1, 1, KIB), compute(2).after(1)],
        [send(0, 0, KIB), recv(1, 0, KIB), compute(2).after(1)],
    )


def relay() -> tuple[list[HandNode], ...]:
    """A broadcast down a chain of three, in two halves; a delay stands between receiving and sending."""
    return (
        [send(0, 1, 512, tag=1), send(1, 1, 512, tag=2)],
        [
            recv(0, 0, 512, tag=2),
            recv(1, 0, 512, tag=1),
            compute(2).after(0),
            send(3, 2, 512, tag=1).after(1),
            send(4, 2, 512, tag=2).after(2),
        ],
        [recv(0, 1, 512, tag=1), recv(1, 1, 512, tag=2)],
    )


def test_sends_and_receives_become_lanes_that_wait_for_each_other() -> None:
    program = read_custom(trace_of(*relay()), "x.et", KIB, "broadcast")
    assert program.pieces == 2
    request = choose("broadcast", Layout(3, 1), 4 * KIB, Settings()).request
    schedule, nodes = schedule_of_custom(request, "custom:x", program)
    assert {nodes[1, 1, entry] for entry in range(2)} == {(1, 3), (1, 4)}
    tables = list(schedule.tables)
    assert [[(lane.send_to, lane.recv_from) for lane in table] for table in tables] == [
        [(1, -1)],
        [(-1, 0), (2, -1)],
        [(-1, 1)],
    ]
    # The receiver takes messages in the order of sending; the second send waits, through the delay, for the second.
    assert [(e.chunk, e.after_lane, e.after_entry) for e in tables[1][1].entries] == [(0, 0, 0), (1, 0, 1)]
    for op_bytes in (1, 999, 4 * KIB, 5 << 20):
        validate(schedule, op_bytes, contents=False)


def test_messages_scale_with_the_buffer() -> None:
    program = read_custom(trace_of(*swap()), "x.et", KIB, "all-reduce")
    assert program.pieces == 1
    assert read_custom(trace_of(*swap()), "x.et", 2 * KIB, "all-gather").pieces == 2


first, second = swap()
REFUSED = {
    "a send that nobody receives": (
        ([*first, send(9, 1, KIB, tag=5)], second),
        "node 9 sends to rank 1, which does not receive it; give every send a receive of its tag and size",
    ),
    "a receive that nobody sends": (
        (first, [*second, recv(9, 0, KIB, tag=5)]),
        "node 9 receives from rank 0, which does not send it",
    ),
    "different sizes": (
        ([send(0, 1, 512), recv(1, 1, KIB)], second),
        "node 0 sends 512 bytes to rank 1, which receives 1024",
    ),
    "nobody to send to": (([send(0, 7, KIB), recv(1, 1, KIB)], second), "node 0 sends to rank 7; name another rank from 0 to 1"),
    "itself": (([recv(0, 0, KIB)], second), "node 0 receives from rank 0; name another rank from 0 to 1"),
    "a dependency that is not there": (
        ([send(0, 1, KIB).after(77), recv(1, 1, KIB)], second),
        "node 0 waits for node 77, which does not exist",
    ),
    "both wait for the other": (
        ([recv(1, 1, KIB), send(0, 1, KIB).after(1)], [recv(1, 0, KIB), send(0, 0, KIB).after(1)]),
        "hand/w.0.et: node 1 waits for hand/w.1.et: node 0 waits for hand/w.1.et: node 1 waits for ",
    ),
    "someone who is told nothing": (
        ([send(0, 1, KIB)], [recv(0, 0, KIB)]),
        "rank 0 receives no data of rank 1; the all-reduce needs the data of all",
    ),
    "no messages": (([compute(0)], [compute(0)]), "the traces have no messages"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_together_is_refused(case: str) -> None:
    ranks, printed = REFUSED[case]
    with pytest.raises(TraceError, match=re.escape(printed)):
        read_custom(trace_of(*ranks), "x.et", KIB, "all-reduce")


@pytest.mark.parametrize(
    ("recorded", "printed"),
    [
        (1_000_003, "the messages are not a simple fraction of 1000003 bytes; write the buffer size"),
        (16 * KIB, "rank 0 receives 1.02 kB; the all-reduce of 16.4 kB takes at least 8.19 kB"),
    ],
)
def test_a_buffer_of_another_size_than_recorded_is_noticed(recorded: int, printed: str) -> None:
    with pytest.raises(TraceError, match=re.escape(printed)):
        read_custom(trace_of(*swap()), "x.et", recorded, "all-reduce")
