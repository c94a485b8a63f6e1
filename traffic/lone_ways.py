"""The ways of every pair of ranks through a network without other traffic. Pure.

This module decides which links a single transfer can use. One queue pair through switches that balance by flow uses one
of the shortest ways, and the fastest one counts. Packets that are spread (several queue pairs, planes, MRC and UET,
switches that spray) use all shortest ways together: their rate between the switches is the maximum flow (Ford and
Fulkerson 1956).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from etloop.contract.base.ip_address import ip_text
from etloop.contract.model.assignment import Assignment, Path, PortSettings
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES, packet_overhead_bytes
from etloop.contract.model.empty_network import Framing, LatencySource, LoneNetwork, LoneWay
from etloop.contract.model.topology import SwitchEnd, Topology
from etloop.contract.model.transport import TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.topology.routes import Routes, routes
from etloop.traffic.twin import attachments_of

ETHERNET_BYTES: Final = 20 + 14 + 4
"""Preamble and inter-packet gap, MAC header, FCS."""
VLAN_TAG_BYTES: Final = 4
RETH_BYTES: Final = 16
IMMEDIATE_BYTES: Final = 4
_Ways = dict[tuple[tuple[int, ...], int], None]
"""Set of (link rates in bits per second, latency in ns)."""


def lone_network(
    assignment: Assignment, topology: Topology | None, described_by: str, *, cuts: bool
) -> LoneNetwork:
    """Return the ways and framing of every pair with a connection through the device.

    `cuts`: transfers consist of several messages, which use the queue pairs in turn. Without a topology, a way consists
    of the links of the two ports and its latency is unknown. Raises `PlanError` as `attachments_of` does.
    """
    connections, ports = assignment.connections, assignment.ports
    port_of = {rank.rank: rank.port for rank in assignment.ranks}
    wire = np.flatnonzero(connections.path == Path.WIRE)
    queue_pairs, splits = np.diff(connections.qp_offsets), assignment.transport.split_data_on_qps
    pairs: dict[tuple[int, int], tuple[int, bool]] = {}
    for row in wire.tolist():
        pair = int(connections.src_rank[row]), int(connections.dst_rank[row])
        count, ipv6 = pairs.get(pair, (0, ":" in ip_text(connections.src_ip[row])))
        qp_count = int(queue_pairs[row]) if cuts or splits else 1
        pairs[pair] = count + qp_count, ipv6
    source_of_ways = _PortWays(ports) if topology is None else _TopologyWays(assignment, topology)
    framings: dict[Framing, int] = {}
    way_sets: dict[tuple[LoneWay, ...], int] = {}
    columns: list[tuple[int, int, int, int]] = []
    for (src, dst), (count, ipv6) in pairs.items():
        port = ports[port_of[src]]
        transport = assignment.transports[port.transport]
        spreads = count > 1 or port.planes > 1 or transport.kind is not TransportKind.ROCE
        ways = source_of_ways.between(port_of[src], port_of[dst], spreads=spreads)
        parts = count if splits else 1
        framing = framing_of(transport, ipv6=ipv6, encapsulated=port.segments is not None, parts=parts)
        way_set = way_sets.setdefault(ways, len(way_sets))
        columns.append((src, dst, way_set, framings.setdefault(framing, len(framings))))
    src_rank, dst_rank, way_set_of, framing_number = zip(*columns, strict=True) if columns else ((),) * 4
    return LoneNetwork(
        latency=LatencySource.UNKNOWN if topology is None else LatencySource.TOPOLOGY,
        described_by=described_by,
        framings=tuple(framings),
        way_sets=tuple(way_sets),
        src_rank=src_rank,
        dst_rank=dst_rank,
        way_set=way_set_of,
        framing=framing_number,
    )


def framing_of(transport: TransportSettings, *, ipv6: bool, encapsulated: bool, parts: int = 1) -> Framing:
    """Return the framing around the payload of a transport's data packets.

    `encapsulated`: they have an outer IPv6 header with segments. `parts`: parts of a message, each on its own queue
    pair.
    """
    asks = transport.multipath.uet.credit.granted
    overhead_bytes = ETHERNET_BYTES + packet_overhead_bytes(transport.kind, asks_for_credit=asks, ipv6=ipv6)
    overhead_bytes += (VLAN_TAG_BYTES if transport.vlan_id >= 0 else 0) + (
        OUTER_HEADER_BYTES if encapsulated else 0
    )
    first_bytes = last_bytes = 0
    if transport.kind is TransportKind.ROCE:
        first_bytes = RETH_BYTES
    if transport.kind is not TransportKind.UET:
        last_bytes = IMMEDIATE_BYTES
    word_bytes = 1 if transport.kind is TransportKind.UET else 4
    overhead_bytes -= first_bytes + last_bytes
    return Framing(transport.path_mtu_bytes, overhead_bytes, first_bytes, last_bytes, word_bytes, parts)


class _PortWays:
    """Ways without a known topology: the links of the two ports, through one switch."""

    def __init__(self, ports: Sequence[PortSettings]) -> None:
        self._ports = ports

    def between(self, src: int, dst: int, *, spreads: bool) -> tuple[LoneWay, ...]:
        """Return the single way from a port of the assignment to another, over all planes of a NIC."""
        ends = self._ports[src], self._ports[dst]
        link_bps = ends[0].link_bps, ends[1].link_bps
        shared_bps = ends[0].link_bps * ends[0].planes, ends[1].link_bps * ends[1].planes
        return (LoneWay(link_bps, shared_bps if spreads else link_bps, 0),)


class _TopologyWays:
    """Ways through the switches of a topology."""

    def __init__(self, assignment: Assignment, topology: Topology) -> None:
        self._topology = topology
        self._ports = assignment.ports
        self._table: Routes = routes(topology)
        names = tuple(port.name for port in assignment.ports)
        self._attachments = attachments_of(assignment, names, topology, self._table)
        self._beyond = {link.a: link.b.switch for link in topology.links}
        self._beyond |= {link.b: link.a.switch for link in topology.links}
        self._inner: dict[tuple[int, int], _Ways] = {}
        self._flow_bps: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, int, bool], tuple[LoneWay, ...]] = {}

    def between(self, src: int, dst: int, *, spreads: bool) -> tuple[LoneWay, ...]:
        """Return the shortest ways from a port of the assignment to another, without those that another way dominates."""
        pair = src, dst, spreads
        if pair not in self._known:
            self._known[pair] = self._worked_out(src, dst, spreads=spreads)
        return self._known[pair]

    def _worked_out(self, src: int, dst: int, *, spreads: bool) -> tuple[LoneWay, ...]:
        """Compute the ways from port `src` to port `dst`, over all planes."""
        planes = range(self._ports[src].planes)
        ends = [(self._attachments[src + plane], self._attachments[dst + plane]) for plane in planes]
        total_bps = [0, 0, 0]
        is_spread = spreads or any(self._reorders(*pair) for pair in ends)
        if is_spread:
            for source, target in ends:
                first, last = (self._topology.attachments[number].end for number in (source, target))
                rates = (self._rate(first), self._between_switches(first.switch, target), self._rate(last))
                total_bps = [total + rate for total, rate in zip(total_bps, rates, strict=True)]
        ways: dict[LoneWay, None] = {}
        for source, target in ends:
            first, last = (self._topology.attachments[at].end for at in (source, target))
            at_ends_ns = self._delay(first) + self._latency(last.switch) + self._delay(last)
            for inner_bps, latency_ns in self._ways_on(first.switch, target):
                link_bps = (self._rate(first), *inner_bps, self._rate(last))
                shared_bps = link_bps
                if is_spread:
                    between_bps = (max(rate, total_bps[1]) for rate in inner_bps)
                    shared_bps = (total_bps[0], *between_bps, total_bps[2])
                ways[LoneWay(link_bps, shared_bps, latency_ns + at_ends_ns)] = None
        return _not_dominated(ways)

    def _ways_on(self, here: int, target: int) -> _Ways:
        """Return the ways from the ingress of switch `here` to the ingress of the switch of attachment `target`."""
        home = self._topology.attachments[target].end.switch
        cached_ways = self._inner.get((here, home))
        if cached_ways is not None:
            return cached_ways
        ways: _Ways = {((), 0): None} if here == home else {}
        for port in () if here == home else self._table[here][target]:
            end = SwitchEnd(here, port)
            hop_ns = self._latency(here) + self._delay(end)
            for link_bps, latency_ns in self._ways_on(self._beyond[end], target):
                ways[(self._rate(end), *link_bps), latency_ns + hop_ns] = None
        self._inner[here, home] = ways
        return ways

    def _reorders(self, source: int, target: int) -> bool:
        """Return whether a switch on the way spreads the packets of one flow over several ports."""
        switches = self._topology.switches
        return any(
            len(ports) > 1 and switches[switch].balancing.reorders
            for switch, ports in self._graph(self._topology.attachments[source].end.switch, target).items()
        )

    def _graph(self, source: int, target: int) -> dict[int, tuple[int, ...]]:
        """Return the egress ports of all switches on the shortest ways from a switch to an attachment."""
        home = self._topology.attachments[target].end.switch
        graph: dict[int, tuple[int, ...]] = {}
        waiting = [source]
        while waiting:
            switch = waiting.pop()
            if switch != home and switch not in graph:
                graph[switch] = self._table[switch][target]
                waiting += [self._beyond[SwitchEnd(switch, port)] for port in graph[switch]]
        return graph

    def _between_switches(self, source: int, target: int) -> int:
        """Return the maximum flow in bps from a switch to that of attachment `target`; 0 if they are the same."""
        home = self._topology.attachments[target].end.switch
        if (source, home) not in self._flow_bps:
            links: dict[tuple[int, int], int] = {}
            for switch, ports in self._graph(source, target).items():
                for port in ports:
                    end = SwitchEnd(switch, port)
                    link = switch, self._beyond[end]
                    links[link] = links.get(link, 0) + self._rate(end)
            self._flow_bps[source, home] = maximum_flow(links, source, home)
        return self._flow_bps[source, home]

    def _rate(self, end: SwitchEnd) -> int:
        return self._topology.port_of(end).rate_bps

    def _delay(self, end: SwitchEnd) -> int:
        return self._topology.port_of(end).delay_ns

    def _latency(self, switch: int) -> int:
        return self._topology.switches[switch].latency_ns


def _not_dominated(ways: Iterable[LoneWay]) -> tuple[LoneWay, ...]:
    """Return the ways for which no other way is at least as fast on every link and has at most the same latency."""
    undominated: list[LoneWay] = []
    for way in sorted(ways, key=lambda way: (way.latency_ns, *(-rate for rate in way.link_bps))):
        if not any(
            len(faster.link_bps) == len(way.link_bps)
            and all(a >= b for a, b in zip(faster.link_bps, way.link_bps, strict=True))
            and all(a >= b for a, b in zip(faster.shared_bps, way.shared_bps, strict=True))
            for faster in undominated
        ):
            undominated.append(way)
    return tuple(undominated)


def maximum_flow(links: Mapping[tuple[int, int], int], source: int, target: int) -> int:
    """Return the maximum flow between two nodes over links with these capacities; 0 if the nodes are the same.

    Augments along shortest paths (Edmonds and Karp 1972).
    """
    free = dict(links)
    out: dict[int, set[int]] = {}
    for a, b in links:
        out.setdefault(a, set()).add(b)
        out.setdefault(b, set()).add(a)
    flow = 0
    while source != target and (path := _shortest(out, free, source, target)):
        step = min(free[link] for link in path)
        for a, b in path:
            free[a, b] -= step
            free[b, a] = free.get((b, a), 0) + step
        flow += step
    return flow


def _shortest(
    out: Mapping[int, set[int]], free: Mapping[tuple[int, int], int], source: int, target: int
) -> list[tuple[int, int]]:
    """Return the links of a shortest path with free capacity, or an empty list if there is no such path."""
    previous = {source: source}
    waiting = deque([source])
    while waiting and target not in previous:
        node = waiting.popleft()
        for neighbour in sorted(out.get(node, ())):
            if neighbour not in previous and free.get((node, neighbour), 0) > 0:
                previous[neighbour] = node
                waiting.append(neighbour)
    path = []
    while target in previous and target != source:
        path.append((previous[target], target))
        target = previous[target]
    return path
