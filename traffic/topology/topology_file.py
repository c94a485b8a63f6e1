"""`topology.yaml`: switches, the links between them, and the rig's ports on them.

This module declares the keys of a topology file, and decides the network that they describe: by a few numbers
(`short_form_file`), or switches and links one by one, and which device the switches are. `switch_file` decides what a
switch is; `routes` computes ways through the network. Whether the rig has the ports that are attached here is checked
when a rig file is read too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.ip_address import parse_addresses
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import (
    group,
    groups,
    list_setting,
    optional_group,
    required_setting,
    setting,
)
from etloop.contract.base.settings_reader import blame, read_settings
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    parse_duration_ns,
    parse_name,
    parse_port_label,
)
from etloop.contract.base.value_form import DURATION, ValueForm, either, pattern_form, with_form
from etloop.contract.base.value_parsers import integer, with_bounds, words, yes_or_no
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
    SwitchSeeds,
    SwitchSettings,
    Topology,
)
from etloop.traffic.topology.draft import Draft
from etloop.traffic.topology.routes import islands
from etloop.traffic.topology.short_form_file import (
    DumbbellKeys,
    FatTreeKeys,
    LeafSpineKeys,
    LinkKeys,
    ParkingLotKeys,
    PlaneKeys,
    RailKeys,
    SingleKeys,
)
from etloop.traffic.topology.switch_file import DeviceModel, Devices, no_devices, switch_of
from etloop.traffic.topology.switch_keys import SwitchKeys
from etloop.traffic.topology.usid_file import Srv6Keys, usids_of, with_ways

MOST_ROUTES: Final = 1 << 22
"""Maximum of switches times attachments: rows of all routing tables together."""
_FORMS: Final = {
    SingleKeys: "single",
    LeafSpineKeys: "leaf_spine",
    FatTreeKeys: "fat_tree",
    RailKeys: "rail",
    DumbbellKeys: "dumbbell",
    ParkingLotKeys: "parking_lot",
}
_KINDS: Final = (*_FORMS.values(), "switches")
_MOMENT: Final = with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
_NAME_END: Final = "name a switch, or a switch and a port of your naming, such as leaf0/up1"


@with_form(either(DURATION, ValueForm("never", {"const": "never"}), "duration or never"))
def _moment_or_never(text: str) -> int:
    """Parse a duration or "never" in ns. Raises `QuantityError`."""
    if text == "never":
        return FOREVER_NS
    try:
        return _MOMENT(text)
    except QuantityError as error:
        raise QuantityError(error.what, f"{error.remedy}, or never") from None


@with_form(pattern_form("SWITCH or SWITCH/PORT", r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(/.*)?"))
def _switch_end(text: str) -> tuple[str, str]:
    """Parse "switch" or "switch/port". Raises `QuantityError`."""
    switch, slash, port = text.partition("/")
    if slash and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", port):
        raise QuantityError(f'"{text[:64]}" is not a switch and a port', "write it as switch/port")
    return parse_name(switch), port


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """One of several switches."""

    name: str = required_setting("name", parse_name, "?", "name the switch, such as leaf0")
    """Name of the switch."""
    keys: SwitchKeys = group(SwitchKeys)


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link between two switches; an end is a switch and a port, "" for one that is not named."""

    from_end: tuple[str, str] = required_setting("from", _switch_end, ("", ""), _NAME_END)
    """One end."""
    to_end: tuple[str, str] = required_setting("to", _switch_end, ("", ""), _NAME_END)
    """The other end."""
    link: LinkKeys = group(LinkKeys)


@dataclass(frozen=True, slots=True)
class AttachEntry:
    """A port of the rig on a switch."""

    port: str = required_setting("port", parse_port_label, "", 'name a port of the rig as "agent/port"')
    """A port of the rig."""
    to_end: tuple[str, str] = required_setting("to", _switch_end, ("", ""), _NAME_END)
    """Switch of the port, with a port name of your choice."""
    link: LinkKeys = group(LinkKeys)
    addresses: tuple[str, ...] = list_setting("addresses", parse_addresses, is_flat=True)
    """Addresses of the port; the rig's if left out."""
    rail: int | None = setting("rail", integer(0, MOST_RAILS - 1), None)
    """Rail of the port."""
    honours_pause: bool = setting("honours_pause", yes_or_no, True)
    """Whether the endpoint stops sending a priority that the switch pauses."""


