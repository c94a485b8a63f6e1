"""SRv6 for a spraying transport: the micro segments that route each port's packets to each address that it sends to."""

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
    """Return the segments of each port of a placement; None for ports whose packets have no outer header.

    Raises `PlanError` if there is no topology with segments, addresses are IPv4, or a port or path has no segment.
    """
    settings_of_port: list[SegmentSettings | None] = [None] * len(placement.ports)
    for number, transport in enumerate(spoken.transports):
        for port, settings in _settings_of(
            transport, spoken.ports_of(number), topology, placement, connections
        ).items():
            settings_of_port[port] = settings
    return tuple(settings_of_port)


def _settings_of(
    transport: Transport,
    own: frozenset[int],
    topology: Topology | None,
    placement: Placement,
    connections: PlacedConnections,
) -> dict[int, SegmentSettings]:
    """Return by port the segments of the ports `own`, which all speak `transport`."""
    if transport.endpoint.srv6 is None:
        return {}
    where = f"transport.{transport.kind_name}.srv6"
    if topology is None:
        problem = "the segments of the switches are unknown"
        raise PlanError(Problem(where, problem, "give a topology file with srv6: {block: ...}"))
    if topology.segments is None:
        raise PlanError(
            Problem(
                where,
                "the switches of the topology have no segments",
                "write srv6: {block: fc00:1::/32} in it",
            )
        )
    routes = SegmentRoutes(topology, transport.endpoint.srv6)
    attachment_number = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    peers = _peers_of_ports(placement, connections)
    ipv4_address = next(
        (address for port in sorted(own) for _, address in peers[port] if ":" not in address), None
    )
    if ipv4_address is not None:
        problem = f"{ipv4_address} is an IPv4 address, but SRv6 encapsulates only IPv6"
        raise PlanError(Problem(where, problem, "give the ports of the rig IPv6 addresses"))
    labels = [placement.ports[port].label for port in sorted(own)]
    missing_labels = [label for label in labels if label not in attachment_number]
    if missing_labels:
        problem = f"port {missing_labels[0]} is not in the topology"
        raise PlanError(Problem(where, problem, "attach it to a switch there"))
    attachments = {port: attachment_number[placement.ports[port].label] for port in own}
    return {
        index: SegmentSettings(
            topology.segments.block,
            topology.segments.decapsulation,
            tuple(
                SegmentRoute(address, routes.tiers(attachments[index], attachments[peer]))
                for peer, address in peers[index]
            ),
        )
        for index in own
    }


def segment_notes(
    spoken: PortTransports, placement: Placement, settings: Sequence[SegmentSettings | None]
) -> tuple[str, ...]:
    """Return notes on the outer header, on the number of paths, and on ports that cannot use segments."""
    return tuple(
        note
        for number, (transport, ports) in enumerate(spoken.with_ports(placement))
        for note in _transport_notes(
            transport, ports, [settings[port] for port in sorted(spoken.ports_of(number))]
        )
    )


def _transport_notes(
    transport: Transport, placement: Placement, settings: Sequence[SegmentSettings | None]
) -> tuple[str, ...]:
    port_segments = [segments for segments in settings if segments is not None]
    if transport.endpoint.srv6 is None or not port_segments:
        return ()
    paths = max((ways_of(route.tiers) for segments in port_segments for route in segments.routes), default=1)
    values = transport.multipath.entropy_values
    where = f"transport.{transport.kind_name}.srv6"
    header = (
        f"an outer IPv6 header of {OUTER_HEADER_BYTES} bytes with "
        f"{transport.endpoint.srv6} segments is added to every packet"
    )
    notes = [f"{where}: {header}; {paths} paths between the ports that are farthest apart"]
    if values % paths:
        notes.append(
            f"{where}: {values} entropy values are not a multiple of {paths} paths: some paths get more of them than others"
        )
    unable_backends = {PortBackend.XDP}
    labels = ", ".join(place.label for place in placement.ports if place.port.backend in unable_backends)
    if labels:
        notes.append(f"{where}: an xdp port cannot parse an outer header; write backend: packet: {labels}")
    return tuple(notes)


def _peers_of_ports(placement: Placement, connections: PlacedConnections) -> list[list[tuple[int, str]]]:
    """Return by port the (port, address) pairs that it sends data or acknowledgements to, each once."""
    peers_of_port: list[dict[tuple[int, str], None]] = [{} for _ in placement.ports]
    columns = connections.columns
    for row in np.flatnonzero(columns.path == Path.WIRE).tolist():
        src_port, dst_port = int(connections.src_port[row]), int(connections.dst_port[row])
        peers_of_port[src_port][dst_port, ip_text(columns.dst_ip[row])] = None
        peers_of_port[dst_port][src_port, ip_text(columns.src_ip[row])] = None
    return [list(peers) for peers in peers_of_port]
