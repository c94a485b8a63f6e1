"""The engine in virtual time: every byte arrives exactly once whatever the network does, and a seed says it all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etloop.contract.model.records import WaitKind
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment

AR = CollectiveName.ALL_REDUCE

CLOSED_FORMS = {
    # payload bytes that all ranks together send for S bytes put in by each of n
    CollectiveName.ALL_REDUCE: lambda s, n: 2 * s * (n - 1),
    CollectiveName.ALL_GATHER: lambda s, n: s * n * (n - 1),
    CollectiveName.REDUCE_SCATTER: lambda s, n: s * (n - 1),
    CollectiveName.ALL_TO_ALL: lambda s, n: s * (n - 1),
    CollectiveName.BROADCAST: lambda s, n: s * (n - 1),
    CollectiveName.REDUCE: lambda s, n: s * (n - 1),
}

BAD_NETWORK = SimulationSettings(
    seed=7,
    loss_per_million=50_000,
    duplicate_per_million=10_000,
    reorder_per_million=10_000,
    corrupt_per_million=5_000,
    initial_psn=0xFFFFF0,
)


def everywhere(size: int, *ops: HandOp) -> tuple[tuple[HandOp, ...], ...]:
    return tuple(ops for _ in range(size))


def finished(job: Assignment, settings: SimulationSettings) -> SimulationOutcome:
    outcome = simulate(job, settings)
    assert outcome.failure == ""
    return outcome


def test_ipv6_addresses_change_no_byte() -> None:
    addresses = tuple(f"fd00:5b::{rank + 1}" for rank in range(4))
    outcome = finished(assignment(everywhere(4, HandOp(AR, 300_000)), addresses=addresses), BAD_NETWORK)
    assert outcome.ops["wire_tx_bytes"].sum() == CLOSED_FORMS[AR](300_000, 4)
    assert outcome.bad_icrc > 0


@pytest.mark.parametrize("name", CLOSED_FORMS, ids=lambda name: name.name.lower())
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_bytes_are_exact_on_a_bad_network(name: CollectiveName, size: int) -> None:
    """5 % loss, duplicates, reordering, bit errors and wrapping sequence numbers change no byte that is counted."""
    amounts = (size * 300_000, size * 1024)
    job = assignment(everywhere(size, HandOp(name, amounts[0]), HandOp(name, amounts[1], (0,))), iterations=2)
    outcome = finished(job, BAD_NETWORK)
    assert len(outcome.ops) == 2 * 2 * size
    expected = 2 * sum(CLOSED_FORMS[name](amount, size) for amount in amounts)
    assert outcome.ops["wire_tx_bytes"].sum() == expected
    assert outcome.ops["wire_rx_bytes"].sum() == expected
    flows = outcome.flows
    assert flows["tx_payload_bytes"][flows["sends_data"] == 1].sum() == expected
    assert flows["rx_payload_bytes"][flows["sends_data"] == 0].sum() == expected
    assert flows["tx_messages"].sum() == flows["rx_messages"].sum()
    assert outcome.lost > 0
    assert flows["retransmitted_packets"].sum() > 0


def test_corrupt_packets_are_found_by_their_icrc() -> None:
    job = assignment(everywhere(4, HandOp(AR, 4 << 20)))
    outcome = finished(job, SimulationSettings(seed=3, corrupt_per_million=20_000))
    assert outcome.corrupted > 50
    # A flipped bit of a field outside the packet's meaning (such as P_Key) is hashed as if it were right.
    assert outcome.corrupted // 2 < outcome.bad_icrc <= outcome.corrupted


def test_same_seed_same_records() -> None:
    job = assignment(
        everywhere(5, HandOp(CollectiveName.ALL_TO_ALL, 500_000), HandOp(AR, 70_000)), iterations=3
    )
    first, second = simulate(job, BAD_NETWORK), simulate(job, BAD_NETWORK)
    assert first.ops.tobytes() == second.ops.tobytes()
    assert first.flows.tobytes() == second.flows.tobytes()
    other = simulate(job, replace(BAD_NETWORK, seed=8))
    assert first.ops.tobytes() != other.ops.tobytes()


def test_dependencies_and_delays_set_the_intended_time() -> None:
    ops = (
        HandOp(AR, 1 << 16),
        HandOp("delay", 5_000_000, (0,)),
        HandOp("delay", 1_000_000, (1,)),
        HandOp(AR, 1 << 16, (2,)),
    )
    outcome = finished(assignment(everywhere(3, *ops)), SimulationSettings())
    for rank in range(3):
        mine = {int(row["op"]): row for row in outcome.ops if row["rank"] == rank}
        assert mine[3]["intended_ns"] == mine[0]["completed_ns"] + 6_000_000
        assert mine[3]["issued_ns"] == mine[3]["intended_ns"]  # in virtual time the emulator is never late
        assert mine[3]["first_tx_ns"] >= mine[3]["issued_ns"]
        assert mine[3]["completed_ns"] > mine[3]["first_tx_ns"]


def test_iterations_follow_each_other_on_every_rank() -> None:
    outcome = finished(assignment(everywhere(4, HandOp(AR, 1 << 16)), iterations=4), SimulationSettings())
    for rank in range(4):
        mine = outcome.ops[outcome.ops["rank"] == rank]
        assert list(mine["iteration"]) == [0, 1, 2, 3]
        assert (mine["issued_ns"][1:] >= mine["completed_ns"][:-1]).all()


def test_sends_before_receives_do_not_deadlock() -> None:
    """Every rank sends to its neighbour and only then receives: receives are granted ahead of their op."""
    programs = tuple(
        (
            HandOp("send", 1 << 20, peer=(rank + 1) % 4, sequence=0),
            HandOp("recv", 1 << 20, (0,), peer=(rank - 1) % 4, sequence=0),
        )
        for rank in range(4)
    )
    outcome = finished(assignment(programs, iterations=2), BAD_NETWORK)
    assert outcome.ops["wire_rx_bytes"].sum() == 2 * 4 << 20


def test_receives_far_beyond_the_eager_window_in_another_order() -> None:
    """40 messages of one pair; the receiver's ops become ready last to first."""
    count = 40
    sends = tuple(HandOp("send", 1000 + k, (k - 1,) if k else (), peer=1, sequence=k) for k in range(count))
    recvs = tuple(HandOp("recv", 1000 + count - 1 - k, peer=0, sequence=count - 1 - k) for k in range(count))
    outcome = finished(assignment((sends, recvs), iterations=3), BAD_NETWORK)
    assert outcome.ops["wire_rx_bytes"].sum() == 3 * sum(1000 + k for k in range(count))


