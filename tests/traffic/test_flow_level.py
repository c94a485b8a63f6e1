"""The flow level: the engine's own lanes over links that are shared fairly, held to closed forms and to packets."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import TransportSettings
from etloop.traffic import _native
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.flow_level import FlowLevelOutcome, FlowLevelSettings, flow_level, ideal_network
from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

AR = CollectiveName.ALL_REDUCE
A2A = CollectiveName.ALL_TO_ALL
BARRIER = CollectiveName.BARRIER
LINK_BPS = 100_000_000_000
WIDE = replace(TRANSPORT, window_packets=4096, ack_every_packets=16, timeout_ns=1_000_000_000)
MIB = 1 << 20


def w(message_bytes: int) -> Fraction:
    """Nanoseconds that a message holds a link: packets of 4096 bytes with 82 around each, 20 on the first and last."""
    packets = max(1, -(-message_bytes // 4096))
    return Fraction((message_bytes + 82 * packets + 20) * 8 * 10**9, LINK_BPS)


def ran(job: Assignment, latency_ns: int = 0) -> FlowLevelOutcome:
    outcome = flow_level(job, ideal_network(job, latency_ns))
    assert outcome.failure == ""
    return outcome


def same_on_all(*ops: HandOp, ranks: int, **more: int) -> Assignment:
    return assignment((ops,) * ranks, transport=WIDE, **more)  # type: ignore[arg-type]


def incast(senders: int, message_bytes: int) -> Assignment:
    """Rank 0 receives a message from each of the others at once."""
    receiver = tuple(HandOp("recv", message_bytes, peer=rank) for rank in range(1, senders + 1))
    return assignment(
        (receiver, *(((HandOp("send", message_bytes, peer=0)),) for _ in range(senders))), transport=WIDE
    )


@pytest.mark.parametrize("senders", [1, 2, 4, 8])
def test_senders_to_one_port_share_its_link(senders: int) -> None:
    outcome = ran(incast(senders, 64 * MIB))
    sends = outcome.ops[outcome.ops["tx_messages"] > 0]
    lasted = sends["completed_ns"] - sends["issued_ns"]
    whole = float(senders * w(64 * MIB))
    assert np.all(np.abs(lasted / whole - 1) < 0.002), "all end together, when the link has carried all"


@pytest.mark.parametrize("latency_ns", [0, 2_000])
def test_a_message_takes_its_link_and_its_way(latency_ns: int) -> None:
    job = assignment(((HandOp("send", 4 * MIB, peer=1),), (HandOp("recv", 4 * MIB, peer=0),)), transport=WIDE)
    outcome = ran(job, latency_ns)
    ends = dict(zip(outcome.ops["rank"].tolist(), outcome.ops["completed_ns"].tolist(), strict=True))
    slices = int(outcome.messages)
    # A grant comes first, and the acknowledgement last; every message has its own headers and its own whole nanosecond.
    sent = float(w(4 * MIB)) + slices * 1.6 + slices
    assert ends[1] == pytest.approx(2 * latency_ns + float(w(4 * MIB)), abs=sent - float(w(4 * MIB)) + 2)
    assert ends[0] == ends[1] + latency_ns


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16])
def test_a_ring_all_reduce_takes_what_its_links_need(ranks: int) -> None:
    outcome = ran(same_on_all(HandOp(AR, ranks * MIB), ranks=ranks))
    bound = 2 * (ranks - 1) * float(w(MIB))
    assert bound * 0.999 <= outcome.end_ns <= bound * 1.02


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_all_to_all_takes_what_its_links_need(ranks: int) -> None:
    outcome = ran(same_on_all(HandOp(A2A, ranks * 8 * MIB), ranks=ranks))
    bound = (ranks - 1) * float(w(8 * MIB))
    assert bound * 0.999 <= outcome.end_ns <= bound * 1.02


CASES = (
    ("a ring", (HandOp(AR, 8 * MIB),), 4),
    ("an all-to-all", (HandOp(A2A, 8 * MIB),), 4),
    (
        "one after the other",
        (HandOp(AR, MIB), HandOp(A2A, 4 * MIB, deps=(0,)), HandOp(AR, MIB, deps=(1,))),
        4,
    ),
    ("side by side", (HandOp(AR, 4 * MIB), HandOp(A2A, 4 * MIB)), 4),
    ("behind a computation", (HandOp("delay", 50_000), HandOp(AR, 4 * MIB, deps=(0,))), 3),
    ("a group that is no power of two", (HandOp(AR, 5 * MIB),), 5),
)


@pytest.mark.parametrize(("sentence", "ops", "ranks"), CASES, ids=[case[0] for case in CASES])
def test_packets_take_as_long(sentence: str, ops: tuple[HandOp, ...], ranks: int) -> None:
    """The same job packet by packet, behind a switch without a bottleneck inside, differs by what packets cost."""
    job = same_on_all(*ops, ranks=ranks)
    flows = flow_level(job, ideal_network(job, 1_000))
    packets = simulate(
        job, SimulationSettings(latency_ns=1_000, receiver_links=True, transmit_queue_ns=1_000)
    )
    assert flows.failure == packets.failure == ""
    assert flows.end_ns == pytest.approx(packets.end_ns, rel=0.02), sentence
    for name in ("wire_tx_bytes", "wire_rx_bytes", "tx_messages", "rx_messages"):
        key = ("rank", "op", "iteration")
        assert np.array_equal(np.sort(flows.ops, order=key)[name], np.sort(packets.ops, order=key)[name]), (
            f"{sentence}: {name}"
        )


def test_iterations_follow_each_other() -> None:
    once = ran(same_on_all(HandOp(AR, MIB), ranks=4)).end_ns
    thrice = ran(same_on_all(HandOp(AR, MIB), ranks=4, iterations=3))
    assert thrice.end_ns == pytest.approx(3 * once, rel=0.001)
    assert np.bincount(thrice.ops["iteration"]).tolist() == [4, 4, 4]


def test_ranks_of_one_host_take_its_scale_up_links() -> None:
    job = assignment(((HandOp(AR, 8 * MIB),),) * 4, hosts=(0, 0, 0, 0), transport=WIDE)
    outcome = ran(job)
    assert int(outcome.ops["wire_tx_bytes"].sum()) == 0
    # Twice three quarters of the bytes at 400 Gb/s, and a microsecond for every step and its grant.
    bandwidth_ns = 2 * 3 / 4 * 8 * MIB * 8 / 400
    assert bandwidth_ns < outcome.end_ns < 1.1 * bandwidth_ns + 4 * 3 * 1_000


@pytest.mark.parametrize("message_bytes", [144, 1440, 14400, 144000])
@pytest.mark.parametrize("qps", [1, 2, 3])
def test_messages_of_several_sizes_take_turns_and_no_link_carries_more(message_bytes: int, qps: int) -> None:
    """What queue pairs win by their turn others lose, whatever the sizes of their packets."""
    outcome = ran(same_on_all(HandOp(AR, message_bytes), ranks=3, qps_each=qps))
    assert outcome.end_ns + 1 >= max(outcome.link_bytes.tolist()) * 8 * 10**9 / LINK_BPS


def test_queue_pairs_of_a_connection_share_its_messages() -> None:
    one, four = (ran(same_on_all(HandOp(AR, 8 * MIB), ranks=4, qps_each=qps)) for qps in (1, 4))
    assert four.end_ns == pytest.approx(one.end_ns, rel=0.01)
    assert four.most_live_flows > one.most_live_flows


def test_split_messages_arrive_whole() -> None:
    split: TransportSettings = replace(WIDE, split_data_on_qps=True)
    job = assignment(((HandOp(AR, 8 * MIB),),) * 4, qps_each=3, transport=split)
    whole = ran(same_on_all(HandOp(AR, 8 * MIB), ranks=4))
    outcome = ran(job)
    assert outcome.end_ns == pytest.approx(whole.end_ns, rel=0.01)
    assert outcome.messages == 3 * whole.messages
    assert int(outcome.ops["rx_messages"].sum()) == whole.messages


def test_links_carry_what_was_sent() -> None:
    job = same_on_all(HandOp(A2A, 4 * MIB), ranks=4)
    network = ideal_network(job)
    outcome = flow_level(job, network)
    payload = int(outcome.ops["wire_tx_bytes"].sum())
    sent, received = (
        sum(
            int(b)
            for b, name in zip(outcome.link_bytes, network.link_names, strict=True)
            if name.endswith(end)
        )
        for end in (" out", " in")
    )
    assert sent == received
    assert payload * (1 + 82 / 4096) <= sent <= payload * (1 + 82 / 4096) + outcome.messages * 102


def test_the_same_job_gives_the_same_bytes() -> None:
    job = same_on_all(HandOp(AR, 4 * MIB), HandOp(A2A, 4 * MIB), ranks=6)
    assert ran(job, 700).ops.tobytes() == ran(job, 700).ops.tobytes()


def test_too_many_messages_end_a_run_and_leave_what_was_done() -> None:
    job = same_on_all(HandOp(AR, 4 * MIB), ranks=4, iterations=10)
    whole = ran(job)
    cut = flow_level(job, ideal_network(job), FlowLevelSettings(most_messages=whole.messages // 2))
    assert cut.too_many_messages
    assert cut.failure.startswith("more than ")
    assert 0 < len(cut.ops) < len(whole.ops)
    assert cut.ops.tobytes() == whole.ops[: len(cut.ops)].tobytes(), "what comes later changes nothing before"


def test_a_job_that_waits_for_itself_says_so_and_for_what() -> None:
    """Both ranks receive before they send."""
    programs = tuple(
        (HandOp("recv", MIB, peer=1 - rank), HandOp("send", MIB, peer=1 - rank, deps=(0,)))
        for rank in range(2)
    )
    job = assignment(programs, transport=WIDE)
    outcome = flow_level(job, ideal_network(job))
    assert outcome.failure == "no event is left: the job waits for itself"
    assert {(int(wait["rank"]), int(wait["op"])) for wait in outcome.waits} >= {(0, 0), (1, 0)}


@pytest.mark.parametrize("limit_ns", [100_000, 1])
def test_a_limit_of_time_is_kept(limit_ns: int) -> None:
    """Also if it is short compared with the grid on which messages end."""
    job = same_on_all(HandOp(AR, 64 * MIB), ranks=4)
    outcome = flow_level(job, ideal_network(job), FlowLevelSettings(limit_ns=limit_ns))
    assert outcome.failure == "the time limit was reached"
    assert outcome.end_ns == limit_ns


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("latency_ns", np.zeros(3, np.int64), "the plan has 4 ways, the network 3"),
        ("link_bps", np.zeros(16, np.int64), "a link without a rate"),
        ("part_link", np.full(8, 99, np.int32), "a way over no link"),
        ("part_link", np.zeros(8, np.int32), "a way takes a link twice"),
        ("part_share", np.zeros(8, np.float32), "a part of a way is not in (0, 1]"),
        ("part_share", np.ones(7, np.float32), "part_link and part_share differ in length"),
        ("latency_ns", np.full(4, -1, np.int64), "a latency is out of range"),
        ("store_ns_per_bit", np.full(4, -1.0), "a store is out of range"),
        ("store_ns_per_bit", np.full(4, np.nan), "a store is out of range"),
        ("store_ns_per_bit", np.zeros(5), "a store is out of range"),
        ("way_offsets", np.array([0, 4, 2, 6, 8], np.int64), "way offsets fall"),
        ("way_offsets", np.zeros(0, np.int64), "way_offsets is empty"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(column: str, value: object, message: str) -> None:
    job = same_on_all(HandOp(AR, MIB), ranks=4)
    network = replace(ideal_network(job), **{column: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("]", r"\]").replace("[", r"\[")):
        flow_level(job, network)


AMOUNTS = st.integers(0, 3 * MIB)
PLANS = st.lists(st.tuples(st.sampled_from([AR, A2A]), AMOUNTS, st.booleans()), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(plan=PLANS, ranks=st.integers(2, 6), latency_ns=st.integers(0, 5_000), qps=st.integers(1, 3))
def test_any_job_ends_with_every_byte_where_it_belongs(
    plan: list[tuple[CollectiveName, int, bool]], ranks: int, latency_ns: int, qps: int
) -> None:
    ops = tuple(
        HandOp(what, amount // ranks * ranks, deps=(at - 1,) if waits and at else ())
        for at, (what, amount, waits) in enumerate(plan)
    )
    job = same_on_all(*ops, ranks=ranks, qps_each=qps)
    outcome = ran(job, latency_ns)
    assert len(outcome.ops) == len(ops) * ranks
    assert int(outcome.ops["wire_tx_bytes"].sum()) == int(outcome.ops["wire_rx_bytes"].sum())
    assert int(outcome.ops["tx_messages"].sum()) == int(outcome.ops["rx_messages"].sum())
    assert np.all(outcome.ops["completed_ns"] >= outcome.ops["issued_ns"])
    busiest = max(outcome.link_bytes.tolist()) * 8 * 10**9 / LINK_BPS
    assert outcome.end_ns + 1 >= busiest * 0.998, "no link carries more than it can, but for the nanosecond"


def test_live_flows_bound_what_is_kept() -> None:
    """Sixteen times as much per rank is sixteen times the messages, and as many flows at a time."""
    small, large = (ran(same_on_all(HandOp(AR, size * MIB), ranks=4)) for size in (16, 256))
    assert large.messages == 16 * small.messages
    assert large.most_live_flows == small.most_live_flows == 4


def test_a_plugin_that_nobody_compiled_does_not_matter_here() -> None:
    """Nothing is sent, so nothing is controlled; the keys of flows are those of the same job without it."""
    job = same_on_all(HandOp(AR, MIB), ranks=4)
    plugin = CongestionSettings(plugin_name="mine.cpp", plugin=np.frombuffer(b"not even C++", np.uint8))
    with_plugin = replace(job, transport=replace(job.transport, congestion=plugin))
    outcome = flow_level(with_plugin, ideal_network(with_plugin))
    assert outcome.ops.tobytes() == ran(job).ops.tobytes()
    assert _native.flow_keys(with_plugin) == _native.flow_keys(job)
