"""The diagram of the network: agents with their ports, the links with their speeds, and the device between them.

Decides how many hosts are drawn one by one; if there are more, each switch gets one box for all of its hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.html.blocks import Network
from etloop.results.html.drawing import Box, Label, NetworkDrawing, Wire
from etloop.results.report.queues import natural

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.device_facts import DeviceFacts

MOST_HOSTS: Final = 16
MOST_SWITCHES: Final = 16
_BOX, _GAP, _ROW = 104, 14, 110
_LINE: Final = 15


@dataclass(frozen=True, slots=True)
class Host:
    """An agent with its ports, or all agents of a switch together."""

    lines: tuple[str, ...]
    wires: tuple[tuple[str, int, int | None], ...]
    """Name of each wire, number of its switch, colour number of its port."""


def network_picture(inputs: KpiInput, facts: DeviceFacts, colours: Mapping[str, int]) -> Network:
    """Return agents at the bottom and the device above them; for a topology of several switches, upper tiers on top."""
    ranks = _ranks_by_port(inputs)
    switch_of, switches = _switches(inputs, facts)
    hosts = _hosts(inputs, ranks, switch_of, colours)
    tiers = _tiers(switches, {wire[1] for host in hosts for wire in host.wires}, facts)
    widest = max([len(hosts), *(len(tier) for tier in tiers)])
    width = max(widest * (_BOX + _GAP) + _GAP, 320)
    boxes, places = _switch_boxes(tiers, switches, width, facts)
    bottom = len(tiers) * _ROW + 24
    wires = list(_links(facts, places) if len(switches) > 1 else ())
    labels: list[Label] = []
    offset = (width - len(hosts) * (_BOX + _GAP) + _GAP) / 2
    for number, host in enumerate(hosts):
        x = offset + number * (_BOX + _GAP)
        boxes.append(Box(host.lines, x, bottom, _BOX, 12 + _LINE * len(host.lines), "box"))
        for index, (name, switch, colour) in enumerate(host.wires):
            wire_x = x + _BOX * (index + 1) / (len(host.wires) + 1)
            top_x, top_y = places[switch]
            wires.append(
                Wire(
                    name,
                    f"M{wire_x:.0f} {bottom}C{wire_x:.0f} {bottom - 40} {top_x:.0f} {top_y + 40} {top_x:.0f} {top_y}",
                    colour,
                )
            )
    height = bottom + 20 + _LINE * max((len(host.lines) for host in hosts), default=1)
    agents = len(set(inputs.plan.rank_agent))
    count = len(facts.topology.switches) if facts.topology is not None else 0
    words = f"{agents} agents with {len(ranks)} ports on {count or 1} switch{'es' if count > 1 else ''}"
    speeds = sorted({bps for bps in inputs.port_bps.values() if bps})
    links = ", ".join(speed_words(bps) for bps in speeds[:4])
    title = f"{words}; links of {links}" if links else words
    drawing = NetworkDrawing(int(width), int(height), tuple(boxes), tuple(wires), tuple(labels))
    return Network("network", f"{title}.", "Boxes below are agents, boxes above are the device.", drawing)


def speed_words(bps: float) -> str:
    """Return the speed of a link, such as "400 Gbit/s"."""
    for size, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= size:
            return f"{bps / size:g} {unit}"
    return f"{bps:g} bit/s"


def _ranks_by_port(inputs: KpiInput) -> dict[tuple[str, str], list[int]]:
    """Return the ranks of each port, by agent and name of the port."""
    ranks_by_port: dict[tuple[str, str], list[int]] = {}
    for rank, (agent, port) in enumerate(zip(inputs.plan.rank_agent, inputs.plan.port_names, strict=True)):
        ranks_by_port.setdefault((agent, port), []).append(rank)
    return ranks_by_port


def _switches(inputs: KpiInput, facts: DeviceFacts) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the switch number by port of the rig, and the names of the switches."""
    topology = facts.topology
    if topology is None or not topology.switches or len(topology.switches) > MOST_SWITCHES:
        name = facts.model or facts.profile or "device under test"
        if topology is not None and len(topology.switches) > MOST_SWITCHES:
            name = f"{len(topology.switches)} switches"
        return dict.fromkeys(inputs.plan.port_names, 0), (name,)
    ends = {attachment.rig_port: attachment.end.switch for attachment in topology.attachments}
    return {name: ends.get(name, 0) for name in inputs.plan.port_names}, tuple(
        switch.name for switch in topology.switches
    )


