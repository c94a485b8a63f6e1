"""`twin`: a scenario on a rig, in virtual time, through the switches of a topology. Nothing is sent.

Reads the files, runs the twin, tells what came of it as `run` does, and keeps it where it is asked to.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from etloop.cli.commands.twin_flow import flow_level_command, refuse_records
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.units import approximate_duration, format_bytes, format_rate
from etloop.contract.model.assignment import Path as Way
from etloop.contract.model.run import LinkEvent
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.scenario.timeline import ENDED
from etloop.controller.run.execute import FinishedRun, refuse_used_directory
from etloop.controller.run.expectation import (
    MOST_PACKETS,
    DescribedDevice,
    at_device_rates,
    expect,
    link_changes,
    packets_of_iteration,
)
from etloop.controller.run.prepare import Prepared, prepare
from etloop.controller.run.twin_counters import twin_counters_table
from etloop.controller.run.twin_records import connection_rows, run_outcome
from etloop.controller.run.verdict import add_verdict, basis_of, requested_checks
from etloop.results.measure.summary import measure
from etloop.results.store.run_dir import TOPOLOGY_FILE, add_comparison, keep_files, write_run
from etloop.results.tables.switch_tables import lanes_table, samples_table, totals
from etloop.results.text.switches import render_switches
from etloop.results.text.table import render
from etloop.traffic.topology.routes import routes
from etloop.traffic.topology.topology_file import parse_topology
from etloop.traffic.twin import TwinOutcome, TwinSettings, attachments_of, seeded, twin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etloop.contract.model.topology import Topology
    from etloop.controller.inputs.scenario.timeline import TimelineEvent
    from etloop.controller.plan.plan import Plan
    from etloop.results.schema.summary import Summary
    from etloop.workload.readers.files import Progress

TWIN_ID: Final = "twin"
IS_THE_TWIN: Final = "twin: this run is the twin"
PACKET_COST_NS: Final = 1_500
"""Of a data packet with what answers it over two or three switches, about, on a processor of today."""
CONNECTION_BYTES: Final = 8_192
"""Of both ends of a queue pair, about."""


@dataclass(frozen=True, slots=True)
class TwinRequest:
    """What the command line said."""

    scenario: Path
    rig: Path
    topology: Path | None
    """None: what the scenario's `twin` or the rig's `topology` names."""
    out_dir: Path | None
    settings: TwinSettings
    as_json: bool
    by_flows: bool = False
    """Without packets."""


@dataclass(frozen=True, slots=True, eq=False)
class TwinResult:
    """A job that was run in the twin, with its figures."""

    summary: Summary
    outcome: TwinOutcome
    topology: Topology
    notes: tuple[str, ...]


def _silent(_: str) -> None:
    """Nobody listens."""


def twin_command(
    request: TwinRequest, progress: Progress | None = None, print_status: Callable[[str], None] = _silent
) -> CommandResult:
    """Runs the twin; `print_status` gets what is to be known before. Raises an `InputError` with all mistakes of the files,
    before
    anything is run."""
    if request.by_flows:
        refuse_records(request.out_dir)
    if request.out_dir is not None:
        refuse_used_directory(request.out_dir)
    prepared, topology, path = _read(request, progress)
    topology = seeded(topology, request.settings.seed)
    if request.by_flows:
        device = DescribedDevice(topology, str(path))
        return flow_level_command(prepared.plan, device, request.settings.limit_ns, as_json=request.as_json)
    text = read_file(path) if request.out_dir is not None else b""
    if note := _size_note(prepared.plan):
        print_status(note)
    summary, outcome = run_twin(prepared, topology, text, request.settings, request.out_dir)
    messages: list[str] = []
    if request.out_dir is not None:
        requested = requested_checks(prepared.scenario, prepared.rig, messages.append, in_twin=True)
        basis = basis_of(prepared.scenario, prepared.rig, prepared.plan)
        summary = add_verdict(request.out_dir, requested, basis)
    result = TwinResult(summary, outcome, topology, (*messages, *_notes(prepared, topology, outcome)))
    code = FinishedRun(summary, "").exit_code
    return CommandResult(_as_json(result) if request.as_json else _as_text(result, request.out_dir), code)


def _size_note(plan: Plan) -> str:
    """What a job costs that takes more than a run affords for its twin; "" of others."""
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


def run_twin(
    prepared: Prepared,
    topology: Topology,
    topology_text: bytes,
    settings: TwinSettings,
    out_dir: Path | None,
    *,
    beside_ideal: bool = False,
) -> tuple[Summary, TwinOutcome]:
    """A plan through the twin; the results are kept in `out_dir` if there is one, `beside_ideal` with the ideal network's.

    Raises `PlanError` as `traffic.twin.twin`, `RunNotWritten`.
    """
    plan = prepared.plan
    assignment = at_device_rates(plan.whole(), topology)
    rig_ports = tuple(port.name for port in assignment.ports)
    events = prepared.scenario.timeline
    settings = replace(settings, link_changes=link_changes(events, topology), streams=plan.parts.streams)
    outcome = twin(assignment, rig_ports, topology, settings)
    attachments = attachments_of(assignment, rig_ports, topology, routes(topology))
    records = run_outcome(plan, outcome, TWIN_ID, attachments)
    records = replace(records, events=link_events(events, outcome.end_ns - outcome.start_ns))
    tables, rows = plan.tables, connection_rows(plan)
    if out_dir is None:
        return measure(records, tables, rows).summary, outcome
    texts = (prepared.scenario_text, prepared.rig_text)
    summary = write_run(out_dir, records, tables, *texts, rows, plan.port_names)
    samples = samples_table(topology, outcome.samples, outcome.start_ns)
    keep_files(
        out_dir,
        {
            "switches.parquet": partial(_write_table, lanes_table(topology, outcome.switch_ports)),
            "queues.parquet": partial(_write_table, samples),
            "counters.parquet": partial(_write_table, twin_counters_table(topology, outcome)),
            TOPOLOGY_FILE: partial(_write_bytes, topology_text),
        },
    )
    if beside_ideal:
        expectation = expect(plan, None)
        summary = add_comparison(out_dir, records, tables, rows, expectation.runs, (IS_THE_TWIN,))
    return summary, outcome


def link_events(events: Sequence[TimelineEvent], lasted_ns: int) -> tuple[LinkEvent, ...]:
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


def _write_table(table: object, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def _write_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _read(request: TwinRequest, progress: Progress | None) -> tuple[Prepared, Topology, Path]:
    """Everything that the command line names, with the mistakes of all files together; and the topology's path."""
    problems: list[Problem] = []
    topology = None
    if request.topology is not None:
        try:
            topology = parse_topology(read_file(request.topology), str(request.topology))
        except ConfigError as error:
            problems += error.problems
    try:
        prepared = prepare(request.scenario, request.rig, TWIN_ID, progress)
    except InputError as error:
        if not problems:
            raise
        raise ConfigError(*problems, *error.problems) from None
    if problems:
        raise ConfigError(*problems)
    if topology is not None and request.topology is not None:
        return prepared, topology, request.topology
    if prepared.device is None:
        remedy = "give --topology FILE, or write twin: FILE in the scenario or topology: FILE in the rig"
        raise ConfigError(Problem("topology", "nothing says what the ports are attached to", remedy))
    return prepared, prepared.device.topology, Path(prepared.device.source)


