"""The steps of a run after its execution: measure, write, compare, count, evaluate.

Decides the order of the steps, and the files written if one of them fails. `pipeline` imports this module after the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.contract.model.transport import AS_DATA
from etloop.controller.case.pack import packed_case
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.udp_streams import plain_datagrams
from etloop.controller.run.device_check import known_profile
from etloop.controller.run.device_demands import demands_of
from etloop.controller.run.device_facts import device_facts
from etloop.controller.run.execution import (
    Executed,
    Execution,
    FinishedRun,
    RunOptions,
    RunStopped,
    RunWatcher,
    Step,
)
from etloop.controller.run.expectation import Expectation, expect, iterations_reached
from etloop.controller.run.kept_run import SPOOL, RunMaterial
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.record_budget import MOST_OPS, most_ops
from etloop.dut_profiles.model.profile import DutKind
from etloop.dut_profiles.rules.maps import way_of_packet
from etloop.results.artifacts import (
    JUNIT_FILE,
    RunRecords,
    add_comparison,
    add_device_counters,
    add_joint_figures,
    add_verdict,
    measure_run_records,
)
from etloop.results.device.class_queues import ExpectedClass, PacketKind
from etloop.results.device.reconcile import TAG_BYTES
from etloop.results.device.summary import DeviceBasis, RigPortFacts
from etloop.results.kpis.base_latency import with_measured_base
from etloop.results.measure.joined import NO_OPS
from etloop.results.measure.summary import Measurement, measure
from etloop.results.measure.workload_digest import workload_digest
from etloop.results.report.findings import unexamined_words
from etloop.results.schema.case import CASE_FILE
from etloop.results.schema.findings import Examined
from etloop.results.schema.run_output import Output
from etloop.results.store.run_dir import PLAN_FILE, RunArtifacts, RunNotWritten, write_run
from etloop.results.store.table_writer import BlockTables
from etloop.results.verdict.junit_names import place_of

LEFT_OUT: Final[Mapping[Output, tuple[str, ...]]] = {
    Output.FIGURES: ("*.parquet", PLAN_FILE, CASE_FILE, JUNIT_FILE),
    Output.TABLES: (PLAN_FILE, CASE_FILE),
    Output.EVERYTHING: (),
}
"""Patterns of the names of files that are not written."""
IS_THE_TWIN: Final = "twin: this run is the twin"


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedRun:
    """A run after its execution; a run that is written from its spool has neither plan nor execution."""

    prepared: Prepared | None
    execution: Execution | None
    executed: Executed


def finish_run(
    material: RunMaterial, ran: ExecutedRun, options: RunOptions, watcher: RunWatcher
) -> FinishedRun:
    """Measure a run, write its results, compare it with ideal network and twin, and evaluate its conditions."""
    executed, outcome = ran.executed, ran.executed.outcome
    connections = material.plan.connections
    figures = with_measured_base(material.basis, outcome, connections, executed.connection_rows)
    material = replace(material, basis=figures)
    stopped_in = Step.EXECUTE if outcome.state is RunEnd.STOPPED else None
    if options.out_dir is not None or material.conditions:
        watcher.enter(Step.WRITE)
    measurement, made = _measure(material, executed, options, watcher)
    if options.out_dir is not None and (plan_file := options.out_dir / SPOOL / PLAN_FILE).exists():
        made[PLAN_FILE] = plan_file
    records = _records(_with_lab(material, ran), executed)
    if options.out_dir is None and not material.conditions:
        run = add_joint_figures(measure_run_records(records, measurement), material.basis)
        return FinishedRun(run.summary, measurement, executed, stopped_in)
    run = _keep_step(options, measure_run_records(records, measurement, made))
    if options.expects and stopped_in is None and ran.prepared is not None and ran.execution is not None:
        watcher.enter(Step.EXPECT)
        work = partial(_expectation, ran.prepared, executed, measurement, watcher)
        try:
            expectation = ran.execution.unless_stopped(work)
            run = _keep_step(
                options, add_comparison(run, measurement, expectation.runs, expectation.absent), run
            )
        except (RunStopped, MemoryError, RunNotWritten) as error:
            stopped_in = Step.EXPECT if isinstance(error, RunStopped) else None
            why = str(error) or "out of memory"
            watcher.report(f"{why}: the results have no ideal network and twin")
    if executed.counted is not None and ran.prepared is not None:
        watcher.enter(Step.COUNT)
        basis = device_basis(ran.prepared.scenario, ran.prepared.rig, outcome)
        run = _keep_step(options, add_device_counters(run, executed.counted, basis), run)
    if measurement.left_out:
        # The tables have them; a second copy of a long run would take too much memory.
        measurement = replace(measurement, ops=NO_OPS, job_ops=NO_OPS)
    watcher.enter(Step.VERDICT)
    device = None if ran.prepared is None else ran.prepared.device
    topology = None if device is None else device.topology
    facts = device_facts(material.texts, options.out_dir or Path(), topology)
    place = "" if options.out_dir is None else place_of(options.out_dir)
    with_verdict = add_verdict(
        run,
        material.basis,
        material.conditions,
        facts,
        pages=options.pages,
        junit=JUNIT_FILE not in LEFT_OUT[options.output],
        place=place,
    )
    if failed := unexamined_words(with_verdict.summary.diagnosis, Examined.FAILED):
        watcher.report(f"not examined: {failed}")
    run = _keep(options, with_verdict, None if options.in_one_write else run)
    return FinishedRun(run.summary, measurement, executed, stopped_in)


def _with_lab(material: RunMaterial, ran: ExecutedRun) -> RunMaterial:
    """Return the material with a case that contains the options of the run's lab, which are known only after the run."""
    prepared, lab_up = ran.prepared, ran.executed.lab_up
    if prepared is None or prepared.case is None or ran.execution is None or CASE_FILE not in material.texts:
        return material
    run_id, digest = prepared.plan.parts.run_id, workload_digest(material.plan)
    case = packed_case(prepared.case, run_id, digest, ran.execution.repeated_by, lab_up)
    return replace(material, texts={**material.texts, CASE_FILE: case})


