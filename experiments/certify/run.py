"""Certifies a fabric: runs the steps one after the other in virtual time, through a lab or on a rig, and applies its rules.

A shell: runs, directories, labs, the clock. `steps` decides the traffic, `rules` what it shows, `conclude` which parts are
named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.run import RunEnd
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.job_set import JobSet, only
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.device_demands import demands_of
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    Execution,
    InputFile,
    PrepareOptions,
    RunInputs,
    RunOptions,
    RunWatcher,
    SilentWatcher,
    new_run_id,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import read_device, read_device_file, read_rig
from etloop.controller.run.twin import TwinExecution
from etloop.experiments.certify.conclude import Named, hosts_to_leave_out, parts_of, port_records
from etloop.experiments.certify.rounds import job_of_rounds
from etloop.experiments.certify.rules.parts import Answer, with_peer_rates
from etloop.experiments.certify.steps import STEPS, Scale, Step
from etloop.experiments.sweep.file import LabWish
from etloop.experiments.sweep.own_lab import OwnLab
from etloop.results.artifacts import kpi_input
from etloop.results.diagnosis.build import evidence_of
from etloop.results.schema.certificate import CERTIFICATE_SCHEMA, Certificate, StepRecord
from etloop.results.schema.sweep import Mode
from etloop.results.schema.verdict import Result
from etloop.results.store.run_dir import read_artifacts, read_kpis
from etloop.runtime.clock import monotonic_ns, wall_time_text
from etloop.traffic.twin import TwinSettings

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.inputs.rig import Rig
    from etloop.results.diagnosis.evidence import Evidence
    from etloop.results.schema.findings import Finding

LEAST_PORTS: Final = 2
_MOST_SAMPLES: Final = 1 << 20
_NO_TRACE: Final = "certify"
_MOST_NAMES: Final = 4


@dataclass(frozen=True, slots=True)
class CertifyRequest:
    """The fabric to certify, and the directory of the runs."""

    rig: InputFile | None
    """None: a port for each attachment of the topology."""
    topology: InputFile | None
    mode: Mode
    scenario: InputFile | None
    """Settings of the transport; its workload is ignored."""
    directory: Path
    """The run of each step is written here."""
    steps: tuple[str, ...] = ()
    """Names of the steps to run; () for all."""
    seed: int | None = None
    """Seed of a twin's switches; None: the topology's."""
    strict: bool = False
    allow_overcommit: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Fabric:
    """The ports that are certified, and how they are reached."""

    rig_file: InputFile
    rig: Rig
    topology: Topology | None
    base: Mapping[str, Any]
    """Values of the user's scenario."""
    is_lossless: bool
    cnp_dscp: int | None
    """None: the transport sends no notifications."""
    device_ports: Mapping[str, str]
    """By rig port, the device's port on its cable, if known."""
    priority: int
    """PFC priority of data."""
    states_rates: bool
    """Whether the rig states its rates independently of the topology."""
    lab: str = ""


def certify(request: CertifyRequest, watcher: RunWatcher) -> Certificate:
    """Run all steps, and name the parts that their rules find.

    Raises an `InputError` before any traffic if files, rig or lab cannot be used.
    """
    began_ns, started_at = monotonic_ns(), wall_time_text()
    refuse_used_directory(request.directory)
    steps = _chosen_steps(request.steps)
    with _fabric(request) as fabric:
        records: list[StepRecord] = []
        named: list[Named] = []
        figures: list[Mapping[str, Mapping[str, float]]] = []
        notes = []
        if any(step.holds for step in steps) and (reason := _why_not_held(fabric)):
            notes.append(f"step hold was left out: {reason}; Kmin and Kmax are those of incasts")
            steps = tuple(step for step in steps if not step.holds)
        for number, step in enumerate(steps):
            left_out = _left_out(step, parts_of(named), fabric)
            # Only the first run reports its progress; the others repeat its warnings.
            of_run = SilentWatcher() if number else watcher
            result = _run_step(request, fabric, step, left_out, of_run)
            fresh = [Named(number, finding) for finding in result.answer.findings]
            count = len(parts_of((*named, *fresh))) - len(parts_of(named))
            named += fresh
            figures.append(result.answer.figures)
            records.append(replace(result.record, parts=max(0, count)))
            watcher.report(f"{step.name}: {_words(records[-1])}")
    parts = parts_of(named)
    concluded = tuple(_conclude(record, number, parts) for number, record in enumerate(records))
    return Certificate(
        schema=CERTIFICATE_SCHEMA,
        rig=fabric.rig_file.source,
        device=_device_words(request, fabric),
        mode=request.mode,
        started_at=started_at,
        result=_worst(record.result for record in concluded),
        findings=tuple(part.finding for part in parts),
        steps=concluded,
        ports=port_records(fabric.rig.ports, fabric.device_ports, figures, parts),
        notes=(*_notes(concluded), *notes),
        wall_ns=monotonic_ns() - began_ns,
    )


