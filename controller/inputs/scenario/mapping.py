"""`mapping` of a scenario: which ranks share a host, and which ports hosts may be put on.

Decides what may be written; where ranks then go is decided by `placement`.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from typing import Final

import yaml
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import parse_port_label
from etloop.contract.base.value_form import list_form
from etloop.contract.base.value_parsers import integer, one_of, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import MOST_RAILS

MOST_RANKS: Final = 65536
MOST_RANKS_PER_HOST: Final = 1024
_HOSTS: Final = list_form("list of lists of ranks", {"type": ["array", "integer", "string"]})
BY_COMMUNICATORS: Final = "communicators"
"""`order` that keeps communicators together."""


class PlacementRule(StrEnum):
    """How hosts are put on ports; `placement` defines them."""

    BLOCKED = "blocked"
    BY_TRAFFIC = "by_traffic"
    ROUND_ROBIN = "round_robin"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Ranks -> hosts -> NICs -> ports. Consecutive ranks share a host, `ranks_per_host` at a time, unless `hosts`, `order` or
    `by_communicators` say otherwise."""

    ranks_per_host: int
    rule: PlacementRule
    explicit: tuple[tuple[int, str], ...]
    """(rank, "agent/port") in the order of the file; empty unless the rule is EXPLICIT."""
    explicit_where: tuple[str, ...] = ()
    """File and line of each of `explicit`, for messages; empty if they come from no file."""
    rails: bool = False
    """Local rank i of a host uses the host's NIC i * nics_per_host // ranks_per_host, on a port of that rail."""
    nics_per_host: int | None = None
    """None: as many as the rig has rails."""
    ports: tuple[str, ...] = ()
    """"agent/port" of those that hosts are put on, in that order; empty: all, as the rig lists them. Not with an explicit
    placement."""
    hosts: tuple[tuple[int, ...], ...] = ()
    """The ranks of every host, in the order of their NICs; empty: by their numbers, `order` or `by_communicators`."""
    order: tuple[str, ...] = ()
    """Axes as ranks are put on hosts, that which counts fastest first; without `axes` the ranks themselves in that order."""
    axes: tuple[tuple[str, int], ...] = ()
    """(name, size) of the axes as ranks are numbered, that which counts fastest first."""
    by_communicators: bool = False
    """Whether ranks of the communicators with most bytes share a host."""

    @property
    def orders_ranks(self) -> bool:
        """Whether it says which ranks share a host, other than by how many."""
        return bool(self.hosts or self.order or self.by_communicators)


def read_mapping(section: Section) -> Mapping:
    """The mapping of a section; mistakes go to its file."""
    rules = {rule.value: rule for rule in PlacementRule}
    rule = section.optional("placement", one_of(rules), PlacementRule.BLOCKED)
    explicit_section = section.section("explicit")
    explicit, explicit_where = _read_explicit(explicit_section)
    ranks_per_host = section.optional("ranks_per_host", integer(1, MOST_RANKS_PER_HOST), 1)
    nics_per_host = section.optional("nics_per_host", integer(1, MOST_RAILS), None)
    rails = section.optional("rails", yes_or_no, nics_per_host is not None)
    if nics_per_host is not None and not rails:
        section.mistake("rails", "nics_per_host is given although rails is false", "remove one of the two")
    if rails and rule is PlacementRule.EXPLICIT:
        what = "rails choose the port of every rank, and so does placement: explicit"
        section.mistake("rails", what, "remove rails and nics_per_host, or let the placement be blocked")
    if rule is PlacementRule.EXPLICIT and not explicit:
        section.mistake(
            "explicit", "placement is explicit but no rank is placed", 'write lines such as 0-3: "a/p0"'
        )
    if rule is not PlacementRule.EXPLICIT and section.has("explicit"):
        section.mistake(
            "explicit", f"ranks are placed although placement is {rule}", "write placement: explicit"
        )
    ports = section.texts("ports", parse_port_label, "")
    if ports and rule is PlacementRule.EXPLICIT:
        section.mistake("ports", "an explicit placement names the ports itself", "remove ports")
    if twice := sorted({port for port in ports if port and ports.count(port) > 1}):
        section.mistake("ports", f"{twice[0]} stands twice", "name every port once")
    hosts, (order, axes, by_communicators) = _read_hosts(section), _read_order(section)
    if hosts and (order or by_communicators):
        section.mistake("order", "hosts say which ranks share one already", "remove order, or hosts")
    if hosts and section.has("ranks_per_host"):
        section.mistake("ranks_per_host", "hosts say how many ranks each has", "remove ranks_per_host")
    mapping = Mapping(
        ranks_per_host,
        rule,
        explicit,
        explicit_where,
        rails,
        nics_per_host,
        ports,
        hosts,
        order,
        axes,
        by_communicators,
    )
    section.close()
    return mapping