@dataclass(frozen=True, slots=True)
class OutageEntry:
    """A link that is down for a time."""

    port: str = required_setting(
        "port", parse_port_label, "", 'name a port of a switch or of the rig, such as "leaf0/4"'
    )
    """A port of a switch or of the rig; the whole link is down."""
    from_ns: int = required_setting("from", _MOMENT, 0, "write when the link goes down, such as 1ms")
    """When it goes down."""
    until_ns: int = setting("until", _MOMENT, FOREVER_NS)
    """When it is up again; never if left out."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield an empty outage."""
        if self.until_ns <= self.from_ns:
            yield Problem("until", "it ends before it begins", "write an until after from")


@dataclass(frozen=True, slots=True)
class RoutingKeys:
    """Delays after which switches react to a link that went down or came up."""

    detection_ns: int = setting("detection", _MOMENT, Routing().detection_ns)
    """Time until the ends of a link detect it."""
    stated_convergence_ns: int | None = setting("convergence", _moment_or_never, None)
    """Time until all switches have routed around it; never is possible. 100ms, or `detection` if that is longer, if left
    out."""

    @property
    def convergence_ns(self) -> int:
        """Return the convergence time; `FOREVER_NS`: never."""
        usual_ns = max(Routing().convergence_ns, self.detection_ns)
        return usual_ns if self.stated_convergence_ns is None else self.stated_convergence_ns

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a reaction before its cause is known."""
        if self.convergence_ns < self.detection_ns:
            yield Problem(
                "convergence",
                f"{format_duration(self.convergence_ns)} is less than the detection of {format_duration(self.detection_ns)}",
                "switches cannot route around a link before its ends have noticed; write as much or more, or never",
            )


@dataclass(frozen=True, slots=True)
class SeedKeys:
    """Seeds of one kind of draws each; those left out follow `seed`, or the seed of a run."""

    hash: int | None = setting("hash", integer(0, 2**62), None)
    """Seed of hashes, and of ways that are drawn at random."""
    marks: int | None = setting("marks", integer(0, 2**62), None)
    """Seed of ECN marks."""
    faults: int | None = setting("faults", integer(0, 2**62), None)
    """Seed of random faults."""

    def of_switch(self, index: int) -> SwitchSeeds:
        """Return the seeds of a switch by its place in the file: different ones, or all switches would hash alike."""
        return SwitchSeeds(
            *(None if seed is None else seed + index for seed in (self.hash, self.marks, self.faults))
        )


@dataclass(frozen=True, slots=True)
class TopologyKeys:
    """Content of `topology.yaml`: exactly one of seven descriptions of a network, and settings of every network."""

    single: SingleKeys | None = optional_group(SingleKeys, "single")
    """One switch with all ports."""
    leaf_spine: LeafSpineKeys | None = optional_group(LeafSpineKeys, "leaf_spine")
    """Leaves with the rig's ports, and spines that connect them."""
    fat_tree: FatTreeKeys | None = optional_group(FatTreeKeys, "fat_tree")
    """Pods of leaves and spines, and cores that connect the pods."""
    rail: RailKeys | None = optional_group(RailKeys, "rail")
    """A switch for every rail, and spines that connect them if there are any."""
    dumbbell: DumbbellKeys | None = optional_group(DumbbellKeys, "dumbbell")
    """Two switches, left and right, and the trunk that joins them."""
    parking_lot: ParkingLotKeys | None = optional_group(ParkingLotKeys, "parking_lot")
    """Switches in a row, hop0, hop1 and so on, each linked to the next."""
    switches: tuple[SwitchEntry, ...] = groups(SwitchEntry, "switches")
    """Switches one by one."""
    links: tuple[LinkEntry, ...] = groups(LinkEntry, "links", may_be_empty=True)
    """Links between switches; none for one switch."""
    attach: tuple[AttachEntry, ...] = groups(AttachEntry, "attach")
    """The rig's ports on switches."""
    seed: int = setting("seed", integer(0, 2**62), SEED)
    """Seed of all random draws of switches that have none of their own."""
    seeds: SeedKeys = group(SeedKeys, "seeds")
    """Seeds that hold some of the draws while `seed`, or the seed of a run, varies the others."""
    device: str = setting("device", words, "")
    """Profile of all switches that name neither a device nor a preset."""
    srv6: Srv6Keys | None = optional_group(Srv6Keys, "srv6")
    """Micro segments by which switches forward (docs/device.md)."""
    outages: tuple[OutageEntry, ...] = groups(OutageEntry, "outages")
    """Links that go down at times of the run."""
    routing: RoutingKeys = group(RoutingKeys, "routing")
    """How soon switches react to a link that goes down or comes up."""

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        """Yield keys that belong to another description of a network."""
        if "switches" in keys and not self.attach:
            remedy = "list the rig's ports, such as {port: a/p0, to: leaf0, rate: 100Gbps}"
            yield Problem("attach", "is missing or empty", remedy)
        for key in ("links", "attach"):
            if key in keys and "switches" not in keys:
                problem = "it is only for switches that are described one by one"
                yield Problem(key, problem, "list them under switches, or remove it")


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
    keys = read_settings(TopologyKeys, top)
    top.close()
    kinds = [kind for kind in _KINDS if top.has(kind)]
    if len(kinds) != 1:
        problem = f"describes {' and '.join(kinds)}" if kinds else "describes no network"
        file.mistake(None, "", problem, f"write exactly one of {', '.join(_KINDS)}")
    draft = Draft()
    for form in (keys.single, keys.leaf_spine, keys.fat_tree, keys.rail, keys.dumbbell, keys.parking_lot):
        if form is None:
            continue
        for _ in draft.in_planes(form.built_planes if isinstance(form, PlaneKeys) else 1):
            form.build(draft, top.section(_FORMS[type(form)]))
    _add_switches(keys, top, draft)
    devices = Devices(find_device)
    file_device = devices.model(keys.device, top)
    devices.everywhere = device or file_device
    segments = None if keys.srv6 is None else Segments(keys.srv6.block, keys.srv6.decapsulation)
    switches = _decide_switches(draft, file, keys, devices, segments)
    if segments is not None:
        switches = with_ways(switches, tuple(draft.links), file)
    _refuse_unused(devices.everywhere, switches, file)
    outages = _decide_outages(keys, top, draft)
    _refuse_odd_shapes(top, draft)
    file.refuse_mistakes()
    routing = Routing(keys.routing.detection_ns, keys.routing.convergence_ns)
    topology = Topology(switches, tuple(draft.links), tuple(draft.attachments), outages, routing, segments)
    _refuse_islands(topology, file)
    return topology


