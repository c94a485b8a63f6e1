"""Latency and rate of the longest path between two hosts of a job, for simulators without a fabric of their own."""

from __future__ import annotations

from collections import deque

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import Topology


@dataclass(frozen=True, slots=True)
class LonePath:
    """A path that one message has to itself."""

    latency_ns: int
    """Delays of links and switches, without the time to send a packet on each link."""
    rate_bps: int
    """Rate of the hosts' links."""


def lone_path(topology: Topology, hosts: tuple[int, ...]) -> LonePath:
    """Return the longest of the shortest paths between hosts. Raises `PlanError` if their links have different rates."""
    ends = [topology.attachments[host].end for host in hosts]
    ports = [topology.port_of(end) for end in ends]
    rates = sorted({port.rate_bps for port in ports})
    if len(rates) > 1:
        problem = f"hosts have links of {', '.join(map(str, rates))} bit/s; this simulator has one rate"
        raise PlanError(Problem("topology", problem, "give all hosts the same rate"))
    linked: dict[int, list[tuple[int, int]]] = {}
    for link in topology.links:
        delay_ns = topology.port_of(link.a).delay_ns
        linked.setdefault(link.a.switch, []).append((link.b.switch, delay_ns))
        linked.setdefault(link.b.switch, []).append((link.a.switch, delay_ns))
    switches = sorted({end.switch for end in ends})
    longest_ns = max(max(_latencies(topology, linked, switch, switches)) for switch in switches)
    delays = sorted((port.delay_ns for port in ports), reverse=True)
    return LonePath(longest_ns + sum(delays[:2]), rates[0])


def _latencies(
    topology: Topology, linked: dict[int, list[tuple[int, int]]], start: int, targets: list[int]
) -> list[int]:
    """Return the latency from a switch to each of `targets` by the fewest links, both switches included."""
    latency = {start: topology.switches[start].latency_ns}
    queue = deque([start])
    while queue:
        switch = queue.popleft()
        for other, delay_ns in linked.get(switch, ()):
            if other not in latency:
                latency[other] = latency[switch] + delay_ns + topology.switches[other].latency_ns
                queue.append(other)
    return [latency[target] for target in targets if target in latency]