def _chosen_steps(names: tuple[str, ...]) -> tuple[Step, ...]:
    known = [step.name for step in STEPS]
    if unknown := [name for name in names if name not in known]:
        problem = f'unknown step "{unknown[0][:64]}"'
        raise ConfigError(Problem("--steps", problem, f"write some of {', '.join(known)}"))
    return tuple(step for step in STEPS if not names or step.name in names)


@contextmanager
def _fabric(request: CertifyRequest) -> Iterator[_Fabric]:
    """Yield the fabric, with its lab up while the block lasts if the request is for one."""
    topology_file, rig_file, lab = request.topology, request.rig, None
    if request.mode is Mode.LAB:
        assert topology_file is not None
        # Only hosts that make frames can send pauses; sockets take less of the machine.
        holds = any(step.holds for step in _chosen_steps(request.steps))
        wish = LabWish(backend=PortBackend.PACKET.name.lower()) if holds else LabWish()
        lab = OwnLab(wish, allow_overcommit=request.allow_overcommit, allow_plugins=False)
        rig_file = lab.rig(topology_file)
    if rig_file is None:
        assert topology_file is not None
        rig_file = derived_rig(topology_file, sends_pauses=True)
    rig = read_rig(rig_file)
    if len(rig.ports) < LEAST_PORTS:
        problem = f"has {len(rig.ports)} port; a certification needs {LEAST_PORTS} or more"
        raise ConfigError(Problem(rig_file.source, problem, "add ports"))
    device = read_device(rig.topology) if topology_file is None else read_device_file(topology_file)
    topology = None if device is None else device.topology
    base, scenario = _base_of(request.scenario)
    demands = demands_of(scenario, rig, "scenario")
    states_rates = request.rig is not None and not rig.lab
    fabric = _Fabric(
        rig_file=rig_file,
        rig=rig,
        topology=topology,
        base=base,
        cnp_dscp=demands.cnp_dscp,
        device_ports=_device_ports(rig, topology),
        is_lossless=demands.lossless,
        priority=_priority_of(topology, demands.dscp),
        states_rates=states_rates,
    )
    try:
        if lab is not None and topology_file is not None:
            lab.up(topology_file)
            fabric = replace(fabric, lab=lab.name)
        yield fabric
    finally:
        if lab is not None:
            lab.down()


def _base_of(file: InputFile | None) -> tuple[Mapping[str, Any], Scenario]:
    """Return the values of the user's scenario, and the scenario. Raises `ConfigError` with its mistakes."""
    default = InputFile(Path(_NO_TRACE), f"workload: {{trace: {_NO_TRACE}}}\n".encode(), _NO_TRACE)
    source = file or default
    content = source.read()
    scenario = parse_scenario(content, source.source, source.path.parent)
    return ({} if file is None else yaml.safe_load(content) or {}), scenario


def _device_ports(rig: Rig, topology: Topology | None) -> dict[str, str]:
    if topology is None:
        return {}
    return {
        attachment.rig_port: topology.port_name(attachment.end)
        for attachment in topology.attachments
        if attachment.rig_port in rig.ports
    }


def _priority_of(topology: Topology | None, dscp: int) -> int:
    """Return the PFC priority by which most switches hold packets of a DSCP; without a topology the usual one."""
    if topology is None:
        return dscp >> 3
    priorities = []
    for switch in topology.switches:
        queue = switch.class_to_queue[switch.dscp_to_class[dscp]]
        priorities += [switch.priority_to_queue.index(queue)] if queue in switch.priority_to_queue else []
    return Counter(priorities).most_common(1)[0][0] if priorities else dscp >> 3


def _why_not_held(fabric: _Fabric) -> str:
    """Return why hosts cannot hold queues by pauses; "" if they can."""
    if not fabric.is_lossless:
        return "transport.lossless is false, so no class of the job has PFC"
    unable = [
        name
        for name, port in fabric.rig.ports.items()
        if port.backend not in (PortBackend.PACKET, PortBackend.XDP)
    ]
    if not unable:
        return ""
    more = ", ..." if len(unable) > _MOST_NAMES else ""
    return (
        f"{', '.join(unable[:_MOST_NAMES])}{more} cannot send pauses; ports with backend: packet or xdp can"
    )


def _left_out(step: Step, parts: tuple[Named, ...], fabric: _Fabric) -> tuple[str, ...]:
    """Return the rig ports that take no part in a step."""
    device_ports = fabric.device_ports or dict.fromkeys(fabric.rig.ports, "")
    places = [place for part in parts if part.finding.kind in step.without for place in part.finding.places]
    hosts = hosts_to_leave_out(places, device_ports, len(fabric.rig.ports))
    return tuple(name for name in fabric.rig.ports if name in hosts)


@dataclass(frozen=True, slots=True, eq=False)
class _StepResult:
    record: StepRecord
    answer: Answer


