"""Transfers one by one at flow level: durations, sharing, cancellation, and the promise of `next_ns`."""

from __future__ import annotations

import random

import pytest

from etloop.contract.base.errors import PlanError
from etloop.contract.model.topology import Topology
from etloop.traffic.topology.topology_file import parse_topology
from etloop.traffic.transfer_values import Done, Transfer
from etloop.traffic.transfer_ways import TransferWays
from etloop.traffic.transfers import FlowTransfers

ONE_SWITCH = "single: {ports: [a/p, b/p, c/p, d/p], rate: 100Gbps, delay: 500ns}"
OVERSUBSCRIBED = "leaf_spine: {leaves: [{ports: [a/p, b/p]}, {ports: [c/p, d/p]}], spines: 1, rate: 100Gbps}"
TWO_SPINES = "leaf_spine: {leaves: [{ports: [a/p, b/p]}, {ports: [c/p, d/p]}], spines: 2, rate: 100Gbps}"
A, B, C, D = range(4)
GIGABYTE = 10**9
GIGABYTE_NS = 80_000_000
"""Duration of a gigabyte at 100 Gb/s."""


def topology_of(text: str) -> Topology:
    return parse_topology(text.encode(), "topology.yaml")


def network(text: str = ONE_SWITCH) -> FlowTransfers:
    topology = topology_of(text)
    addresses = [f"10.0.{number}.1" for number in range(len(topology.attachments))]
    return FlowTransfers(TransferWays(topology, addresses))


def drained(transfers: FlowTransfers) -> list[Done]:
    """Advance from completion to completion; every advance to `next_ns` must report at least one."""
    done = []
    while (next_ns := transfers.next_ns()) is not None:
        reported = transfers.advance(next_ns)
        assert reported
        assert all(transfer.at_ns <= next_ns for transfer in reported)
        done += reported
    return done


@pytest.mark.parametrize("transfer_bytes", [1, 4096, 10**6, GIGABYTE, 10**12])
def test_a_transfer_alone_takes_bytes_over_rate_and_the_latency(transfer_bytes: int) -> None:
    transfers = network()
    transfers.start([Transfer("r", A, B, transfer_bytes)])
    (done,) = drained(transfers)
    latency_ns = done.at_ns - transfer_bytes * 8 / 100
    assert 1000 <= latency_ns < 2500
    assert transfers.figures().slowdown_max == pytest.approx(1, rel=1e-3)


def test_a_transfer_without_bytes_takes_the_latency() -> None:
    transfers = network()
    transfers.advance(7)
    transfers.start([Transfer("r", A, B, 0)])
    (done,) = drained(transfers)
    assert 1000 <= done.at_ns - 7 < 2500


def test_transfers_of_one_source_share_its_port_and_the_rest_is_faster_after_one_has_ended() -> None:
    transfers = network()
    transfers.start([Transfer("long", A, B, 2 * GIGABYTE), Transfer("short", A, C, GIGABYTE)])
    done = {transfer.transfer_id: transfer.at_ns for transfer in drained(transfers)}
    assert done["short"] == pytest.approx(2 * GIGABYTE_NS, rel=1e-4)
    assert done["long"] == pytest.approx(3 * GIGABYTE_NS, rel=1e-4)


def test_a_planted_incast_shows_in_durations_and_figures() -> None:
    transfers = network()
    transfers.start([Transfer(src, src, D, GIGABYTE) for src in (A, B, C)])
    transfers.advance(GIGABYTE_NS)
    loads = transfers.figures().endpoints
    assert loads[D].waiting_in_bytes == pytest.approx(2 * GIGABYTE, rel=1e-4)
    assert loads[A].waiting_out_bytes == pytest.approx(2 * GIGABYTE / 3, rel=1e-4)
    drained(transfers)
    figures = transfers.figures()
    assert figures.slowdown_mean == pytest.approx(3, rel=1e-3)
    assert (figures.started, figures.done, figures.most_under_way) == (3, 3, 3)
    assert figures.endpoints[D].received_bytes == 3 * GIGABYTE
    assert sum(figures.link_bytes) == 6 * GIGABYTE


