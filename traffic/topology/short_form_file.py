"""Networks described by a few numbers: one switch, leaves and spines, rails, a dumbbell, a parking lot.

This module decides the keys of each in `topology.yaml`, and the switches, links and attachments that result.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from etloop.contract.base.units import parse_port_label
from etloop.contract.base.value_parsers import integer
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import MOST_RAILS, MOST_SWITCH_PORTS, MOST_SWITCHES
from etloop.traffic.topology.draft import LINK_DELAY, LINK_RATE, Draft, link_of


def read_single(section: Section, draft: Draft) -> None:
    """Read one switch with the rig's ports on it. Closes `section`."""
    switch = draft.add_switch("switch", section.section("switch"))
    rate, delay = link_of(section, "rate", "delay")
    for port in section.texts("ports", parse_port_label, ""):
        draft.attach(switch, port, rate, delay)
    if not draft.attachments:
        section.mistake(
            "ports", "is missing or empty", 'list the rig\'s ports on the switch, as "agent/port"'
        )
    section.close()


def read_tiers(section: Section, draft: Draft, tier: str, kind: str) -> None:
    """Read leaves or rails with the rig's ports on them, and spines that connect them all. Closes `section`."""
    rate, delay = link_of(section, "rate", "delay")
    uplink_rate = section.optional("uplink_rate", LINK_RATE, rate)
    uplink_delay = section.optional("uplink_delay", LINK_DELAY, delay)
    least = 0 if tier == "rails" else 1
    spines = section.optional("spines", integer(least, MOST_SWITCHES), least)
    uplinks = section.optional("uplinks", integer(1, MOST_SWITCH_PORTS), 1)
    lower_section, spine_section = section.section(kind), section.section("spine")
    lower = []
    for index, entry in enumerate(section.sections(tier, f"list the {tier}, each with its ports")):
        switch = draft.add_switch(f"{kind}{index}", lower_section)
        lower.append(switch)
        ports = entry.texts("ports", parse_port_label, "")
        if not ports:
            entry.mistake("ports", "is missing or empty", 'list the rig\'s ports on it, as "agent/port"')
        for port in ports:
            draft.attach(switch, port, rate, delay, index if tier == "rails" else None)
        entry.close()
    if tier == "rails" and len(lower) > MOST_RAILS:
        section.mistake(tier, f"{len(lower)} rails", f"write at most {MOST_RAILS}")
    if (
        len(lower) * spines * uplinks > MOST_SWITCHES * MOST_SWITCH_PORTS
        or spines * uplinks > MOST_SWITCH_PORTS
    ):
        problem = f"{spines} spines with {uplinks} links to each"
        section.mistake(
            "spines", problem, f"keep their product within the {MOST_SWITCH_PORTS} ports of a switch"
        )
        spines = 0
    if len(lower) * uplinks > MOST_SWITCH_PORTS:
        section.mistake(
            tier, f"a spine would have {len(lower) * uplinks} ports", f"keep them within {MOST_SWITCH_PORTS}"
        )
        spines = 0
    for index in range(spines):
        spine = draft.add_switch(f"spine{index}", spine_section)
        for switch in lower:
            for _ in range(uplinks):
                draft.link(switch, spine, uplink_rate, uplink_delay)
    if spines == 0:
        if section.has("spine"):
            section.mistake("spine", "there are no spines", "write spines: 1 or more, or remove the key")
        else:
            spine_section.close()
    section.close()


def read_dumbbell(section: Section, draft: Draft) -> None:
    """Read two switches joined by a trunk, which all flows from one side to the other share."""
    _read_chain(section, draft, ("left", "right"), [section, section], ("left", "right"))


def read_parking_lot(section: Section, draft: Draft) -> None:
    """Read switches in a row: a flow from the first to the last meets other flows on every trunk."""
    hops = section.sections("hops", "list the switches in their order, each with its ports")
    if len(hops) < 2:
        section.mistake("hops", f"{len(hops)} switches", "list two or more, each with its ports")
    names = tuple(f"hop{index}" for index in range(len(hops)))
    _read_chain(section, draft, names, hops, ("ports",) * len(hops))
    for hop in hops:
        hop.close()


def _read_chain(
    section: Section, draft: Draft, names: tuple[str, ...], where: Sequence[Section], keys: tuple[str, ...]
) -> None:
    """Read switches in a row; the ports of switch i are listed in `where[i]` under `keys[i]`. Closes `section`."""
    rate, delay = link_of(section, "rate", "delay")
    trunk_rate = section.optional("trunk_rate", LINK_RATE, rate)
    trunk_delay = section.optional("trunk_delay", LINK_DELAY, delay)
    trunks = section.optional("trunks", integer(1, MOST_SWITCH_PORTS // 2), 1)
    switch_section = section.section("switch")
    row = [draft.add_switch(name, switch_section) for name in names]
    for switch, listing, key in zip(row, where, keys, strict=True):
        ports = listing.texts(key, parse_port_label, "")
        if not ports:
            listing.mistake(key, "is missing or empty", 'list the rig\'s ports on it, as "agent/port"')
        for port in ports:
            draft.attach(switch, port, rate, delay)
    for left, right in itertools.pairwise(row):
        for _ in range(trunks):
            draft.link(left, right, trunk_rate, trunk_delay)
    if not row:
        switch_section.close()
    section.close()
