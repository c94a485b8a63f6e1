"""`mapping` of a scenario: which ranks share a host, and which ports hosts may be put on.

Decides what may be written; where ranks then go is decided by `placement`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from etloop.contract.base.units import parse_port_label
from etloop.contract.base.yaml_reader import Section, integer, one_of, yes_or_no
from etloop.contract.model.topology import MOST_RAILS

MOST_RANKS: Final = 65536


class PlacementRule(StrEnum):
    """How hosts are put on ports; `placement` defines them."""

    BLOCKED = "blocked"
    BY_TRAFFIC = "by_traffic"
    ROUND_ROBIN = "round_robin"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Ranks -> hosts -> NICs -> ports. Consecutive ranks share a host, `ranks_per_host` at a time."""

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


def read_mapping(section: Section) -> Mapping:
    """The mapping of a section; mistakes go to its file."""
    rules = {rule.value: rule for rule in PlacementRule}
    rule = section.optional("placement", one_of(rules), PlacementRule.BLOCKED)
    explicit_section = section.section("explicit")
    explicit, explicit_where = _read_explicit(explicit_section)
    ranks_per_host = section.optional("ranks_per_host", integer(1, 1024), 1)
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
    mapping = Mapping(ranks_per_host, rule, explicit, explicit_where, rails, nics_per_host, ports)
    section.close()
    return mapping


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
