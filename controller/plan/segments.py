"""SRv6 of a transport that sprays: by which micro segments each port's packets are led to each address that it sends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.ip_address import ip_text
from etloop.contract.model.assignment import Path, PortBackend, SegmentRoute, SegmentSettings
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES
from etloop.traffic.topology.segment_routes import SegmentRoutes, ways_of

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.inputs.scenario.transport import Transport
    from etloop.controller.plan.connections import PlacedConnections
    from etloop.controller.plan.places.placement import Placement
    from etloop.controller.plan.places.port_transports import PortTransports


def segment_settings(
    spoken: PortTransports, topology: Topology | None, placement: Placement, connections: PlacedConnections
) -> tuple[SegmentSettings | None, ...]:
    """Return the segments of each port of a placement; None for ports whose packets go by their own addresses.

    Raises `PlanError` where no topology has segments, addresses are of IPv4, or a way has none.
    """
    found: list[SegmentSettings | None] = [None] * len(placement.ports)
    for number, transport in enumerate(spoken.transports):
        for port, settings in _settings_of(
            transport, spoken.ports_of(number), topology, placement, connections
        ).items():
            found[port] = settings
    return tuple(found)


def _settings_of(
    transport: Transport,
    own: frozenset[int],
    topology: Topology | None,
    placement: Placement,
    connections: PlacedConnections,
) -> dict[int, SegmentSettings]:
    """The segments of the ports `own`, which speak one transport."""
    if transport.endpoint.srv6 is None:
        return {}
    where = f"transport.{transport.kind_name}.srv6"
    if topology is None:
        what = "nothing says which segments the switches have"
        raise PlanError(Problem(where, what, "name a topology file with srv6: {block: ...}"))
    if topology.segments is None:
        raise PlanError(
            Problem(
                where,
                "the switches of the topology have no segments",
                "write srv6: {block: fc00:1::/32} in it",
            )
        )
    routes = SegmentRoutes(topology, transport.endpoint.srv6)
    number = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    peers = _peers(placement, connections)
    old = next((to for port in sorted(own) for _, to in peers[port] if ":" not in to), None)
    if old is not None:
        what = f"{old} is an IPv4 address, and segments are in an IPv6 header around IPv6"
        raise PlanError(Problem(where, what, "give the ports of the rig IPv6 addresses"))
    labels = [placement.ports[port].label for port in sorted(own)]
    missing = [label for label in labels if label not in number]
    if missing:
        what = f"port {missing[0]} is not in the topology"
        raise PlanError(Problem(where, what, "attach it to a switch there"))
    attachments = {port: number[placement.ports[port].label] for port in own}
    return {
        index: SegmentSettings(
            topology.segments.block,
            topology.segments.decapsulation,
            tuple(
                SegmentRoute(to, routes.tiers(attachments[index], attachments[there]))
                for there, to in peers[index]
            ),
        )
        for index in own
    }


def segment_notes(
    spoken: PortTransports, placement: Placement, settings: Sequence[SegmentSettings | None]
) -> tuple[str, ...]:
    """What to say of packets that segments lead."""
    return tuple(
        note
        for number, (transport, ports) in enumerate(spoken.with_ports(placement))
        for note in _notes_of(transport, ports, [settings[port] for port in sorted(spoken.ports_of(number))])
    )


def _notes_of(
    transport: Transport, placement: Placement, settings: Sequence[SegmentSettings | None]
) -> tuple[str, ...]:
    led = [one for one in settings if one is not None]
    if transport.endpoint.srv6 is None or not led:
        return ()
    ways = max((ways_of(route.tiers) for one in led for route in one.routes), default=1)
    values = transport.multipath.entropy_values
    where = f"transport.{transport.kind_name}.srv6"
    led_by = f"an outer IPv6 header of {OUTER_HEADER_BYTES} bytes leads every packet by {transport.endpoint.srv6} segments"
    notes = [f"{where}: {led_by}; {ways} paths between the ports that are farthest apart"]
    if values % ways:
        notes.append(
            f"{where}: {values} entropy values are no multiple of {ways} paths: some paths have more of them than others"
        )
    unable = {PortBackend.XDP}
    labels = ", ".join(place.label for place in placement.ports if place.port.backend in unable)
    if labels:
        notes.append(
            f"{where}: an xdp port does not look behind an outer header; write backend: packet: {labels}"
        )
    return tuple(notes)


def _peers(placement: Placement, connections: PlacedConnections) -> list[list[tuple[int, str]]]:
    """By port: the ports it sends to, data or answers, and the addresses there."""
    found: list[dict[tuple[int, str], None]] = [{} for _ in placement.ports]
    columns = connections.columns
    for row in np.flatnonzero(columns.path == Path.WIRE).tolist():
        source, target = int(connections.src_port[row]), int(connections.dst_port[row])
        found[source][target, ip_text(columns.dst_ip[row])] = None
        found[target][source, ip_text(columns.src_ip[row])] = None
    return [list(sent) for sent in found]