def _add_switches(keys: TopologyKeys, top: Section, draft: Draft) -> None:
    """Add switches, links and attachments that are described one by one."""
    number: dict[str, int] = {}
    if not keys.switches:
        return
    for index, entry in enumerate(keys.switches):
        if entry.name in number:
            problem = f'two switches are called "{entry.name}"'
            blame(top, Problem(f"switches[{index}].name", problem, "give every switch its own name"))
        place = top.sections("switches", "")[index]
        number[entry.name] = draft.add_switch(entry.name, entry.keys, place)
    for index, link in enumerate(keys.links):
        a = _end(link.from_end, link.link, draft, number, top, f"links[{index}].from")
        b = _end(link.to_end, link.link, draft, number, top, f"links[{index}].to")
        if a is not None and b is not None:
            if a.switch == b.switch:
                problem = "the link ends at the switch it begins at"
                blame(top, Problem(f"links[{index}].to", problem, "name another switch"))
            draft.links.append(SwitchLink(a, b))
    for index, port in enumerate(keys.attach):
        end = _end(port.to_end, port.link, draft, number, top, f"attach[{index}].to")
        if end is not None:
            draft.known_as[end.switch].setdefault(port.port, end.port)
            draft.attachments.append(
                Attachment(port.port, end, port.addresses, port.rail, port.honours_pause)
            )


def _end(
    named: tuple[str, str], link: LinkKeys, draft: Draft, number: dict[str, int], top: Section, where: str
) -> SwitchEnd | None:
    """Add a port to a switch for one end of a link and return it; None after a mistake."""
    switch, port = named
    if not switch:
        return None
    if switch not in number:
        remedy = f"write one of {', '.join(list(number)[:16])}"
        blame(top, Problem(where, f'there is no switch "{switch}"', remedy))
        return None
    names_in_use = draft.known_as[number[switch]]
    if port in names_in_use:
        problem = f"{switch}/{port} has a link already"
        blame(top, Problem(where, problem, "give every link its own port"))
        return None
    if not port:
        port = next(str(free) for free in range(len(names_in_use) + 1) if str(free) not in names_in_use)
    return draft.add_port(number[switch], port, link.rate_bps, link.delay_ns)