def test_an_oversubscribed_uplink_is_shared_and_named() -> None:
    transfers = network(OVERSUBSCRIBED)
    transfers.start([Transfer("x", A, C, GIGABYTE), Transfer("y", B, D, GIGABYTE)])
    assert [done.at_ns for done in drained(transfers)] == [pytest.approx(2 * GIGABYTE_NS, rel=1e-3)] * 2


def test_the_hash_of_a_pair_selects_one_way_and_other_seeds_other_ways() -> None:
    def used_uplinks(seed: int) -> set[int]:
        ways = TransferWays(
            topology_of(TWO_SPINES.replace("spines: 2", f"spines: 2, leaf: {{seed: {seed}}}")),
            [f"10.0.{number}.1" for number in range(4)],
        )
        way = ways.way(A, C)
        assert way is not None
        assert way.parts.tolist() == [1, 1, 1, 1]
        return set(way.links.tolist())

    assert len({frozenset(used_uplinks(seed)) for seed in range(8)}) == 2
    assert used_uplinks(1) == used_uplinks(1)


def test_a_cancelled_transfer_leaves_its_bytes_and_frees_its_share() -> None:
    transfers = network()
    transfers.start([Transfer("x", A, B, GIGABYTE), Transfer("y", A, C, GIGABYTE)])
    transfers.advance(GIGABYTE_NS)
    assert transfers.cancel("x") == pytest.approx(GIGABYTE / 2, rel=1e-6)
    (left,) = drained(transfers)
    assert left.transfer_id == "y"
    assert left.at_ns == pytest.approx(1.5 * GIGABYTE_NS, rel=1e-4)
    assert transfers.figures().cancelled == 1


def test_a_transfer_whose_last_byte_travels_can_be_cancelled() -> None:
    transfers = network()
    transfers.start([Transfer("x", A, B, 0), Transfer("y", A, B, 0)])
    assert transfers.cancel("x") == 0
    assert [done.transfer_id for done in drained(transfers)] == ["y"]


def test_an_expectation_is_what_happens_if_nothing_begins_and_changes_nothing() -> None:
    asked, plain = network(), network()
    for transfers in (asked, plain):
        transfers.start([Transfer("", A, C, GIGABYTE)])
        transfers.advance(1_000_000)
    expected_ns = asked.expect(B, C, GIGABYTE)
    assert asked.next_ns() == plain.next_ns()
    assert asked.figures() == plain.figures()
    plain.start([Transfer("r", B, C, GIGABYTE)])
    assert {done.transfer_id: done.at_ns for done in drained(plain)}["r"] == expected_ns
    assert [done.transfer_id for done in drained(asked)] == [""]


def test_all_bytes_arrive_and_no_link_is_faster_than_its_rate() -> None:
    seed = 11
    draw = random.Random(seed)
    transfers = network(TWO_SPINES)
    sent_bytes = [0] * 4
    done: list[Done] = []
    for number in range(400):
        src, dst = draw.sample(range(4), 2)
        transfer_bytes = draw.choice([0, 1, 5_000, 10**6, 10**8])
        sent_bytes[src] += transfer_bytes
        done += transfers.advance(transfers.now_ns + draw.randrange(2_000_000))
        transfers.start([Transfer(number, src, dst, transfer_bytes)])
    done += drained(transfers)
    assert {transfer.transfer_id for transfer in done} == set(range(400)), f"seed {seed}"
    assert len(done) == 400
    assert [transfer.at_ns for transfer in done] == sorted(transfer.at_ns for transfer in done)
    figures = transfers.figures()
    assert [load.sent_bytes for load in figures.endpoints] == sent_bytes
    assert max(figures.link_bytes) * 8 / 100 <= done[-1].at_ns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ONE_SWITCH + "\noutages: [{port: a/p, from: 1ms, until: 2ms}]", "links that go down"),
        (
            TWO_SPINES.replace("spines: 2", "spines: 2, leaf: {balancing: flowlet, flowlet_gap: 10us}"),
            "flowlet",
        ),
    ],
)
def test_what_the_flow_level_does_not_model_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        network(text)
