"""A plan as the files of one simulator. Raises `PlanError` for everything that it does not have, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.controller.export.astra_sim import export_astra_sim
from etloop.controller.export.bundle import (
    MANIFEST_FILE,
    MESSAGES_FILE,
    ExportFiles,
    Manifest,
    Simulator,
    manifest,
    messages_csv,
)
from etloop.controller.export.goal import export_goal
from etloop.controller.export.htsim import export_htsim
from etloop.controller.export.message_graph import message_graph
from etloop.results.schema.typed_json import to_json
from etloop.traffic.topology.routes import routes
from etloop.traffic.twin import attachments_of

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.export.graph import MessageGraph
    from etloop.controller.plan.plan import Plan

_WITH_TRANSPORT: Final = {
    Simulator.HTSIM: export_htsim,
    Simulator.ASTRA_SIM: export_astra_sim,
}


def export_plan(plan: Plan, topology: Topology, simulator: Simulator) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest of an export, and all its files by name, the manifest among them."""
    graph = message_graph(plan)
    hosts = _host_of_rank(plan, topology)
    made = _files(plan, graph, hosts, topology, simulator)
    about = manifest(simulator, made, graph, plan.tables.source, plan.tables.iterations)
    files = {**made.files, MESSAGES_FILE: messages_csv(graph), MANIFEST_FILE: to_json(about).encode()}
    return about, files


def _files(
    plan: Plan, graph: MessageGraph, hosts: tuple[int, ...], topology: Topology, simulator: Simulator
) -> ExportFiles:
    if simulator is Simulator.GOAL:
        return export_goal(graph, hosts, topology)
    assignment = plan.whole()
    if assignment.other_transports:
        problem = "ports use several transports, and this simulator has one"
        raise PlanError(Problem("rig", problem, "give all ports one transport"))
    return _WITH_TRANSPORT[simulator](graph, hosts, topology, assignment.transport)


def _host_of_rank(plan: Plan, topology: Topology) -> tuple[int, ...]:
    """Return the attachment of each rank. Raises `PlanError` if two ranks share one."""
    assignment = plan.whole()
    rig_ports = tuple(port.name for port in assignment.ports)
    attachments = attachments_of(assignment, rig_ports, topology, routes(topology))
    hosts = tuple(attachments[rank.port] for rank in sorted(assignment.ranks, key=lambda rank: rank.rank))
    if len(set(hosts)) < len(hosts):
        problem = "several ranks are on one port, which is one host of a simulator"
        raise PlanError(Problem("mapping", problem, "map one rank to each port"))
    return hosts
