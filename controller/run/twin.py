"""Executes a plan in virtual time, through the switches of a topology, without any real traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_duration, format_bytes, format_duration, format_rate
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.assignment import Path as Way
from etloop.contract.model.run import LinkEvent
from etloop.contract.model.topology import Topology
from etloop.contract.model.transfer_source import TransferSource
from etloop.contract.model.transport import TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.inputs.scenario.recovery import WINDOW_OF_SELECTIVE_REPEAT
from etloop.controller.inputs.scenario.timeline import ENDED, TimelineEvent
from etloop.controller.plan.plan import Plan
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.plan.timeouts import card_floor_ns
from etloop.controller.run.execution import Executed, RunWatcher
from etloop.controller.run.expectation import (
    MOST_PACKETS,
    at_device_rates,
    link_changes,
    packets_of_iteration,
)
from etloop.controller.run.link_notes import link_notes
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.topology_check import DescribedDevice
from etloop.controller.run.twin_records import connection_rows, run_outcome, twin_counters_table
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.results.tables.switch_tables import lanes_table, samples_table
from etloop.traffic.topology.routes import routes
from etloop.traffic.twin import TwinOutcome, TwinSettings, attachments_of, twin

CARD_WINDOW_PACKETS: Final = 65_536
"""More packets than a path holds, so that no sender waits for the window."""
PACKET_COST_NS: Final = 1_500
"""Approximate CPU time of a data packet and its acknowledgement over two or three switches."""
CONNECTION_BYTES: Final = 8_192
"""Of both ends of a queue pair, about."""
_T = TypeVar("_T")


class TwinHosts(StrEnum):
    """The model of the senders and receivers in a twin."""

    CARDS = "cards"
    """Queue pairs of network cards: as many packets under way as the transport lets them."""
    SOFTWARE = "software"
    """Agents over udp, packet and xdp ports, whose receivers bound what is under way to them."""


@dataclass(frozen=True, slots=True)
class TwinExecution:
    """See `pipeline.Execution`."""

    settings: TwinSettings
    hosts: TwinHosts = TwinHosts.CARDS
    source_of: Callable[[Assignment], TransferSource] | None = None
    """Makes what starts transfers while the run lasts."""
    is_twin = True

    @property
    def repeated_by(self) -> RepeatedBy:
        """See `pipeline.Execution`."""
        settings = self.settings
        sample_ns = settings.sample_interval_ns or None
        return RepeatedBy(Repeat.TWIN, str(self.hosts), settings.seed, settings.limit_ns, sample_ns)

    def execute(self, prepared: Prepared, lab: str, watcher: RunWatcher, spool: Path | None) -> Executed:
        """Work a plan out, to the last packet. Raises as `described_device` and `traffic.twin.twin`."""
        plan, topology = prepared.plan, described_device(prepared).topology
        if note := _size_note(plan):
            watcher.report(note)
        floor_ns = _floor_ns(self.hosts, prepared, topology)
        assignment = _with_transports(
            at_device_rates(plan.whole(), topology),
            lambda transport: _timed_by(_sent_by(self.hosts, transport), floor_ns),
        )
        rig_ports = tuple(port.name for port in assignment.ports)
        events = prepared.scenario.timeline
        changes = link_changes(events, topology)
        settings = replace(self.settings, link_changes=changes, streams=plan.parts.streams)
        source = None if self.source_of is None else self.source_of(assignment)
        simulated = twin(assignment, rig_ports, topology, settings, source)
        attachments = attachments_of(assignment, rig_ports, topology, routes(topology))
        outcome = run_outcome(plan, simulated, TWIN_ID, topology, attachments)
        outcome = replace(outcome, events=_link_events(events, simulated.end_ns - simulated.start_ns))
        tables = {
            "switches": lanes_table(topology, simulated.switch_ports),
            "queues": samples_table(topology, simulated.samples, simulated.start_ns),
            "counters": twin_counters_table(topology, simulated),
        }
        notes = twin_notes(prepared, simulated, self.hosts)
        return Executed(outcome, connection_rows(plan), tables=tables, twin=simulated, notes=notes)

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """See `pipeline.Execution`."""
        return work()


def _with_transports(
    assignment: Assignment, change: Callable[[TransportSettings], TransportSettings]
) -> Assignment:
    others = tuple(change(transport) for transport in assignment.other_transports)
    return replace(assignment, transport=change(assignment.transport), other_transports=others)


def _sent_by(hosts: TwinHosts, transport: TransportSettings) -> TransportSettings:
    if hosts is TwinHosts.SOFTWARE or transport.window_packets or transport.kind is not TransportKind.ROCE:
        return transport
    # A card has no window between queue pairs; its congestion control bounds a queue pair, and the PSNs that a NAK can name.
    most = WINDOW_OF_SELECTIVE_REPEAT if transport.recovery.selective_repeat else CARD_WINDOW_PACKETS
    return replace(transport, window_packets=most)


def _timed_by(transport: TransportSettings, floor_ns: int) -> TransportSettings:
    return replace(transport, recovery=replace(transport.recovery, timeout_floor_ns=floor_ns))


def _floor_ns(hosts: TwinHosts, prepared: Prepared, topology: Topology) -> int:
    """A card is never silent because its host looks elsewhere: unless the scenario says how long it waits, queues do."""
    transport = prepared.scenario.transport
    floor_ns = transport.recovery.timeout_floor_ns
    waits_for_queues = hosts is TwinHosts.CARDS and transport.open_timeouts.floor
    return card_floor_ns(topology, floor_ns) if waits_for_queues else floor_ns


def hosts_note(hosts: TwinHosts, prepared: Prepared) -> str:
    """Return the host model as text, with its consequences."""
    windows = {transport.window_packets for transport in prepared.scenario.used_transports}
    if len(windows) == 1 and (window_packets := windows.pop()):
        return f"hosts: window_packets of the scenario, {window_packets} packets a queue pair, of {hosts} and of others alike"
    if hosts is TwinHosts.CARDS:
        return (
            "hosts: network cards, without a window over queue pairs; --hosts software: agents over udp, packet and xdp ports, "
            "which keep at most 8 MiB under way to a port and so queue and pause less"
        )
    return (
        "hosts: agents over udp, packet and xdp ports, which keep at most 8 MiB under way to a port: a fabric of cards queues "
        "and pauses more (--hosts cards)"
    )


def described_device(prepared: Prepared) -> DescribedDevice:
    """Return the device of a plan. Raises `ConfigError` if it is not described."""
    if prepared.device is None:
        remedy = "give --topology FILE, or write twin: FILE in the scenario or topology: FILE in the rig"
        raise ConfigError(Problem("topology", "nothing says what the ports are attached to", remedy))
    return prepared.device


def _size_note(plan: Plan) -> str:
    """Return the cost of a job that exceeds the limit of a run's twin; "" for other jobs."""
    assignment = plan.whole()
    packets = packets_of_iteration(assignment, plan.tables.connections.payload_bytes) * assignment.iterations
    if packets <= MOST_PACKETS:
        return ""
    connections = int((assignment.connections.path == Way.WIRE).sum())
    spent_ns = packets * PACKET_COST_NS
    return (
        f"{packets} data packets over {connections} connections: about {approximate_duration(spent_ns)} of a processor and "
        f"{format_bytes(connections * CONNECTION_BYTES >> 20 << 20)} of memory; --level flow works "
        "it out without packets (docs/flow_level.md)"
    )


