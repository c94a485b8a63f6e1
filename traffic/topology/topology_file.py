"""`topology.yaml`: switches, the links between them, and the rig's ports on them.

Decides what a topology file may say: a network that a few numbers describe (`short_form_file`), or switches and links one
by one, and which device the switches are. What may be said of a switch is decided by `switch_file`; ways through the
network are found by `routes`. Whether the rig has the ports that are attached here is known only beside a rig
file.
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
"""Switches times attachments: rows of all routing tables together."""
_KINDS: Final = ("single", "leaf_spine", "rail", "dumbbell", "parking_lot", "switches")
_MOMENT: Final = bounded(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)


def parse_topology(
    text: bytes,
    source: str,
    find_device: Callable[[str], DeviceModel] = no_devices,
    device: DeviceModel | None = None,
) -> Topology:
    """The topology of a YAML text. `source` names the file in messages. Raises `ConfigError` with all its mistakes.

    `find_device` gives the models of profiles that the file names. `device` is that of all switches which name neither one
    nor a preset; without it, the file's own `device` is.
    """
    file = ConfigFile(source)
    top = read_document(text, file)
    given = [kind for kind in _KINDS if top.has(kind)]
    if len(given) != 1:
        what = f"describes {' and '.join(given)}" if given else "describes no network"
        file.mistake(None, "", what, f"write exactly one of {', '.join(_KINDS)}")
    draft = Draft()
    readers: dict[str, Callable[[], None]] = {
        "single": lambda: read_single(top.section("single"), draft),
        "leaf_spine": lambda: read_tiers(top.section("leaf_spine"), draft, "leaves", "leaf"),
        "rail": lambda: read_tiers(top.section("rail"), draft, "rails", "rail"),
        "dumbbell": lambda: read_dumbbell(top.section("dumbbell"), draft),
        "parking_lot": lambda: read_parking_lot(top.section("parking_lot"), draft),
        "switches": lambda: _read_parts(top, draft),
    }
    for kind in given:
        readers[kind]()
    file_wide = top.optional("seed", integer(0, 2**62), SEED)
    devices = Devices(find_device)
    of_file = read_device(top, devices)
    devices.everywhere = device or of_file
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
    """Switches, links and attachments one by one."""
    number: dict[str, int] = {}
    draft.one_by_one = True
    for one in top.sections("switches", "list the switches, each with its name"):
        name = one.required("name", parse_name, "?", "name the switch, such as leaf0")
        if name in number:
            one.mistake("name", f'two switches are called "{name}"', "give every switch its own name")
        number[name] = draft.add_switch(name, one)
    for one in top.sections("links", "list the links") if top.has("links") else ():
        rate, delay = link_of(one, "rate", "delay")
        ends = [_read_end(one, key, draft, number, rate, delay) for key in ("from", "to")]
        if ends[0] is not None and ends[1] is not None:
            if ends[0].switch == ends[1].switch:
                one.mistake("to", "the link ends at the switch it begins at", "name another switch")
            draft.links.append(SwitchLink(ends[0], ends[1]))
        one.close()
    for one in top.sections("attach", "list the rig's ports, such as {port: a/p0, to: leaf0, rate: 100Gbps}"):
        rate, delay = link_of(one, "rate", "delay")
        end = _read_end(one, "to", draft, number, rate, delay)
        port = one.required("port", parse_port_label, "", 'name a port of the rig as "agent/port"')
        unread: tuple[str, ...] = ()
        ranges = one.texts("addresses", parse_addresses, unread)
        rail = one.optional("rail", integer(0, MOST_RAILS - 1), None)
        honours = one.optional("honours_pause", yes_or_no, True)
        one.close()
        if end is None:
            continue
        draft.known_as[end.switch].setdefault(port, end.port)
        addresses = tuple(address for several in ranges for address in several)
        draft.attachments.append(Attachment(port, end, addresses, rail, honours))


def _read_end(
    section: Section, key: str, draft: Draft, number: dict[str, int], rate_bps: int, delay_ns: int
) -> SwitchEnd | None:
    """A port made at a switch for one end of a link; None after a mistake."""
    remedy = "name a switch, or a switch and a port of your naming, such as leaf0/up1"
    switch, port = section.required(key, _switch_end, ("", ""), remedy)
    if not switch:
        return None
    if switch not in number:
        known = ", ".join(list(number)[:16])
        section.mistake(key, f'there is no switch "{switch}"', f"write one of {known}")
        return None
    if port in draft.known_as[number[switch]]:
        section.mistake(key, f"{switch}/{port} has a link already", "give every link its own port")
        return None
    if not port:
        taken = draft.known_as[number[switch]]
        port = next(str(free) for free in range(len(taken) + 1) if str(free) not in taken)
    return draft.add_port(number[switch], port, rate_bps, delay_ns)


def _refuse_unused(
    device: DeviceModel | None, switches: tuple[SwitchSettings, ...], file: ConfigFile
) -> None:
    profiles = {settings.origin.profile for settings in switches if settings.origin is not None}
    if device is not None and switches and device.origin.profile not in profiles:
        what = f"no switch is {device.origin.profile}: each names a device or a preset of its own"
        file.mistake(None, "", what, "leave one of the two out")


def _read_switches(
    draft: Draft, file: ConfigFile, seed: int, devices: Devices, segments: Segments | None
) -> tuple[SwitchSettings, ...]:
    """All switches of the draft. One section may describe many; what is wrong with it is told once."""
    if len(draft.names) > MOST_SWITCHES:
        file.mistake(None, "", f"{len(draft.names)} switches", f"describe at most {MOST_SWITCHES}")
        return ()
    found = []
    known_problems = set(file.problems)
    for index, (name, section) in enumerate(zip(draft.names, draft.sections, strict=True)):
        ports = tuple(draft.ports[index])
        # A switch without ports may be the echo of a mistake that has been told.
        if len(ports) > MOST_SWITCH_PORTS or (not ports and not known_problems):
            what = f"switch {name} has {len(ports) or 'no'} ports"
            file.mistake(None, "", what, f"give it 1 to {MOST_SWITCH_PORTS} links, or remove it")
        ports = ports[:MOST_SWITCH_PORTS] or (SwitchPort("0", 1_000_000, 0),)
        here = ConfigFile(file.name)
        again = section.again(here)
        if draft.one_by_one:
            again.has("name")
        # Switches that hash alike would all make the same choice (polarisation).
        usids = read_usids(again, index, len(ports), draft.known_as[index], segments)
        settings = read_switch(again, name, ports, seed + index, draft.known_as[index], devices)
        found.append(replace(settings, usids=usids))
        file.problems += [problem for problem in here.problems if problem not in known_problems]
        known_problems.update(here.problems)
    return tuple(found)


def _read_outages(top: Section, draft: Draft) -> tuple[Outage, ...]:
    found = []
    read: list[tuple[Section, Outage]] = []
    places = {rig_port.rig_port: rig_port.end for rig_port in draft.attachments}
    for switch, name in enumerate(draft.names):
        places |= {
            f"{name}/{port.name}": SwitchEnd(switch, at) for at, port in enumerate(draft.ports[switch])
        }
    for one in top.sections("outages", "list the outages") if top.has("outages") else ():
        port_name = one.required(
            "port", parse_port_label, "", 'name a port of a switch or of the rig, such as "leaf0/4"'
        )
        outage = Outage(
            places.get(port_name, SwitchEnd(0, 0)),
            one.required("from", _MOMENT, 0, "write when the link goes down, such as 1ms"),
            one.optional("until", _MOMENT, FOREVER_NS),
        )
        if port_name and port_name not in places:
            known = next((place for place in places if place), "leaf0/0")
            one.mistake("port", f'there is no port "{port_name}"', f"write one such as {known}")
        if outage.until_ns <= outage.from_ns:
            one.mistake("until", "it ends before it begins", "write an until after from")
        one.close()
        found.append(outage)
        if port_name in places:
            read.append((one, outage))
    _refuse_overlaps(read, draft)
    return tuple(found)


def _refuse_overlaps(read: list[tuple[Section, Outage]], draft: Draft) -> None:
    """The end of one outage would bring a link up in the middle of another, which may name the link's other end."""
    first_end = {link.b: link.a for link in draft.links}
    last: dict[SwitchEnd, Outage] = {}
    for one, outage in sorted(read, key=lambda row: row[1].from_ns):
        link = first_end.get(outage.end, outage.end)
        before = last.get(link)
        if before is not None and outage.from_ns < before.until_ns:
            what = f"the link is down since {format_duration(before.from_ns)} by another outage"
            one.mistake("from", what, "write one outage instead of both")
        last[link] = outage if before is None or outage.until_ns > before.until_ns else before


