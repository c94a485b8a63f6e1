"""Shapes that the MRC paper reports of hardware (arXiv 2605.04333, figures 9 to 20): order and ratio, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.topology import LoadBalancing, SwitchEnd
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.traffic.twin import LinkChange, TwinOutcome
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.sprayed_by_hand import PERMUTATION, PROBED, lossy, of_each_kind, sprayed
from tests.support.traffic.twin_by_hand import (
    LINE_BYTES,
    RATE_BPS,
    UNCONTROLLED,
    changed,
    pairs,
    through,
    two_tiers,
)

PLANES = 8
MIB = 1 << 20
MOST_WITHOUT = 1.05
"""Beside what a lost plane takes."""


def took_ns(outcome: TwinOutcome) -> int:
    assert outcome.failure == ""
    return outcome.end_ns - outcome.start_ns


def ideal_ns(payload_bytes: int) -> float:
    return payload_bytes / 4096 * LINE_BYTES * 8 * 1_000_000_000 / RATE_BPS


@of_each_kind
def test_one_plane_of_eight_costs_an_eighth(kind: TransportKind) -> None:
    """A leaf for each host whose uplinks are its planes: a ring of four, and one host loses a plane at the beginning."""
    fabric = changed(
        lossy(two_tiers(4, 1, PLANES, uplink_bps=RATE_BPS // PLANES)), balancing=LoadBalancing.STRUCTURED
    )
    ring = tuple((host, (host + 1) % 4) for host in range(4))
    job = pairs(ring, 64 * MIB, sprayed(kind))
    whole_ns = took_ns(through(job, fabric, PROBED))
    cut = LinkChange(SwitchEnd(0, 1), up=False, at_ns=100_000)
    without_ns = took_ns(through(job, fabric, replace(PROBED, link_changes=(cut,))))
    assert whole_ns < 1.3 * ideal_ns(64 * MIB)
    assert 1.0 < without_ns / whole_ns < MOST_WITHOUT * PLANES / (PLANES - 1)


@of_each_kind
def test_one_queue_pair_over_all_paths_is_ahead_of_sixteen_over_one_each(kind: TransportKind) -> None:
    """Sixteen messages of every host of a leaf-spine to another, one at a time or a queue pair each."""
    fabric = two_tiers(4, 4, 4)
    programs = tuple(
        tuple(
            [HandOp("send", MIB, peer=(rank + 4) % 16, sequence=k) for k in range(16)]
            + [HandOp("recv", MIB, peer=(rank - 4) % 16, sequence=k) for k in range(16)]
        )
        for rank in range(16)
    )
    one, sixteen, single = (
        took_ns(through(assignment(programs, transport=transport, qps_each=qps), fabric, PROBED))
        for transport, qps in ((sprayed(kind), 1), (UNCONTROLLED, 16), (UNCONTROLLED, 1))
    )
    assert one < 0.9 * sixteen
    assert sixteen < single
    assert len(PERMUTATION) == 16


@of_each_kind
@pytest.mark.parametrize("loss_per_million", [1_000, 10_000])
def test_loss_hardly_costs_it_where_going_back_is_dear(kind: TransportKind, loss_per_million: int) -> None:
    """A link of 40 us, on which a window is 256 packets: each loss repeats what was under way."""
    patient = replace(UNCONTROLLED, recovery=replace(UNCONTROLLED.recovery, timeout_floor_ns=400_000))
    took: dict[str, list[int]] = {}
    for name, transport in (("sprayed", sprayed(kind)), ("back", patient)):
        sends = tuple(HandOp("send", MIB, peer=1, sequence=k) for k in range(32))
        receives = tuple(HandOp("recv", MIB, peer=0, sequence=k) for k in range(32))
        job = assignment((sends, receives), transport=transport)
        for loss in (0, loss_per_million):
            network = SimulationSettings(
                loss_per_million=loss,
                latency_ns=20_000,
                receiver_links=True,
                fair_links=True,
                transmit_queue_ns=1_000,
                probe_first=True,
            )
            outcome = simulate(job, network)
            assert outcome.failure == ""
            span_ns = int(outcome.ops["completed_ns"].max() - outcome.ops["issued_ns"].min())
            took.setdefault(name, []).append(span_ns)
    whole, lossy_ns = took["sprayed"]
    assert lossy_ns < 1.1 * whole
    whole, lossy_ns = took["back"]
    assert lossy_ns > 1.1 * whole
    assert lossy_ns > took["sprayed"][1]


@of_each_kind
def test_a_victim_beside_an_incast_keeps_its_rate(kind: TransportKind) -> None:
    """Seven hosts of three racks send to one; another host of theirs sends to its neighbour, by the same spines."""
    fabric = two_tiers(4, 4, 4)
    target, victim = 12, (11, 13)
    incast = tuple((host, target) for host in (0, 1, 4, 5, 8, 9, 10))
    ends: dict[str, list[int]] = {}
    for name, topology, transport in (
        ("sprayed", lossy(fabric), sprayed(kind)),
        ("paused", fabric, UNCONTROLLED),
    ):
        for flows in ((victim,), (*incast, victim)):
            outcome = through(pairs(flows, 8 * MIB, transport), topology, PROBED)
            assert outcome.failure == ""
            rows = outcome.ops[(outcome.ops["rank"] == victim[0])]
            ends.setdefault(name, []).append(int(rows["completed_ns"].max()) - outcome.start_ns)
    alone, beside = ends["sprayed"]
    assert beside < 1.1 * alone
    alone, beside = ends["paused"]
    assert beside > 1.1 * alone, "behind a queue that is paused it waits with the others"
