"""How flows find their way through the switches of a topology, in which parts, and how long it is. Pure.

Decides what a switch does with a flow that has several ways: it sends all of it by one that a hash or the source port names, or
parts of it by each. Where nothing depends on hashes all flows between two switches go alike, and are walked once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import LoadBalancing, SwitchSettings, Topology
from etloop.traffic import _native
from etloop.traffic.topology.routes import Routes
from numpy.typing import NDArray

MOST_ROWS: Final = 1 << 25
"""Of one step: parts of flows that are followed side by side."""
BY_KEY: Final = frozenset({LoadBalancing.ECMP, LoadBalancing.STRUCTURED})
"""Where the headers of a packet name its way."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Parts of flows under way, a row each."""

    flow: NDArray[np.int64]
    share: NDArray[np.float64]
    here: NDArray[np.int64]
    """The switch that it has come to."""
    dst: NDArray[np.int64]
    """The attachment that it goes to."""
    key: NDArray[np.uint64]
    """What hashes make of its headers, and its UDP source port; without meaning where nothing depends on them."""
    port: NDArray[np.uint16]
    elapsed_ns: NDArray[np.int64]
    store: NDArray[np.float64]

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.flow[rows],
            self.share[rows],
            self.here[rows],
            self.dst[rows],
            self.key[rows],
            self.port[rows],
            self.elapsed_ns[rows],
            self.store[rows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What flows take of the links between switches, a row each; latency and stores by flow, without the last link."""

    flow: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float64]
    depth: NDArray[np.int64]
    """How many links lie before it."""
    elapsed_ns: NDArray[np.int64]
    store: NDArray[np.float64]


class Fabric:
    """Egress links of all switches, and where they lead."""

    def __init__(self, topology: Topology, table: Routes) -> None:
        self.topology = topology
        self.table = table
        ports = [port for switch in topology.switches for port in switch.ports]
        counts = [len(switch.ports) for switch in topology.switches]
        self.first_link = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.names = tuple(
            f"{switch.name}/{port.name}" for switch in topology.switches for port in switch.ports
        )
        self.link_bps = np.array([port.rate_bps for port in ports], np.int64)
        self.delay_ns = np.array([port.delay_ns for port in ports], np.int64)
        latency_ns = np.repeat([switch.latency_ns for switch in topology.switches], counts)
        self.hop_ns = (latency_ns + self.delay_ns).astype(np.int64)
        # A switch stores a packet before it sends it: the last one of a message is sent once more by each.
        self.store = 1e9 / self.link_bps
        # The next switch beyond every egress link, -1 where an endpoint is.
        self.beyond = np.full(len(ports), -1, np.int64)
        for link in topology.links:
            self.beyond[self.link_at(link.a.switch, link.a.port)] = link.b.switch
            self.beyond[self.link_at(link.b.switch, link.b.port)] = link.a.switch
        ends = [attachment.end for attachment in topology.attachments]
        self.home = np.array([end.switch for end in ends], np.int64)
        self.last_link = np.array([self.link_at(end.switch, end.port) for end in ends], np.int64)

    def link_at(self, switch: int, port: int) -> int:
        """Return the number of a port among all."""
        return int(self.first_link[switch]) + port

    def ways(self, switch: int, attachment: int) -> NDArray[np.int64]:
        """Return the links of a switch that lead to an attachment."""
        links: NDArray[np.int64] = (
            np.array(self.table[switch][attachment], np.int64) + self.first_link[switch]
        )
        return links


def members_of(switch: SwitchSettings, ports: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of ports in their group, as often each as weights say (traffic/native/switch/switch_ways.cpp)."""
    weights = np.array([port.weight for port in switch.ports], np.int64)
    if (weights == weights[0]).all():
        return np.arange(len(ports))
    group = weights[ports]
    repeated: NDArray[np.int64] = np.repeat(np.arange(len(ports)), group // np.gcd.reduce(group))
    return repeated


def shares_of(fabric: Fabric, number: int, links: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the part of what a switch sends over several links that each takes, where no header names one."""
    switch = fabric.topology.switches[number]
    if switch.balancing is LoadBalancing.ADAPTIVE:
        # To the port that is through first: when all are busy, each takes what it can carry.
        rates = fabric.link_bps[links].astype(np.float64)
        parts: NDArray[np.float64] = rates / rates.sum()
        return parts
    members = members_of(switch, links - fabric.first_link[number])
    shares: NDArray[np.float64] = np.bincount(members, minlength=len(links)) / len(members)
    return shares


def named_by_key(switch: SwitchSettings, rows: Rows, ports: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place among `ports` that the headers of each row name."""
    members = members_of(switch, ports)
    if switch.balancing is LoadBalancing.STRUCTURED:
        field = rows.port.astype(np.int64) >> switch.entropy_shift & (1 << switch.entropy_bits) - 1
        place: NDArray[np.int64] = members[field % len(members)]
        return place
    chosen = np.frombuffer(
        _native.ecmp_choices(np.ascontiguousarray(rows.key), switch.seed, len(members)), np.int32
    )
    hashed: NDArray[np.int64] = members[chosen]
    return hashed


def walk(fabric: Fabric, rows: Rows, flows: int, *, by_key: bool) -> Parts:
    """Return what rows take on their way to the switches that their targets are on.

    `by_key`: headers name ways where switches go by them; else even there all ways are taken alike. Raises `PlanError` where
    there are more parts than can be followed.
    """
    elapsed, store = np.zeros(flows, np.int64), np.zeros(flows, np.float64)
    taken: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]] = []
    depth = 0
    while True:
        there = fabric.home[rows.dst] == rows.here
        np.maximum.at(elapsed, rows.flow[there], rows.elapsed_ns[there])
        np.maximum.at(store, rows.flow[there], rows.store[there])
        rows = rows.at(~there)
        if not len(rows.flow):
            break
        rows, link = _step(fabric, rows, by_key)
        taken.append((rows.flow, link, rows.share, np.full(len(link), depth, np.int64)))
        depth += 1
    if not taken:
        nothing = np.zeros(0, np.int64)
        return Parts(nothing, nothing, np.zeros(0, np.float64), nothing, elapsed, store)
    flow, link, share, depths = (np.concatenate(column) for column in zip(*taken, strict=True))
    # Parts of a flow may come to one link by several ways.
    links = len(fabric.names)
    unique, first, inverse = np.unique(flow * links + link, return_index=True, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), weights=share, minlength=len(unique))
    return Parts(unique // links, unique % links, np.minimum(summed, 1), depths[first], elapsed, store)


def _step(fabric: Fabric, rows: Rows, by_key: bool) -> tuple[Rows, NDArray[np.int64]]:
    """Return rows beyond the next link, and the link; a row that is split is several."""
    switches = len(fabric.topology.switches)
    pairs, inverse = np.unique(rows.here * switches + fabric.home[rows.dst], return_inverse=True)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(pairs) + 1))
    index: list[NDArray[np.int64]] = []
    links: list[NDArray[np.int64]] = []
    shares: list[NDArray[np.float64]] = []
    for row, pair in enumerate(pairs.tolist()):
        at = order[bounds[row] : bounds[row + 1]]
        number = pair // switches
        ways = fabric.ways(number, int(rows.dst[at[0]]))
        switch = fabric.topology.switches[number]
        if len(ways) == 1 or (by_key and switch.balancing in BY_KEY):
            ports = ways - fabric.first_link[number]
            chosen = ways[named_by_key(switch, rows.at(at), ports)] if len(ways) > 1 else ways[0]
            index.append(at)
            links.append(np.broadcast_to(chosen, at.shape))
            shares.append(rows.share[at])
        else:
            index.append(np.tile(at, len(ways)))
            links.append(np.repeat(ways, len(at)))
            shares.append((shares_of(fabric, number, ways)[:, None] * rows.share[at][None, :]).reshape(-1))
        if sum(map(len, index)) > MOST_ROWS:
            what = f"flows spread over more than {MOST_ROWS} paths, which the flow level does not follow"
            raise PlanError(Problem(f"switch {switch.name}", what, "say --level packet"))
    link = np.concatenate(links)
    taken = rows.at(np.concatenate(index))
    moved = Rows(
        taken.flow,
        np.concatenate(shares),
        fabric.beyond[link],
        taken.dst,
        taken.key,
        taken.port,
        taken.elapsed_ns + fabric.hop_ns[link],
        taken.store + fabric.store[link],
    )
    return moved, link


def has_choice(fabric: Fabric, holds: Callable[[SwitchSettings], bool]) -> bool:
    """Whether any switch for which it holds has several ways to anywhere."""
    return any(
        holds(switch) and any(len(ports) > 1 for ports in fabric.table[number])
        for number, switch in enumerate(fabric.topology.switches)
    )