def _run_step(
    request: CertifyRequest, fabric: _Fabric, step: Step, left_out: tuple[str, ...], watcher: RunWatcher
) -> _StepResult:
    began_ns = monotonic_ns()
    ports = [name for name in fabric.rig.ports if name not in left_out]
    scale = Scale(
        ports=len(ports),
        rate_bps=min(fabric.rig.ports[name].link_bps for name in ports),
        is_virtual=request.mode is Mode.TWIN,
        cnp_dscp=fabric.cnp_dscp or 0,
        priority=fabric.priority,
    )
    wait_ns = scale.holds.wait_ns if step.holds else 0
    job = job_of_rounds(step.name, len(ports), step.rounds(scale), wait_ns)
    values = {key: value for key, value in fabric.base.items() if key == "limits"}
    transport = dict(fabric.base.get("transport") or {}) | dict(step.transport(scale))
    values |= {
        "workload": {"trace": _NO_TRACE},
        "mapping": {"placement": "blocked", "ports": ports},
        "transport": transport,
    }
    text = f"# Step {step.name} of etloop certify.\n{yaml.safe_dump(values, sort_keys=False)}"

    def jobs(made: Scenario) -> JobSet:
        return only(job, made.mapping, made.collectives.settings)

    is_virtual = request.mode is Mode.TWIN
    scenario = InputFile(Path(step.name), text.encode(), f"step {step.name}")
    inputs = RunInputs(
        scenario, fabric.rig_file, request.topology, TWIN_ID if is_virtual else f"{new_run_id()}-{step.name}"
    )
    prepared = prepare(inputs, PrepareOptions(strict=request.strict, jobs=jobs, keeps_case=False))
    directory = request.directory / step.name
    execution: Execution = SessionExecution()
    if is_virtual:
        settings = TwinSettings(
            seed=request.seed,
            sample_interval_ns=max(100, scale.frame_ns(step.sample_frames)),
            most_samples=_MOST_SAMPLES,
        )
        execution = TwinExecution(settings)
    options = RunOptions(directory, expects=False, pages=False, lab=fabric.lab)
    finished = run_plan(prepared, execution, options, watcher)
    if finished.stopped_in is not None:
        raise KeyboardInterrupt
    summary = finished.summary
    answer = _answer_of(step, scale, _evidence_in(directory, fabric), summary.diagnosis.faults)
    if summary.state is not RunEnd.DONE:
        answer = replace(
            answer, untested=summary.reason.splitlines()[0] if summary.reason else "it broke off"
        )
    record = StepRecord(
        name=step.name,
        shows=step.shows,
        result=Result.INCONCLUSIVE if answer.untested else Result.PASS,
        reason="; ".join(filter(None, (answer.untested, answer.limits))),
        parts=0,
        left_out=left_out,
        packets=summary.transport["tx_packets"],
        traffic_ns=summary.job.jct_ns or 0,
        wall_ns=monotonic_ns() - began_ns,
    )
    return _StepResult(record, answer)


def _evidence_in(directory: Path, fabric: _Fabric) -> Evidence:
    run, kpis = read_artifacts(directory), read_kpis(directory)
    evidence = evidence_of(kpi_input(run, kpis.basis), kpis.basis, kpis, fabric.topology)
    return evidence if fabric.states_rates else with_peer_rates(evidence)


def _answer_of(step: Step, scale: Scale, evidence: Evidence, faults: tuple[Finding, ...]) -> Answer:
    """Return what the rules of a step and the diagnosis of its run found."""
    results = step.look(evidence, scale)
    figures: dict[str, dict[str, float]] = {}
    for result in results:
        for name, values in result.figures.items():
            figures.setdefault(name, {}).update(values)
    findings = [finding for result in results for finding in result.findings]
    findings += [finding for finding in faults if finding.kind in step.kinds]
    untested, limits = (
        "; ".join(filter(None, (getattr(result, name) for result in results)))
        for name in ("untested", "limits")
    )
    return Answer(tuple(findings), figures, untested, limits)


def _conclude(record: StepRecord, number: int, parts: tuple[Named, ...]) -> StepRecord:
    count = sum(part.step == number for part in parts)
    return replace(record, parts=count, result=Result.FAIL if count else record.result)


def _worst(results: Iterator[Result]) -> Result:
    distinct = set(results)
    return next(
        result
        for result in (Result.FAIL, Result.INCONCLUSIVE, Result.PASS)
        if result in distinct or result is Result.PASS
    )


def _device_words(request: CertifyRequest, fabric: _Fabric) -> str:
    if request.topology is not None:
        return request.topology.source
    if fabric.rig.dut is not None:
        return str(fabric.rig.dut.profile)
    return "" if fabric.rig.topology is None else str(fabric.rig.topology)


def _notes(records: tuple[StepRecord, ...]) -> tuple[str, ...]:
    left_out = dict.fromkeys(name for record in records for name in record.left_out)
    if not left_out:
        return ()
    steps = ", ".join(record.name for record in records if record.left_out)
    ports = "1 port" if len(left_out) == 1 else f"{len(left_out)} ports"
    words = f"{ports} took no part in {steps}, because named parts would have hidden the rest"
    return (f"{words}; certify again after the repair",)


def _words(record: StepRecord) -> str:
    named = "1 part" if record.parts == 1 else f"{record.parts} parts"
    words = f"{named} named" if record.parts else record.result.value
    return words + (f" ({record.reason})" if record.reason else "")
