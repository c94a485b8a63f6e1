"""A topology as the flow level models it: links, and those that each queue pair's data takes. Pure.

This module decides which properties of a switch are kept: port rates, latency, and the choice among several ways. With
ECMP a flow takes the port that the switch model selects for its five-tuple, for each entropy value of a transport that
sprays; traffic sprayed by switches is spread over all ways. `traffic.flow_limits` rejects settings that are not
modelled; `left_out` lists effects that are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path
from etloop.contract.model.topology import LoadBalancing, SwitchSettings, Topology
from etloop.traffic.flow_bundles import bundle
from etloop.traffic.flow_level import Between, FlowNetwork, network_with, ports_of_connections
from etloop.traffic.flow_limits import refuse, refuse_adaptive, refuse_unlike, unlike_link
from etloop.traffic.flow_values import PortValues, port_values, window_of
from etloop.traffic.flow_walk import BY_KEY, Fabric, Parts, Rows, has_choice, walk
from etloop.traffic.topology.routes import routes
from etloop.traffic.twin import attachments_of

LINK_BYTES_PER_PACKET: Final = 82
"""Bytes of a packet on a link around its payload (docs/closed_forms.md)."""
MOST_VALUES: Final = 1 << 22
"""Maximum entropy values, over all queue pairs, whose ways are followed one by one: about ten seconds of CPU time."""
MOST_CROSSED: Final = 1 << 18
"""The same for `ports_crossed`, which every run with a topology computes: about a second."""
_ROWS_AT_ONCE: Final = 1 << 20


def left_out(topology: Topology) -> tuple[str, ...]:
    """Return the properties of the topology that the flow level ignores, a phrase each."""
    omitted = []
    rules = [rules for switch in topology.switches for rules in switch.all_rules]
    if any(queue.marking for of_ports in rules for queue in of_ports.queues):
        omitted.append("ECN marks")
    if any(of_ports.pfc for of_ports in rules):
        omitted.append("pauses")
    omitted.append("queues and drops")
    if any(switch.trimming for switch in topology.switches):
        omitted.append("trimmed packets")
    return tuple(omitted)


def network_of(assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology) -> FlowNetwork:
    """Return the network of an assignment whose port i is on the attachment of `rig_ports[i]`.

    Raises `PlanError` if ports are not attached or cannot reach each other, and for settings that are not modelled.
    """
    table = routes(topology)
    attachments = np.array(attachments_of(assignment, rig_ports, topology, table), np.int64)
    refuse(assignment, topology, table)
    ways = _Ways(assignment, Fabric(topology, table), port_values(assignment), MOST_VALUES)
    return ways.network(attachments)


@dataclass(frozen=True, slots=True, eq=False)
class PortsCrossed:
    """Egress ports that the data of queue pairs crosses, a row for each queue pair and port, in the order of the way."""

    ports: tuple[str, ...]
    """Egress ports of all switches by name."""
    choices: tuple[NDArray[np.int64], ...]
    """Sets of ports among which a switch chooses, as indices into `ports`."""
    is_hashed: tuple[bool, ...]
    """By choice: whether headers select the port, so that all packets with the same headers use the same one."""
    values: NDArray[np.int64]
    """By queue pair of the plan: number of source ports that its data has; 0: it does not cross the device, or its way is
    not known."""
    queue_pair: NDArray[np.int64]
    """Row of the queue pair in the columns of the plan, ascending."""
    port: NDArray[np.int64]
    """Index into `ports`."""
    share: NDArray[np.float64]
    """Share of the queue pair's data that crosses the port, as far as headers or even spreading determine it."""
    choice: NDArray[np.int64]
    """Index into `choices`; -1: there is no other port."""


