"""The conditions of a run's verdict, from the device's profile and from the scenario.

Decides where the conditions, the speeds of ports and the compute of ranks come from; what they mean is for `results`.
A run whose profile or conditions cannot be read is refused before it; if the verdict of a past run is decided again, a profile
that cannot be read any more leaves the verdict open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.inputs.scenario.verdict import VerdictSettings, conditions_of
from etloop.controller.plan.serving_jobs import serving_load
from etloop.controller.run.device_check import contradictions_of, topology_verdict
from etloop.controller.run.device_demands import network_needs
from etloop.controller.run.device_facts import device_facts
from etloop.controller.run.flow_ways import Hashes, flow_ways
from etloop.controller.run.topology_check import DescribedDevice
from etloop.dut_profiles.model.profile import DutKind, DutProfile
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.reading.profile_file import DEFAULT_TOLERANCE_PER_MILLION
from etloop.results.kpis.base_latency import with_stated_base
from etloop.results.kpis.flow_sizes import has_flows
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.verdict import RequestedCondition
from etloop.results.serving.verdict import serving_vocabulary
from etloop.results.store.run_dir import (
    INPUT_FILES,
    PROFILE_FILE,
    TOPOLOGY_FILE,
    RunArtifacts,
    read_artifacts,
    read_input,
    read_kpis,
    write_run,
)
from etloop.results.verdict.parser import Vocabulary
from etloop.results.verdict.terms import LONGEST_TEXT
from etloop.results.verdict.verdict import Conditions, find_condition_mistakes
from etloop.traffic.collectives.choice import Shaping
from etloop.traffic.lone_ways import lone_network
from etloop.workload.trace.program import OpKind

if TYPE_CHECKING:
    from etloop.controller.plan.plan import Plan


def conditions_of_run(
    scenario: Scenario,
    rig: Rig,
    device: DescribedDevice | None,
    report: Callable[[str], None],
    *,
    in_twin: bool,
) -> Conditions:
    """Return the conditions of scenario and profile, which `refuse_mistaken_conditions` let pass; report what the profile
    and the switches of the topology contradict.

    `in_twin`: no device is read; the counts of ends and switches come from one model, so they are not compared.
    """
    dut = rig.dut
    profile = None if dut is None else find_profile(dut.profile)
    counted = dut is not None and bool(dut.counters) and not in_twin
    conditions = _conditions(scenario.verdict, profile, counted=counted)
    notes = tuple(
        f"the profile {conditions.device} says otherwise: {problem}"
        for problem in contradictions_of(scenario, rig)
    )
    notes += tuple(str(finding.problem) for finding in topology_verdict(scenario, rig, device).findings)
    for note in notes:
        report(f"warning: {note}")
    return replace(conditions, notes=notes)


def refuse_mistaken_conditions(scenario: Scenario, rig: Rig) -> None:
    """Raise `ConfigError` with every condition of scenario and profile that cannot be read, and a profile that cannot."""
    profile = None if rig.dut is None else find_profile(rig.dut.profile)
    if serving_load(scenario) is not None:
        _refuse_mistakes(scenario.verdict.checks, serving_vocabulary)
        return
    _refuse_mistakes((*scenario.verdict.checks, *_conditions_of(profile)))


def _run_vocabulary() -> Vocabulary:
    # Imported here, because its names come from all tables and key figures, which a run without conditions needs only at its end.
    from etloop.results.kpis.run_kpis import vocabulary

    return vocabulary()


def _refuse_mistakes(
    checks: tuple[RequestedCondition, ...], vocabulary: Callable[[], Vocabulary] = _run_vocabulary
) -> None:
    if not checks:
        return
    mistakes = find_condition_mistakes(checks, vocabulary())
    if mistakes:
        raise ConfigError(
            *(
                Problem(
                    condition.where,
                    f'"{condition.expression[:LONGEST_TEXT]}", column {error.at + 1}: {error.what}',
                    error.remedy,
                )
                for condition, error in mistakes
            )
        )


def _conditions_of(profile: DutProfile | None) -> tuple[RequestedCondition, ...]:
    stated = () if profile is None else profile.checks
    return tuple(
        RequestedCondition(condition.expression, condition.why, condition.where) for condition in stated
    )


def _conditions(
    stated: VerdictSettings, profile: DutProfile | None, *, counted: bool = False, counted_by: str = ""
) -> Conditions:
    """`counted`: counters are read, or were; `counted_by`: by which profile's maps, where it is not `profile`."""
    conditions = _conditions_of(profile)
    if profile is not None and counted:
        agree, *queues = counting_conditions(profile)
        # Queues were looked at by the maps of the profile that the run had.
        conditions += (agree, *(queues if counted_by in ("", profile.name) else ()))
    return Conditions(conditions + stated.checks, stated.limits, "" if profile is None else profile.name)


