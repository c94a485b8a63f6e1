"""Checks that a plan fits the device described by a topology: ports, paths, links of a timeline, order of packets."""

from __future__ import annotations

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import Topology
from etloop.controller.inputs.scenario.timeline import ends_of
from etloop.controller.inputs.scenario.transport import Transport
from etloop.controller.plan.plan import Plan
from etloop.traffic.topology.routes import Routes, routes
from etloop.traffic.twin import attachments_of, stream_paths


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A topology and the file it was read from."""

    topology: Topology
    source: str
    content: bytes = b""
    """Content of that file."""


def check_device(plan: Plan, device: DescribedDevice) -> None:
    """Raise `PlanError` if a plan does not fit the device.

    Ports that the plan uses must be attached and reach each other, links of the timeline must exist, and switches must not
    reorder packets of a transport that takes late packets for lost ones.
    """
    assignment = plan.whole()
    table = routes(device.topology)
    attachments_of(assignment, tuple(port.name for port in assignment.ports), device.topology, table)
    stream_paths(plan.parts.streams, device.topology, table)
    ends_of(plan.parts.scenario.timeline, device.topology)
    for transport in plan.parts.transports.transports:
        _refuse_reordering(transport, device.topology, table)


def _refuse_reordering(transport: Transport, topology: Topology, table: Routes) -> None:
    """Raise `PlanError` if switches reorder packets and the transport treats late packets as lost, unless the scenario states
    that."""
    if transport.recovery.accept_out_of_order or transport.order_stated or transport.takes_any_order:
        return
    reordering_switches = [
        switch
        for switch, ways in zip(topology.switches, table, strict=True)
        if switch.balancing.reorders and any(len(way) > 1 for way in ways)
    ]
    if reordering_switches:
        first, more = (
            reordering_switches[0],
            f" and {len(reordering_switches) - 1} more" if len(reordering_switches) > 1 else "",
        )
        problem = (
            f"balancing: {first.balancing.name.lower()} reorders packets, and a transport that takes a late packet for "
            "a lost one repeats all that follow it"
        )
        remedy = (
            "write transport: {uet: {delivery: rud}}, which takes packets as they come"
            if transport.sprays
            else "write transport: {out_of_order: accept} in the scenario, as cards for such networks do, "
            "or out_of_order: nak if that is meant"
        )
        raise PlanError(Problem(f"switch {first.name}{more}", problem, remedy))
