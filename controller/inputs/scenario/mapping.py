"""`mapping` of a scenario: which ranks share a host, and which ports hosts may be placed on.

Decides the keys; the placement that results is decided by `placement`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import Final

import yaml

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import parse_port_label
from etloop.contract.base.value_form import list_form
from etloop.contract.base.value_parsers import integer, word_of, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import MOST_RAILS

MOST_RANKS: Final = 65536
MOST_RANKS_PER_HOST: Final = 1024
_HOSTS: Final = list_form("list of lists of ranks", {"type": ["array", "integer", "string"]})
_HOSTS_MEANING: Final = "The ranks of every host, in the order of its NICs."
BY_COMMUNICATORS: Final = "communicators"
"""Value of `order` that keeps communicators together."""


class PlacementRule(StrEnum):
    """The rule by which hosts are placed on ports; `placement` defines them."""

    BLOCKED = "blocked"
    BY_TRAFFIC = "by_traffic"
    ROUND_ROBIN = "round_robin"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Ranks -> hosts -> NICs -> ports. Consecutive ranks share a host, `ranks_per_host` at a time, unless `hosts`, `order` or
    `by_communicators` is set."""

    ranks_per_host: int = setting("ranks_per_host", integer(1, MOST_RANKS_PER_HOST), 1)
    """Ranks of a host."""
    rule: PlacementRule = setting("placement", word_of(PlacementRule), PlacementRule.BLOCKED)
    """How hosts are placed on ports."""
    explicit: tuple[tuple[int, str], ...] = ()
    """(rank, "agent/port") in the order of the file; empty unless the rule is EXPLICIT."""
    explicit_where: tuple[str, ...] = ()
    """File and line of each entry of `explicit`, for messages; empty if they do not come from a file."""
    rails: bool = False
    """Local rank i of a host uses the host's NIC i * nics_per_host // ranks_per_host, on a port of that rail."""
    nics_per_host: int | None = setting("nics_per_host", integer(1, MOST_RAILS), None)
    """NICs of a host; as many as the rig has rails if left out."""
    ports: tuple[str, ...] = list_setting("ports", parse_port_label, stand_in="")
    """Ports that hosts are placed on, in this order; all in the order of the rig if left out."""
    hosts: tuple[tuple[int, ...], ...] = ()
    """Ranks of every host in the order of their NICs; empty to derive them from rank numbers, `order` or `by_communicators`."""
    order: tuple[str, ...] = ()
    """Axes in the order of ranks on hosts, the fastest first; without `axes` the rank numbers in that order."""
    axes: tuple[tuple[str, int], ...] = ()
    """(name, size) of the axes by which ranks are numbered, the fastest first."""
    by_communicators: bool = False
    """Whether ranks of the communicators with the most bytes share a host."""

    @property
    def orders_ranks(self) -> bool:
        """Return whether the mapping states which ranks share a host, and not only how many."""
        return bool(self.hosts or self.order or self.by_communicators)


def read_mapping(section: Section) -> Mapping:
    """Read the `mapping:` section. Mistakes are added to its file."""
    read = read_settings(Mapping, section)
    rule, ports = read.rule, read.ports
    explicit_section = section.section(
        "explicit", "Rank, or range of ranks, to port; with `placement` explicit."
    )
    explicit, explicit_where = _read_explicit(explicit_section)
    rails = section.optional(
        "rails",
        yes_or_no,
        read.nics_per_host is not None,
        "Put every NIC of a host on a port of its rail; true where `nics_per_host` is given.",
    )
    if read.nics_per_host is not None and not rails:
        section.mistake("rails", "nics_per_host is given although rails is false", "remove one of the two")
    if rails and rule is PlacementRule.EXPLICIT:
        problem = "rails choose the port of every rank, and so does placement: explicit"
        section.mistake("rails", problem, "remove rails and nics_per_host, or let the placement be blocked")
    if rule is PlacementRule.EXPLICIT and not explicit:
        section.mistake(
            "explicit", "placement is explicit but no rank is placed", 'write lines such as 0-3: "a/p0"'
        )
    if rule is not PlacementRule.EXPLICIT and section.has("explicit"):
        section.mistake(
            "explicit", f"ranks are placed although placement is {rule}", "write placement: explicit"
        )
    if ports and rule is PlacementRule.EXPLICIT:
        section.mistake("ports", "an explicit placement names the ports itself", "remove ports")
    if duplicates := sorted({port for port in ports if port and ports.count(port) > 1}):
        section.mistake("ports", f"{duplicates[0]} is listed twice", "name every port once")
    hosts, (order, axes, by_communicators) = _read_hosts(section), _read_order(section)
    if hosts and (order or by_communicators):
        section.mistake("order", "hosts already lists the ranks of each host", "remove order, or hosts")
    if hosts and section.has("ranks_per_host"):
        section.mistake("ranks_per_host", "hosts already sets the ranks per host", "remove ranks_per_host")
    section.close()
    return replace(
        read,
        explicit=explicit,
        explicit_where=explicit_where,
        rails=rails,
        hosts=hosts,
        order=order,
        axes=axes,
        by_communicators=by_communicators,
    )