def _link_events(events: Sequence[TimelineEvent], lasted_ns: int) -> tuple[LinkEvent, ...]:
    """A timeline in virtual time, where everything happens when it is to, as long as there is a job."""
    return tuple(
        LinkEvent(
            event.at_ns,
            event.link,
            event.up,
            *((event.at_ns, "") if event.at_ns <= lasted_ns else (-1, ENDED)),
        )
        for event in events
    )


def twin_notes(prepared: Prepared, outcome: TwinOutcome, hosts: TwinHosts) -> tuple[str, ...]:
    """Return what a reader should know before he compares a twin with a run of agents."""
    topology = described_device(prepared).topology
    rates = {
        attachment.rig_port: topology.port_of(attachment.end).rate_bps for attachment in topology.attachments
    }
    notes = [hosts_note(hosts, prepared)]
    notes += [
        f"{place.label} is a link of {format_rate(place.port.link_bps)} in the rig and of "
        f"{format_rate(rates[place.label])} in the topology, which holds here"
        for place in prepared.plan.placement.ports
        if place.port.link_bps != rates[place.label]
    ]
    notes += [
        f"{switch.name} has {len(switch.ports)} ports here, and {switch.origin.most_ports} as {switch.origin.profile}"
        for switch in topology.switches
        if switch.origin is not None and len(switch.ports) > (switch.origin.most_ports or len(switch.ports))
    ]
    transport = prepared.scenario.transport
    if prepared.scenario.loss.drop_per_million:
        notes.append("faults.drop is of real ports; the twin drops nothing on its own")
    if any(transport.congestion.algorithm == "hpcc" for transport in prepared.scenario.used_transports):
        notes.append("hpcc: the twin's switches give no telemetry")
    notes += link_notes(topology, outcome)
    floor_ns = _floor_ns(hosts, prepared, topology)
    if floor_ns != transport.recovery.timeout_floor_ns:
        notes.append(
            f"timeout_floor {format_duration(floor_ns)}: cards wait as long as the buffers of these switches take, "
            "there and back; agents wait longer (docs/transport.md)"
        )
    if outcome.bad_packets:
        notes.append(f"{outcome.bad_packets} packets arrived corrupted or cut and were not taken")
    return tuple(notes)
