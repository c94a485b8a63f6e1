"""The twin against what is known of such networks: closed forms, conservation, the switch's own rules, and determinism."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.fault_rules import PauseRule
from etloop.contract.model.switch_counters import LANE_SAMPLE, SWITCH_PORT_COUNTERS
from etloop.contract.model.topology import (
    LoadBalancing,
    Marking,
    Outage,
    PortRules,
    SwitchEnd,
    SwitchFault,
    SwitchSeeds,
    Topology,
    Trimming,
)
from etloop.contract.model.transport import ArbitrationSettings, RecoverySettings
from etloop.traffic import _native
from etloop.traffic.collectives.selection import CollectiveName
from etloop.traffic.twin import TwinOutcome, TwinSettings
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.twin_by_hand import (
    DELAY_NS,
    FRAME_BYTES,
    LINE_BYTES,
    RATE_BPS,
    ROCE,
    UNCONTROLLED,
    changed,
    dropped,
    incast,
    marked,
    pairs,
    paused,
    star,
    through,
    two_tiers,
)

MESSAGE_BYTES = 2 << 20


def line_ns(frame_bytes: int, rate_bps: int = RATE_BPS) -> int:
    return -(-(frame_bytes + 20) * 8_000_000_000 // rate_bps)


def group_of(topology: Topology, **settings: object) -> Topology:
    """The topology with the RoCE priority group of its switches changed."""
    groups = list(topology.switches[0].groups)
    groups[ROCE] = replace(groups[ROCE], **settings)  # type: ignore[arg-type]
    return changed(topology, groups=tuple(groups))


def marking_of(topology: Topology, marking: Marking | None) -> Topology:
    queues = list(topology.switches[0].queues)
    queues[ROCE] = replace(queues[ROCE], marking=marking)
    return changed(topology, queues=tuple(queues))


def unmarked(ports: int) -> Topology:
    return marking_of(star(ports), None)


def conserved(outcome: TwinOutcome) -> bool:
    """Every packet that a switch took in was sent on or dropped for a reason that is counted."""
    for ports in outcome.switch_ports:
        gone = ports["tx_packets"].sum() + ports["queues"]["dropped_packets"].sum()
        gone += ports["groups"]["dropped_packets"].sum() + ports["queues"]["watchdog_dropped_packets"].sum()
        for name in ("link_dropped_packets", "fault_dropped_packets", "no_route_packets"):
            gone += ports[name].sum()
        if ports["rx_packets"].sum() != gone:
            return False
    return True


def test_one_packet_takes_what_links_and_switch_add_up_to() -> None:
    outcome = through(pairs(((0, 1),), 4096), star(2), TwinSettings(probe_first=False))
    grant, data, acknowledgement = (
        size + 46 for size in (12 + 16 + 64 + 4, 12 + 16 + 4 + 4096 + 4, 12 + 4 + 4)
    )
    latency_ns = star(2).switches[0].latency_ns
    ways = [2 * (line_ns(frame) + DELAY_NS) + latency_ns for frame in (grant, data, acknowledgement)]
    sender, receiver = sorted(outcome.ops.tolist(), key=lambda row: row[8])
    assert outcome.ops["completed_ns"][outcome.ops["rank"] == 1].tolist() == [ways[0] + ways[1]], receiver
    assert outcome.ops["completed_ns"][outcome.ops["rank"] == 0].tolist() == [sum(ways)], sender


@pytest.mark.parametrize("senders", [2, 4, 8])
def test_an_incast_shares_the_link_and_loses_nothing(senders: int) -> None:
    outcome = through(incast(senders, MESSAGE_BYTES), unmarked(senders + 1))
    assert outcome.failure == ""
    assert (dropped(outcome), int(outcome.flows["retransmitted_packets"].sum())) == (0, 0)
    # Two windows fit into the buffer; more senders, each as fast as the link that they share, are paused.
    assert (paused(outcome) > 0) == (senders > 2)
    packets = senders * MESSAGE_BYTES // 4096
    full_ns = packets * line_ns(FRAME_BYTES)
    sends = outcome.ops[outcome.ops["rank"] < senders]
    spent_ns = sends["completed_ns"] - outcome.start_ns
    assert spent_ns.max() == pytest.approx(full_ns, rel=0.05)
    assert spent_ns.min() >= 0.95 * full_ns, "equal shares end together"
    assert conserved(outcome)


def test_without_pauses_an_incast_drops() -> None:
    outcome = through(incast(8, MESSAGE_BYTES), star(9, lossless=False))
    assert outcome.failure == ""
    assert dropped(outcome) > 0
    assert paused(outcome) == 0
    assert outcome.flows["retransmitted_packets"].sum() > 0
    assert conserved(outcome)


def test_too_little_headroom_drops() -> None:
    topology = unmarked(9)
    enough = topology.switches[0].groups[ROCE].headroom_bytes
    outcome = through(incast(8, MESSAGE_BYTES), group_of(topology, headroom_bytes=2 * FRAME_BYTES))
    assert enough > 10 * FRAME_BYTES
    assert dropped(outcome) > 0
    assert paused(outcome) > 0
    assert outcome.failure == ""


@pytest.mark.parametrize(("share", "drops"), [(8, False), (1, True)])
def test_a_pool_of_headroom_serves_as_many_ports_as_fit(share: int, drops: bool) -> None:
    """Eight ports are paused at once: a pool of what eight need loses nothing, one of what one needs does."""
    topology = unmarked(9)
    (switch,) = topology.switches
    pool_bytes = share * switch.groups[ROCE].headroom_bytes
    set_aside_bytes = len(switch.ports) * switch.groups[ROCE].headroom_bytes
    pooled = replace(
        switch,
        headroom_pool_bytes=pool_bytes,
        buffer_bytes=switch.buffer_bytes - set_aside_bytes + pool_bytes,
    )
    assert pooled.buffer_bytes - pooled.set_aside_bytes == switch.buffer_bytes - switch.set_aside_bytes
    outcome = through(incast(8, MESSAGE_BYTES), replace(topology, switches=(pooled,)))
    assert paused(outcome) > 0
    assert (dropped(outcome) > 0) == drops
    assert outcome.failure == ""


def test_a_host_that_ignores_pauses_makes_the_switch_drop() -> None:
    topology = unmarked(9)
    deaf = tuple(replace(attachment, honours_pause=False) for attachment in topology.attachments)
    outcome = through(incast(8, MESSAGE_BYTES), replace(topology, attachments=deaf))
    assert dropped(outcome) > 0


@pytest.mark.parametrize("quanta", [0, 400])
def test_host_that_sends_pauses_holds_its_queue_between_them(quanta: int) -> None:
    every_ns = 1_000  # 195 quanta of 512 bits at 100 Gb/s
    job = incast(2, MESSAGE_BYTES)
    rule = PauseRule(priority=ROCE, quanta=quanta, first_ns=0, every_ns=every_ns, count=100)
    *senders, receiver = job.ports
    outcome = through(replace(job, ports=(*senders, replace(receiver, pauses=(rule,)))), star(3))
    port = outcome.switch_ports[0][2]
    assert int(port["pfc_rx"][ROCE]) == 100
    spent_ns = outcome.end_ns - outcome.start_ns
    if quanta:
        assert spent_ns > 100 * every_ns
    assert (int(port["queues"]["paused_ns"][ROCE]) > 0.99 * 100 * every_ns) == bool(quanta)
    assert outcome.failure == ""


def test_a_pause_is_sent_at_the_threshold_and_honoured_within_the_way_there_and_back() -> None:
    topology = group_of(unmarked(3), alpha_log2=-5)
    switch = topology.switches[0]
    settings = TwinSettings(sample_interval_ns=100, most_samples=1 << 20, probe_first=False)
    outcome = through(incast(2, MESSAGE_BYTES), topology, settings)
    assert dropped(outcome) == 0
    assert outcome.sample_interval_ns == 100
    rows = outcome.samples[(outcome.samples["cos"] == ROCE) & (outcome.samples["port"] == 0)]
    first = int(np.flatnonzero(rows["pfc_tx"] > 0)[0])
    shared = switch.buffer_bytes - switch.set_aside_bytes
    # Both senders' groups are alike: t = (shared - 2 t) / 32, and a group has its reserve beside.
    threshold = shared / (32 + 2) + switch.groups[ROCE].reserved_bytes
    assert rows["group_bytes"][first - 1] <= threshold
    assert rows["group_bytes"][first] == pytest.approx(threshold, abs=3 * FRAME_BYTES)
    # Sent after a frame that is on the line, at work after one that the sender has begun; meanwhile the shared link
    # takes half of what arrives.
    way_bytes = (2 * DELAY_NS + switch.latency_ns + line_ns(64)) * RATE_BPS // 8_000_000_000
    least, most = way_bytes // 2 - LINE_BYTES, way_bytes + 2 * LINE_BYTES
    watermark = outcome.switch_ports[0]["groups"]["headroom_watermark_bytes"][:2, ROCE]
    assert (watermark >= least).all(), (watermark, least)
    assert (watermark <= most).all(), (watermark, most)
    assert (watermark <= switch.groups[ROCE].headroom_bytes).all(), "the preset has room for it"


def test_marks_follow_the_line_between_the_thresholds() -> None:
    """Four depths of a standing queue; 10,000 packets each; chi-square with four degrees of freedom, 0.1 %."""
    chi_square = 0.0
    for window in (48, 96, 144, 192):
        kmax_bytes, pmax_per_million = 2_000_000, 400_000
        topology = marking_of(star(3), Marking(0, kmax_bytes, pmax_per_million))
        topology = group_of(topology, alpha_log2=3)
        transport = replace(UNCONTROLLED, window_packets=window, ack_every_packets=1)
        outcome = through(incast(2, 5000 * 4096, transport), topology, TwinSettings(sample_interval_ns=1000))
        assert (paused(outcome), dropped(outcome)) == (0, 0)
        egress = outcome.samples[(outcome.samples["cos"] == ROCE) & (outcome.samples["port"] == 2)]
        egress = egress[egress["queued_bytes"] > 0]
        expected = float(egress["queued_bytes"].mean()) / kmax_bytes * pmax_per_million / 1e6
        found, packets = marked(outcome), 10_000
        chi_square += (found - expected * packets) ** 2 / (packets * expected * (1 - expected))
    assert chi_square < 18.47, chi_square


MARKS = (
    ("none as long as the queue stays below Kmin", 900_000, 1_000_000, 0.0),
    ("every packet that finds Kmax", 8_000, 12_000, 1.0),
)


@pytest.mark.parametrize(("kmin", "kmax", "share"), [row[1:] for row in MARKS], ids=[row[0] for row in MARKS])
def test_marks_at_the_ends(kmin: int, kmax: int, share: float) -> None:
    topology = group_of(marking_of(star(3), Marking(kmin, kmax, 100_000)), alpha_log2=3)
    transport = replace(UNCONTROLLED, window_packets=64)
    outcome = through(incast(2, MESSAGE_BYTES, transport), topology)
    packets = 2 * MESSAGE_BYTES // 4096
    assert marked(outcome) == pytest.approx(share * packets, abs=0.03 * packets if share else 0)


def test_a_port_with_rules_of_its_own_marks_by_them() -> None:
    """Two incasts at one switch: the port without ECN marks nothing, the other as before."""
    topology = marking_of(star(6), Marking(0, 1, 1_000_000))
    (switch,) = topology.switches
    queues = tuple(replace(queue, marking=None) for queue in switch.queues)
    ports = tuple(replace(port, rules=int(number == 5)) for number, port in enumerate(switch.ports))
    job = pairs(((0, 2), (1, 2), (3, 5), (4, 5)), MESSAGE_BYTES)

    def marks(network: Topology) -> list[int]:
        (counters,) = through(job, network).switch_ports
        return [int(counters[port]["queues"][ROCE]["ecn_marked_packets"]) for port in (2, 5)]

    usual = marks(topology)
    own = marks(changed(topology, ports=ports, port_rules=(PortRules(switch.groups, queues, switch.pfc),)))
    assert usual[0] == usual[1] > 0
    assert own == [usual[0], 0]


def test_flows_collide_as_the_hash_predicts() -> None:
    spines, hosts = 4, 8
    topology = two_tiers(2, hosts, spines)
    flows = tuple((host, hosts + host) for host in range(hosts))
    job = pairs(flows, MESSAGE_BYTES // 8)
    outcome = through(job, topology, TwinSettings(probe_first=False))
    assert outcome.failure == ""
    keys = np.frombuffer(_native.flow_keys(job), np.uint64)
    choices = np.frombuffer(_native.ecmp_choices(keys, topology.switches[0].seed, spines), np.int32)
    # What goes up is data, and acknowledgements of grants on the same five-tuple.
    flows_sent = outcome.flows[outcome.flows["sends_data"] == 1]
    flows_sent = flows_sent[np.argsort(flows_sent["connection"])]
    expected = np.zeros(spines, np.int64)
    np.add.at(expected, choices, flows_sent["tx_packets"] + flows_sent["acks_tx"])
    sent = outcome.switch_ports[0]["queues"]["packets"][hosts:, ROCE]
    assert sent.tolist() == expected.tolist()
    assert expected.max() > expected.min(), "eight flows over four ways, and the hash does not deal them out"


def test_spraying_uses_all_ways_alike() -> None:
    hosts, spines = 4, 4
    topology = changed(two_tiers(2, hosts, spines), balancing=LoadBalancing.SPRAY)
    transport = replace(UNCONTROLLED, recovery=replace(UNCONTROLLED.recovery, accept_out_of_order=True))
    outcome = through(pairs(((0, 4),), MESSAGE_BYTES, transport), topology)
    assert outcome.failure == ""
    sent = outcome.switch_ports[0]["queues"]["packets"][hosts:, ROCE]
    assert sent.min() > 0.7 * sent.max()


def test_a_link_that_goes_down_takes_packets_with_it_and_the_others_take_over() -> None:
    topology = two_tiers(2, 2, 2)
    down = tuple(Outage(SwitchEnd(0, 2 + spine), 50_000, 400_000) for spine in range(2))
    job = pairs(((0, 2), (1, 3)), MESSAGE_BYTES, replace(UNCONTROLLED, timeout_ns=1_000_000))
    for outages, lost in ((down, True), (down[:1], None)):
        outcome = through(job, replace(topology, outages=outages), TwinSettings(probe_first=False))
        assert outcome.failure == "", outages
        gone = sum(
            int(ports["link_dropped_packets"].sum() + ports["no_route_packets"].sum())
            for ports in outcome.switch_ports
        )
        assert gone > 0 or not lost
        assert conserved(outcome)


def test_faults_of_a_switch_are_recovered_from_and_counted() -> None:
    faults = (SwitchFault(in_port=0, every=100), SwitchFault(out_port=1, per_million=5_000, corrupt=True))
    outcome = through(pairs(((0, 1),), MESSAGE_BYTES), changed(star(2), faults=faults))
    assert outcome.failure == ""
    assert outcome.switch_ports[0]["fault_dropped_packets"].sum() > 0
    assert outcome.bad_packets == outcome.switch_ports[0]["fault_corrupted_packets"].sum() > 0
    assert outcome.flows["retransmitted_packets"].sum() > 0


def test_frames_longer_than_a_port_takes_are_lost_and_short_ones_pass() -> None:
    fault = SwitchFault(in_port=0, per_million=1_000_000, longer_than_bytes=FRAME_BYTES - 1)
    transport = replace(TRANSPORT, retry_limit=1)
    job = replace(pairs(((0, 1),), MESSAGE_BYTES), transport=transport)
    assert through(job, changed(star(2), faults=(fault,))).failure
    longest = replace(fault, longer_than_bytes=FRAME_BYTES + 64)  # with all headers of a first packet
    outcome = through(job, changed(star(2), faults=(longest,)))
    assert (outcome.failure, int(outcome.switch_ports[0]["fault_dropped_packets"].sum())) == ("", 0)


def test_port_that_ignores_pauses_sends_on() -> None:
    job = incast(2, MESSAGE_BYTES)
    rule = PauseRule(priority=ROCE, quanta=400, first_ns=0, every_ns=1_000, count=100)
    *senders, receiver = job.ports
    topology = star(3)
    ports = tuple(replace(port, honours_pause=False) for port in topology.switches[0].ports)
    held = replace(job, ports=(*senders, replace(receiver, pauses=(rule,))))
    port = through(held, changed(topology, ports=ports)).switch_ports[0][2]
    assert int(port["pfc_rx"][ROCE]) > 0
    assert int(port["queues"]["paused_ns"].sum()) == 0


def test_trimmed_packets_arrive_cut_and_are_sent_again() -> None:
    topology = changed(star(9, lossless=False), trimming=Trimming(128, 48))
    outcome = through(incast(8, MESSAGE_BYTES), topology)
    assert outcome.failure == ""
    trimmed = int(outcome.switch_ports[0]["queues"]["trimmed_packets"].sum())
    assert 0 < outcome.bad_packets <= trimmed
    assert conserved(outcome)


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not() -> None:
    job = assignment(((HandOp(CollectiveName.ALL_TO_ALL, 1 << 20),),) * 8, transport=TRANSPORT)
    topology = changed(two_tiers(2, 4, 2), balancing=LoadBalancing.SPRAY)
    first, again, other = (
        through(job, topology, TwinSettings(seed=seed, sample_interval_ns=1000)) for seed in (7, 7, 8)
    )
    assert first.failure == ""

    def content(outcome: TwinOutcome) -> tuple[bytes, ...]:
        ports = tuple(ports.tobytes() for ports in outcome.switch_ports)
        return (outcome.ops.tobytes(), outcome.flows.tobytes(), outcome.samples.tobytes(), *ports)

    assert content(first) == content(again)
    assert content(first) != content(other)


def test_stated_hash_seed_holds_paths_while_the_seed_of_the_run_varies_marks() -> None:
    job = assignment(((HandOp(CollectiveName.ALL_TO_ALL, 8 << 20),),) * 8, transport=TRANSPORT)
    network = two_tiers(2, 4, 2)
    held = changed(network, seeds=SwitchSeeds(hash=5))
    first, other = (through(job, held, TwinSettings(seed=seed)) for seed in (7, 1007))
    free = through(job, network, TwinSettings(seed=1007))

    def sent(outcome: TwinOutcome) -> NDArray[np.int64]:
        return np.concatenate([ports["tx_packets"] for ports in outcome.switch_ports])

    # Notifications follow the marks, and are few.
    assert sent(other) == pytest.approx(sent(first), rel=0.05)
    assert sent(free) != pytest.approx(sent(first), rel=0.05)
    assert marked(first) != marked(other)


@pytest.mark.parametrize(("apart_ns", "most"), [(0, 1.01), (100_000, 1.05), (5_000_000, 1.10)])
def test_all_with_all_stays_in_balance_when_hosts_are_out_of_step(apart_ns: int, most: float) -> None:
    """It does not where a full card lets data pass before grants: then ranks wait for each other by turns."""
    slow_bps, ranks, each_bytes = 100_000_000, 4, 1 << 20
    transport = replace(
        TRANSPORT,
        timeout_ns=4_000_000_000,
        recovery=RecoverySettings(timeout_floor_ns=500_000_000),
        congestion=CongestionSettings(algorithm="dcqcn"),
    )
    programs = tuple(
        (HandOp("delay", rank * apart_ns), HandOp(CollectiveName.ALL_TO_ALL, ranks * each_bytes, (0,)))
        for rank in range(ranks)
    )
    job = assignment(programs, transport=transport, link_bps=slow_bps)
    packets = (ranks - 1) * each_bytes // 4096
    in_balance_ns = packets * line_ns(FRAME_BYTES, slow_bps)
    factors = []
    for seed in (1, 2, 3):  # which packets are marked moves the end by a few packets
        outcome = through(job, star(ranks, slow_bps), TwinSettings(seed=seed))
        assert outcome.failure == ""
        assert (marked(outcome) == 0) == (apart_ns == 0)
        factors.append((outcome.end_ns - outcome.start_ns) / in_balance_ns)
    assert min(factors) >= 1.0
    assert statistics.median(factors) <= most


def test_short_message_waits_for_a_burst_of_the_setting() -> None:
    """A rank sends 256 packets to one peer and four to another: the port serves both queue pairs in turn."""
    first_ns: dict[int, int] = {}
    ends_ns = set()
    for burst in (1, 16, 64):
        transport = replace(UNCONTROLLED, arbitration=ArbitrationSettings(burst_packets=burst))
        sends = (
            HandOp("send", 256 * 4096, peer=1, sequence=0),
            HandOp("send", 4 * 4096, peer=2, sequence=0),
        )
        receives = tuple((replace(op, what="recv", peer=0),) for op in sends)
        outcome = through(assignment((sends, *receives), transport=transport), star(3))
        assert outcome.failure == ""
        ops = np.sort(outcome.ops, order=("rank", "op"))
        first_ns[burst] = int(ops["first_tx_ns"][1])
        ends_ns.add(int(ops["completed_ns"][2]))
    assert first_ns[1] < first_ns[16]
    more_ns = first_ns[64] - first_ns[16]
    assert more_ns == pytest.approx((64 - 16) * line_ns(FRAME_BYTES), abs=line_ns(FRAME_BYTES))
    assert len(ends_ns) == 1  # the order costs no capacity


def test_a_series_of_any_length_fits() -> None:
    settings = TwinSettings(sample_interval_ns=100, most_samples=500)
    outcome = through(incast(2, MESSAGE_BYTES), star(3), settings)
    assert len(outcome.samples) <= 500 + 64
    assert outcome.sample_interval_ns > 100
    assert math.log2(outcome.sample_interval_ns / 100).is_integer()
    assert (np.diff(outcome.samples["time_ns"]) >= 0).all()
    assert (outcome.samples["time_ns"] % outcome.sample_interval_ns == 0).all()


def test_layouts_equal_those_of_the_engine() -> None:
    assert LANE_SAMPLE.itemsize == 104
    assert SWITCH_PORT_COUNTERS.itemsize == 8 * (8 + 8 + 8 + 8 * 14 + 8 * 6)


def test_ports_that_are_not_attached_or_apart_are_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"r/p2: the plan uses this port, but it is attached to no switch"):
        through(incast(2, 4096), star(2))
    apart = replace(two_tiers(2, 1, 1), links=())
    with pytest.raises(PlanError, match=r"sends from r/p0 to r/p1, but the topology has no path there"):
        through(incast(1, 4096), apart)


def test_what_the_device_counts_begins_with_the_job() -> None:
    """The probe of all queue pairs at once is an incast that no job asked for."""
    job, device = incast(16, 4096), unmarked(17)
    probed, unprobed = (through(job, device, TwinSettings(probe_first=first)) for first in (True, False))
    assert probed.start_ns > unprobed.start_ns == 0
    assert (probed.packets, probed.hops) == (unprobed.packets, unprobed.hops)
    assert probed.pool_watermark_bytes == unprobed.pool_watermark_bytes
    assert np.array_equal(probed.switch_ports[0], unprobed.switch_ports[0])
    assert np.array_equal(probed.cards, unprobed.cards)


def test_outages_and_faults_count_from_the_start_of_the_job() -> None:
    fault = SwitchFault(every=1, from_ns=0, until_ns=10_000)
    outcome = through(incast(2, 4096), changed(unmarked(3), faults=(fault,)), TwinSettings(limit_ns=10**9))
    assert outcome.start_ns < 100_000, "no probe was lost"
    assert int(outcome.switch_ports[0]["fault_dropped_packets"].sum()) > 0


@pytest.mark.parametrize("algorithm", ["dctcp", "nscc"])
def test_many_holes_are_filled_without_a_timeout_for_each(algorithm: str) -> None:
    """What arrived between two holes is not under way: a window that counts it lets nothing be sent again."""
    switch = changed(star(9, lossless=False), buffer_bytes=600_000)
    transport = replace(UNCONTROLLED, window_packets=256, congestion=CongestionSettings(algorithm=algorithm))
    lasted_ns = {}
    for selective in (False, True):
        recovery = replace(transport.recovery, selective_repeat=selective)
        outcome = through(incast(8, 4 << 20, replace(transport, recovery=recovery)), switch)
        assert outcome.failure == ""
        assert dropped(outcome) > 20
        lasted_ns[selective] = outcome.end_ns - outcome.start_ns
    assert lasted_ns[True] < 2 * lasted_ns[False]


def test_limits_end_a_run_with_their_reason() -> None:
    job = incast(2, MESSAGE_BYTES)
    late = through(job, star(3), TwinSettings(limit_ns=50_000))
    assert late.failure == "the time limit was reached"
    assert len(late.waits) > 0
    large = through(job, star(3), TwinSettings(most_packets=100))
    assert large.too_many_packets
    assert large.failure == "the job takes more packets than were allowed"
