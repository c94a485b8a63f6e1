"""SRv6 micro segments (uSIDs) in a topology file: `srv6:` and the keys of switches. Parsing, and the routes between
nodes.

This module decides the default uSIDs: node i has i + 1, port p of any switch 0xe000 + p.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv6Network
from typing import Final

from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import ValueForm, formed, pattern_form
from etloop.contract.base.yaml_reader import ConfigFile, Section
from etloop.contract.model.topology import OtherNode, Segments, SwitchLink, SwitchSettings, Usids
from etloop.traffic.topology.routes import ways_between

FIRST_LOCAL: Final = 0xE000
"""uSIDs from here on are local to one switch, those below are global (RFC 9800, 9.2: LIB and GIB)."""
DECAPSULATION: Final = 0xD001
_NONE: Final = 0
_BLOCK_BITS: Final = 32


def read_segments(top: Section) -> Segments | None:
    """Return the settings under `srv6`; None without that key."""
    if not top.has("srv6"):
        return None
    section = top.section("srv6")
    remedy = "write the prefix of 32 bits that carries segments, such as fc00:1::/32"
    segments = Segments(
        block=section.required("block", _block, 0, remedy),
        decapsulation=section.optional("decapsulation", _usid, DECAPSULATION),
    )
    section.close()
    return segments


def read_usids(
    section: Section, number: int, ports: int, known_as: Mapping[str, int], segments: Segments | None
) -> Usids | None:
    """Return the uSIDs of switch `number` with `ports` ports, without routes to other nodes; None if it has none."""
    node = section.optional("usid", _usid_or_none, number + 1)
    port_usids = section.section("usids")
    adjacencies = [FIRST_LOCAL + port for port in range(ports)]
    for name in port_usids.entry_names():
        usid = port_usids.optional(name, _usid, FIRST_LOCAL)
        if name in known_as:
            adjacencies[known_as[name]] = usid
        else:
            port_usids.mistake(name, f'the switch has no port "{name[:64]}"', "name one of its ports")
    port_usids.close()
    if segments is None:
        for key in ("usid", "usids"):
            if section.has(key):
                section.mistake(
                    key, "the network has no block of segments", "write srv6: {block: ...} beside it"
                )
        return None
    if node == _NONE:
        return None
    all_usids = [node, *adjacencies, segments.decapsulation]
    if duplicate := next((usid for usid in all_usids if all_usids.count(usid) > 1), None):
        problem = f"{duplicate:#06x} is that of the switch, of a port or of hosts twice"
        section.mistake("usids" if section.has("usids") else "usid", problem, "give each its own")
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


@formed(pattern_form("IPv6 prefix of 32 bits", r"[0-9A-Fa-f:]+/32"))
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


_USID_FORM: Final = ValueForm(
    "micro segment",
    {"type": ["string", "integer"], "pattern": "^(0x[0-9a-fA-F]{1,4}|[0-9]{1,5}|none)$"},
    "0x0001 to 0xffff",
    lambda usid: f"{usid:#06x}",
)


@formed(_USID_FORM)
def _usid(text: str) -> int:
    """Parse a uSID, decimal or hexadecimal. Raises `QuantityError`."""
    remedy = "write one from 0x0001 to 0xffff, such as 0x0021"
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}|[0-9]{1,5}", text):
        raise QuantityError(f'"{text[:64]}" is not a micro segment', remedy)
    usid = int(text, 0) if text.startswith("0x") else int(text)
    if not 1 <= usid <= 0xFFFF:
        raise QuantityError(f"{text} is out of range", remedy)
    return usid


@formed(_USID_FORM)
def _usid_or_none(text: str) -> int:
    """Parse a uSID or "none", which gives 0."""
    return _NONE if text == "none" else _usid(text)
