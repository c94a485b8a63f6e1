"""The latency of an empty network from round trips of probes, or as a scenario states it; worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.empty_network import Framing, LatencySource, LoneNetwork, LoneWay
from etloop.contract.model.records import PROBE_RECORD
from etloop.controller.inputs.scenario.verdict import conditions_of
from etloop.results.kpis.base_latency import REPLY_BYTES, with_measured_base, with_stated_base
from etloop.results.kpis.lone_flow import lone_flow_ns
from etloop.results.schema.kpis import KpiBasis
from tests.support.runs.records_by_hand import (
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
    with_agent,
)

BPS = 10**9
ROCE = Framing(4096, 62, 16, 4, 4, 1)
SENT_NS = 2 * 8 * (4096 + 82 + REPLY_BYTES + 82)
"""Full packet and answer over two links of 1 Gbit/s: 8 ns a byte."""


def basis(latency: LatencySource = LatencySource.UNKNOWN, way_ns: int = 0) -> KpiBasis:
    """Return the pairs of the run by hand that cross the device, over two links."""
    pairs = [(1, 2), (3, 0), (2, 1), (0, 3)]
    src, dst = zip(*pairs, strict=True)
    way = LoneWay((BPS, BPS), (BPS, BPS), way_ns)
    network = LoneNetwork(latency, "", (ROCE,), ((way,),), src, dst, (0,) * 4, (0,) * 4)
    return KpiBasis({}, None, 4096, {}, network)


def measured(*trips: tuple[str, int, int], given: KpiBasis | None = None) -> LoneNetwork:
    """Return the network with round trips of (agent, row of the plan's connections, nanoseconds)."""
    rows, outcome = connection_rows_by_hand(), outcome_by_hand()
    for name in ("a", "b"):
        own = [(rows[name].tolist().index(row), ns) for agent, row, ns in trips if agent == name]
        probes = np.array(own, PROBE_RECORD)
        outcome = with_agent(outcome, name, partial(replace, round_trips=probes))
    found = with_measured_base(given or basis(), outcome, tables_by_hand().connections, rows).lone_network
    assert found is not None
    return found


def test_half_of_the_least_round_trip_without_what_it_is_sent_for() -> None:
    """Rank 1 has two connections to rank 2."""
    network = measured(("a", 1, SENT_NS + 60_000), ("a", 4, SENT_NS + 40_000), ("b", 3, SENT_NS + 10_001))
    assert network.latency is LatencySource.PROBED
    assert network.latency_ns == (20_000, 5_000, -1, -1)
    one = np.array([1]), np.array([2]), np.array([4096.0])
    assert lone_flow_ns(network, *one) == pytest.approx(2 * 8 * (4096 + 82) + 20_000)
    assert np.isnan(lone_flow_ns(network, np.array([2]), np.array([1]), one[2]))


def test_a_round_trip_shorter_than_the_packets_has_no_latency_left() -> None:
    assert measured(("a", 1, 1000)).latency_ns[0] == 0


def test_measured_comes_before_the_topology_and_stated_before_measured() -> None:
    by_topology = basis(LatencySource.TOPOLOGY, way_ns=700)
    network = measured(("a", 1, SENT_NS + 40_000), given=by_topology)
    flow = np.array([1]), np.array([2]), np.array([4096.0])
    assert lone_flow_ns(network, *flow) == pytest.approx(2 * 8 * (4096 + 82) + 20_000), "not 700 more"
    stated = with_stated_base(by_topology, 3_000)
    assert stated.lone_network is not None
    assert stated.lone_network.latency is LatencySource.STATED
    assert measured(("a", 1, 90_000), given=stated) == stated.lone_network
    assert lone_flow_ns(stated.lone_network, *flow) == pytest.approx(2 * 8 * (4096 + 82) + 3_000)


def test_without_probes_the_basis_stays() -> None:
    assert measured() == basis().lone_network
    assert with_stated_base(basis(), None) == basis()


def test_round_trips_of_connections_that_are_not_there_are_left_out() -> None:
    probes = np.array([(-1, 5), (10_000, 5)], PROBE_RECORD)
    outcome = with_agent(outcome_by_hand(), "a", lambda agent: replace(agent, round_trips=probes))
    plan, rows = tables_by_hand().connections, connection_rows_by_hand()
    assert with_measured_base(basis(), outcome, plan, rows) == basis()


def test_a_scenario_states_a_latency_or_leaves_it_to_the_probes() -> None:
    assert conditions_of(b"verdict: {base_latency: 20us}", "s.yaml").base_latency_ns == 20_000
    assert conditions_of(b"verdict: {base_latency: 0us}", "s.yaml").base_latency_ns == 0
    assert conditions_of(b"verdict: {checks: [{check: jct_ratio <= 2}]}", "s.yaml").base_latency_ns is None
    with pytest.raises(ConfigError, match="base_latency"):
        conditions_of(b"verdict: {base_latency: 2s}", "s.yaml")
