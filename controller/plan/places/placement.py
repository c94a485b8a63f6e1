"""Which port and address every rank gets. Pure and deterministic: the same inputs give the same placement everywhere.

Consecutive ranks share a host, `ranks_per_host` at a time, and the ranks of a host stay on one port, or with rails on one
port a NIC: local rank i uses NIC i * nics // ranks_per_host. Hosts go to ports, or to sets of one port a rail (`rails`), in the
order of `ports` of the mapping, or without that in the order of the rig, by

* blocked: hosts in order, in consecutive blocks as even as they can be: every port has a host before any has a second.
  A further host goes where there are addresses left for its ranks, among those where hosts per link speed are fewest,
  among those to the first. The speed of a set is that of its ports together. Fewer hosts than ports (or sets) get one
  each, at equal distances from the first on: that of one host is the first port, of two of four ports the first and the
  third.
* by_traffic: the same, but a host belongs to the port in whose share of the summed link speed the middle of the host's
  traffic falls, when all hosts' traffic (bytes that leave or enter the host) is laid out in a row. No port exceeds its
  fair share by more than one host; a port may have none while another has two.
* round_robin: host i on port i modulo the number of ports.
* explicit: as the scenario says, rank by rank; the ranks of a host may then sit on several ports of one agent.

The k-th rank of a port takes its k-th address; when the port has fewer, ranks share addresses in turn.
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
    """A port of the rig with the ranks it was given."""

    agent: str
    port: RigPort
    ranks: tuple[int, ...]
    """Of a card with several planes on the first one."""
    plane: int = 0
    planes: int = 1
    """Of its card, whose ports follow each other; 1: a port by itself."""

    @property
    def is_used(self) -> bool:
        """Whether it carries anything of ranks."""
        return bool(self.ranks) or self.plane > 0

    def share_of(self, card_bytes: int) -> int:
        """Of the bytes of a card those of this plane, if all have as many; what is left over is the first one's."""
        each, rest = divmod(card_bytes, self.planes)
        return each if self.plane else each + rest

    @property
    def label(self) -> str:
        """As scenarios and reports name it: "agent/port"."""
        return f"{self.agent}/{self.port.name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where every rank is. `port` indexes `ports`, which holds the ports that have ranks, in the order of the rig; of a card with
    several planes its other ports, too."""

    host: tuple[int, ...]
    port: tuple[int, ...]
    address: tuple[int, ...]
    """Index into the port's addresses."""
    ports: tuple[PortPlace, ...]
    notes: tuple[str, ...]
    nic: tuple[int, ...] = ()
    """With rails: which NIC of its host every rank uses, else empty."""

    def address_of(self, rank: int) -> str:
        """IP address of a rank."""
        return self.ports[self.port[rank]].port.addresses[self.address[rank]]


def hosts_of(ranks: int, mapping: Mapping) -> tuple[tuple[int, ...], ...]:
    """The ranks of every host, in the order of their NICs. `mapping.hosts` must be about these ranks (`with_hosts`)."""
    step = mapping.ranks_per_host
    return mapping.hosts or tuple(
        tuple(range(first, min(first + step, ranks))) for first in range(0, ranks, step)
    )


def host_numbers(ranks: int, mapping: Mapping) -> list[int]:
    """The host of every rank."""
    found = [0] * ranks
    for host, members in enumerate(hosts_of(ranks, mapping)):
        for rank in members:
            found[rank] = host
    return found


