"""A fabric as a graph of components -> its hosts, switches, links, and on which NIC each rank sits.

Decides what in a graph is a host, what a switch, and which NIC a rank uses. Reading InfraGraph files is left to
`infragraph_file`, what is made of a fabric to `commands_fabric`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """A node of the graph: `name` as in `server.0.nic.1`, of the instance `server.0`."""

    name: str
    kind: str
    """`xpu`, `nic`, `port`, `switch` and what else the description uses."""
    instance: str
    attributes: tuple[tuple[str, str], ...] = ()
    """Annotations."""

    def attribute(self, name: str) -> str:
        """An annotation; empty if there is none."""
        return dict(self.attributes).get(name, "")


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of the graph; what is not described is None."""

    one: str
    other: str
    link_bps: int | None
    latency_ns: int | None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A NIC of a host, and the switch port that it is connected to."""

    nic: str
    host: str
    switch_port: str
    link_bps: int | None
    latency_ns: int | None
    address: str
    """Empty if none is annotated."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A device between hosts."""

    name: str
    ports: int
    """That are connected to something."""
    profile: str
    """Annotated; empty if none is."""


@dataclass(frozen=True, slots=True)
class RankLocation:
    """Where a rank is: its accelerator and the NIC that it sends by."""

    rank: int
    xpu: str
    host: str
    nic: str


@dataclass(frozen=True, slots=True)
class Fabric:
    """What a description says of the network of a job."""

    name: str
    attachments: tuple[Attachment, ...]
    switches: tuple[Switch, ...]
    trunks: tuple[Link, ...]
    """Between switches."""
    rank_locations: tuple[RankLocation, ...]
    """By rank."""
    notes: tuple[str, ...]
    """What was not said and therefore assumed."""


def fabric_of(name: str, components: Iterable[Component], links: Iterable[Link], source: str) -> Fabric:
    """The fabric of a graph. Raises `ConfigError` with everything in it that leaves the placement of a rank open.

    An instance with an accelerator is a host, any other that is connected to others a switch.
    """
    nodes = {component.name: component for component in components}
    all_links = tuple(links)
    hosts = {node.instance for node in nodes.values() if node.kind == "xpu"}
    outer = [link for link in all_links if nodes[link.one].instance != nodes[link.other].instance]
    problems: list[Problem] = []
    if not hosts:
        problems.append(Problem(source, "no component is an xpu", "describe the accelerators: choice: xpu"))
    attachments = _attachments(nodes, hosts, outer, problems, source)
    trunks = tuple(
        link for link in outer if not {nodes[link.one].instance, nodes[link.other].instance} & hosts
    )
    notes: list[str] = []
    rank_locations = (
        _rank_locations(nodes, all_links, attachments, problems, notes, source) if not problems else ()
    )
    if problems:
        raise ConfigError(*problems)
    return Fabric(name, attachments, _switches(nodes, hosts, outer), trunks, rank_locations, tuple(notes))


def _attachments(
    nodes: Mapping[str, Component],
    hosts: set[str],
    outer: list[Link],
    problems: list[Problem],
    source: str,
) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    for link in outer:
        inside = [end for end in (link.one, link.other) if nodes[end].instance in hosts]
        if len(inside) == 2:
            what = f"{link.one} and {link.other} are connected without a switch"
            problems.append(Problem(source, what, "only hosts behind a device under test can be used"))
        if len(inside) != 1:
            continue
        nic = nodes[inside[0]]
        port = link.other if nic.name == link.one else link.one
        found.append(
            Attachment(
                nic.name, nic.instance, port, link.link_bps, link.latency_ns, nic.attribute("ipaddress")
            )
        )
    for nic_name, count in Counter(attachment.nic for attachment in found).items():
        if count > 1:
            what = f"{nic_name} is connected to {count} switch ports"
            problems.append(Problem(source, what, "describe a NIC with several ports as several NICs"))
    if not found and hosts:
        problems.append(Problem(source, "no host is connected to a switch", "add edges between instances"))
    return tuple(found)