def _measure(
    material: RunMaterial, executed: Executed, options: RunOptions, watcher: RunWatcher
) -> tuple[Measurement, dict[str, Path]]:
    """Measure a run, and write the tables that are too long for memory block by block."""
    most = most_ops(executed.outcome)
    try:
        measurement, made = _measured_at_most(material, executed, options, watcher, most)
    except MemoryError:
        watcher.report("out of memory: the tables are processed in blocks")
        measurement, made = _measured_at_most(material, executed, options, watcher, MOST_OPS)
    except OSError as error:
        problem = Problem(str(options.out_dir), f"cannot write the run: {error}", "free space on its disk")
        raise RunNotWritten(str(problem)) from error
    noted = replace(measurement.summary, notes=(*measurement.summary.notes, *executed.notes))
    return replace(measurement, summary=noted), made


def _measured_at_most(
    material: RunMaterial, executed: Executed, options: RunOptions, watcher: RunWatcher, most: int | None
) -> tuple[Measurement, dict[str, Path]]:
    outcome, tables, rows = executed.outcome, material.plan, executed.connection_rows
    if most is None or options.out_dir is None:
        return measure(outcome, tables, rows, most), {}
    writing = BlockTables(options.out_dir / SPOOL, outcome, tables, watcher.note_stored)
    try:
        measurement = measure(outcome, tables, rows, most, writing)
        return measurement, writing.finish()
    except BaseException:
        writing.abandon()
        raise


def _records(material: RunMaterial, executed: Executed) -> RunRecords:
    return RunRecords(
        executed.outcome,
        material.plan,
        executed.connection_rows,
        material.port_names,
        material.texts,
        executed.tables,
    )


def _keep_step(options: RunOptions, now: RunArtifacts, before: RunArtifacts | None = None) -> RunArtifacts:
    """Write the results of a step, if results are written after each step."""
    return now if options.in_one_write else _keep(options, now, before)


