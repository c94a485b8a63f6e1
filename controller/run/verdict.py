"""Judges a run that has left its directory: by the conditions of the device's profile and of the scenario.

Decides where the conditions, the speeds of ports and the compute of ranks come from; what they mean is for `results`.
Nothing in here ends a run: a profile or a condition that cannot be read is said before it and marked in the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.verdict import VerdictSettings, conditions_of
from etloop.controller.run.device_check import contradictions_of
from etloop.dut_profiles.model.profile import DutKind
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.reading.profile_file import DEFAULT_TOLERANCE_PER_MILLION
from etloop.results.artifacts import verdict_files
from etloop.results.kpis.all import vocabulary
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.verdict import RequestedCheck
from etloop.results.store.run_dir import (
    TOPOLOGY_FILE,
    read_frames,
    read_inputs,
    read_kpis,
    read_run,
    write_verdict,
)
from etloop.results.verdict.verdict import EmulatorLimits, check_mistakes
from etloop.workload.trace.program import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.plan import Plan
    from etloop.dut_profiles.model.profile import DutProfile
    from etloop.results.schema.summary import Summary


@dataclass(frozen=True, slots=True)
class RequestedChecks:
    """All conditions of a run."""

    checks: tuple[RequestedCheck, ...]
    limits: EmulatorLimits
    device: str
    unreadable: str
    """Why the profile that the rig names cannot be read; "" otherwise."""
    notes: tuple[str, ...] = ()
    """What of scenario and rig the profile contradicts; goes into the results."""


def requested_checks(
    scenario: Scenario, rig: Rig, print_status: Callable[[str], None], *, in_twin: bool = False
) -> RequestedChecks:
    """The conditions of scenario and profile; says those that cannot be read.

    `in_twin`: no device is read, and what ends and switches counted is of one model: it is not held against each other.
    """
    dut = rig.dut
    if dut is None:
        return _requested_checks(scenario.verdict, "", print_status)
    requested = _requested_checks(
        scenario.verdict, dut.profile, print_status, counted=bool(dut.counters) and not in_twin
    )
    found = contradictions_of(scenario, rig)
    for problem in found:
        print_status(f"warning: the profile {requested.device} says otherwise: {problem}")
    return replace(
        requested,
        notes=tuple(f"the profile {requested.device} says otherwise: {problem}" for problem in found),
    )


def _requested_checks(
    stated: VerdictSettings,
    device: str,
    print_status: Callable[[str], None],
    *,
    counted: bool = False,
    counted_by: str = "",
) -> RequestedChecks:
    """`counted`: counters are read, or were; `counted_by`: by which profile's maps, where it is not `device`."""
    unreadable = ""
    checks: tuple[RequestedCheck, ...] = ()
    if device:
        try:
            profile = find_profile(device)
        except ConfigError as error:
            unreadable = f"the profile {device} cannot be read: {error}"
            print_status(f"warning: {unreadable}")
        else:
            device = profile.name
            checks = tuple(RequestedCheck(one.expression, one.why, one.where) for one in profile.checks)
            if counted:
                agree, *queues = counting_checks(profile)
                # Queues were looked at by the maps of the profile that the run had.
                checks += (agree, *(queues if counted_by in ("", profile.name) else ()))
    checks += stated.checks
    for check, mistake in check_mistakes(checks, vocabulary()):
        print_status(
            f"warning: {check.where}: {check.expression}: {mistake}; the verdict will be inconclusive"
        )
    return RequestedChecks(checks, stated.limits, device, unreadable)


