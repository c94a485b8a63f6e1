"""The wait-for chain over hand-made waits: where it ends, whom it blames, and what it makes of nonsense."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from etloop.contract.model.records import NO_PSN, WAIT_RECORD, WaitKind
from etloop.controller.session.stall import StallEvidence, StallFinding, explain
from tests.support.control_plane.control_plane_by_hand import ring_assignments, ring_tables

NAMES = ("a", "b", "c", "d")
ASSIGNMENTS = ring_assignments(*NAMES)
TABLES = ring_tables(*NAMES)

Row = tuple[int, int, int, int, int, int, int, int, int, int]


def dependency(rank: int, op: int, blocking: int) -> Row:
    return (rank, op, 0, WaitKind.DEPENDENCY, -1, blocking, -1, 0, 0, 0)


def from_peer(kind: int, rank: int, op: int, peer: int, connection: int = -1, iteration: int = 0) -> Row:
    return (rank, op, iteration, kind, peer, -1, connection, 1, 4, 0)


def acknowledgement(rank: int, op: int, peer: int, connection: int, psn: int) -> Row:
    return (rank, op, 0, WaitKind.ACKNOWLEDGEMENT, peer, -1, connection, 3, 4, psn)


def records(*rows: Row) -> NDArray[np.void]:
    return np.array(list(rows), WAIT_RECORD)


def find(*rows: Row, silent: tuple[str, ...] = ()) -> StallFinding:
    """Each row is reported by the agent of its rank."""
    waits = {name: records(*(row for row in rows if row[0] == rank)) for rank, name in enumerate(NAMES)}
    return explain(
        StallEvidence({k: v for k, v in waits.items() if k not in silent}, silent), ASSIGNMENTS, TABLES
    )


def test_a_chain_leads_over_dependencies_and_peers_to_the_broken_link() -> None:
    finding = find(
        dependency(3, 9, blocking=8),
        from_peer(WaitKind.DATA, 3, 8, peer=2, connection=0),
        from_peer(WaitKind.CLEAR_TO_SEND, 2, 8, peer=1),
        acknowledgement(1, 8, peer=2, connection=1, psn=17),
    )
    assert not finding.computing
    assert finding.text.splitlines() == [
        (
            "rank 3 all_reduce #9 of communicator world (node 109) waits for its all_reduce #8 of communicator world "
            "(node 108)"
        ),
        (
            "rank 3 all_reduce #8 of communicator world (node 108) waits for data from rank 2 "
            "(127.0.0.4 -> 127.0.0.3, qpn 0x102) (1 of 4 messages done)"
        ),
        (
            "rank 2 all_reduce #8 of communicator world (node 108) waits for clear-to-send from rank 1 "
            "(1 of 4 messages done)"
        ),
        (
            "rank 1 all_reduce #8 of communicator world (node 108) waits for an acknowledgement from rank 2 "
            "(127.0.0.2 -> 127.0.0.3, qpn 0x201): packet 17 was never acknowledged"
        ),
    ]


def test_a_link_on_which_every_packet_is_acknowledged_is_not_blamed() -> None:
    finding = find(
        acknowledgement(0, 4, 1, 0, NO_PSN), acknowledgement(2, 4, 3, 1, 5), acknowledgement(3, 4, 0, 1, 5)
    )
    *_, cause, others = finding.text.splitlines()
    assert cause.startswith("rank 2 ")
    assert cause.endswith("packet 5 was never acknowledged")
    assert others == "acknowledgements are also missing on rank 3 -> rank 0"


def test_other_broken_links_are_named_too() -> None:
    finding = find(
        acknowledgement(0, 4, 1, 0, 5), acknowledgement(2, 4, 3, 1, 5), acknowledgement(3, 4, 0, 1, 5)
    )
    assert (
        finding.text.splitlines()[-1]
        == "acknowledgements are also missing on rank 2 -> rank 3, rank 3 -> rank 0"
    )


def test_a_compute_delay_is_no_stall() -> None:
    finding = find(from_peer(WaitKind.DATA, 1, 8, peer=0), (0, 77, 0, WaitKind.DELAY, -1, -1, -1, 0, 0, 0))
    assert finding == StallFinding(True, "rank 0 computes (delay op 77 of its program)")


def test_an_agent_that_does_not_answer_ends_the_chain() -> None:
    finding = find(from_peer(WaitKind.DATA, 1, 8, peer=0), silent=("a",))
    assert finding.text.splitlines() == [
        (
            "rank 1 all_reduce #8 of communicator world (node 108) waits for data from rank 0 (1 of 4 messages done); "
            "its agent 'a' did not answer"
        ),
        "agent 'a' did not report what it waits for",
    ]


def test_a_peer_that_reports_nothing_is_named_with_its_agent() -> None:
    finding = find(from_peer(WaitKind.DATA, 1, 8, peer=0))
    assert finding.text.endswith(
        "waits for data from rank 0 (1 of 4 messages done), which reports nothing "
        "unfinished there (agent 'a')"
    )


def test_a_peer_in_an_earlier_iteration_holds_up_a_later_one() -> None:
    finding = find(from_peer(WaitKind.DATA, 1, 0, peer=0, iteration=1), acknowledgement(0, 19, 1, 0, 3))
    assert [line.split(" waits")[0] for line in finding.text.splitlines()] == [
        "rank 1 all_reduce #0 of communicator world (node 100)",
        "rank 0 all_reduce #19 of communicator world (node 119)",
    ]


def test_a_circle_is_told_as_one() -> None:
    finding = find(from_peer(WaitKind.DATA, 0, 3, peer=1), from_peer(WaitKind.DATA, 1, 3, peer=0))
    lines = finding.text.splitlines()
    assert lines[0] == "the waits form a cycle:"
    assert len(lines) == 3


def test_a_lane_behind_another_of_its_op_is_not_the_cause() -> None:
    """The lane that receives is told; the one that would pass the message on adds nothing."""
    behind = from_peer(WaitKind.LANE, 2, 8, peer=1)
    rows = (from_peer(WaitKind.DATA, 2, 8, peer=1), acknowledgement(1, 8, peer=2, connection=1, psn=17))
    assert find(behind, *rows) == find(*rows)
    alone = find(behind).text
    assert alone == (
        "rank 2 all_reduce #8 of communicator world (node 108) waits for a message to pass on, "
        "which none of its own steps releases"
    )


def test_a_long_chain_shows_both_ends() -> None:
    finding = find(*(dependency(0, op, op - 1) for op in range(19, 0, -1)), acknowledgement(0, 0, 1, 0, 1))
    lines = finding.text.splitlines()
    assert len(lines) == 13
    assert lines[6] == "... 8 more between ..."
    assert lines[-1].endswith("packet 1 was never acknowledged")


def test_nothing_unfinished_is_told_as_such() -> None:
    finding = find(silent=("b",))
    assert (
        finding.text == "no agent reports an unfinished operation\nagent 'b' did not report what it waits for"
    )


SMALL = st.integers(-2, 6)
ROWS = st.tuples(
    SMALL, SMALL, SMALL, st.integers(-1, 7), SMALL, SMALL, SMALL, SMALL, SMALL, st.integers(0, 9)
)


@given(st.lists(ROWS, max_size=12))
def test_any_waits_give_a_finding(rows: list[Row]) -> None:
    evidence = StallEvidence({"a": records(*rows)}, ())
    assert explain(evidence, ASSIGNMENTS, TABLES).text