def _refuse_unused(
    device: DeviceModel | None, switches: tuple[SwitchSettings, ...], file: ConfigFile
) -> None:
    """Record a mistake if a device is named that no switch is."""
    profiles = {settings.origin.profile for settings in switches if settings.origin is not None}
    if device is not None and switches and device.origin.profile not in profiles:
        problem = f"no switch is {device.origin.profile}: every switch names its own device or preset"
        file.mistake(None, "", problem, "remove one of the two")


def _decide_switches(
    draft: Draft, file: ConfigFile, top: TopologyKeys, devices: Devices, segments: Segments | None
) -> tuple[SwitchSettings, ...]:
    """Return all switches of the draft."""
    if len(draft.names) > MOST_SWITCHES:
        file.mistake(None, "", f"{len(draft.names)} switches", f"describe at most {MOST_SWITCHES}")
        return ()
    switches = []
    had_mistakes = bool(file.problems)
    for index, (name, keys, place) in enumerate(zip(draft.names, draft.keys, draft.places, strict=True)):
        ports, known_as = tuple(draft.ports[index]), draft.known_as[index]
        # A switch without ports may follow from a mistake that has been reported already.
        if len(ports) > MOST_SWITCH_PORTS or (not ports and not had_mistakes):
            problem = f"switch {name} has {len(ports) or 'no'} ports"
            file.mistake(None, "", problem, f"give it 1 to {MOST_SWITCH_PORTS} links, or remove it")
        ports = ports[:MOST_SWITCH_PORTS] or (SwitchPort("0", 1_000_000, 0),)
        known_as = {label: port for label, port in known_as.items() if port < len(ports)}
        # Each switch gets its own seed: with equal hashes all would make the same choice (polarisation).
        settings = switch_of(keys, place, name, ports, top.seed + index, known_as, devices)
        usids = usids_of(keys, place, index, len(ports), known_as, segments)
        switches.append(replace(settings, usids=usids, seeds=top.seeds.of_switch(index)))
    return tuple(switches)


def _decide_outages(keys: TopologyKeys, top: Section, draft: Draft) -> tuple[Outage, ...]:
    """Return the outages of links."""
    outages = []
    known_outages: list[tuple[str, Outage]] = []
    places = {rig_port.rig_port: rig_port.end for rig_port in draft.attachments}
    for switch, name in enumerate(draft.names):
        places |= {
            f"{name}/{port.name}": SwitchEnd(switch, number)
            for number, port in enumerate(draft.ports[switch])
        }
    for index, entry in enumerate(keys.outages):
        outage = Outage(places.get(entry.port, SwitchEnd(0, 0)), entry.from_ns, entry.until_ns)
        outages.append(outage)
        if entry.port in places:
            known_outages.append((f"outages[{index}].from", outage))
        elif entry.port:
            example = next((place for place in places if place), "leaf0/0")
            problem = f'there is no port "{entry.port}"'
            blame(top, Problem(f"outages[{index}].port", problem, f"write one such as {example}"))
    _refuse_overlaps(known_outages, top, draft)
    return tuple(outages)


def _refuse_overlaps(read: list[tuple[str, Outage]], top: Section, draft: Draft) -> None:
    """Record a mistake if outages of a link overlap: the end of one would bring the link up in the middle of another.

    The two outages may name different ends of the link.
    """
    first_end = {link.b: link.a for link in draft.links}
    last: dict[SwitchEnd, Outage] = {}
    for where, outage in sorted(read, key=lambda row: row[1].from_ns):
        link = first_end.get(outage.end, outage.end)
        previous = last.get(link)
        if previous is not None and outage.from_ns < previous.until_ns:
            problem = f"the link is down since {format_duration(previous.from_ns)} by another outage"
            blame(top, Problem(where, problem, "write one outage instead of both"))
        last[link] = outage if previous is None or outage.until_ns > previous.until_ns else previous


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