def _read_hosts(section: Section) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every host listed under `hosts:`."""
    hosts: list[tuple[int, ...]] = []
    for index, node in enumerate(section.nodes("hosts", _HOSTS, _HOSTS_MEANING)):
        where = f"hosts[{index}]"
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        texts = [str(item.value) for item in items if isinstance(item, yaml.ScalarNode)]
        rank_lists = [_parse_ranks(text) for text in texts]
        ranks = [rank for rank_list in rank_lists for rank in rank_list]
        if not rank_lists or not all(rank_lists) or len(texts) != len(items):
            remedy = "write a list of ranks for every host, such as [0, 16, 32, 48] or [0-7]"
            section.mistake("hosts", f"{where} is not a list of ranks", remedy)
            break
        hosts.append(tuple(ranks))
    listed_ranks = [rank for host in hosts for rank in host]
    if duplicates := [rank for rank, count in Counter(listed_ranks).items() if count > 1]:
        section.mistake(
            "hosts", f"rank {duplicates[0]} is on two hosts, or twice on one", "name every rank once"
        )
    if hosts and max(map(len, hosts)) > MOST_RANKS_PER_HOST:
        section.mistake("hosts", "a host has more than 1024 ranks", "write smaller hosts")
    return tuple(hosts)


def _parse_ranks(text: str) -> list[int]:
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    return list(range(first, last + 1)) if last < MOST_RANKS else []


def _read_order(section: Section) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], bool]:
    """Return the order, the axes, and whether ranks are kept together by communicators."""
    axes_section = section.section("axes", "Axes by which ranks are numbered, the fastest first.")
    axes = tuple(
        (name, axes_section.optional(name, integer(1, MOST_RANKS), 1, "Size of the axis."))
        for name in axes_section.entry_names()
    )
    meaning = "Ranks or axes in the order of hosts, or `communicators` to keep busy communicators together."
    order = section.texts("order", str, "", meaning)
    if order == (BY_COMMUNICATORS,) and not axes:
        return (), (), True
    if axes and sorted(order) != sorted(name for name, _ in axes):
        axis_names = ", ".join(name for name, _ in axes)
        section.mistake(
            "order", "does not name the axes of axes:", f"write {axis_names} in the order of hosts"
        )
        return (), (), False
    if axes:
        return order, axes, False
    rank_lists = [_parse_ranks(text) for text in order]
    if not all(rank_lists):
        remedy = f"write ranks, names of axes: with their sizes, or {BY_COMMUNICATORS}"
        section.mistake(
            "order", f'"{order[rank_lists.index([])][:64]}" is neither a rank nor an axis', remedy
        )
        return (), (), False
    listed_ranks = [rank for rank_list in rank_lists for rank in rank_list]
    if duplicates := [rank for rank, count in Counter(listed_ranks).items() if count > 1]:
        section.mistake("order", f"rank {duplicates[0]} is listed twice", "name every rank once")
    return tuple(map(str, listed_ranks)), (), False


def _read_explicit(section: Section) -> tuple[tuple[tuple[int, str], ...], tuple[str, ...]]:
    """Return the explicitly placed ranks as (rank, port), and the place in the file of each."""
    port_of_rank: dict[int, str] = {}
    where_of_rank: dict[int, str] = {}
    for key in section.entry_names():
        port = section.optional(key, parse_port_label, "", "The port of these ranks.")
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", key)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < MOST_RANKS:
            section.mistake(
                key, f'"{key[:64]}" is not a rank', "write a rank such as 3, or a range such as 0-7"
            )
            continue
        duplicates = [rank for rank in range(first, last + 1) if rank in port_of_rank]
        if duplicates:
            section.mistake(key, f"rank {duplicates[0]} is placed twice", "place every rank once")
        port_of_rank.update((rank, port) for rank in range(first, last + 1))
        where_of_rank.update((rank, section.where(key)) for rank in range(first, last + 1))
    return tuple(port_of_rank.items()), tuple(where_of_rank.values())