def _switches(nodes: Mapping[str, Component], hosts: set[str], outer: list[Link]) -> tuple[Switch, ...]:
    ports: Counter[str] = Counter()
    for end in {end for link in outer for end in (link.one, link.other)}:
        ports[nodes[end].instance] += nodes[end].instance not in hosts
    profiles: dict[str, str] = {}
    for node in nodes.values():
        if node.attribute("profile"):
            profiles.setdefault(node.instance, node.attribute("profile"))
    order = dict.fromkeys(node.instance for node in nodes.values())
    return tuple(Switch(name, ports[name], profiles.get(name, "")) for name in order if ports[name])


def _rank_locations(
    nodes: Mapping[str, Component],
    links: tuple[Link, ...],
    attachments: tuple[Attachment, ...],
    problems: list[Problem],
    notes: list[str],
    source: str,
) -> tuple[RankLocation, ...]:
    xpus = [node for node in nodes.values() if node.kind == "xpu"]
    ranks = _ranks(xpus, problems, notes, source)
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    for link in links:
        if nodes[link.one].instance == nodes[link.other].instance:
            neighbours[link.one].append(link.other)
            neighbours[link.other].append(link.one)
    nics: dict[str, list[str]] = {}
    for attachment in attachments:
        nics.setdefault(attachment.host, []).append(attachment.nic)
    used: Counter[str] = Counter()
    rank_locations = []
    for xpu in xpus:
        if xpu.name not in ranks:
            continue
        hops = _distances(xpu.name, neighbours)
        reachable = [nic for nic in nics.get(xpu.instance, ()) if nic in hops]
        if not reachable:
            what = f"{xpu.name} reaches no NIC of its host that is connected to a switch"
            problems.append(Problem(source, what, "connect it within its device, or connect the NIC"))
            continue
        # The nearest one; of several as near, the one with the fewest ranks so far.
        nic = min(reachable, key=lambda each: (hops[each], used[each], reachable.index(each)))
        used[nic] += 1
        rank_locations.append(RankLocation(ranks[xpu.name], xpu.name, xpu.instance, nic))
    return tuple(sorted(rank_locations, key=lambda location: location.rank))


def _ranks(xpus: list[Component], problems: list[Problem], notes: list[str], source: str) -> dict[str, int]:
    """The rank of each accelerator: as annotated, or all in the order of the description."""
    annotated = {xpu.name: xpu.attribute("rank") for xpu in xpus if xpu.attribute("rank")}
    if not annotated:
        notes.append("no rank is annotated: accelerators are numbered in the order of the description")
        return {xpu.name: rank for rank, xpu in enumerate(xpus)}
    ranks = {
        name: int(text)
        for name, text in annotated.items()
        if text.isascii() and text.isdecimal() and len(text) < 7
    }
    for name in annotated.keys() - ranks.keys():
        what = f'the rank of {name} is "{annotated[name][:32]}"'
        problems.append(Problem(source, what, "write a number from 0"))
    twice = [rank for rank, count in Counter(ranks.values()).items() if count > 1]
    if twice:
        what = (
            f"rank {min(twice)} is given to {sum(rank == min(twice) for rank in ranks.values())} accelerators"
        )
        problems.append(Problem(source, what, "give every rank once"))
    absent = sorted(set(range(len(ranks))) - set(ranks.values()))
    if absent and not twice:
        problems.append(
            Problem(source, f"rank {absent[0]} is given to no accelerator", "number ranks from 0")
        )
    if len(annotated) < len(xpus):
        notes.append(f"{len(xpus) - len(annotated)} accelerators have no rank and stay idle")
    return ranks


def _distances(start: str, neighbours: Mapping[str, list[str]]) -> dict[str, int]:
    """Hops from a component to all that it reaches within its instance."""
    hops = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for there in neighbours[here]:
            if there not in hops:
                hops[there] = hops[here] + 1
                waiting.append(there)
    return hops