def place(ranks: int, host_bytes: Sequence[int], mapping: Mapping, rig: Rig) -> Placement:
    """Places `ranks` ranks on the rig. `host_bytes[h]` is what leaves and enters host h.

    Raises `PlanError` when the scenario's explicit placement does not fit the rig or the job.
    """
    if mapping.ports:
        rig = _with_ports(rig, mapping.ports)
    labels = list(rig.ports)
    rig_ports = [(agent.name, port) for agent in rig.agents for port in agent.ports]
    nic: tuple[int, ...] = ()
    hosts, host = hosts_of(ranks, mapping), host_numbers(ranks, mapping)
    if mapping.rule is PlacementRule.EXPLICIT:
        of_rank = _explicit(ranks, mapping, labels)
    else:
        sets = _in_order(port_sets(rig, mapping), labels, mapping.ports)
        of_host = _set_of_host(host_bytes, mapping, [[rig_ports[port][1] for port in one] for one in sets])
        nics = [0] * ranks
        for members_of_host in hosts:
            for local, rank in enumerate(members_of_host):
                nics[rank] = local * len(sets[0]) // mapping.ranks_per_host
        of_rank = [sets[of_host[host[rank]]][nics[rank]] for rank in range(ranks)]
        nic = tuple(nics) if mapping.rails else ()
    members: list[list[int]] = [[] for _ in rig_ports]
    for rank, port in enumerate(of_rank):
        members[port].append(rank)
    used = [port for port in range(len(rig_ports)) if members[port]]
    ports = tuple(PortPlace(rig_ports[port][0], rig_ports[port][1], tuple(members[port])) for port in used)
    order = {rank: k for port in ports for k, rank in enumerate(port.ranks)}
    row = {port: index for index, port in enumerate(used)}
    return Placement(
        host=tuple(host),
        port=tuple(row[port] for port in of_rank),
        address=tuple(order[rank] % len(rig_ports[of_rank[rank]][1].addresses) for rank in range(ranks)),
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
        # None has to share, and rank 0 is where a reader looks for it.
        return [host * len(sets) // hosts for host in range(hosts)]
    links_bps = [sum(port.link_bps for port in one) for one in sets]
    if mapping.rule is PlacementRule.BY_TRAFFIC:
        return _by_traffic(host_bytes, links_bps)
    # Ranks of a host on one port, at most.
    on_port = -(-mapping.ranks_per_host // len(sets[0]))
    return _even_blocks(
        hosts, links_bps, [min(len(port.addresses) for port in one) // on_port for one in sets]
    )


def _even_blocks(hosts: int, links_bps: Sequence[int], most_hosts: Sequence[int]) -> list[int]:
    """`most_hosts[i]` is how many hosts find an address for every rank in set i."""
    # Hosts per speed, in whole numbers.
    common_bps = lcm(*links_bps)
    load = [common_bps // link_bps for link_bps in links_bps]
    count = [1] * len(links_bps)

    def wish(index: int) -> tuple[bool, int, int]:
        return count[index] >= most_hosts[index], (count[index] + 1) * load[index], index

    queue = [wish(index) for index in range(len(links_bps))]
    heapify(queue)
    for _ in range(hosts - len(links_bps)):
        index = queue[0][2]
        count[index] += 1
        heapreplace(queue, wish(index))
    return [index for index, own in enumerate(count) for _ in range(own)]


def _by_traffic(host_bytes: Sequence[int], links_bps: Sequence[int]) -> list[int]:
    # One byte more for everybody, so that hosts without traffic spread as well.
    weights = [weight + 1 for weight in host_bytes]
    total_bytes, total_bps = sum(weights), sum(links_bps)
    of_host: list[int] = []
    port, speed_before, bytes_before = 0, 0, 0
    for weight in weights:
        middle_twice = 2 * bytes_before + weight
        while middle_twice * total_bps >= 2 * (speed_before + links_bps[port]) * total_bytes:
            speed_before += links_bps[port]
            port += 1
        of_host.append(port)
        bytes_before += weight
    return of_host


def _explicit(ranks: int, mapping: Mapping, labels: Sequence[str]) -> list[int]:
    index = {label: position for position, label in enumerate(labels)}
    problems: list[Problem] = []
    of_rank: dict[int, int] = {}
    places = mapping.explicit_where or ("mapping.explicit",) * len(mapping.explicit)
    for (rank, label), place_of_it in zip(mapping.explicit, places, strict=True):
        where = f"{place_of_it}: rank {rank}"
        if rank >= ranks:
            problems.append(Problem(where, f"the job has ranks 0 to {ranks - 1}", "remove it"))
        elif label not in index:
            problems.append(Problem(where, f'the rig has no port "{label}"', _offer(label, labels)))
        else:
            of_rank[rank] = index[label]
    placed = {rank for rank, _ in mapping.explicit}
    missing = [rank for rank in range(ranks) if rank not in placed]
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (
            f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        )
        problems.append(
            Problem("mapping.explicit", f"no port for rank {shown}", "place every rank of the job")
        )
    problems += _split_hosts(ranks, mapping, of_rank, labels)
    if problems:
        raise PlanError(*problems)
    return [of_rank[rank] for rank in range(ranks)]


def _split_hosts(
    ranks: int, mapping: Mapping, of_rank: dict[int, int], labels: Sequence[str]
) -> list[Problem]:
    problems = []
    for members in hosts_of(ranks, mapping):
        ports = sorted({of_rank[rank] for rank in members if rank in of_rank})
        if len({labels[port].partition("/")[0] for port in ports}) > 1:
            what = f"they share a host (ranks_per_host {mapping.ranks_per_host}) but not an agent"
            found = ", ".join(labels[port] for port in ports)
            remedy = "place them on ports of one agent, which joins them inside the host, or write ranks_per_host: 1"
            lines = dict(zip((rank for rank, _ in mapping.explicit), mapping.explicit_where, strict=False))
            where = lines.get(members[0], "mapping.explicit")
            ends = f"{members[0]}-{members[-1]}"
            problems.append(Problem(f"{where}: ranks {ends}", f"{what}: {found}", remedy))
    return problems


def _offer(label: str, labels: Sequence[str]) -> str:
    agent = label.partition("/")[0]
    own = [known for known in labels if known.startswith(f"{agent}/")]
    if own:
        count = f"{len(own)} port{'s' if len(own) > 1 else ''}"
        return f"agent {agent} offers {count}: {', '.join(own)}"
    agents = list(dict.fromkeys(known.partition("/")[0] for known in labels))
    return f"the agents are {', '.join(agents)}"


def _with_ports(rig: Rig, wanted: Sequence[str]) -> Rig:
    """The rig as far as a mapping's `ports` go."""
    labels = list(rig.ports)
    problems = [
        Problem("mapping.ports", f'the rig has no port "{label}"', _offer(label, labels))
        for label in wanted
        if label not in labels
    ]
    if problems:
        raise PlanError(*problems)
    return rig.only(wanted)


def _in_order(sets: Sequence[PortSet], labels: Sequence[str], wanted: Sequence[str]) -> list[PortSet]:
    """The sets as a mapping's `ports` lists them, each where the first of its ports stands; without such, as they are."""
    place = {label: position for position, label in reversed(list(enumerate(wanted)))}
    return sorted(sets, key=lambda one: min(place.get(labels[port], 0) for port in one))


def unused_ports(idle: Sequence[str]) -> tuple[str, ...]:
    """What a reader is told of ports that no rank is on."""
    return (f"ports without ranks, left unused: {', '.join(idle)}",) if idle else ()


def shared_addresses(ports: Sequence[PortPlace]) -> tuple[str, ...]:
    """What a reader is told where ranks of a port have one address."""
    notes = []
    for port in ports:
        addresses = len(port.port.addresses)
        if len(port.ranks) > addresses:
            notes.append(
                f"{port.label}: {len(port.ranks)} ranks share {addresses} "
                f"address{'es' if addresses > 1 else ''}, so the device sees fewer addresses than the job has ranks"
            )
    return tuple(notes)