def ports_crossed(
    assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology, *, keeps_links: bool = True
) -> PortsCrossed:
    """Return the ports that the data of each queue pair crosses, by the hash of the switches.

    A queue pair whose packets are spread has all ports that they may use. `keeps_links`: no link goes down in the run;
    otherwise hashes may select other ports, and all equally short ways count. Ways over several planes of a card, or by
    segments, are not known. Raises `PlanError` if ports are not attached or cannot reach each other.
    """
    table = routes(topology)
    attachments = np.array(attachments_of(assignment, rig_ports, topology, table), np.int64)
    fabric = Fabric(topology, table)
    values = port_values(assignment)
    ways = _Ways(assignment, fabric, values, MOST_CROSSED)
    if not keeps_links:
        ways.ignore_headers()
    connections = assignment.connections
    wire = connections.path == Path.WIRE
    queue_pairs = np.diff(connections.qp_offsets)[wire]
    ends = [np.repeat(column[wire], queue_pairs) for column in ports_of_connections(assignment)]
    plain = np.array([port.planes == 1 and port.segments is None for port in assignment.ports], np.bool_)
    rows = np.flatnonzero(plain[ends[0]] & plain[ends[1]])
    src, dst = (attachments[column] for column in ends)
    flow, link, share, depth = ways.parts(rows, src, dst)
    switch_of = np.searchsorted(fabric.first_link, link, side="right") - 1
    pairs, first, pair_of = np.unique(
        switch_of * len(fabric.topology.switches) + fabric.home[dst[flow]],
        return_index=True,
        return_inverse=True,
    )
    choices: dict[tuple[int, ...], int] = {}
    choice_of_pair = np.full(len(pairs), -1, np.int64)
    for number, row in enumerate(first.tolist()):
        links = fabric.ways(int(switch_of[row]), int(dst[flow[row]]))
        if len(links) > 1:
            choice_of_pair[number] = choices.setdefault(tuple(links.tolist()), len(choices))
    order = np.lexsort((link, depth, flow))
    counts = np.zeros(len(connections.src_udp_port), np.int64)
    counts[values.queue_pair[rows]] = values.count[rows]
    switches = [int(np.searchsorted(fabric.first_link, links[0], side="right")) - 1 for links in choices]
    return PortsCrossed(
        ports=fabric.names,
        choices=tuple(np.array(links, np.int64) for links in choices),
        is_hashed=tuple(ways.hashes(fabric.topology.switches[number]) for number in switches),
        values=counts,
        queue_pair=values.queue_pair[flow[order]],
        port=link[order],
        share=share[order],
        choice=choice_of_pair[pair_of.reshape(-1)][order],
    )