def test_packets_to_one_port_take_turns_on_its_link() -> None:
    """Three ranks send to the fourth: with its link at the speed of theirs it takes three times as long, not once."""
    sends = tuple((HandOp("send", 8 << 20, peer=3),) for _ in range(3))
    receives = tuple(HandOp("recv", 8 << 20, peer=rank) for rank in range(3))
    job = assignment((*sends, receives), transport=replace(TRANSPORT, timeout_ns=20_000_000))
    apart, together = (finished(job, SimulationSettings(receiver_links=linked)) for linked in (False, True))
    assert 2.9 < together.end_ns / apart.end_ns < 3.0, "all but the latency, which is paid once"
    one = assignment(((HandOp("send", 8 << 20, peer=1),), (HandOp("recv", 8 << 20, peer=0),)))
    alone = [finished(one, SimulationSettings(receiver_links=linked)).end_ns for linked in (False, True)]
    assert alone[0] == alone[1], "a link that nobody else uses adds nothing"


def test_a_short_transmit_queue_lets_queue_pairs_take_turns() -> None:
    """Two ranks send each other; their acknowledgements need not wait behind a whole window of data."""
    sends = tuple(
        (HandOp("send", 8 << 20, peer=1 - rank), HandOp("recv", 8 << 20, peer=1 - rank)) for rank in (0, 1)
    )
    job = assignment(sends, transport=replace(TRANSPORT, timeout_ns=20_000_000))
    deep, short = (finished(job, SimulationSettings(transmit_queue_ns=ns)) for ns in (0, 1_000))
    assert short.ops["completed_ns"].max() <= deep.ops["completed_ns"].max()
    assert (short.ops["rx_messages"] == deep.ops["rx_messages"]).all()
    assert short.flows["retransmitted_packets"].sum() == 0