def counting_checks(profile: DutProfile) -> tuple[RequestedCheck, ...]:
    """What must hold wherever a device's counters are read: they agree with the agents', and packets took their queues."""
    tolerance = profile.counters.tolerance_per_million
    claim = tolerance.best
    allowed = DEFAULT_TOLERANCE_PER_MILLION if claim is None else claim.value
    where = "counters.tolerance, by default" if claim is None else claim.where
    agree = RequestedCheck(
        f"reconciliation.difference_share <= {allowed}ppm",
        "device and agents count the same packets on every cable, as far as the profile's tolerance",
        where,
    )
    if profile.kind is not DutKind.SWITCH or profile.maps.class_to_queue.value is None:
        return (agree,)
    queues = RequestedCheck(
        f"classes.missing_share <= {allowed}ppm",
        "the job's packets leave by the queues that the profile's maps name for their DSCP",
        profile.maps.class_to_queue.best.where if profile.maps.class_to_queue.best is not None else where,
    )
    return agree, queues


def basis_of(scenario: Scenario, rig: Rig, plan: Plan) -> KpiBasis:
    """What key figures need beside the records: speeds of ports, compute of ranks, packets' payload."""
    speeds = {f"{agent.name}/{port.name}": port.link_bps for agent in rig.agents for port in agent.ports}
    job = plan.parts.job
    per_program = [
        int(program.delay_ns[program.kind == OpKind.DELAY].sum(dtype=np.int64)) for program in job.programs
    ]
    compute = tuple(per_program[rank.program] for rank in job.ranks)
    return KpiBasis(speeds, compute, scenario.transport.path_mtu_bytes)


def renew_verdict(run_dir: Path, conditions: Path | None = None, device: str | None = None) -> Summary:
    """Judges a run of the past by its directory alone, and replaces what the last judgement left.

    By the conditions of the file `conditions` (its `verdict:`, as in a scenario) and of the profile `device`; where neither is
    given, by those of the run's own scenario and rig.

    Raises:
        RunDirError: no run directory, or its tables or its kpis.json cannot be read.
        ConfigError: the conditions, the profile or the run's own files cannot be used.
    """
    basis = read_kpis(run_dir).basis
    messages: list[str] = []
    if conditions is None and device is None:
        scenario_text, rig_text = read_inputs(read_run(run_dir).path)
        where = run_dir / "scenario.yaml", run_dir / "rig.yaml"
        checks = conditions_of(scenario_text.encode(), str(where[0]))
        rig = parse_rig(rig_text.encode(), str(where[1]), run_dir)
        dut = rig.dut
        in_twin = (run_dir / TOPOLOGY_FILE).exists()
        read = dut is not None and bool(dut.counters) and not in_twin
        requested = _requested_checks(checks, dut.profile if dut else "", messages.append, counted=read)
        return add_verdict(run_dir, requested, basis)
    checks = (
        VerdictSettings() if conditions is None else conditions_of(read_file(conditions), str(conditions))
    )
    counted = read_run(run_dir).summary.dut
    requested = _requested_checks(
        checks,
        device or "",
        messages.append,
        counted=counted is not None,
        counted_by=counted.profile if counted is not None else "",
    )
    if messages:
        raise ConfigError(*(Problem("verdict", text, "see docs/verdict.md") for text in messages))
    return add_verdict(run_dir, requested, basis)


def add_verdict(
    out_dir: Path,
    requested: RequestedChecks,
    basis: KpiBasis,
    *,
    pages: bool = True,
    overload: tuple[str, ...] = (),
) -> Summary:
    """Adds key figures, verdict, junit.xml and, with `pages`, report.html and trace.perfetto.json to a run directory.

    `overload`: in which respects a soft switch that stood for the device was itself the limit.
    Returns the summary with its verdict. Raises `RunNotWritten` where they cannot be written; the run stands as it is.
    """
    run = read_run(out_dir)
    fresh = tuple(note for note in requested.notes if note not in run.summary.notes)
    run = replace(run, summary=replace(run.summary, notes=run.summary.notes + fresh))
    summary, texts = verdict_files(
        run,
        read_frames(run),
        basis,
        requested.checks,
        requested.limits,
        requested.device,
        requested.unreadable,
        read_inputs(run.path),
        pages=pages,
        overload=overload,
    )
    write_verdict(out_dir, summary, texts)
    return summary