def _read_routing(section: Section) -> Routing:
    default = Routing()
    detection_ns = section.optional("detection", _MOMENT, default.detection_ns)
    convergence_ns = section.optional(
        "convergence", _moment_or_never, max(default.convergence_ns, detection_ns)
    )
    if convergence_ns < detection_ns:
        what = (
            f"{format_duration(convergence_ns)} is less than the detection of {format_duration(detection_ns)}"
        )
        remedy = "switches cannot route around a link before its ends have noticed; write as much or more, or never"
        section.mistake("convergence", what, remedy)
    section.close()
    return Routing(detection_ns, convergence_ns)


@formed(either(DURATION, ValueForm("never", {"const": "never"}), "duration or never"))
def _moment_or_never(text: str) -> int:
    if text == "never":
        return FOREVER_NS
    try:
        return _MOMENT(text)
    except QuantityError as error:
        raise QuantityError(error.what, f"{error.remedy}, or never") from None


def _refuse_odd_shapes(top: Section, draft: Draft) -> None:
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
                what = f"address {address} is given to {owner[address]} and to {attachment.rig_port}"
                top.mistake(key, what, "give every address to one port")
            owner[address] = attachment.rig_port
    if len(draft.attachments) > MOST_ATTACHMENTS or len(draft.attachments) * len(draft.names) > MOST_ROUTES:
        what = f"{len(draft.attachments)} attached ports behind {len(draft.names)} switches"
        top.mistake(key, what, f"keep their product within {MOST_ROUTES}")


def _refuse_islands(topology: Topology, file: ConfigFile) -> None:
    groups = islands(topology)
    rails = [{topology.attachments[number].rail for number in group} for group in groups]
    # Rails without spines are separate networks on purpose; a job that needs a way between them is refused later.
    if not any(None in one for one in rails) and sum(map(len, rails)) == len(set().union(*rails)):
        return
    if len(groups) > 1:
        a, b = (topology.attachments[group[0]].rig_port for group in groups[:2])
        file.mistake(None, "", f"there is no way from {a} to {b}", "add links that join their switches")
    file.refuse_mistakes()


@formed(pattern_form("SWITCH or SWITCH/PORT", r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/.*)?"))
def _switch_end(text: str) -> tuple[str, str]:
    switch, slash, port = text.partition("/")
    if slash and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", port):
        raise QuantityError(f'"{text[:64]}" is not a switch and a port', "write it as switch/port")
    return parse_name(switch), port