def test_a_port_that_is_always_full_of_data_still_sends_answers() -> None:
    """Two ranks send each other, a window of data being a tenth of the message: without acknowledgements both would stop."""
    sends = tuple(
        (HandOp("send", 8 << 20, peer=1 - rank), HandOp("recv", 8 << 20, peer=1 - rank)) for rank in (0, 1)
    )
    job = assignment(
        sends, transport=replace(TRANSPORT, timeout_ns=20_000_000, window_packets=200, ack_every_packets=16)
    )
    one_way = assignment(((HandOp("send", 8 << 20, peer=1),), (HandOp("recv", 8 << 20, peer=0),)))
    network = SimulationSettings(transmit_queue_ns=1_000, receiver_links=True, fair_links=True)
    both, one = (finished(each, network).end_ns for each in (job, one_way))
    assert both < 1.05 * one, "full duplex"


def test_queue_pairs_take_turns_on_a_fair_link() -> None:
    """A short message to a rank does not wait behind the long one that came before it."""
    sends = (
        (HandOp("send", 8 << 20, peer=2),),
        (HandOp("delay", 200_000), HandOp("send", 1 << 16, (0,), peer=2)),
        (HandOp("recv", 8 << 20, peer=0), HandOp("recv", 1 << 16, peer=1)),
    )
    job = assignment(sends, transport=replace(TRANSPORT, timeout_ns=20_000_000, window_packets=4096))
    ended = []
    for fair in (False, True):
        ops = finished(job, SimulationSettings(receiver_links=True, fair_links=fair)).ops
        ended.append({(int(row["rank"]), int(row["op"])): int(row["completed_ns"]) for row in ops})
    assert ended[1][2, 0] <= ended[0][2, 0] * 1.02, "the link is as busy as before"
    assert ended[1][2, 1] - 200_000 <= 3 * (1 << 16) * 8 // 100 + 20_000


def test_an_empty_send_is_one_empty_message() -> None:
    programs = ((HandOp("send", 0, peer=1),), (HandOp("recv", 0, peer=0),))
    outcome = finished(assignment(programs), SimulationSettings())
    assert outcome.ops["tx_messages"].sum() == 1
    assert outcome.ops["wire_tx_bytes"].sum() == 0


def test_messages_go_round_over_queue_pairs() -> None:
    job = assignment(everywhere(2, HandOp(CollectiveName.BROADCAST, 8 << 20)), qps_each=4)
    flows = finished(job, BAD_NETWORK).flows
    sent = flows["tx_messages"][(flows["sends_data"] == 1) & (flows["tx_messages"] > 0)]
    assert list(sent) == [4, 4, 4, 4]  # 16 messages of 512 KiB


def test_ranks_of_a_host_use_the_scale_up_model() -> None:
    job = assignment(everywhere(4, HandOp(AR, 1 << 20)), hosts=(0, 0, 1, 1))
    outcome = finished(job, SimulationSettings())
    ops = outcome.ops
    assert ops["wire_tx_bytes"].sum() == ops["local_tx_bytes"].sum() == 2 * 3 * (1 << 20) // 2
    assert ops["local_rx_bytes"].sum() == ops["local_tx_bytes"].sum()


def test_a_rank_without_ops_is_done_at_once() -> None:
    programs = ((HandOp(AR, 1 << 16),), (HandOp(AR, 1 << 16),))
    job = assignment(programs, iterations=3)
    empty = replace(
        job.programs[0],
        kind=np.zeros(0, np.uint8),
        schedule=np.zeros(0, np.int32),
        slot=np.zeros(0, np.int32),
        sequence=np.zeros(0, np.int32),
        message_bytes=np.zeros(0, np.int64),
        delay_ns=np.zeros(0, np.int64),
        dep_offsets=np.zeros(1, np.int64),
        deps=np.zeros(0, np.int32),
    )
    idle = replace(job, programs=(empty, empty))
    assert len(finished(idle, SimulationSettings()).ops) == 0