def counting_conditions(profile: DutProfile) -> tuple[RequestedCondition, ...]:
    """Return the conditions of every run with device counters: they agree with the agents', and packets took their queues."""
    tolerance = profile.counters.tolerance_per_million
    claim = tolerance.best
    allowed = DEFAULT_TOLERANCE_PER_MILLION if claim is None else claim.value
    where = "counters.tolerance, by default" if claim is None else claim.where
    agree = RequestedCondition(
        f"reconciliation.difference_share <= {allowed}ppm",
        "device and agents count the same packets on every cable, as far as the profile's tolerance",
        where,
    )
    if profile.kind is not DutKind.SWITCH or profile.maps.class_to_queue.value is None:
        return (agree,)
    queues = RequestedCondition(
        f"classes.missing_share <= {allowed}ppm",
        "the job's packets leave by the queues that the profile's maps name for their DSCP",
        profile.maps.class_to_queue.best.where if profile.maps.class_to_queue.best is not None else where,
    )
    return agree, queues


def basis_of(
    scenario: Scenario,
    rig: Rig,
    plan: Plan,
    device: DescribedDevice | None,
    hashes: Hashes | None,
    *,
    in_twin: bool,
) -> KpiBasis:
    """Return what figures need in addition to the records: speeds of ports, compute, payload of packets, the network of a
    lone flow, and the ports that flows cross.

    `hashes`: None if the hash of the device is not known.
    """
    # Ranks are on the first port of a card, whose rate is that of all its planes.
    speeds = {label: port.link_bps for label, port in rig.ports.items()}
    speeds |= {
        place.label: place.port.link_bps * place.planes for place in plan.placement.ports if not place.plane
    }
    job = plan.parts.job
    per_program = [
        int(program.delay_ns[program.kind == OpKind.DELAY].sum(dtype=np.int64)) for program in job.programs
    ]
    compute = tuple(per_program[rank.program] for rank in job.ranks)
    backends = {label: port.backend.name.lower() for label, port in rig.ports.items()}
    network = None
    if has_flows(plan.tables):
        topology, source = (None, "") if device is None else (device.topology, device.source)
        cuts = any(part.settings.shaping is not Shaping.PLAIN for part in plan.parts.jobs.parts)
        network = lone_network(plan.whole(), topology, source, cuts=cuts)
    needs = network_needs(scenario, rig)
    ways = None if device is None or hashes is None else flow_ways(plan, device.topology, hashes)
    basis = KpiBasis(speeds, compute, scenario.transport.path_mtu_bytes, backends, network, needs, ways)
    # The twin's network is the topology, exactly.
    return basis if in_twin else with_stated_base(basis, scenario.verdict.base_latency_ns)


def judge_again(
    run_dir: Path, conditions: Path | None = None, device: str | None = None, *, is_kept: bool = False
) -> Summary:
    """Judge a run of the past by its directory alone, and return its summary with that verdict.

    By the conditions of the file `conditions` (its `verdict:`, as in a scenario) and of the profile `device`; where neither is
    given, by those of the run's own scenario and rig. The directory changes only if `is_kept`: then the verdict, the key figures
    and the pages replace what the last judgement left.

    Raises:
        RunDirError: no run directory, or its tables or its kpis.json cannot be read.
        ConfigError: the conditions, the profile or the run's own files cannot be used.
    """
    from etloop.results.artifacts import add_verdict
    from etloop.results.verdict.junit_names import place_of

    basis = read_kpis(run_dir).basis
    run = read_artifacts(run_dir)
    if conditions is None and device is None:
        conditions_found = _own_conditions(run, run_dir)
    else:
        stated = VerdictSettings()
        if conditions is not None:
            stated = conditions_of(read_file(conditions), str(conditions))
            if run.summary.started_at != VIRTUAL_TIME:
                basis = with_stated_base(basis, stated.base_latency_ns)
        profile = None if device is None else find_profile(device)
        _refuse_mistakes((*stated.checks, *_conditions_of(profile)))
        counted_by = run.summary.dut.profile if run.summary.dut is not None else ""
        conditions_found = _conditions(
            stated, profile, counted=run.summary.dut is not None, counted_by=counted_by
        )
    files = {name: read_input(run_dir, name) for name in (TOPOLOGY_FILE, PROFILE_FILE)}
    facts = device_facts(files, run_dir)
    if not is_kept:
        return add_verdict(run, basis, conditions_found, facts, pages=False).summary
    now = add_verdict(run, basis, conditions_found, facts, place=place_of(run_dir))
    write_run(run_dir, now, run)
    return now.summary


def _own_conditions(run: RunArtifacts, run_dir: Path) -> Conditions:
    """Return those of the run's own scenario and rig. A profile that cannot be read any more leaves the verdict open."""
    scenario_text, rig_text = (str(run.texts[name]) for name in INPUT_FILES)
    stated = conditions_of(scenario_text.encode(), str(run_dir / INPUT_FILES[0]))
    dut = parse_rig(rig_text.encode(), str(run_dir / INPUT_FILES[1]), run_dir).dut
    if dut is None:
        return _conditions(stated, None)
    # The directory keeps the profile; the rig's path starts elsewhere.
    kept = run_dir / PROFILE_FILE
    try:
        profile = find_profile(str(kept) if kept.is_file() else dut.profile)
    except ConfigError as error:
        unreadable = f"the profile {dut.profile} cannot be read: {error}"
        return replace(_conditions(stated, None), device=dut.profile, unreadable=unreadable)
    counted = bool(dut.counters) and run.summary.started_at != VIRTUAL_TIME
    return _conditions(stated, profile, counted=counted)
