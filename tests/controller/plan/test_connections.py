"""Connections: paths, queue pair numbers and source ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.base.errors import PlanError
from etloop.contract.base.ip_address import NO_ADDRESS
from etloop.contract.model.assignment import Path
from etloop.controller.inputs.scenario.mapping import Mapping, PlacementRule
from etloop.controller.inputs.scenario.source_ports import udp_source_port
from etloop.controller.plan.connections import FIRST_QPN, QPN_SPACE, connect, select_connections
from etloop.controller.plan.demand import PairColumns
from etloop.controller.plan.places.placement import Placement, place
from tests.support.runs.plan_by_hand import rig_of


def every_pair(ranks: int) -> PairColumns:
    """One communicator in which everybody sends to everybody."""
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    return PairColumns(
        np.zeros(len(src), np.int32),
        np.zeros(len(src), np.int32),
        src.astype(np.int32),
        dst.astype(np.int32),
        np.full(len(src), 10, np.int64),
    )


def two_ports(ranks: int, per_host: int = 1) -> Placement:
    hosts = -(-ranks // per_host)
    return place(ranks, [1] * hosts, Mapping(per_host, PlacementRule.BLOCKED, ()), rig_of({"a": 1, "b": 1}))


def kernel_source_port(local: int, remote: int) -> int:
    """The kernel's two functions, as they stand in C."""
    v = local * remote
    v ^= v >> 20
    v ^= v >> 40
    label = v & 0xFFFFF
    low, high = label & 0x03FFF, (label & 0xFC000) >> 14
    return (low ^ high) | 0xC000


def test_source_ports_follow_the_kernel() -> None:
    choice = np.random.default_rng(1)
    a, b = (choice.integers(0, QPN_SPACE, 1000).astype(np.uint32) for _ in range(2))
    ours = udp_source_port(a, b)
    assert ours.tolist() == [kernel_source_port(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert (ours == udp_source_port(b, a)).all(), "both directions of a queue pair use one port"
    assert int(ours.min()) >= 0xC000


def test_paths_follow_hosts_and_ports() -> None:
    placed = connect(every_pair(8), two_ports(8, per_host=2), 1, seed=1).columns
    for row in range(len(placed.path)):
        src, dst = int(placed.src_rank[row]), int(placed.dst_rank[row])
        expected = (
            Path.SCALE_UP if src // 2 == dst // 2 else Path.HAIRPIN if src // 4 == dst // 4 else Path.WIRE
        )
        assert placed.path[row] == expected
        assert (placed.src_ip[row].tobytes() != NO_ADDRESS) == (expected is Path.WIRE)


@pytest.mark.parametrize("qps", [1, 3])
def test_numbers_are_unique_and_near_sequential_within_a_port(qps: int) -> None:
    placed = connect(every_pair(6), two_ports(6), qps, seed=4)
    columns = placed.columns
    wire = int((columns.path == Path.WIRE).sum())
    assert len(columns.src_qpn) == wire * qps
    src_port = np.repeat(placed.src_port, np.diff(columns.qp_offsets))
    for port, (base, count) in enumerate(zip(placed.qpn_base, placed.qpn_count, strict=True)):
        own = np.concatenate([columns.src_qpn[src_port == port], columns.dst_qpn[src_port != port]])
        assert sorted(own.tolist()) == list(range(base, base + count)), (
            "a contiguous block, every number once"
        )
    blocks = sorted(zip(placed.qpn_base, placed.qpn_count, strict=True))
    assert blocks[0][0] >= FIRST_QPN
    assert blocks[0][0] + blocks[0][1] <= blocks[1][0]
    assert blocks[1][0] + blocks[1][1] <= QPN_SPACE


def test_the_same_seed_gives_the_same_numbers_and_another_does_not() -> None:
    first, again, other = (connect(every_pair(4), two_ports(4), 1, seed) for seed in (1, 1, 2))
    assert first.qpn_base == again.qpn_base
    assert first.qpn_base != other.qpn_base


def test_the_numbers_of_a_known_seed() -> None:
    # They stand in captures and plans that people keep: a change is a change of behaviour.
    assert connect(every_pair(4), two_ports(4), 1, seed=1).qpn_base == (847808, 9407550)


def test_too_many_queue_pairs_are_refused_with_a_way_out() -> None:
    with pytest.raises(
        PlanError, match=r"needs 20971520 queue pair ends, but only 16776960 .*lower transport.qps"
    ):
        connect(every_pair(2), two_ports(2), 5 << 20, seed=1)


def test_ends_of_different_families_are_refused_by_rank() -> None:
    placement = two_ports(4)
    port = replace(placement.ports[1].port, addresses=("fd00::1", "fd00::2"))
    mixed = replace(placement, ports=(placement.ports[0], replace(placement.ports[1], port=port)))
    with pytest.raises(
        PlanError, match=r"rank 0 has 10\.0\.0\.1 and rank 2 fd00::1: one speaks IPv4 .*; give all ports"
    ):
        connect(every_pair(4), mixed, 1, seed=1)


def test_selected_rows_keep_their_queue_pairs() -> None:
    columns = connect(every_pair(6), two_ports(6), 2, seed=1).columns
    rows = np.flatnonzero(columns.src_rank == 5).astype(np.int32)
    some = select_connections(columns, rows)
    assert some.dst_rank.tolist() == columns.dst_rank[rows].tolist()
    for own, row in enumerate(rows.tolist()):
        ours = slice(some.qp_offsets[own], some.qp_offsets[own + 1])
        theirs = slice(columns.qp_offsets[row], columns.qp_offsets[row + 1])
        assert some.src_qpn[ours].tolist() == columns.src_qpn[theirs].tolist()
        assert some.dst_udp_port[ours].tolist() == columns.dst_udp_port[theirs].tolist()