def _notes(prepared: Prepared, topology: Topology, outcome: TwinOutcome) -> tuple[str, ...]:
    """What a reader should know before he compares."""
    rates = {
        attachment.rig_port: topology.port_of(attachment.end).rate_bps for attachment in topology.attachments
    }
    notes = [
        f"{place.label} is a link of {format_rate(place.port.link_bps)} in the rig and of "
        f"{format_rate(rates[place.label])} in the topology, which holds here"
        for place in prepared.plan.placement.ports
        if place.port.link_bps != rates[place.label]
    ]
    transport = prepared.scenario.transport
    if prepared.scenario.drop_per_million:
        notes.append("faults.drop is of real ports; the twin drops nothing on its own")
    if any(port.pauses for port in prepared.plan.whole().ports):
        notes.append("pauses among transport.faults are of real ports; the twin's hosts send no pause frames")
    if transport.congestion.algorithm == "hpcc":
        notes.append("hpcc: the twin's switches give no telemetry")
    if outcome.bad_packets:
        notes.append(f"{outcome.bad_packets} packets arrived corrupted or cut and were not taken")
    return tuple(notes)


def _as_text(result: TwinResult, out_dir: Path | None) -> str:
    outcome = result.outcome
    where = str(out_dir) if out_dir is not None else "not kept; --out DIR keeps them"
    spent = approximate_duration(outcome.end_ns - outcome.start_ns)
    notes = "".join(f"note            {note}\n" for note in result.notes)
    return (
        render(result.summary, where)
        + "\n"
        + render_switches(result.topology, outcome.switch_ports)
        + f"virtual time    {spent}, {outcome.packets} packets over {outcome.hops} links\n"
        + notes
    )


def _as_json(result: TwinResult) -> str:
    outcome = result.outcome
    return to_json(
        {
            "summary": asdict(result.summary),
            "twin": {
                "start_ns": outcome.start_ns,
                "end_ns": outcome.end_ns,
                "packets": outcome.packets,
                "hops": outcome.hops,
                "bad_packets": outcome.bad_packets,
                "switches": totals(outcome.switch_ports),
                "notes": result.notes,
            },
        }
    )