def _read_hosts(section: Section) -> tuple[tuple[int, ...], ...]:
    """The ranks of every host."""
    hosts: list[tuple[int, ...]] = []
    for index, node in enumerate(section.nodes("hosts", _HOSTS)):
        where = f"hosts[{index}]"
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        texts = [str(item.value) for item in items if isinstance(item, yaml.ScalarNode)]
        parts = [_ranks(text) for text in texts]
        ranks = [rank for part in parts for rank in part]
        if not parts or not all(parts) or len(texts) != len(items):
            remedy = "write a list of ranks for every host, such as [0, 16, 32, 48] or [0-7]"
            section.mistake("hosts", f"{where} is no list of ranks", remedy)
            break
        hosts.append(tuple(ranks))
    listed = [rank for host in hosts for rank in host]
    if twice := [rank for rank, count in Counter(listed).items() if count > 1]:
        section.mistake("hosts", f"rank {twice[0]} is on two hosts, or twice on one", "name every rank once")
    if hosts and max(map(len, hosts)) > MOST_RANKS_PER_HOST:
        section.mistake("hosts", "a host has more than 1024 ranks", "write smaller hosts")
    return tuple(hosts)


def _ranks(text: str) -> list[int]:
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    return list(range(first, last + 1)) if last < MOST_RANKS else []


def _read_order(section: Section) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], bool]:
    """Order, axes, and whether ranks are kept together by their communicators."""
    axes_section = section.section("axes")
    axes = tuple(
        (name, axes_section.optional(name, integer(1, MOST_RANKS), 1)) for name in axes_section.entry_names()
    )
    order = section.texts("order", str, "")
    if order == (BY_COMMUNICATORS,) and not axes:
        return (), (), True
    if axes and sorted(order) != sorted(name for name, _ in axes):
        named = ", ".join(name for name, _ in axes)
        section.mistake("order", "names other axes than axes: does", f"write {named} in the order of hosts")
        return (), (), False
    if axes:
        return order, axes, False
    ranks = [_ranks(text) for text in order]
    if not all(ranks):
        remedy = f"write ranks, names of axes: with their sizes, or {BY_COMMUNICATORS}"
        section.mistake("order", f'"{order[ranks.index([])][:64]}" is neither a rank nor an axis', remedy)
        return (), (), False
    listed = [rank for part in ranks for rank in part]
    if twice := [rank for rank, count in Counter(listed).items() if count > 1]:
        section.mistake("order", f"rank {twice[0]} stands twice", "name every rank once")
    return tuple(map(str, listed)), (), False


def _read_explicit(section: Section) -> tuple[tuple[tuple[int, str], ...], tuple[str, ...]]:
    """Ranks with their ports, and where the file says so."""
    placed: dict[int, str] = {}
    where: dict[int, str] = {}
    for key in section.entry_names():
        port = section.optional(key, parse_port_label, "")
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", key)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < MOST_RANKS:
            section.mistake(
                key, f'"{key[:64]}" is not a rank', "write a rank such as 3, or a range such as 0-7"
            )
            continue
        twice = [rank for rank in range(first, last + 1) if rank in placed]
        if twice:
            section.mistake(key, f"rank {twice[0]} is placed twice", "place every rank once")
        placed.update((rank, port) for rank in range(first, last + 1))
        where.update((rank, section.where(key)) for rank in range(first, last + 1))
    return tuple(placed.items()), tuple(where.values())
