"""Placement of ranks on ports and addresses. Pure and deterministic: the same inputs give the same placement everywhere.

Consecutive ranks share a host, `ranks_per_host` at a time. The ranks of a host stay on one port, or with rails on one port
per NIC: local rank i uses NIC i * nics // ranks_per_host. Hosts go to ports, or to sets of one port per rail (`rails`), in
the order of the mapping's `ports` or else of the rig, by one of these rules:

* blocked: hosts in order, in consecutive blocks that are as even as possible: every port has a host before any has a
  second. A further host goes to a port that has addresses left for its ranks; among those to the port with fewest hosts
  per link speed; among those to the first. The speed of a set is the sum of its ports. If there are fewer hosts than
  ports (or sets), each gets its own, at equal distances from the first: a single host is on the first port, two hosts
  on four ports are on the first and the third.
* by_traffic: the traffic of all hosts (bytes that leave or enter the host) is laid out in a row and divided among the
  ports in proportion to their link speeds. A host goes to the port in whose share the middle of its traffic falls. No port
  exceeds its fair share by more than one host; a port may have none while another has two. Fewer hosts than ports are
  placed as by blocked.
* round_robin: host i on port i modulo the number of ports.
* explicit: the port of every rank is given in the scenario; the ranks of a host may then be on several ports of one agent.

The k-th rank of a port takes its k-th address; if the port has fewer addresses than ranks, ranks share them in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import lcm
from typing import TYPE_CHECKING

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.scenario.mapping import Mapping, PlacementRule
from etloop.controller.plan.places.rails import PortSet, port_sets

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig, RigPort


@dataclass(frozen=True, slots=True)
class PortPlace:
    """A port of the rig with the ranks placed on it."""

    agent: str
    port: RigPort
    ranks: tuple[int, ...]
    """Ranks of a card with several planes are listed on its first plane only."""
    plane: int = 0
    planes: int = 1
    """Number of planes of its card, which are consecutive in a placement; 1 for a port without a card."""

    @property
    def is_used(self) -> bool:
        """Return whether traffic of some rank uses the port."""
        return bool(self.ranks) or self.plane > 0

    def share_of(self, card_bytes: int) -> int:
        """Return this plane's equal share of a card's bytes; the first plane also gets the remainder."""
        share_bytes, remainder_bytes = divmod(card_bytes, self.planes)
        return share_bytes if self.plane else share_bytes + remainder_bytes

    @property
    def label(self) -> str:
        """Return the name of the port in scenarios and reports: "agent/port"."""
        return f"{self.agent}/{self.port.name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of every rank. `port` indexes `ports`, which lists the ports with ranks in the order of the rig, and with each
    card's first plane its other planes."""

    host: tuple[int, ...]
    port: tuple[int, ...]
    address: tuple[int, ...]
    """Index into the port's addresses."""
    ports: tuple[PortPlace, ...]
    notes: tuple[str, ...]
    nic: tuple[int, ...] = ()
    """With rails the NIC of its host that every rank uses, else empty."""

    def address_of(self, rank: int) -> str:
        """Return the IP address of a rank."""
        return self.ports[self.port[rank]].port.addresses[self.address[rank]]


