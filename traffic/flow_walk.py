"""Ways of flows through the switches of a topology: the links they take, the share on each, and the latency. Pure.

This module decides how a switch forwards a flow that has several ways: it sends the whole flow by the one that a hash
or the UDP source port selects, or splits the flow over all of them. Where no switch hashes, all flows between two
switches take the same ways, and these are walked once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import HashField, LoadBalancing, SwitchSettings, Topology
from etloop.traffic import _native
from etloop.traffic.topology.routes import Routes

MOST_ROWS: Final = 1 << 25
"""Maximum number of flow parts that are followed in parallel in one step."""
BY_KEY: Final = frozenset({LoadBalancing.ECMP, LoadBalancing.STRUCTURED})
"""Balancing modes in which the headers of a packet select its way."""
Keys: TypeAlias = "Callable[[int], NDArray[np.uint64]]"
"""Returns the hash keys, without the ingress port, of the rows that a walk begins with, for a bit set of fields."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Parts of flows on their way, one row each."""

    flow: NDArray[np.int64]
    share: NDArray[np.float64]
    here: NDArray[np.int64]
    """Switch that the part has reached."""
    dst: NDArray[np.int64]
    """Attachment that is its destination."""
    start: NDArray[np.int64]
    """Row among those that the walk began with, for the keys of ECMP. `start` and `port` have no meaning where no
    switch uses them."""
    port: NDArray[np.uint16]
    """UDP source port."""
    in_port: NDArray[np.int64]
    """Port by which the part has reached the switch `here`."""
    elapsed_ns: NDArray[np.int64]
    store: NDArray[np.float64]

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.flow[rows],
            self.share[rows],
            self.here[rows],
            self.dst[rows],
            self.start[rows],
            self.port[rows],
            self.in_port[rows],
            self.elapsed_ns[rows],
            self.store[rows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Shares of flows on the links between switches, one row each.

    `elapsed_ns` (latency) and `store` (ns per bit of the stores) are by flow and exclude the last link.
    """

    flow: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float64]
    depth: NDArray[np.int64]
    """Number of links before this one."""
    elapsed_ns: NDArray[np.int64]
    store: NDArray[np.float64]


class Fabric:
    """Egress links of all switches, and the switch or attachment behind each."""

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
        # Store and forward: each switch adds the serialisation time of a message's last packet. In ns per bit.
        self.store = 1e9 / self.link_bps
        # The switch at the far end of every egress link, -1 for an endpoint.
        self.beyond = np.full(len(ports), -1, np.int64)
        self.beyond_port = np.full(len(ports), -1, np.int64)
        for link in topology.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                number = self.link_at(near.switch, near.port)
                self.beyond[number], self.beyond_port[number] = far.switch, far.port
        ends = [attachment.end for attachment in topology.attachments]
        self.first_in_port = np.array([end.port for end in ends], np.int64)
        self.home = np.array([end.switch for end in ends], np.int64)
        self.last_link = np.array([self.link_at(end.switch, end.port) for end in ends], np.int64)

    def link_at(self, switch: int, port: int) -> int:
        """Return the link number of a switch port, counted over all switches."""
        return int(self.first_link[switch]) + port

    def ways(self, switch: int, attachment: int) -> NDArray[np.int64]:
        """Return the numbers of the links by which a switch forwards to an attachment."""
        links: NDArray[np.int64] = (
            np.array(self.table[switch][attachment], np.int64) + self.first_link[switch]
        )
        return links


def members_of(switch: SwitchSettings, ports: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices into `ports`, each repeated by the weight of its port (traffic/native/switch/switch_ways.cpp)."""
    weights = np.array([port.weight for port in switch.ports], np.int64)
    if (weights == weights[0]).all():
        return np.arange(len(ports))
    group = weights[ports]
    repeated: NDArray[np.int64] = np.repeat(np.arange(len(ports)), group // np.gcd.reduce(group))
    return repeated


def shares_of(fabric: Fabric, number: int, links: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of each link when a switch balances over several without regard to headers; they sum to 1."""
    switch = fabric.topology.switches[number]
    if switch.balancing is LoadBalancing.ADAPTIVE:
        # Adaptive: a packet goes to the port that is free first, so busy ports get shares in proportion to their rates.
        rates = fabric.link_bps[links].astype(np.float64)
        parts: NDArray[np.float64] = rates / rates.sum()
        return parts
    members = members_of(switch, links - fabric.first_link[number])
    shares: NDArray[np.float64] = np.bincount(members, minlength=len(links)) / len(members)
    return shares


def named_by_key(
    switch: SwitchSettings, rows: Rows, ports: NDArray[np.int64], keys: Keys
) -> NDArray[np.int64]:
    """Return for each row the index into `ports` that its headers select: by entropy bits if structured, else by hash."""
    members = members_of(switch, ports)
    if switch.balancing is LoadBalancing.STRUCTURED:
        field = rows.port.astype(np.int64) >> switch.entropy_shift & (1 << switch.entropy_bits) - 1
        place: NDArray[np.int64] = members[field % len(members)]
        return place
    key = np.ascontiguousarray(keys(switch.hash_bits)[rows.start])
    if HashField.IN_PORT in switch.hash_fields:
        key = np.frombuffer(_native.in_port_keys(key, np.ascontiguousarray(rows.in_port)), np.uint64)
    chosen = np.frombuffer(_native.ecmp_choices(key, switch.hash_seed, len(members)), np.int32)
    hashed: NDArray[np.int64] = members[chosen]
    return hashed


def walk(fabric: Fabric, rows: Rows, flows: int, keys: Keys | None) -> Parts:
    """Follow rows to the switches that their destinations are attached to; return the links they take.

    With `keys`, headers select the way at switches that hash; without it, these switches use all ways equally. Raises
    `PlanError` if there are more parts than can be followed.
    """
    elapsed, store = np.zeros(flows, np.int64), np.zeros(flows, np.float64)
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]] = []
    depth = 0
    while True:
        arrived = fabric.home[rows.dst] == rows.here
        np.maximum.at(elapsed, rows.flow[arrived], rows.elapsed_ns[arrived])
        np.maximum.at(store, rows.flow[arrived], rows.store[arrived])
        rows = rows.at(~arrived)
        if not len(rows.flow):
            break
        rows, link = _step(fabric, rows, keys)
        steps.append((rows.flow, link, rows.share, np.full(len(link), depth, np.int64)))
        depth += 1
    if not steps:
        empty = np.zeros(0, np.int64)
        return Parts(empty, empty, np.zeros(0, np.float64), empty, elapsed, store)
    flow, link, share, depths = (np.concatenate(column) for column in zip(*steps, strict=True))
    # Parts of one flow may reach a link by several ways: add them up.
    links = len(fabric.names)
    unique, first, inverse = np.unique(flow * links + link, return_index=True, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), weights=share, minlength=len(unique))
    return Parts(unique // links, unique % links, np.minimum(summed, 1), depths[first], elapsed, store)


def _step(fabric: Fabric, rows: Rows, keys: Keys | None) -> tuple[Rows, NDArray[np.int64]]:
    """Return the rows after their next link, and that link by row; a split row becomes several."""
    switches = len(fabric.topology.switches)
    pairs, inverse = np.unique(rows.here * switches + fabric.home[rows.dst], return_inverse=True)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(pairs) + 1))
    index: list[NDArray[np.int64]] = []
    links: list[NDArray[np.int64]] = []
    shares: list[NDArray[np.float64]] = []
    for row, pair in enumerate(pairs.tolist()):
        members = order[bounds[row] : bounds[row + 1]]
        number = pair // switches
        ways = fabric.ways(number, int(rows.dst[members[0]]))
        switch = fabric.topology.switches[number]
        if len(ways) == 1 or (keys is not None and switch.balancing in BY_KEY):
            chosen = ways
            if len(ways) > 1 and keys is not None:
                ports = ways - fabric.first_link[number]
                chosen = ways[named_by_key(switch, rows.at(members), ports, keys)]
            index.append(members)
            links.append(np.broadcast_to(chosen, members.shape))
            shares.append(rows.share[members])
        else:
            index.append(np.tile(members, len(ways)))
            links.append(np.repeat(ways, len(members)))
            shares.append(
                (shares_of(fabric, number, ways)[:, None] * rows.share[members][None, :]).reshape(-1)
            )
        if sum(map(len, index)) > MOST_ROWS:
            problem = f"flows spread over more than {MOST_ROWS} paths, which the flow level does not follow"
            raise PlanError(Problem(f"switch {switch.name}", problem, "use --level packet"))
    link = np.concatenate(links)
    followed = rows.at(np.concatenate(index))
    next_rows = Rows(
        followed.flow,
        np.concatenate(shares),
        fabric.beyond[link],
        followed.dst,
        followed.start,
        followed.port,
        fabric.beyond_port[link],
        followed.elapsed_ns + fabric.hop_ns[link],
        followed.store + fabric.store[link],
    )
    return next_rows, link


def has_choice(fabric: Fabric, holds: Callable[[SwitchSettings], bool]) -> bool:
    """Return whether any switch that satisfies `holds` has several ways to some attachment."""
    return any(
        holds(switch) and any(len(ports) > 1 for ports in fabric.table[number])
        for number, switch in enumerate(fabric.topology.switches)
    )
