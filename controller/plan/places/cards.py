"""Ports that are the planes of one network card: ranks are placed on cards, and every plane carries some packets. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from etloop.controller.inputs.rig import Rig, RigAgent, RigPort
    from etloop.controller.inputs.scenario.mapping import Mapping
    from etloop.controller.inputs.scenario.transport import Transport
    from etloop.controller.plan.places.placement import Placement, PortPlace

PLANES: Final = (2, 4, 8)
"""So many ports a card may have, as the lowest bits of an entropy value are the plane."""
_MOST_NAMED: Final = 8


def planes_of(agent: RigAgent, port: RigPort) -> tuple[RigPort, ...]:
    """Return all planes of a port's card, in order; of a port by itself, itself."""
    return tuple(one for one in agent.ports if one.card == port.card) if port.card else (port,)


def by_card(rig: Rig) -> Rig:
    """Return the rig with one port for each card: its first, at the rate of all."""
    agents = []
    for agent in rig.agents:
        cards = [(port, planes_of(agent, port)) for port in agent.ports]
        ports = (
            replace(port, link_bps=sum(plane.link_bps for plane in planes))
            for port, planes in cards
            if port is planes[0]
        )
        agents.append(replace(agent, ports=tuple(ports)))
    return replace(rig, agents=tuple(agents))


def refuse_planes(rig: Rig, mappings: Iterable[Mapping]) -> None:
    """Raise `PlanError` where a mapping names a port that stands behind the first of its card: ranks are on cards."""
    first = {
        f"{agent.name}/{port.name}": f"{agent.name}/{planes_of(agent, port)[0].name}"
        for agent in rig.agents
        for port in agent.ports
    }
    problems = [
        Problem(
            "mapping",
            f"{label} is a plane of the card whose first port is {first[label]}",
            f"name {first[label]}",
        )
        for mapping in mappings
        for label in dict.fromkeys((*mapping.ports, *(port for _, port in mapping.explicit)))
        if first.get(label, label) != label
    ]
    if problems:
        raise PlanError(*problems)


def with_planes(placement: Placement, rig: Rig) -> Placement:
    """Return a placement on cards (`by_card`) with the ports of every card behind its first one."""
    agents = {agent.name: agent for agent in rig.agents}
    ports: list[PortPlace] = []
    row: list[int] = []
    for place in placement.ports:
        agent = agents[place.agent]
        own = next(port for port in agent.ports if port.name == place.port.name)
        planes = planes_of(agent, own)
        row.append(len(ports))
        ports += (
            replace(place, port=plane, ranks=() if number else place.ranks, plane=number, planes=len(planes))
            for number, plane in enumerate(planes)
        )
    return replace(placement, port=tuple(row[port] for port in placement.port), ports=tuple(ports))


def plane_addresses(
    placement: Placement, ports: Collection[int] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return what stands on each plane for every address of a rank on a card; of the cards among `ports` alone, if given."""
    found: list[tuple[str, ...]] = []
    for index, place in enumerate(placement.ports):
        if place.planes == 1 or place.plane or (ports is not None and index not in ports):
            continue
        planes = [one.port.addresses for one in placement.ports[index : index + place.planes]]
        found += list(zip(*planes, strict=True))[: len(place.ranks)]
    return tuple(found)


def refuse_odd_planes(transport: Transport, placement: Placement) -> None:
    """Raise `PlanError` where a transport does not send over several planes of a card, or ends differ in them."""
    cards = [place for place in placement.ports if place.planes > 1 and not place.plane]
    if not cards:
        return
    named = ", ".join(f"{place.agent}/{place.port.card} ({place.planes})" for place in cards[:_MOST_NAMED])
    remedy = "write transport: {kind: mrc} or {kind: uet}, or remove card: from the rig's ports"
    problems = []
    if not transport.sprays:
        what = f"{transport.kind_name} keeps a queue pair on one port, and these cards have several: {named}"
        problems.append(Problem("transport.kind", what, remedy))
    elif transport.endpoint.srv6 is not None:
        what = f"segments lead to one port of a host, and these cards have several: {named}"
        problems.append(
            Problem(f"transport.{transport.kind_name}.srv6", what, "remove it, or card: from the rig's ports")
        )
    odd = [place for place in cards if place.planes not in PLANES]
    problems += (
        Problem(
            f"card {place.agent}/{place.port.card}",
            f"it has {place.planes} ports, and the lowest bits of an entropy value say which is taken",
            "give it 2, 4 or 8",
        )
        for place in odd
    )
    most = max(place.planes for place in cards)
    unlike = [place for place in placement.ports if place.planes != most and not place.plane]
    if unlike:
        port = unlike[0]
        what = (
            f"{port.label} has {port.planes} plane{'s' if port.planes > 1 else ''} and {named} more or fewer"
        )
        problems.append(
            Problem(
                "plan",
                f"both ends of a queue pair have as many planes: {what}",
                "give every card as many ports",
            )
        )
    values = transport.multipath.entropy_values
    if not problems and transport.takes_any_order and values % most:
        what = f"{values} values are not as many for each of {most} planes"
        problems.append(
            Problem(f"transport.{transport.kind_name}.entropy_values", what, f"write a multiple of {most}")
        )
    if problems:
        raise PlanError(*problems)


def plane_notes(transport: Transport, placement: Placement) -> tuple[str, ...]:
    """What to say of cards with several planes, all of which speak one transport."""
    cards = [
        ", ".join(one.label for one in placement.ports[index : index + place.planes])
        for index, place in enumerate(placement.ports)
        if place.planes > 1 and not place.plane
    ]
    if not cards:
        return ()
    more = f"; and {len(cards) - _MOST_NAMED} more cards" if len(cards) > _MOST_NAMED else ""
    sends = (
        "sends over all ports of its card"
        if transport.takes_any_order
        else "keeps to one port of its card and leaves it where that is lost"
    )
    return (
        f"planes: every queue pair {sends}, from plane i to plane i: "
        + "; ".join(cards[:_MOST_NAMED])
        + more,
    )
