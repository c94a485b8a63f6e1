"""Which ports of every switch lead to which attachment: shortest paths, with all that are equally short. Pure.

Decides routes for the topology as it stands, links up. What a switch does among several ways, and when one of them is
down, is decided by the switch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from etloop.contract.model.topology import SwitchLink, Topology

Routes = tuple[tuple[tuple[int, ...], ...], ...]
"""By switch, by attachment: the ports that lead there, rising; none where it cannot be reached."""


def routes(topology: Topology) -> Routes:
    """Ports by hop count alone, as routing protocols of data centres have it: rates and delays do not count."""
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
    """By switch as target, by switch: the ports on a shortest path to the target; none for the target itself."""
    neighbours = _neighbours(switches, links)
    return [_toward(neighbours, target) for target in range(switches)]


def islands(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Attachments in groups that can reach each other; one group if the network hangs together."""
    neighbours = _neighbours(len(topology.switches), topology.links)
    island = [-1] * len(topology.switches)
    for first in range(len(topology.switches)):
        if island[first] >= 0:
            continue
        waiting = [first]
        island[first] = first
        while waiting:
            for _, there in neighbours[waiting.pop()]:
                if island[there] < 0:
                    island[there] = first
                    waiting.append(there)
    groups: dict[int, list[int]] = {}
    for number, attachment in enumerate(topology.attachments):
        groups.setdefault(island[attachment.end.switch], []).append(number)
    return tuple(tuple(group) for group in groups.values())


def _neighbours(switches: int, links: Sequence[SwitchLink]) -> list[list[tuple[int, int]]]:
    """By switch: its own port and the switch at the other end, for every link."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(switches)]
    for link in links:
        found[link.a.switch].append((link.a.port, link.b.switch))
        found[link.b.switch].append((link.b.port, link.a.switch))
    return found


def _toward(neighbours: list[list[tuple[int, int]]], target: int) -> list[tuple[int, ...]]:
    """By switch, the ports on a shortest path to `target`; none for `target` itself."""
    hops = {target: 0}
    waiting = deque([target])
    while waiting:
        here = waiting.popleft()
        for _, there in neighbours[here]:
            if there not in hops:
                hops[there] = hops[here] + 1
                waiting.append(there)
    return [
        tuple(sorted(port for port, there in ports if hops.get(there, -1) == hops.get(switch, -2) - 1))
        if switch != target
        else ()
        for switch, ports in enumerate(neighbours)
    ]
