"""The planes (ports) of one network card: ranks are placed on cards, and every plane carries part of the packets. Pure."""

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
"""Allowed numbers of ports of a card: powers of two, because the lowest bits of an entropy value select the plane."""
_MOST_NAMED: Final = 8


def planes_of(agent: RigAgent, port: RigPort) -> tuple[RigPort, ...]:
    """Return all planes of the port's card, in order; a port without `card` is its only plane."""
    return tuple(plane for plane in agent.ports if plane.card == port.card) if port.card else (port,)


def by_card(rig: Rig) -> Rig:
    """Return the rig with each card reduced to its first port, at the sum of the link rates of its planes."""
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
    """Raise `PlanError` if a mapping names a plane other than the first of its card: ranks are placed on cards."""
    first_plane_of = {
        f"{agent.name}/{port.name}": f"{agent.name}/{planes_of(agent, port)[0].name}"
        for agent in rig.agents
        for port in agent.ports
    }
    problems = [
        Problem(
            "mapping",
            f"{label} is a plane of the card whose first port is {first_plane_of[label]}",
            f"write {first_plane_of[label]}",
        )
        for mapping in mappings
        for label in dict.fromkeys((*mapping.ports, *(port for _, port in mapping.explicit)))
        if first_plane_of.get(label, label) != label
    ]
    if problems:
        raise PlanError(*problems)


def with_planes(placement: Placement, rig: Rig) -> Placement:
    """Return a placement on cards (`by_card`) with all planes of every card listed, each card's planes in a row."""
    agents = {agent.name: agent for agent in rig.agents}
    ports: list[PortPlace] = []
    card_row: list[int] = []
    for place in placement.ports:
        agent = agents[place.agent]
        rig_port = next(port for port in agent.ports if port.name == place.port.name)
        planes = planes_of(agent, rig_port)
        card_row.append(len(ports))
        ports += (
            replace(place, port=plane, ranks=() if number else place.ranks, plane=number, planes=len(planes))
            for number, plane in enumerate(planes)
        )
    return replace(placement, port=tuple(card_row[port] for port in placement.port), ports=tuple(ports))


def plane_addresses(
    placement: Placement, ports: Collection[int] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return for every address of a rank on a card the addresses on all planes, plane 0 first.

    With `ports` (indices into `placement.ports`), only cards whose first plane is among them.
    """
    addresses: list[tuple[str, ...]] = []
    for index, place in enumerate(placement.ports):
        if place.planes == 1 or place.plane or (ports is not None and index not in ports):
            continue
        planes = [plane.port.addresses for plane in placement.ports[index : index + place.planes]]
        addresses += list(zip(*planes, strict=True))[: len(place.ranks)]
    return tuple(addresses)


def refuse_odd_planes(transport: Transport, placement: Placement) -> None:
    """Raise `PlanError` if the transport cannot send over the planes of the cards in the placement.

    Causes: a transport or SRv6 that keeps a queue pair on one port, a number of planes that is not in `PLANES` or not the
    same everywhere, or a number of entropy values that does not divide evenly among the planes.
    """
    cards = [place for place in placement.ports if place.planes > 1 and not place.plane]
    if not cards:
        return
    card_names = ", ".join(
        f"{place.agent}/{place.port.card} ({place.planes})" for place in cards[:_MOST_NAMED]
    )
    remedy = "write transport: {kind: mrc} or {kind: uet}, or remove card: from the rig's ports"
    problems = []
    if not transport.sprays:
        problem = f"{transport.kind_name} keeps a queue pair on one port, but these cards have several: {card_names}"
        problems.append(Problem("transport.kind", problem, remedy))
    elif transport.endpoint.srv6 is not None:
        problem = f"segments route to one port of a host, but these cards have several: {card_names}"
        problems.append(
            Problem(
                f"transport.{transport.kind_name}.srv6", problem, "remove it, or card: from the rig's ports"
            )
        )
    unsupported_cards = [place for place in cards if place.planes not in PLANES]
    problems += (
        Problem(
            f"card {place.agent}/{place.port.card}",
            f"it has {place.planes} ports; the lowest bits of an entropy value select the port, so it must be a power of two",
            "use 2, 4 or 8 ports",
        )
        for place in unsupported_cards
    )
    plane_count = max(place.planes for place in cards)
    mismatched_ports = [place for place in placement.ports if place.planes != plane_count and not place.plane]
    if mismatched_ports:
        port = mismatched_ports[0]
        problem = f"{port.label} has {port.planes} plane{'s' if port.planes > 1 else ''}, but the cards are {card_names}"
        problems.append(
            Problem(
                "plan",
                f"both ends of a queue pair need the same number of planes: {problem}",
                "give every card the same number of ports",
            )
        )
    entropy_values = transport.multipath.entropy_values
    if not problems and transport.takes_any_order and entropy_values % plane_count:
        problem = f"{entropy_values} values cannot be divided evenly among {plane_count} planes"
        problems.append(
            Problem(
                f"transport.{transport.kind_name}.entropy_values",
                problem,
                f"write a multiple of {plane_count}",
            )
        )
    if problems:
        raise PlanError(*problems)


def plane_notes(transport: Transport, placement: Placement) -> tuple[str, ...]:
    """Return the plan's note on cards with several planes, whose ports all speak `transport`; () without such cards."""
    cards = [
        ", ".join(plane.label for plane in placement.ports[index : index + place.planes])
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
