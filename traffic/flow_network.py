"""A topology as the flow level sees it: links, and which of them each queue pair's data takes. Pure.

Decides what of a switch is kept: the rates of its ports, its latency, and which of several ways a flow takes. By ECMP that is
the very port that the switch model picks for the five-tuple, for each entropy value of a transport that sprays; what switches
spray is spread over all ways. What is refused is decided by `traffic.flow_limits`; what is lost is listed by `left_out`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import LoadBalancing, Topology
from etloop.traffic.flow_bundles import bundle
from etloop.traffic.flow_level import Between, FlowNetwork, network_with
from etloop.traffic.flow_limits import refuse, refuse_adaptive, refuse_unlike, unlike_link
from etloop.traffic.flow_values import PortValues, port_values, window_of
from etloop.traffic.flow_walk import BY_KEY, Fabric, Parts, Rows, has_choice, walk
from etloop.traffic.topology.routes import routes
from etloop.traffic.twin import attachments_of
from numpy.typing import NDArray

LINK_BYTES_PER_PACKET: Final = 82
"""What a packet has around its payload on a link (docs/closed_forms.md)."""
MOST_VALUES: Final = 1 << 22
"""Entropy values of all queue pairs whose ways are followed one by one: some ten seconds of a processor."""
_ROWS_AT_ONCE: Final = 1 << 20


def left_out(topology: Topology) -> tuple[str, ...]:
    """What the topology describes and the flow level knows nothing of, a phrase each."""
    omitted = []
    if any(queue.marking for switch in topology.switches for queue in switch.queues):
        omitted.append("ECN marks")
    if any(switch.pfc for switch in topology.switches):
        omitted.append("pauses")
    omitted.append("queues and drops")
    if any(switch.trimming for switch in topology.switches):
        omitted.append("trimmed packets")
    return tuple(omitted)


def network_of(assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology) -> FlowNetwork:
    """Return the network of an assignment whose port i is on the attachment of `rig_ports[i]`.

    Raises `PlanError` if ports are not attached or cannot reach each other, and for what the flow level does not model.
    """
    table = routes(topology)
    attachments = np.array(attachments_of(assignment, rig_ports, topology, table), np.int64)
    refuse(assignment, topology, table)
    ways = _Ways(assignment, Fabric(topology, table), port_values(assignment))
    return ways.network(attachments)


class _Ways:
    """Which queue pairs are followed one by one, and which together with all between the same switches."""

    def __init__(self, assignment: Assignment, fabric: Fabric, values: PortValues) -> None:
        self._assignment = assignment
        self._fabric = fabric
        self._values = values
        count = values.count
        self._goes_by_key = np.full(len(count), has_choice(fabric, lambda switch: switch.balancing in BY_KEY))
        self._notes: tuple[str, ...] = ()
        if count[self._goes_by_key].sum() - len(count) > MOST_VALUES:
            self._goes_by_key &= count == 1
            many = int((count > 1).sum())
            self._notes = (
                f"entropy values of {many} queue pairs spread evenly over equally short ways: more than {MOST_VALUES} to follow",
            )

    def network(self, attachments: NDArray[np.int64]) -> FlowNetwork:
        """Return the network; `attachments` by port of the assignment."""
        fabric = self._fabric

        def between(src_port: NDArray[np.int32], dst_port: NDArray[np.int32]) -> Between:
            src, dst = attachments[src_port], attachments[dst_port]
            alone, together = np.flatnonzero(self._goes_by_key), np.flatnonzero(~self._goes_by_key)
            one_by_one = self._one_by_one(alone, src, dst)
            pairs, parts = self._by_switches(src[together], dst[together])
            self._refuse(one_by_one, parts, src, dst)
            bundled = bundle(parts, fabric.link_bps, np.unique(one_by_one.link))
            flow, row = _of_flows(bundled.flow, pairs)
            latency, store = one_by_one.elapsed_ns, one_by_one.store
            latency[together], store[together] = parts.elapsed_ns[pairs], parts.store[pairs]
            last = fabric.last_link[dst]
            latency = latency + fabric.delay_ns[fabric.last_link[src]] + fabric.hop_ns[last]
            store = store + fabric.store[last]
            bps = np.concatenate([fabric.link_bps, bundled.rates(fabric.link_bps)])
            held, held_bps = self._held_by_windows(
                src_port, latency, store, fabric.link_bps[fabric.last_link[src]]
            )
            shares = (one_by_one.share, bundled.share[row], np.ones(len(src) + len(held)))
            return Between(
                np.concatenate([one_by_one.flow, together[flow], np.arange(len(src)), held]),
                np.concatenate([one_by_one.link, bundled.link[row], last, len(bps) + np.arange(len(held))]),
                np.concatenate(shares).astype(np.float32),
                latency,
                store,
                (
                    *fabric.names,
                    *bundled.names(fabric.names),
                    *(f"window of queue pair {one}" for one in held),
                ),
                np.concatenate([bps, held_bps]),
            )

        return replace(network_with(self._assignment, between), notes=self._notes)

    def _refuse(
        self, one_by_one: Parts, parts: Parts, src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> None:
        """Raise `PlanError` where packets of a flow meet links that are not alike, and something follows from it."""
        fabric = self._fabric
        for found in (one_by_one, parts):
            refuse_adaptive(fabric, found)
        sprayed = has_choice(fabric, lambda switch: switch.balancing is LoadBalancing.SPRAY)
        spread = np.flatnonzero((self._values.count > 1) | sprayed)
        _, even = self._by_switches(src[spread], dst[spread])
        if slowest := unlike_link(fabric, even, np.ones(len(even.elapsed_ns), np.bool_)):
            refuse_unlike(self._assignment, slowest, sprayed=sprayed)

    def _held_by_windows(
        self,
        src_port: NDArray[np.int32],
        latency_ns: NDArray[np.int64],
        store: NDArray[np.float64],
        port_bps: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return queue pairs whose window is less than a round trip holds, and the rates that it allows."""
        assignment = self._assignment
        of_transport = [window_of(transport) for transport in assignment.transports]
        window = np.array([of_transport[port.transport] for port in assignment.ports], np.int64)[src_port]
        packet_bits = (assignment.transport.path_mtu_bytes + LINK_BYTES_PER_PACKET) * 8
        # There with all of a packet, which its port and every switch send, and back with next to nothing.
        round_trip_ns = 2 * latency_ns + packet_bits * (store + 1e9 / port_bps)
        allowed_bps = window * packet_bits * 1e9 / round_trip_ns
        held = np.flatnonzero((window > 0) & (allowed_bps < port_bps))
        return held, np.maximum(allowed_bps[held], 1).astype(np.int64)

    def _one_by_one(self, rows: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]) -> Parts:
        """Return the parts of queue pairs whose packets' headers name their ways."""
        fabric, values = self._fabric, self._values
        flow, port = values.ports(rows)
        key = values.keys(self._assignment, flow, port)
        found: list[Parts] = []
        # Whole flows at a time.
        begun = np.flatnonzero(np.diff(np.cumsum(values.count[rows]) // _ROWS_AT_ONCE)) + 1
        for at in np.split(np.arange(len(flow)), np.cumsum(values.count[rows])[begun - 1]):
            nothing = np.zeros(len(at))
            started = Rows(
                flow[at],
                1 / values.count[flow[at]],
                fabric.home[src[flow[at]]],
                dst[flow[at]],
                key[at],
                port[at],
                nothing.astype(np.int64),
                nothing,
            )
            found.append(walk(fabric, started, len(src), by_key=True))
        return Parts(
            np.concatenate([one.flow for one in found]),
            np.concatenate([one.link for one in found]),
            np.concatenate([one.share for one in found]),
            np.concatenate([one.depth for one in found]),
            np.maximum.reduce([one.elapsed_ns for one in found]),
            np.maximum.reduce([one.store for one in found]),
        )

    def _by_switches(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], Parts]:
        """Return which pair of switches each of other queue pairs goes between, and the parts of such pairs."""
        fabric = self._fabric
        switches = len(fabric.topology.switches)
        pairs, first, of_pair = np.unique(
            fabric.home[src] * switches + fabric.home[dst], return_index=True, return_inverse=True
        )
        count = len(pairs)
        nothing = np.zeros(count)
        started = Rows(
            np.arange(count),
            np.ones(count),
            pairs // switches,
            dst[first],
            nothing.astype(np.uint64),
            nothing.astype(np.uint16),
            nothing.astype(np.int64),
            nothing,
        )
        return of_pair.reshape(-1), walk(fabric, started, count, by_key=False)


def _of_flows(
    pair: NDArray[np.int64], pair_of_flow: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each flow, all rows that are of its pair: flows and rows. Rows are in the order of their pairs."""
    first = np.searchsorted(pair, pair_of_flow, side="left")
    counts = np.searchsorted(pair, pair_of_flow, side="right") - first
    flow = np.repeat(np.arange(len(pair_of_flow)), counts)
    within = np.arange(len(flow)) - np.repeat(np.cumsum(counts) - counts, counts)
    return flow, first[flow] + within