class _Ways:
    """Ways of the queue pairs: some are followed one by one, the rest together with all between the same two switches."""

    def __init__(self, assignment: Assignment, fabric: Fabric, values: PortValues, most_values: int) -> None:
        self._assignment = assignment
        self._fabric = fabric
        self._values = values
        count = values.count
        self._goes_by_key = np.full(len(count), has_choice(fabric, lambda switch: switch.balancing in BY_KEY))
        self._notes: tuple[str, ...] = ()
        if count[self._goes_by_key].sum() - len(count) > most_values:
            self._goes_by_key &= count == 1
            many = int((count > 1).sum())
            self._notes = (
                f"entropy values of {many} queue pairs spread evenly over equally short ways: more than {most_values} to follow",
            )

    def ignore_headers(self) -> None:
        """Follow all queue pairs over all their ways, whatever a hash selects."""
        self._goes_by_key[:] = False

    def hashes(self, switch: SwitchSettings) -> bool:
        """Return whether the ways of all queue pairs at a switch are followed by their headers."""
        return switch.balancing in BY_KEY and bool(self._goes_by_key.all())

    def parts(
        self, rows: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return flow, link, share and depth of all parts of the flows `rows`, their last links included."""
        hashed_rows, grouped_rows = rows[self._goes_by_key[rows]], rows[~self._goes_by_key[rows]]
        one_by_one = self._one_by_one(hashed_rows, src, dst)
        pairs, grouped = self._by_switches(src[grouped_rows], dst[grouped_rows])
        flow, row = _of_flows(grouped.flow, pairs)
        last_depth = np.full(len(rows), np.iinfo(np.int64).max)
        return (
            np.concatenate([one_by_one.flow, grouped_rows[flow], rows]),
            np.concatenate([one_by_one.link, grouped.link[row], self._fabric.last_link[dst[rows]]]),
            np.concatenate([one_by_one.share, grouped.share[row], np.ones(len(rows))]),
            np.concatenate([one_by_one.depth, grouped.depth[row], last_depth]),
        )

    def network(self, attachments: NDArray[np.int64]) -> FlowNetwork:
        """Return the network; `attachments` are by port of the assignment."""
        fabric = self._fabric

        def between(src_port: NDArray[np.int32], dst_port: NDArray[np.int32]) -> Between:
            # Queue pairs whose ways depend on hashes are followed one by one, all others once per pair of switches.
            src, dst = attachments[src_port], attachments[dst_port]
            hashed_rows, grouped_rows = np.flatnonzero(self._goes_by_key), np.flatnonzero(~self._goes_by_key)
            one_by_one = self._one_by_one(hashed_rows, src, dst)
            pairs, parts = self._by_switches(src[grouped_rows], dst[grouped_rows])
            self._refuse(one_by_one, parts, src, dst)
            bundled = bundle(parts, fabric.link_bps, np.unique(one_by_one.link))
            flow, row = _of_flows(bundled.flow, pairs)
            latency, store = one_by_one.elapsed_ns, one_by_one.store
            latency[grouped_rows], store[grouped_rows] = parts.elapsed_ns[pairs], parts.store[pairs]
            last = fabric.last_link[dst]
            latency = latency + fabric.delay_ns[fabric.last_link[src]] + fabric.hop_ns[last]
            store = store + fabric.store[last]
            bps = np.concatenate([fabric.link_bps, bundled.rates(fabric.link_bps)])
            limited_rows, limited_bps = self._held_by_windows(
                src_port, latency, store, fabric.link_bps[fabric.last_link[src]]
            )
            shares = (one_by_one.share, bundled.share[row], np.ones(len(src) + len(limited_rows)))
            return Between(
                np.concatenate([one_by_one.flow, grouped_rows[flow], np.arange(len(src)), limited_rows]),
                np.concatenate(
                    [one_by_one.link, bundled.link[row], last, len(bps) + np.arange(len(limited_rows))]
                ),
                np.concatenate(shares).astype(np.float32),
                latency,
                store,
                (
                    *fabric.names,
                    *bundled.names(fabric.names),
                    *(f"window of queue pair {queue_pair}" for queue_pair in limited_rows),
                ),
                np.concatenate([bps, limited_bps]),
            )

        return replace(network_with(self._assignment, between), notes=self._notes)

    def _refuse(
        self, one_by_one: Parts, parts: Parts, src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> None:
        """Raise `PlanError` if a flow meets unequal links in a way that is not modelled."""
        fabric = self._fabric
        for parts_of_flows in (one_by_one, parts):
            refuse_adaptive(fabric, parts_of_flows)
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
        """Return the queue pairs whose window is below the bandwidth-delay product, and their maximum rates in bps."""
        assignment = self._assignment
        window_by_transport = [window_of(transport) for transport in assignment.transports]
        window = np.array([window_by_transport[port.transport] for port in assignment.ports], np.int64)[
            src_port
        ]
        packet_bits = (assignment.transport.path_mtu_bytes + LINK_BYTES_PER_PACKET) * 8
        # The full packet is serialised by the port and every switch on the forward path; the ACK's size is neglected.
        round_trip_ns = 2 * latency_ns + packet_bits * (store + 1e9 / port_bps)
        allowed_bps = window * packet_bits * 1e9 / round_trip_ns
        limited_rows = np.flatnonzero((window > 0) & (allowed_bps < port_bps))
        return limited_rows, np.maximum(allowed_bps[limited_rows], 1).astype(np.int64)

    def _one_by_one(self, rows: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]) -> Parts:
        """Return the parts of queue pairs whose ways are selected by packet headers."""
        fabric, values = self._fabric, self._values
        flow, port = values.ports(rows)
        walked_parts: list[Parts] = []
        # Never split the rows of a flow between batches.
        batch_starts = np.flatnonzero(np.diff(np.cumsum(values.count[rows]) // _ROWS_AT_ONCE)) + 1
        for batch in np.split(np.arange(len(flow)), np.cumsum(values.count[rows])[batch_starts - 1]):
            zeros = np.zeros(len(batch))
            start_rows = Rows(
                flow[batch],
                1 / values.count[flow[batch]],
                fabric.home[src[flow[batch]]],
                dst[flow[batch]],
                np.arange(len(batch)),
                port[batch],
                fabric.first_in_port[src[flow[batch]]],
                zeros.astype(np.int64),
                zeros,
            )
            keys = cache(partial(values.keys, self._assignment, flow[batch], port[batch]))
            walked_parts.append(walk(fabric, start_rows, len(src), keys))
        return Parts(
            np.concatenate([parts.flow for parts in walked_parts]),
            np.concatenate([parts.link for parts in walked_parts]),
            np.concatenate([parts.share for parts in walked_parts]),
            np.concatenate([parts.depth for parts in walked_parts]),
            np.maximum.reduce([parts.elapsed_ns for parts in walked_parts]),
            np.maximum.reduce([parts.store for parts in walked_parts]),
        )

    def _by_switches(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], Parts]:
        """Return the index of the (source, target) switch pair of each queue pair, and the parts of those switch pairs."""
        fabric = self._fabric
        switches = len(fabric.topology.switches)
        pairs, first, of_pair = np.unique(
            fabric.home[src] * switches + fabric.home[dst], return_index=True, return_inverse=True
        )
        count = len(pairs)
        zeros = np.zeros(count)
        start_rows = Rows(
            np.arange(count),
            np.ones(count),
            pairs // switches,
            dst[first],
            np.arange(count),
            zeros.astype(np.uint16),
            np.zeros(count, np.int64),
            zeros.astype(np.int64),
            zeros,
        )
        return of_pair.reshape(-1), walk(fabric, start_rows, count, None)


def _of_flows(
    pair: NDArray[np.int64], pair_of_flow: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Expand rows of pairs to flows: return flow and row for every row of each flow's pair. `pair` is sorted."""
    first = np.searchsorted(pair, pair_of_flow, side="left")
    counts = np.searchsorted(pair, pair_of_flow, side="right") - first
    flow = np.repeat(np.arange(len(pair_of_flow)), counts)
    within = np.arange(len(flow)) - np.repeat(np.cumsum(counts) - counts, counts)
    return flow, first[flow] + within
