"""A topology as a regular fat tree: hosts below one, two or three tiers of equal switches, as htsim builds them.

Decides which networks are regular and the order of hosts; refuses every other network with the place that differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import SwitchPort, Topology

_T = TypeVar("_T")
_WHERE: Final = "topology"
_REMEDY: Final = "use single, leaf_spine, or a fat tree of equal switches"


class Tier(NamedTuple):
    """All switches of one tier, and the links below them."""

    switches: int
    radix_down: int
    radix_up: int
    """0 for the top tier."""
    bundle: int
    """Parallel links to each switch or host below."""
    rate_bps: int
    """Rate of a link below."""
    delay_ns: int


@dataclass(frozen=True, slots=True)
class FatTree:
    """A regular fat tree."""

    tiers: tuple[Tier, ...]
    """From the hosts up."""
    hosts: tuple[int, ...]
    """Attachments in the order of hosts: pod by pod, and in a pod switch by switch."""
    pod_hosts: int
    switch_latency_ns: int


def fat_tree(topology: Topology) -> FatTree:
    """Return a topology as a fat tree. Raises `PlanError` if it is none."""
    tier_of = _tiers(topology)
    above, below = _neighbours(topology, tier_of)
    hosts_of: dict[int, list[int]] = {}
    for number, attachment in enumerate(topology.attachments):
        hosts_of.setdefault(attachment.end.switch, []).append(number)
    tiers = []
    for tier in range(max(tier_of) + 1):
        members = [switch for switch, its_tier in enumerate(tier_of) if its_tier == tier]
        downs = [Counter(hosts_of[switch]) if tier == 0 else below[switch] for switch in members]
        radix_down = _same("links down", (sum(down.values()) for down in downs), topology, members)
        radix_up = _same("links up", (sum(above[switch].values()) for switch in members), topology, members)
        bundle = _same("parallel links", (max(down.values()) for down in downs), topology, members)
        _same("parallel links", (min(down.values()) for down in downs), topology, members)
        port = _same(
            "rate or delay of links down", _ports_below(topology, members, tier_of), topology, members
        )
        tiers.append(Tier(len(members), radix_down, radix_up, bundle, port[0], port[1]))
    latency = _same("latency", (switch.latency_ns for switch in topology.switches), topology)
    pods = _pods(tier_of, above, len(tiers))
    hosts = tuple(host for pod in pods for leaf in pod for host in hosts_of[leaf])
    pod_hosts = len(hosts) // len(pods)
    tree = FatTree(tuple(tiers), hosts, pod_hosts, latency)
    _refuse_odd_wiring(topology, tier_of, above, pods)
    return tree


def _tiers(topology: Topology) -> list[int]:
    """Return the tier of each switch by its distance from the hosts. Raises `PlanError` for more than three."""
    tier_of = [-1] * len(topology.switches)
    reached = {attachment.end.switch for attachment in topology.attachments}
    linked: dict[int, set[int]] = {}
    for link in topology.links:
        linked.setdefault(link.a.switch, set()).add(link.b.switch)
        linked.setdefault(link.b.switch, set()).add(link.a.switch)
    tier = 0
    while reached:
        for switch in reached:
            tier_of[switch] = tier
        reached = {other for switch in reached for other in linked.get(switch, ()) if tier_of[other] < 0}
        tier += 1
    for switch, its_tier in enumerate(tier_of):
        if its_tier not in (0, 1, 2):
            raise _odd(f"{topology.switches[switch].name} is not in one of three tiers above the hosts")
    for link in topology.links:
        if abs(tier_of[link.a.switch] - tier_of[link.b.switch]) != 1:
            raise _odd(
                f"the link from {topology.port_name(link.a)} to {topology.port_name(link.b)} joins one tier"
            )
    return tier_of


def _neighbours(topology: Topology, tier_of: Sequence[int]) -> tuple[list[Counter[int]], list[Counter[int]]]:
    """Return for each switch the number of links to each switch above, and to each below."""
    above: list[Counter[int]] = [Counter() for _ in topology.switches]
    below: list[Counter[int]] = [Counter() for _ in topology.switches]
    for link in topology.links:
        low, high = sorted((link.a.switch, link.b.switch), key=lambda switch: tier_of[switch])
        above[low][high] += 1
        below[high][low] += 1
    return above, below


def _ports_below(
    topology: Topology, members: Sequence[int], tier_of: Sequence[int]
) -> Iterable[tuple[int, int]]:
    """Yield (rate, delay) of all ports of these switches towards hosts or lower tiers."""
    chosen = set(members)

    def of(port: SwitchPort) -> tuple[int, int]:
        return port.rate_bps, port.delay_ns

    for attachment in topology.attachments:
        if attachment.end.switch in chosen:
            yield of(topology.port_of(attachment.end))
    for link in topology.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if end.switch in chosen and tier_of[other.switch] < tier_of[end.switch]:
                yield of(topology.port_of(end))


def _same(quantity: str, values: Iterable[_T], topology: Topology, members: Sequence[int] = ()) -> _T:
    distinct = list(dict.fromkeys(values))
    if len(distinct) != 1:
        tier = f" of {topology.switches[members[0]].name} and its tier" if members else " of switches"
        raise _odd(f"{quantity}{tier} differ: {', '.join(map(str, distinct[:4]))}")
    return distinct[0]


def _pods(tier_of: Sequence[int], above: Sequence[Counter[int]], tiers: int) -> list[list[int]]:
    """Return the leaves of each pod: those that share switches of the second of three tiers; one pod of fewer tiers."""
    leaves = [switch for switch, tier in enumerate(tier_of) if tier == 0]
    if tiers < 3:
        return [leaves]
    pods: dict[tuple[int, ...], list[int]] = {}
    for leaf in leaves:
        pods.setdefault(tuple(sorted(above[leaf])), []).append(leaf)
    return list(pods.values())


def _refuse_odd_wiring(
    topology: Topology, tier_of: Sequence[int], above: Sequence[Counter[int]], pods: Sequence[Sequence[int]]
) -> None:
    """Raise `PlanError` unless leaves reach all switches above them, and each core one switch of every pod."""
    for pod in pods:
        for leaf in pod:
            if above[leaf].keys() != above[pod[0]].keys():
                raise _odd(f"{topology.switches[leaf].name} has no link to every switch above it")
    if len(pods) == 1:
        if 2 in tier_of:
            raise _odd("there is one pod below the third tier")
        return
    if len({len(pod) for pod in pods}) != 1:
        raise _odd("pods have different numbers of leaves")
    middles = [set(above[pod[0]]) for pod in pods]
    if len(set().union(*middles)) != sum(map(len, middles)):
        raise _odd("a switch of the second tier is in two pods")
    for core in (switch for switch, tier in enumerate(tier_of) if tier == 2):
        if any(sum(core in above[middle] for middle in pod) != 1 for pod in middles):
            raise _odd(f"{topology.switches[core].name} has no link to exactly one switch of every pod")


def _odd(problem: str) -> PlanError:
    return PlanError(Problem(_WHERE, f"{problem}; htsim builds regular fat trees", _REMEDY))