def hosts_of(ranks: int, mapping: Mapping) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every host, in the order of their NICs. `mapping.hosts`, if set, must cover these ranks
    (`with_hosts`)."""
    step = mapping.ranks_per_host
    return mapping.hosts or tuple(
        tuple(range(first, min(first + step, ranks))) for first in range(0, ranks, step)
    )


def host_numbers(ranks: int, mapping: Mapping) -> list[int]:
    """Return the host of every rank."""
    host_of_rank = [0] * ranks
    for host, members in enumerate(hosts_of(ranks, mapping)):
        for rank in members:
            host_of_rank[rank] = host
    return host_of_rank


def place(ranks: int, host_bytes: Sequence[int], mapping: Mapping, rig: Rig) -> Placement:
    """Place `ranks` ranks on the rig. `host_bytes[h]` is the payload that leaves and enters host h in one iteration.

    Raises `PlanError` if the scenario's explicit placement or its rails do not fit the rig or the job.
    """
    if mapping.ports:
        rig = _restrict_rig(rig, mapping.ports)
    labels = list(rig.ports)
    rig_ports = [(agent.name, port) for agent in rig.agents for port in agent.ports]
    nic: tuple[int, ...] = ()
    hosts, host_of_rank = hosts_of(ranks, mapping), host_numbers(ranks, mapping)
    if mapping.rule is PlacementRule.EXPLICIT:
        port_of_rank = _explicit(ranks, mapping, labels)
    else:
        sets = _sort_sets(port_sets(rig, mapping), labels, mapping.ports)
        set_of_host = _set_of_host(
            host_bytes, mapping, [[rig_ports[port][1] for port in port_set] for port_set in sets]
        )
        nics = [0] * ranks
        for members_of_host in hosts:
            for local, rank in enumerate(members_of_host):
                nics[rank] = local * len(sets[0]) // mapping.ranks_per_host
        port_of_rank = [sets[set_of_host[host_of_rank[rank]]][nics[rank]] for rank in range(ranks)]
        nic = tuple(nics) if mapping.rails else ()
    members: list[list[int]] = [[] for _ in rig_ports]
    for rank, port in enumerate(port_of_rank):
        members[port].append(rank)
    used_ports = [port for port in range(len(rig_ports)) if members[port]]
    ports = tuple(
        PortPlace(rig_ports[port][0], rig_ports[port][1], tuple(members[port])) for port in used_ports
    )
    index_on_port = {rank: k for port in ports for k, rank in enumerate(port.ranks)}
    row_of_port = {port: index for index, port in enumerate(used_ports)}
    return Placement(
        host=tuple(host_of_rank),
        port=tuple(row_of_port[port] for port in port_of_rank),
        address=tuple(
            index_on_port[rank] % len(rig_ports[port_of_rank[rank]][1].addresses) for rank in range(ranks)
        ),
        ports=ports,
        notes=(
            *unused_ports([labels[port] for port in range(len(labels)) if not members[port]]),
            *shared_addresses(ports),
        ),
        nic=nic,
    )


def _set_of_host(
    host_bytes: Sequence[int], mapping: Mapping, sets: Sequence[Sequence[RigPort]]
) -> Sequence[int]:
    hosts = len(host_bytes)
    if mapping.rule is PlacementRule.ROUND_ROBIN:
        return [host % len(sets) for host in range(hosts)]
    if hosts < len(sets):
        # Spread evenly: no port is shared, and rank 0 is on the first port.
        return [host * len(sets) // hosts for host in range(hosts)]
    links_bps = [sum(port.link_bps for port in port_set) for port_set in sets]
    if mapping.rule is PlacementRule.BY_TRAFFIC:
        return _by_traffic(host_bytes, links_bps)
    most_ranks_per_port = -(-mapping.ranks_per_host // len(sets[0]))
    return _even_blocks(
        hosts,
        links_bps,
        [min(len(port.addresses) for port in port_set) // most_ranks_per_port for port_set in sets],
    )


def _even_blocks(hosts: int, links_bps: Sequence[int], most_hosts: Sequence[int]) -> list[int]:
    """Return the set of every host under the blocked rule. Set i has addresses for all ranks of `most_hosts[i]` hosts."""
    # Load per host of each set, proportional to 1 / link speed and in integers.
    common_bps = lcm(*links_bps)
    load_per_host = [common_bps // link_bps for link_bps in links_bps]
    count = [1] * len(links_bps)

    def priority(index: int) -> tuple[bool, int, int]:
        return count[index] >= most_hosts[index], (count[index] + 1) * load_per_host[index], index

    queue = [priority(index) for index in range(len(links_bps))]
    heapify(queue)
    for _ in range(hosts - len(links_bps)):
        index = queue[0][2]
        count[index] += 1
        heapreplace(queue, priority(index))
    return [index for index, set_hosts in enumerate(count) for _ in range(set_hosts)]


def _by_traffic(host_bytes: Sequence[int], links_bps: Sequence[int]) -> list[int]:
    # One byte is added to every host, so that hosts without traffic are spread as well.
    weights = [weight + 1 for weight in host_bytes]
    total_bytes, total_bps = sum(weights), sum(links_bps)
    port_of_host: list[int] = []
    port, bps_before, bytes_before = 0, 0, 0
    for weight in weights:
        middle_twice = 2 * bytes_before + weight
        while middle_twice * total_bps >= 2 * (bps_before + links_bps[port]) * total_bytes:
            bps_before += links_bps[port]
            port += 1
        port_of_host.append(port)
        bytes_before += weight
    return port_of_host


def _explicit(ranks: int, mapping: Mapping, labels: Sequence[str]) -> list[int]:
    port_by_label = {label: position for position, label in enumerate(labels)}
    problems: list[Problem] = []
    port_of_rank: dict[int, int] = {}
    entry_places = mapping.explicit_where or ("mapping.explicit",) * len(mapping.explicit)
    for (rank, label), entry_where in zip(mapping.explicit, entry_places, strict=True):
        where = f"{entry_where}: rank {rank}"
        if rank >= ranks:
            problems.append(Problem(where, f"the job has ranks 0 to {ranks - 1}", "remove it"))
        elif label not in port_by_label:
            problems.append(Problem(where, f'the rig has no port "{label}"', _offer(label, labels)))
        else:
            port_of_rank[rank] = port_by_label[label]
    placed_ranks = {rank for rank, _ in mapping.explicit}
    missing_ranks = [rank for rank in range(ranks) if rank not in placed_ranks]
    if missing_ranks:
        shown = ", ".join(map(str, missing_ranks[:8])) + (
            f" and {len(missing_ranks) - 8} more" if len(missing_ranks) > 8 else ""
        )
        problems.append(
            Problem("mapping.explicit", f"no port for rank {shown}", "place every rank of the job")
        )
    problems += _split_hosts(ranks, mapping, port_of_rank, labels)
    if problems:
        raise PlanError(*problems)
    return [port_of_rank[rank] for rank in range(ranks)]


def _split_hosts(
    ranks: int, mapping: Mapping, of_rank: dict[int, int], labels: Sequence[str]
) -> list[Problem]:
    problems = []
    for members in hosts_of(ranks, mapping):
        ports = sorted({of_rank[rank] for rank in members if rank in of_rank})
        if len({labels[port].partition("/")[0] for port in ports}) > 1:
            problem = f"they share a host (ranks_per_host {mapping.ranks_per_host}) but are on several agents"
            port_labels = ", ".join(labels[port] for port in ports)
            remedy = "place them on ports of one agent, or write ranks_per_host: 1"
            where_of_rank = dict(
                zip((rank for rank, _ in mapping.explicit), mapping.explicit_where, strict=False)
            )
            where = where_of_rank.get(members[0], "mapping.explicit")
            rank_range = f"{members[0]}-{members[-1]}"
            problems.append(Problem(f"{where}: ranks {rank_range}", f"{problem}: {port_labels}", remedy))
    return problems


def _offer(label: str, labels: Sequence[str]) -> str:
    agent = label.partition("/")[0]
    agent_ports = [port_label for port_label in labels if port_label.startswith(f"{agent}/")]
    if agent_ports:
        count = f"{len(agent_ports)} port{'s' if len(agent_ports) > 1 else ''}"
        return f"agent {agent} offers {count}: {', '.join(agent_ports)}"
    agents = list(dict.fromkeys(port_label.partition("/")[0] for port_label in labels))
    return f"the agents are {', '.join(agents)}"


def _restrict_rig(rig: Rig, wanted: Sequence[str]) -> Rig:
    """Return the rig with only the ports that a mapping names. Raises `PlanError` for unknown ones."""
    labels = list(rig.ports)
    problems = [
        Problem("mapping.ports", f'the rig has no port "{label}"', _offer(label, labels))
        for label in wanted
        if label not in labels
    ]
    if problems:
        raise PlanError(*problems)
    return rig.only(wanted)


def _sort_sets(sets: Sequence[PortSet], labels: Sequence[str], wanted: Sequence[str]) -> list[PortSet]:
    """Return the sets in the order of the mapping's `ports`, each at the position of its first port there; without `ports`,
    unchanged."""
    position_of = {label: position for position, label in reversed(list(enumerate(wanted)))}
    return sorted(sets, key=lambda port_set: min(position_of.get(labels[port], 0) for port in port_set))


def unused_ports(idle: Sequence[str]) -> tuple[str, ...]:
    """Return the note on ports that have no rank; () if there are none."""
    return (f"ports without ranks, left unused: {', '.join(idle)}",) if idle else ()


def shared_addresses(ports: Sequence[PortPlace]) -> tuple[str, ...]:
    """Return a note for each port that has fewer addresses than ranks."""
    notes = []
    for port in ports:
        addresses = len(port.port.addresses)
        if len(port.ranks) > addresses:
            notes.append(
                f"{port.label}: {len(port.ranks)} ranks share {addresses} "
                f"address{'es' if addresses > 1 else ''}, so the device sees fewer addresses than the job has ranks"
            )
    return tuple(notes)