def test_a_dying_peer_ends_the_run_with_its_link_named() -> None:
    job = assignment(everywhere(4, HandOp(AR, 64 << 20)))
    outcome = simulate(job, SimulationSettings(dying_port=2, dies_at_ns=1_000_000))
    assert "no acknowledgement after the last retry" in outcome.failure
    assert "-> rank 2 (" in outcome.failure or "rank 2 -> " in outcome.failure
    waits = outcome.waits
    unacknowledged = waits[waits["kind"] == WaitKind.ACKNOWLEDGEMENT]
    assert 2 in set(unacknowledged["peer_rank"])
    assert set(waits["rank"]) >= {0, 1, 3}


def test_probes_find_their_peers_and_miss_the_dead() -> None:
    job = assignment(everywhere(3, HandOp(AR, 1 << 16)))
    good = finished(job, SimulationSettings(probe_first=True, loss_per_million=100_000, seed=2))
    assert set(good.probe_verdicts) == {1}
    dead = simulate(job, SimulationSettings(probe_first=True, dying_port=1))
    assert sorted(set(dead.probe_verdicts)) in ([0, 1, 2], [0, 2], [1, 2])


def test_a_wait_that_cannot_end_is_told() -> None:
    """Rank 1 never takes part: rank 0 waits for its clear-to-send and its data."""
    job = assignment(everywhere(2, HandOp(AR, 1 << 16)))
    idle = replace(
        job.programs[1],
        kind=np.array([0], np.uint8),
        schedule=np.array([-1], np.int32),
        slot=np.array([-1], np.int32),
        message_bytes=np.array([0], np.int64),
    )
    outcome = simulate(replace(job, programs=(job.programs[0], idle)), SimulationSettings())
    assert outcome.failure == "no event is left: the job waits for itself"
    assert set(outcome.waits["kind"]) == {WaitKind.CLEAR_TO_SEND, WaitKind.DATA}
    assert set(outcome.waits["peer_rank"]) == {1}


HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "a dependency on itself": (
        "programs[0]",
        {"deps": np.array([0], np.int32), "dep_offsets": np.array([0, 1], np.int64)},
    ),
    "an unknown schedule": ("programs[0]", {"schedule": np.array([99], np.int32)}),
    "a negative size": ("programs[0]", {"message_bytes": np.array([-1], np.int64)}),
    "columns of different length": ("programs[0]", {"slot": np.array([0, 0], np.int32)}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_programs_are_refused(case: str) -> None:
    job = assignment(everywhere(2, HandOp(AR, 1 << 16)))
    where, changes = HOSTILE[case]
    broken = replace(job, programs=(replace(job.programs[0], **changes), job.programs[1]))
    with pytest.raises(ValueError, match=where.replace("[", r"\[").replace("]", r"\]")):
        simulate(broken, SimulationSettings())


def test_hostile_ranks_and_connections_are_refused() -> None:
    job = assignment(everywhere(2, HandOp(AR, 1 << 16)))
    cases = (
        (replace(job, ranks=(replace(job.ranks[0], program=9), job.ranks[1])), "unknown program"),
        (replace(job, ranks=(replace(job.ranks[0], address=3), job.ranks[1])), "unknown address"),
        (replace(job, transport=replace(TRANSPORT, path_mtu_bytes=1500)), "1500 is not 256"),
        (replace(job, iterations=0), "at least one"),
        (
            replace(job, connections=replace(job.connections, qp_offsets=np.array([0, 1, 9], np.int32))),
            "out of range",
        ),
        (
            replace(job, connections=replace(job.connections, dst_rank=job.connections.src_rank)),
            "connected to itself",
        ),
    )
    for broken, text in cases:
        with pytest.raises(ValueError, match=text):
            simulate(broken, SimulationSettings())
