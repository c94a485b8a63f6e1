"""A topology as the flow level sees it: links, and which of them each queue pair's data takes. Pure.

Decides what of a switch is kept: the rates of its ports, its latency, and which of several ways a flow takes. By ECMP that is
the very port that the switch model picks for the five-tuple; sprayed and flowlet traffic is spread evenly over all ways.
What is lost is listed by `left_out`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import FIVE_TUPLE, LoadBalancing, SwitchSettings, Topology
from etloop.traffic import _native
from etloop.traffic.flow_level import Between, FlowNetwork, network_with
from etloop.traffic.topology.routes import Routes, routes
from etloop.traffic.twin import attachments_of
from numpy.typing import NDArray

LINK_BYTES_PER_PACKET: Final = 82
"""What a packet has around its payload on a link (docs/closed_forms.md)."""


def left_out(topology: Topology) -> tuple[str, ...]:
    """What the topology describes and the flow level knows nothing of, a phrase each."""
    omitted = []
    if any(queue.marking for switch in topology.switches for queue in switch.queues):
        omitted.append("ECN marks")
    if any(switch.pfc for switch in topology.switches):
        omitted.append("pauses")
    omitted.append("queues and drops")
    if any(switch.faults for switch in topology.switches):
        omitted.append("the faults of its switches")
    return tuple(omitted)


def network_of(assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology) -> FlowNetwork:
    """The network of an assignment whose port i is on the attachment of `rig_ports[i]`.

    Raises `PlanError` if ports are not attached or cannot reach each other.
    """
    if any(port.planes > 1 for port in assignment.ports):
        what = "a card has several planes, over which the flow level does not spread a queue pair"
        raise PlanError(Problem("flow level", what, "say --level packet"))
    table = routes(topology)
    attachments = np.array(attachments_of(assignment, rig_ports, topology, table), np.int64)
    walk = _Walk(topology, table, assignment.transport.path_mtu_bytes)
    keys = np.frombuffer(_native.flow_keys(assignment), np.uint64)
    return network_with(
        assignment,
        lambda src, dst: walk.follow(attachments[src], attachments[dst], keys),
        walk.names,
        walk.link_bps,
    )


class _Walk:
    """Egress links of all switches, and the ways over them."""

    def __init__(self, topology: Topology, table: Routes, packet_bytes: int) -> None:
        self._topology = topology
        self._table = table
        ports = [port for switch in topology.switches for port in switch.ports]
        counts = [len(switch.ports) for switch in topology.switches]
        self._first_link = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.names = tuple(
            f"{switch.name}/{port.name}" for switch in topology.switches for port in switch.ports
        )
        self.link_bps = np.array([port.rate_bps for port in ports], np.int64)
        delay_ns = np.array([port.delay_ns for port in ports], np.int64)
        latency_ns = np.repeat([switch.latency_ns for switch in topology.switches], counts)
        bits = (packet_bytes + LINK_BYTES_PER_PACKET) * 8
        # A switch stores a packet before it sends it: the last one of a message is sent once more by each.
        again_ns = -(-bits * 1_000_000_000 // self.link_bps)
        self._hop_ns = (latency_ns + again_ns + delay_ns).astype(np.int64)
        self._delay_ns = delay_ns
        # The next switch beyond every egress link, -1 where an endpoint is.
        self._beyond = np.full(len(ports), -1, np.int64)
        for link in topology.links:
            self._beyond[self._link_at(link.a.switch, link.a.port)] = link.b.switch
            self._beyond[self._link_at(link.b.switch, link.b.port)] = link.a.switch
        self._home = np.array([attachment.end.switch for attachment in topology.attachments], np.int64)
        self._last_link = np.array(
            [
                self._link_at(attachment.end.switch, attachment.end.port)
                for attachment in topology.attachments
            ],
            np.int64,
        )

    def _link_at(self, switch: int, port: int) -> int:
        return int(self._first_link[switch]) + port

    def follow(self, src: NDArray[np.int64], dst: NDArray[np.int64], keys: NDArray[np.uint64]) -> Between:
        """Ways between attachments: (flow, egress link, share of the flow on it) of every part, and latency by flow."""
        flow = np.arange(len(src), dtype=np.int64)
        here, share = self._home[src], np.ones(len(src), np.float64)
        elapsed = self._delay_ns[self._last_link[src]].copy()
        latency = np.zeros(len(src), np.int64)
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        while len(flow):
            flow, share, elapsed, link = self._step(flow, share, elapsed, here, dst, keys)
            elapsed = elapsed + self._hop_ns[link]
            parts.append((flow, link, share))
            here = self._beyond[link]
            arrived = here < 0
            np.maximum.at(latency, flow[arrived], elapsed[arrived])
            on = ~arrived
            flow, share, elapsed, here = flow[on], share[on], elapsed[on], here[on]
        if not parts:
            return flow, flow, share.astype(np.float32), latency
        flows, links, shares = (np.concatenate([part[column] for part in parts]) for column in range(3))
        # Spread flows may come to one link by several ways.
        unique, inverse = np.unique(flows * len(self.names) + links, return_inverse=True)
        summed = np.zeros(len(unique), np.float64)
        np.add.at(summed, inverse.reshape(-1), shares)
        summed = np.minimum(summed, 1)
        return unique // len(self.names), unique % len(self.names), summed.astype(np.float32), latency

    def _step(
        self,
        flow: NDArray[np.int64],
        share: NDArray[np.float64],
        elapsed: NDArray[np.int64],
        here: NDArray[np.int64],
        dst: NDArray[np.int64],
        keys: NDArray[np.uint64],
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Every flow, at the switch that it is at, onto an egress link; or onto several, in shares."""
        home = self._home[dst[flow]]
        link = np.where(here == home, self._last_link[dst[flow]], -1)
        extra: list[NDArray[np.int64]] = []
        extra_link: list[NDArray[np.int64]] = []
        asked = np.flatnonzero(link < 0)
        pairs, inverse = np.unique(
            here[asked] * len(self._topology.switches) + home[asked], return_inverse=True
        )
        order = np.argsort(inverse.reshape(-1), kind="stable")
        bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(pairs) + 1))
        for row, pair in enumerate(pairs.tolist()):
            at = asked[order[bounds[row] : bounds[row + 1]]]
            number = pair // len(self._topology.switches)
            switch = self._topology.switches[number]
            ports = np.array(self._table[number][int(dst[flow[at[0]]])], np.int64) + self._first_link[number]
            if len(ports) > 1:
                _refuse_what_packets_alone_show(switch)
            if switch.balancing is LoadBalancing.ECMP:
                chosen = _native.ecmp_choices(np.ascontiguousarray(keys[flow[at]]), switch.seed, len(ports))
                link[at] = ports[np.frombuffer(chosen, np.int32)]
                continue
            share[at] /= len(ports)
            link[at] = ports[0]
            for port in ports[1:].tolist():
                extra.append(at)
                extra_link.append(np.full(len(at), port, np.int64))
        again = np.concatenate([np.arange(len(flow), dtype=np.int64), *extra])
        return flow[again], share[again], elapsed[again], np.concatenate([link, *extra_link])


def _refuse_what_packets_alone_show(switch: SwitchSettings) -> None:
    """Raise `PlanError` where a switch chooses among several ways by what the flow level does not know."""
    whats = {
        "ways have weights": any(port.weight != switch.ports[0].weight for port in switch.ports),
        "hash: is not of the five-tuple": switch.balancing is LoadBalancing.ECMP
        and set(switch.hash_fields) != set(FIVE_TUPLE),
        "balancing: structured goes by source ports": switch.balancing is LoadBalancing.STRUCTURED,
    }
    for what, holds in whats.items():
        if holds:
            unknown = f"{what}, which the flow level does not know"
            raise PlanError(Problem(f"switch {switch.name}", unknown, "say --level packet"))
