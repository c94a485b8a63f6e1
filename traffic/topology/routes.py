"""Routes: the ports of every switch on all shortest paths to each attachment. Pure.

Routes are those of the topology with all links up. The switch decides which of several ways it uses, and how it reacts
if one of them is down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from etloop.contract.model.topology import SwitchLink, Topology

Routes = tuple[tuple[tuple[int, ...], ...], ...]
"""By switch, by attachment: the ports towards it, ascending; empty if it cannot be reached."""


def routes(topology: Topology) -> Routes:
    """Compute the routes by hop count alone, as data centre routing protocols do: rates and delays are ignored."""
    neighbours = _neighbours(len(topology.switches), topology.links)
    edges = sorted({attachment.end.switch for attachment in topology.attachments})
    toward = {switch: _toward(neighbours, switch) for switch in edges}
    return tuple(
        tuple(
            (attachment.end.port,)
            if attachment.end.switch == switch
            else toward[attachment.end.switch][switch]
            for attachment in topology.attachments
        )
        for switch in range(len(topology.switches))
    )


def ways_between(switches: int, links: Sequence[SwitchLink]) -> list[list[tuple[int, ...]]]:
    """Return by target switch, by switch: the ports on shortest paths to the target; empty for the target itself."""
    neighbours = _neighbours(switches, links)
    return [_toward(neighbours, target) for target in range(switches)]


def islands(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the attachments in groups that can reach each other; one group if the network is connected."""
    neighbours = _neighbours(len(topology.switches), topology.links)
    island = [-1] * len(topology.switches)
    for first in range(len(topology.switches)):
        if island[first] >= 0:
            continue
        pending = [first]
        island[first] = first
        while pending:
            for _, neighbour in neighbours[pending.pop()]:
                if island[neighbour] < 0:
                    island[neighbour] = first
                    pending.append(neighbour)
    groups: dict[int, list[int]] = {}
    for number, attachment in enumerate(topology.attachments):
        groups.setdefault(island[attachment.end.switch], []).append(number)
    return tuple(tuple(group) for group in groups.values())


def _neighbours(switches: int, links: Sequence[SwitchLink]) -> list[list[tuple[int, int]]]:
    """Return by switch (own port, switch at the other end) for every link."""
    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(switches)]
    for link in links:
        neighbours[link.a.switch].append((link.a.port, link.b.switch))
        neighbours[link.b.switch].append((link.b.port, link.a.switch))
    return neighbours


def _toward(neighbours: list[list[tuple[int, int]]], target: int) -> list[tuple[int, ...]]:
    """Return by switch the ports on shortest paths to `target`; empty for `target` itself."""
    hops = {target: 0}
    waiting = deque([target])
    while waiting:
        switch_reached = waiting.popleft()
        for _, neighbour in neighbours[switch_reached]:
            if neighbour not in hops:
                hops[neighbour] = hops[switch_reached] + 1
                waiting.append(neighbour)
    return [
        tuple(
            sorted(port for port, neighbour in ports if hops.get(neighbour, -1) == hops.get(switch, -2) - 1)
        )
        if switch != target
        else ()
        for switch, ports in enumerate(neighbours)
    ]