def _hosts(
    inputs: KpiInput,
    ranks: Mapping[tuple[str, str], list[int]],
    switch_of: Mapping[str, int],
    colours: Mapping[str, int],
) -> list[Host]:
    """Return a box for each agent, or for all agents of a switch if there are more than `MOST_HOSTS`."""
    ports: dict[str, list[str]] = {}
    for agent, port in ranks:
        ports.setdefault(agent, []).append(port)
    if len(ports) <= MOST_HOSTS:
        return [_host(agent, ports[agent], ranks, switch_of, colours) for agent in sorted(ports, key=natural)]
    by_switch: dict[int, list[tuple[str, str]]] = {}
    for agent, port in ranks:
        by_switch.setdefault(switch_of[port], []).append((agent, port))
    hosts = []
    for switch, members in sorted(by_switch.items()):
        agents = sorted({agent for agent, _ in members}, key=natural)
        count = sum(len(ranks[agent_and_port]) for agent_and_port in members)
        lines = (
            f"{len(agents)} agents",
            f"{_short(agents[0])} to",
            _short(agents[-1]),
            f"{len(members)} ports",
            f"{count} ranks",
        )
        hosts.append(Host(lines, ((f"{len(members)} links", switch, None),)))
    return hosts


def _host(
    agent: str, ports: list[str], ranks: Mapping[tuple[str, str], list[int]], switch_of: Mapping[str, int],
    colours: Mapping[str, int],
) -> Host:  # fmt: skip
    own_ranks = [rank for port in ports for rank in ranks[agent, port]]
    short_ports = [_short(port.removeprefix(f"{agent}/")) for port in sorted(ports, key=natural)]
    text = ", ".join(short_ports[:3]) + (f" +{len(short_ports) - 3}" if len(short_ports) > 3 else "")
    words = f"rank {own_ranks[0]}" if len(own_ranks) == 1 else f"{len(own_ranks)} ranks"
    wires = tuple((port, switch_of[port], colours.get(port)) for port in sorted(ports, key=natural))
    return Host((_short(agent), text, words), wires)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:12]}…"


def _tiers(switches: tuple[str, ...], edge: set[int], facts: DeviceFacts) -> list[list[int]]:
    """Return the switches by their distance from the hosts, the nearest tier last."""
    if facts.topology is None or len(switches) == 1:
        return [list(range(len(switches)))]
    unplaced, tiers = set(range(len(switches))), []
    tier = sorted(edge) or [0]
    while tier:
        tiers.append(tier)
        unplaced -= set(tier)
        near = set(tier)
        ends = [(link.a.switch, link.b.switch) for link in facts.topology.links]
        tier = sorted({b if a in near else a for a, b in ends if (a in near) != (b in near)} & unplaced)
    return tiers[::-1]


def _switch_boxes(
    tiers: list[list[int]], switches: tuple[str, ...], width: float, facts: DeviceFacts
) -> tuple[list[Box], dict[int, tuple[float, float]]]:
    """Return the boxes of the switches, and the point of each where wires from below end."""
    boxes: list[Box] = []
    places: dict[int, tuple[float, float]] = {}
    for row, tier in enumerate(tiers):
        box_width = max(_BOX, 200) if len(tier) == 1 else _BOX
        pitch = width / len(tier)
        for column, switch in enumerate(tier):
            x, y = pitch * (column + 0.5) - box_width / 2, 10 + row * _ROW
            lines = [_short(switches[switch]) if len(tier) > 1 else switches[switch][:40]]
            if len(switches) == 1:
                identity = " ".join(filter(None, (facts.vendor, facts.model)))
                lines += [
                    line[:40]
                    for line in (identity or facts.profile, facts.software)
                    if line and line not in lines
                ]
            boxes.append(Box(tuple(lines), round(x, 1), y, box_width, 12 + _LINE * len(lines), "device"))
            places[switch] = (x + box_width / 2, y + 12 + _LINE * len(lines))
    return boxes, places


def _links(facts: DeviceFacts, places: Mapping[int, tuple[float, float]]) -> list[Wire]:
    """Return the wires between switches, one for all links of a pair."""
    if facts.topology is None:
        return []
    links_by_pair: dict[tuple[int, int], int] = {}
    for link in facts.topology.links:
        a, b = sorted((link.a.switch, link.b.switch))
        links_by_pair[a, b] = links_by_pair.get((a, b), 0) + 1
    names = [switch.name for switch in facts.topology.switches]
    wires = []
    for (a, b), count in links_by_pair.items():
        if a not in places or b not in places:
            continue
        upper, lower = sorted((places[a], places[b]), key=lambda place: place[1])
        path = f"M{upper[0]:.0f} {upper[1]:.0f}L{lower[0]:.0f} {lower[1] - 27:.0f}"
        wires.append(Wire(f"{names[a]} to {names[b]}: {count} link{'s' if count > 1 else ''}", path, None))
    return wires
