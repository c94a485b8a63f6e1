"""`topology.yaml`: switches, the links between them, and the rig's ports on them.

This module decides the keys of a topology file: a network described by a few numbers (`short_form_file`), or switches
and links one by one, and which device the switches are. `switch_file` decides the keys of a switch; `routes` computes
ways through the network. Whether the rig has the ports that are attached here is checked when a rig file is read too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from etloop.contract.base.ip_address import parse_addresses
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    parse_duration_ns,
    parse_name,
    parse_port_label,
)
from etloop.contract.base.value_form import DURATION, ValueForm, either, formed, pattern_form
from etloop.contract.base.value_parsers import bounded, integer, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.contract.model.switch_presets import SEED
from etloop.contract.model.topology import (
    FOREVER_NS,
    MOST_ATTACHMENTS,
    MOST_RAILS,
    MOST_SWITCH_PORTS,
    MOST_SWITCHES,
    Attachment,
    Outage,
    Routing,
    Segments,
    SwitchEnd,
    SwitchLink,
    SwitchPort,
    SwitchSettings,
    Topology,
)
from etloop.traffic.topology.draft import Draft, link_of
from etloop.traffic.topology.routes import islands
from etloop.traffic.topology.short_form_file import read_dumbbell, read_parking_lot, read_single, read_tiers
from etloop.traffic.topology.switch_file import DeviceModel, Devices, no_devices, read_device, read_switch
from etloop.traffic.topology.usid_file import read_segments, read_usids, with_ways

MOST_ROUTES: Final = 1 << 22
"""Maximum of switches times attachments: rows of all routing tables together."""
_KINDS: Final = ("single", "leaf_spine", "rail", "dumbbell", "parking_lot", "switches")
_MOMENT: Final = bounded(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)


def parse_topology(
    text: bytes,
    source: str,
    find_device: Callable[[str], DeviceModel] = no_devices,
    device: DeviceModel | None = None,
) -> Topology:
    """Parse the topology of a YAML text. Raises `ConfigError` with all its mistakes.

    `source` names the file in messages. `find_device` returns the models of profiles that the file names. `device` is
    the model of all switches that name neither a device nor a preset; by default it is the file's own `device`.
    """
    file = ConfigFile(source)
    top = read_document(text, file)
    kinds = [kind for kind in _KINDS if top.has(kind)]
    if len(kinds) != 1:
        problem = f"describes {' and '.join(kinds)}" if kinds else "describes no network"
        file.mistake(None, "", problem, f"write exactly one of {', '.join(_KINDS)}")
    draft = Draft()
    readers: dict[str, Callable[[], None]] = {
        "single": lambda: read_single(top.section("single"), draft),
        "leaf_spine": lambda: read_tiers(top.section("leaf_spine"), draft, "leaves", "leaf"),
        "rail": lambda: read_tiers(top.section("rail"), draft, "rails", "rail"),
        "dumbbell": lambda: read_dumbbell(top.section("dumbbell"), draft),
        "parking_lot": lambda: read_parking_lot(top.section("parking_lot"), draft),
        "switches": lambda: _read_parts(top, draft),
    }
    for kind in kinds:
        readers[kind]()
    file_wide = top.optional("seed", integer(0, 2**62), SEED)
    devices = Devices(find_device)
    file_device = read_device(top, devices)
    devices.everywhere = device or file_device
    segments = read_segments(top)
    switches = _read_switches(draft, file, file_wide, devices, segments)
    if segments is not None:
        switches = with_ways(switches, tuple(draft.links), file)
    _refuse_unused(devices.everywhere, switches, file)
    outages = _read_outages(top, draft)
    routing = _read_routing(top.section("routing"))
    top.close()
    _refuse_odd_shapes(top, draft)
    file.refuse_mistakes()
    topology = Topology(switches, tuple(draft.links), tuple(draft.attachments), outages, routing, segments)
    _refuse_islands(topology, file)
    return topology


def _read_parts(top: Section, draft: Draft) -> None:
    """Read switches, links and attachments one by one."""
    number: dict[str, int] = {}
    draft.one_by_one = True
    for entry in top.sections("switches", "list the switches, each with its name"):
        name = entry.required("name", parse_name, "?", "name the switch, such as leaf0")
        if name in number:
            entry.mistake("name", f'two switches are called "{name}"', "give every switch its own name")
        number[name] = draft.add_switch(name, entry)
    for entry in top.sections("links", "list the links") if top.has("links") else ():
        rate, delay = link_of(entry, "rate", "delay")
        ends = [_read_end(entry, key, draft, number, rate, delay) for key in ("from", "to")]
        if ends[0] is not None and ends[1] is not None:
            if ends[0].switch == ends[1].switch:
                entry.mistake("to", "the link ends at the switch it begins at", "name another switch")
            draft.links.append(SwitchLink(ends[0], ends[1]))
        entry.close()
    for entry in top.sections(
        "attach", "list the rig's ports, such as {port: a/p0, to: leaf0, rate: 100Gbps}"
    ):
        rate, delay = link_of(entry, "rate", "delay")
        end = _read_end(entry, "to", draft, number, rate, delay)
        port = entry.required("port", parse_port_label, "", 'name a port of the rig as "agent/port"')
        unread: tuple[str, ...] = ()
        ranges = entry.texts("addresses", parse_addresses, unread)
        rail = entry.optional("rail", integer(0, MOST_RAILS - 1), None)
        honours_pause = entry.optional("honours_pause", yes_or_no, True)
        entry.close()
        if end is None:
            continue
        draft.known_as[end.switch].setdefault(port, end.port)
        addresses = tuple(address for address_range in ranges for address in address_range)
        draft.attachments.append(Attachment(port, end, addresses, rail, honours_pause))


def _read_end(
    section: Section, key: str, draft: Draft, number: dict[str, int], rate_bps: int, delay_ns: int
) -> SwitchEnd | None:
    """Add a port to a switch for one end of a link and return it; None after a mistake."""
    remedy = "name a switch, or a switch and a port of your naming, such as leaf0/up1"
    switch, port = section.required(key, _switch_end, ("", ""), remedy)
    if not switch:
        return None
    if switch not in number:
        known_names = ", ".join(list(number)[:16])
        section.mistake(key, f'there is no switch "{switch}"', f"write one of {known_names}")
        return None
    if port in draft.known_as[number[switch]]:
        section.mistake(key, f"{switch}/{port} has a link already", "give every link its own port")
        return None
    if not port:
        names_in_use = draft.known_as[number[switch]]
        port = next(str(free) for free in range(len(names_in_use) + 1) if str(free) not in names_in_use)
    return draft.add_port(number[switch], port, rate_bps, delay_ns)


def _refuse_unused(
    device: DeviceModel | None, switches: tuple[SwitchSettings, ...], file: ConfigFile
) -> None:
    """Record a mistake if a device is named that no switch is."""
    profiles = {settings.origin.profile for settings in switches if settings.origin is not None}
    if device is not None and switches and device.origin.profile not in profiles:
        problem = f"no switch is {device.origin.profile}: every switch names its own device or preset"
        file.mistake(None, "", problem, "remove one of the two")


def _read_switches(
    draft: Draft, file: ConfigFile, seed: int, devices: Devices, segments: Segments | None
) -> tuple[SwitchSettings, ...]:
    """Read all switches of the draft. One section may describe many; a mistake in it is reported once."""
    if len(draft.names) > MOST_SWITCHES:
        file.mistake(None, "", f"{len(draft.names)} switches", f"describe at most {MOST_SWITCHES}")
        return ()
    settings_of_switches = []
    known_problems = set(file.problems)
    for index, (name, section) in enumerate(zip(draft.names, draft.sections, strict=True)):
        ports = tuple(draft.ports[index])
        # A switch without ports may follow from a mistake that has been reported already.
        if len(ports) > MOST_SWITCH_PORTS or (not ports and not known_problems):
            problem = f"switch {name} has {len(ports) or 'no'} ports"
            file.mistake(None, "", problem, f"give it 1 to {MOST_SWITCH_PORTS} links, or remove it")
        ports = ports[:MOST_SWITCH_PORTS] or (SwitchPort("0", 1_000_000, 0),)
        own_file = ConfigFile(file.name)
        again = section.again(own_file)
        if draft.one_by_one:
            again.has("name")
        # Each switch gets its own seed: with equal hashes all would make the same choice (polarisation).
        usids = read_usids(again, index, len(ports), draft.known_as[index], segments)
        settings = read_switch(again, name, ports, seed + index, draft.known_as[index], devices)
        settings_of_switches.append(replace(settings, usids=usids))
        file.problems += [problem for problem in own_file.problems if problem not in known_problems]
        known_problems.update(own_file.problems)
    return tuple(settings_of_switches)


def _read_outages(top: Section, draft: Draft) -> tuple[Outage, ...]:
    """Read the outages of links."""
    outages = []
    known_outages: list[tuple[Section, Outage]] = []
    places = {rig_port.rig_port: rig_port.end for rig_port in draft.attachments}
    for switch, name in enumerate(draft.names):
        places |= {
            f"{name}/{port.name}": SwitchEnd(switch, number)
            for number, port in enumerate(draft.ports[switch])
        }
    for entry in top.sections("outages", "list the outages") if top.has("outages") else ():
        port_name = entry.required(
            "port", parse_port_label, "", 'name a port of a switch or of the rig, such as "leaf0/4"'
        )
        outage = Outage(
            places.get(port_name, SwitchEnd(0, 0)),
            entry.required("from", _MOMENT, 0, "write when the link goes down, such as 1ms"),
            entry.optional("until", _MOMENT, FOREVER_NS),
        )
        if port_name and port_name not in places:
            example = next((place for place in places if place), "leaf0/0")
            entry.mistake("port", f'there is no port "{port_name}"', f"write one such as {example}")
        if outage.until_ns <= outage.from_ns:
            entry.mistake("until", "it ends before it begins", "write an until after from")
        entry.close()
        outages.append(outage)
        if port_name in places:
            known_outages.append((entry, outage))
    _refuse_overlaps(known_outages, draft)
    return tuple(outages)


def _refuse_overlaps(read: list[tuple[Section, Outage]], draft: Draft) -> None:
    """Record a mistake if outages of a link overlap: the end of one would bring the link up in the middle of another.

    The two outages may name different ends of the link.
    """
    first_end = {link.b: link.a for link in draft.links}
    last: dict[SwitchEnd, Outage] = {}
    for entry, outage in sorted(read, key=lambda row: row[1].from_ns):
        link = first_end.get(outage.end, outage.end)
        previous = last.get(link)
        if previous is not None and outage.from_ns < previous.until_ns:
            problem = f"the link is down since {format_duration(previous.from_ns)} by another outage"
            entry.mistake("from", problem, "write one outage instead of both")
        last[link] = outage if previous is None or outage.until_ns > previous.until_ns else previous


def _read_routing(section: Section) -> Routing:
    """Read detection and convergence times. Closes `section`."""
    default = Routing()
    detection_ns = section.optional("detection", _MOMENT, default.detection_ns)
    convergence_ns = section.optional(
        "convergence", _moment_or_never, max(default.convergence_ns, detection_ns)
    )
    if convergence_ns < detection_ns:
        problem = (
            f"{format_duration(convergence_ns)} is less than the detection of {format_duration(detection_ns)}"
        )
        remedy = "switches cannot route around a link before its ends have noticed; write as much or more, or never"
        section.mistake("convergence", problem, remedy)
    section.close()
    return Routing(detection_ns, convergence_ns)


@formed(either(DURATION, ValueForm("never", {"const": "never"}), "duration or never"))
def _moment_or_never(text: str) -> int:
    """Parse a duration or "never" in ns. Raises `QuantityError`."""
    if text == "never":
        return FOREVER_NS
    try:
        return _MOMENT(text)
    except QuantityError as error:
        raise QuantityError(error.what, f"{error.remedy}, or never") from None


def _refuse_odd_shapes(top: Section, draft: Draft) -> None:
    """Record a mistake for ports or addresses used twice, and for networks that are too large."""
    seen: set[str] = set()
    key = next((kind for kind in _KINDS if top.has(kind)), "")
    for attachment in draft.attachments:
        port = attachment.rig_port
        if port and port in seen:
            top.mistake(key, f"{port} is attached twice", "attach every port of the rig once")
        seen.add(port)
    owner: dict[str, str] = {}
    for attachment in draft.attachments:
        for address in attachment.addresses:
            if address in owner:
                problem = f"address {address} is given to {owner[address]} and to {attachment.rig_port}"
                top.mistake(key, problem, "give every address to one port")
            owner[address] = attachment.rig_port
    if len(draft.attachments) > MOST_ATTACHMENTS or len(draft.attachments) * len(draft.names) > MOST_ROUTES:
        problem = f"{len(draft.attachments)} attached ports behind {len(draft.names)} switches"
        top.mistake(key, problem, f"keep their product within {MOST_ROUTES}")


def _refuse_islands(topology: Topology, file: ConfigFile) -> None:
    """Record a mistake if attachments cannot reach each other, unless each island consists of rails of its own."""
    groups = islands(topology)
    rails = [{topology.attachments[number].rail for number in group} for group in groups]
    # Rails without spines are separate networks on purpose; a job that needs a way between them is rejected later.
    if not any(None in island for island in rails) and sum(map(len, rails)) == len(set().union(*rails)):
        return
    if len(groups) > 1:
        a, b = (topology.attachments[group[0]].rig_port for group in groups[:2])
        file.mistake(None, "", f"there is no way from {a} to {b}", "add links that join their switches")
    file.refuse_mistakes()


@formed(pattern_form("SWITCH or SWITCH/PORT", r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/.*)?"))
def _switch_end(text: str) -> tuple[str, str]:
    """Parse "switch" or "switch/port". Raises `QuantityError`."""
    switch, slash, port = text.partition("/")
    if slash and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", port):
        raise QuantityError(f'"{text[:64]}" is not a switch and a port', "write it as switch/port")
    return parse_name(switch), port
