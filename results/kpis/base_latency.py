"""The latency of an empty network if no topology gives it exactly: stated by the scenario, or measured before the load.

Decides how a one-way latency follows from a probe's round trip: half of the round trip without the serialization of the
two packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.model.empty_network import LatencySource, LoneNetwork
from etloop.results.kpis.lone_flow import way_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import PlannedConnections, RunOutcome
    from etloop.results.schema.kpis import KpiBasis

REPLY_BYTES: Final = 8
"""Payload of the reply to a probe (traffic/native/core/packets/probe.h)."""


def with_stated_base(basis: KpiBasis, latency_ns: int | None) -> KpiBasis:
    """Return the basis with one latency for every pair; unchanged if none is stated."""
    network = basis.lone_network
    if network is None or latency_ns is None:
        return basis
    latencies_ns = (latency_ns,) * len(network.src_rank)
    return replace(
        basis, lone_network=replace(network, latency=LatencySource.STATED, latency_ns=latencies_ns)
    )


def with_measured_base(
    basis: KpiBasis,
    outcome: RunOutcome,
    plan: PlannedConnections,
    connection_rows: Mapping[str, NDArray[np.int32]],
) -> KpiBasis:
    """Return the basis with the latency that agents measured for each pair before the load.

    Unchanged if the scenario states a latency, or no agent measured one, as in virtual time.
    """
    network = basis.lone_network
    if network is None or network.latency is LatencySource.STATED:
        return basis
    least_ns: dict[tuple[int, int], int] = {}
    for agent in outcome.agents:
        rows = connection_rows.get(agent.agent, np.empty(0, np.int32))
        own_round_trips = agent.round_trips[
            (agent.round_trips["connection"] >= 0) & (agent.round_trips["connection"] < len(rows))
        ]
        connection = rows[own_round_trips["connection"]]
        pairs = zip(plan.src_rank[connection].tolist(), plan.dst_rank[connection].tolist(), strict=True)
        for pair, round_trip_ns in zip(pairs, own_round_trips["round_trip_ns"].tolist(), strict=True):
            least_ns[pair] = min(round_trip_ns, least_ns.get(pair, round_trip_ns))
    if not least_ns:
        return basis
    return replace(basis, lone_network=_with_least_latencies(network, least_ns))


def _with_least_latencies(network: LoneNetwork, least_ns: Mapping[tuple[int, int], int]) -> LoneNetwork:
    """Return the network with one-way latencies from the least round trips; -1 for pairs without one."""
    sent_ns: dict[tuple[int, int], float] = {}
    latency_ns = []
    for pair, way_set, framing in zip(
        zip(network.src_rank, network.dst_rank, strict=True), network.way_set, network.framing, strict=True
    ):
        if (way_set, framing) not in sent_ns:
            sent_ns[way_set, framing] = _probe_serialization_ns(network, way_set, framing)
        round_trip_ns = least_ns.get(pair)
        if round_trip_ns is None:
            latency_ns.append(-1)
        else:
            latency_ns.append(max(round((round_trip_ns - sent_ns[way_set, framing]) / 2), 0))
    return replace(network, latency=LatencySource.PROBED, latency_ns=tuple(latency_ns))


def _probe_serialization_ns(network: LoneNetwork, way_set: int, framing: int) -> float:
    """Return the serialization time in ns of a full packet and its reply, on the way where it is shortest."""
    packets = replace(network.framings[framing], parts=1)
    sizes = np.array([packets.packet_bytes, REPLY_BYTES], np.float64)
    return min(
        float(way_ns(replace(way, latency_ns=0), packets, sizes).sum()) for way in network.way_sets[way_set]
    )
