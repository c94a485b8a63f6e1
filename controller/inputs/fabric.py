"""A fabric as a graph of components -> its hosts, switches and links, and the NIC that each rank uses.

Decides which components are hosts and switches, and which NIC a rank uses. InfraGraph files are read by `infragraph`; the
commands decide what is made of a fabric.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """A node of the graph: `name` as in `server.0.nic.1`, within the instance `server.0`."""

    name: str
    kind: str
    """`xpu`, `nic`, `port`, `switch` or another kind of the description."""
    instance: str
    attributes: tuple[tuple[str, str], ...] = ()
    """Annotations as (name, value)."""

    def attribute(self, name: str) -> str:
        """Return an annotation, or "" if there is none."""
        return dict(self.attributes).get(name, "")


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of the graph; rate and latency are None if not described."""

    end: str
    other_end: str
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
    """Annotated IP address; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A device between hosts."""

    name: str
    ports: int
    """Number of connected ports."""
    profile: str
    """Name of the annotated profile; empty if there is none."""


@dataclass(frozen=True, slots=True)
class RankLocation:
    """The place of a rank: its accelerator and the NIC that it sends through."""

    rank: int
    xpu: str
    host: str
    nic: str


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network of a job as described."""

    name: str
    attachments: tuple[Attachment, ...]
    switches: tuple[Switch, ...]
    trunks: tuple[Link, ...]
    """Links between switches."""
    rank_locations: tuple[RankLocation, ...]
    """Sorted by rank."""
    notes: tuple[str, ...]
    """Assumptions made where the description is silent."""


def fabric_of(name: str, components: Iterable[Component], links: Iterable[Link], source: str) -> Fabric:
    """Return the fabric of a graph. `source` names its file in errors.

    An instance with an accelerator is a host; any other that is connected to other instances is a switch. Raises
    `ConfigError` with all problems that leave the placement of a rank open.
    """
    nodes = {component.name: component for component in components}
    all_links = tuple(links)
    hosts = {node.instance for node in nodes.values() if node.kind == "xpu"}
    inter_instance_links = [
        link for link in all_links if nodes[link.end].instance != nodes[link.other_end].instance
    ]
    problems: list[Problem] = []
    if not hosts:
        problems.append(Problem(source, "no component is an xpu", "describe the accelerators: choice: xpu"))
    attachments = _attachments(nodes, hosts, inter_instance_links, problems, source)
    trunks = tuple(
        link
        for link in inter_instance_links
        if not {nodes[link.end].instance, nodes[link.other_end].instance} & hosts
    )
    notes: list[str] = []
    rank_locations = (
        _rank_locations(nodes, all_links, attachments, problems, notes, source) if not problems else ()
    )
    if problems:
        raise ConfigError(*problems)
    return Fabric(
        name, attachments, _switches(nodes, hosts, inter_instance_links), trunks, rank_locations, tuple(notes)
    )


def _attachments(
    nodes: Mapping[str, Component],
    hosts: set[str],
    outer: list[Link],
    problems: list[Problem],
    source: str,
) -> tuple[Attachment, ...]:
    attachments: list[Attachment] = []
    for link in outer:
        host_ends = [end for end in (link.end, link.other_end) if nodes[end].instance in hosts]
        if len(host_ends) == 2:
            problem = f"{link.end} and {link.other_end} are connected without a switch"
            problems.append(Problem(source, problem, "only hosts behind a device under test can be used"))
        if len(host_ends) != 1:
            continue
        nic = nodes[host_ends[0]]
        port = link.other_end if nic.name == link.end else link.end
        attachments.append(
            Attachment(
                nic.name, nic.instance, port, link.link_bps, link.latency_ns, nic.attribute("ipaddress")
            )
        )
    for nic_name, count in Counter(attachment.nic for attachment in attachments).items():
        if count > 1:
            problem = f"{nic_name} is connected to {count} switch ports"
            problems.append(Problem(source, problem, "describe a NIC with several ports as several NICs"))
    if not attachments and hosts:
        problems.append(Problem(source, "no host is connected to a switch", "add edges between instances"))
    return tuple(attachments)


def _switches(nodes: Mapping[str, Component], hosts: set[str], outer: list[Link]) -> tuple[Switch, ...]:
    ports: Counter[str] = Counter()
    for end in {end for link in outer for end in (link.end, link.other_end)}:
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
    ranks = _number_xpus(xpus, problems, notes, source)
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    for link in links:
        if nodes[link.end].instance == nodes[link.other_end].instance:
            neighbours[link.end].append(link.other_end)
            neighbours[link.other_end].append(link.end)
    nics: dict[str, list[str]] = {}
    for attachment in attachments:
        nics.setdefault(attachment.host, []).append(attachment.nic)
    ranks_of_nic: Counter[str] = Counter()
    rank_locations = []
    for xpu in xpus:
        if xpu.name not in ranks:
            continue
        hops = _count_hops(xpu.name, neighbours)
        reachable = [nic for nic in nics.get(xpu.instance, ()) if nic in hops]
        if not reachable:
            problem = f"{xpu.name} reaches no NIC of its host that is connected to a switch"
            problems.append(Problem(source, problem, "connect it within its device, or connect the NIC"))
            continue
        # The nearest NIC; among equally near ones the one with the fewest ranks so far.
        nic = min(
            reachable,
            key=lambda candidate: (hops[candidate], ranks_of_nic[candidate], reachable.index(candidate)),
        )
        ranks_of_nic[nic] += 1
        rank_locations.append(RankLocation(ranks[xpu.name], xpu.name, xpu.instance, nic))
    return tuple(sorted(rank_locations, key=lambda location: location.rank))


def _number_xpus(
    xpus: list[Component], problems: list[Problem], notes: list[str], source: str
) -> dict[str, int]:
    """Return the rank of each accelerator: as annotated, or else numbered in the order of the description."""
    rank_texts = {xpu.name: xpu.attribute("rank") for xpu in xpus if xpu.attribute("rank")}
    if not rank_texts:
        notes.append("no rank is annotated: accelerators are numbered in the order of the description")
        return {xpu.name: rank for rank, xpu in enumerate(xpus)}
    ranks = {
        name: int(text)
        for name, text in rank_texts.items()
        if text.isascii() and text.isdecimal() and len(text) < 7
    }
    for name in rank_texts.keys() - ranks.keys():
        problem = f'the rank of {name} is "{rank_texts[name][:32]}", expected a number'
        problems.append(Problem(source, problem, "write a number from 0"))
    duplicates = [rank for rank, count in Counter(ranks.values()).items() if count > 1]
    if duplicates:
        problem = f"rank {min(duplicates)} is given to {sum(rank == min(duplicates) for rank in ranks.values())} accelerators"
        problems.append(Problem(source, problem, "give every rank once"))
    missing_ranks = sorted(set(range(len(ranks))) - set(ranks.values()))
    if missing_ranks and not duplicates:
        problems.append(
            Problem(source, f"rank {missing_ranks[0]} is given to no accelerator", "number ranks from 0")
        )
    if len(rank_texts) < len(xpus):
        notes.append(f"{len(xpus) - len(rank_texts)} accelerators have no rank and stay idle")
    return ranks


def _count_hops(start: str, neighbours: Mapping[str, list[str]]) -> dict[str, int]:
    """Return the hops from a component to every component that it can reach within its instance."""
    hops = {start: 0}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for neighbour in neighbours[name]:
            if neighbour not in hops:
                hops[neighbour] = hops[name] + 1
                queue.append(neighbour)
    return hops
