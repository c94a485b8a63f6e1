"""SRv6 micro segments (uSIDs) in a topology file: `srv6:`, and the segments of switches with the routes between
them.

This module decides the default uSIDs: node i has i + 1, port p of any switch 0xe000 + p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv6Network
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.yaml_reader import ConfigFile, Section
from etloop.contract.model.topology import OtherNode, Segments, SwitchLink, SwitchSettings, Usids
from etloop.traffic.topology.routes import ways_between
from etloop.traffic.topology.switch_keys import NO_USID, SwitchKeys, parse_usid

FIRST_LOCAL: Final = 0xE000
"""uSIDs from here on are local to one switch, those below are global (RFC 9800, 9.2: LIB and GIB)."""
DECAPSULATION: Final = 0xD001
_BLOCK_BITS: Final = 32


@with_form(pattern_form("IPv6 prefix of 32 bits", r"[0-9A-Fa-f:]+/32"))
def _block(text: str) -> int:
    """Parse the block prefix; return its 32 bits. Raises `QuantityError`."""
    remedy = "write a prefix of 32 bits, such as fc00:1::/32"
    try:
        network = IPv6Network(text)
    except ValueError:
        raise QuantityError(f'"{text[:64]}" is not an IPv6 prefix', remedy) from None
    if network.prefixlen != _BLOCK_BITS:
        raise QuantityError(f"{text} has {network.prefixlen} bits", remedy)
    return int(network.network_address) >> (128 - _BLOCK_BITS)


@dataclass(frozen=True, slots=True)
class Srv6Keys:
    """The addresses that carry micro segments."""

    block: int = required_setting(
        "block", _block, 0, "write the prefix of 32 bits that carries segments, such as fc00:1::/32"
    )
    """Prefix of the addresses that carry segments."""
    decapsulation: int = setting("decapsulation", parse_usid, DECAPSULATION)
    """Segment after the last one, at which hosts remove the outer header."""


def usids_of(
    keys: SwitchKeys,
    place: Section,
    number: int,
    ports: int,
    known_as: Mapping[str, int],
    segments: Segments | None,
) -> Usids | None:
    """Return the uSIDs of switch `number` with `ports` ports, without routes to other nodes; None if it has none.

    `place` is the section of the switch, for mistakes.
    """
    node = number + 1 if keys.usid is None else keys.usid
    adjacencies = [FIRST_LOCAL + port for port in range(ports)]
    for name, usid in keys.port_usids.items():
        if name in known_as:
            adjacencies[known_as[name]] = usid
        else:
            problem = f'the switch has no port "{name[:64]}"'
            place.section("usids").mistake(name, problem, "name one of its ports")
    if segments is None:
        for key in sorted({"usid", "usids"} & place.keys()):
            problem = "the network has no block of segments"
            place.mistake(key, problem, "write srv6: {block: ...} next to it")
        return None
    if node == NO_USID:
        return None
    all_usids = [node, *adjacencies, segments.decapsulation]
    if duplicate := next((usid for usid in all_usids if all_usids.count(usid) > 1), None):
        problem = f"{duplicate:#06x} is used twice: by the switch, a port or hosts"
        place.mistake("usids" if place.has("usids") else "usid", problem, "give each its own")
    return Usids(segments.block, node, tuple(adjacencies))


def with_ways(
    switches: Sequence[SwitchSettings], links: tuple[SwitchLink, ...], file: ConfigFile
) -> tuple[SwitchSettings, ...]:
    """Return the switches with routes to each other's nodes. A node uSID used twice, also by a port, is a mistake."""
    usids_by_switch = {
        number: switch.usids for number, switch in enumerate(switches) if switch.usids is not None
    }
    nodes: dict[int, str] = {}
    for number, usids in usids_by_switch.items():
        name = switches[number].name
        if usids.node in nodes:
            problem = f"usid {usids.node:#06x} is that of {nodes[usids.node]} and of {name}"
            file.mistake(None, "", problem, "give every switch its own")
        nodes[usids.node] = name
    for number, usids in usids_by_switch.items():
        for usid in usids.adjacencies:
            if usid in nodes and usid != usids.node:
                problem = f"usid {usid:#06x} of a port of {switches[number].name} is that of {nodes[usid]}"
                file.mistake(None, "", problem, f"give ports identifiers from {FIRST_LOCAL:#06x} on")
    table = ways_between(len(switches), links)
    return tuple(
        replace(
            switch,
            usids=replace(
                switch.usids,
                others=tuple(
                    OtherNode(usids.node, ports)
                    for target, usids in usids_by_switch.items()
                    if target != number and (ports := table[target][number])
                ),
            ),
        )
        if switch.usids is not None
        else switch
        for number, switch in enumerate(switches)
    )