def _keep(options: RunOptions, now: RunArtifacts, before: RunArtifacts | None) -> RunArtifacts:
    if options.out_dir is not None:
        write_run(options.out_dir, now, before, LEFT_OUT[options.output])
    return now


def _expectation(
    prepared: Prepared, executed: Executed, measurement: Measurement, watcher: RunWatcher
) -> Expectation:
    """Compute the expected times of a run in virtual time; for a twin only those of the ideal network."""
    device = prepared.device if executed.twin is None else None
    watcher.report(f"comparing with an ideal network{' and the twin' if device else ''}, in virtual time")
    reached = iterations_reached(measurement.ops)
    expectation = expect(prepared.plan, device, iterations=reached)
    return expectation if executed.twin is None else replace(expectation, absent=(IS_THE_TWIN,))


def device_basis(scenario: Scenario, rig: Rig, outcome: RunOutcome) -> DeviceBasis:
    """Return the facts that results need in addition to the counts: those of the rig's ports, and the queues of the job's
    packets."""
    added_bytes = _added_bytes(scenario, rig)
    ports = {
        label: RigPortFacts(
            _ip_version(port.addresses),
            counts_packets=port.backend is not PortBackend.VERBS,
            sees_damaged=port.backend is not PortBackend.UDP,
            added_bytes=added_bytes,
            is_plane=bool(port.card),
        )
        for label, port in rig.ports.items()
    }
    plain = plain_datagrams(scenario.streams, outcome.agents, scenario.transport.path_mtu_bytes)
    return DeviceBasis(outcome.start_ns, ports, _expected_classes(scenario, rig), plain)


def _added_bytes(scenario: Scenario, rig: Rig) -> int | None:
    """Return the bytes per frame of the VLAN tag and of the outer header of SRv6.

    None if not all packets have the outer header, or if the interface of some port may add the tag instead of ETLoop.
    """
    transport = scenario.transport
    has_segments = {used_transport.endpoint.srv6 is not None for used_transport in scenario.used_transports}
    if len(has_segments) > 1:
        return None
    outer_bytes = OUTER_HEADER_BYTES if True in has_segments else 0
    if transport.vlan_id < 0:
        return outer_bytes
    backends = {port.backend for port in rig.ports.values()}
    return TAG_BYTES + outer_bytes if backends <= {PortBackend.PACKET, PortBackend.XDP} else None


def _ip_version(addresses: tuple[str, ...]) -> int:
    versions = {ip_address(address).version for address in addresses}
    return versions.pop() if len(versions) == 1 else 0


def _expected_classes(scenario: Scenario, rig: Rig) -> tuple[ExpectedClass, ...]:
    """Return the job's classes of packets with the queue of each by the profile's maps; () without a switch profile."""
    profile = known_profile(rig)
    if profile is None or profile.kind is not DutKind.SWITCH:
        return ()
    demands, transport = demands_of(scenario, rig, "scenario"), scenario.transport
    data = demands.dscp, demands.pcp
    kinds = {PacketKind.DATA: data}
    for kind, marks in ((PacketKind.ANSWERS, transport.ack), (PacketKind.GRANTS, transport.clear_to_send)):
        dscp = demands.dscp if marks.traffic_class == AS_DATA else marks.traffic_class >> 2
        pcp = demands.pcp if marks.vlan_priority == AS_DATA else marks.vlan_priority
        if (dscp, pcp) != data:
            kinds[kind] = dscp, pcp
    if demands.cnp_dscp is not None:
        kinds[PacketKind.NOTIFICATIONS] = demands.cnp_dscp, demands.cnp_pcp
    way_by_kind = {kind: way_of_packet(profile, dscp, pcp) for kind, (dscp, pcp) in kinds.items()}
    return tuple(
        ExpectedClass(kinds[kind][0], None if way is None else way.queue, kind)
        for kind, way in way_by_kind.items()
    )
