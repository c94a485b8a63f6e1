"""Judges a run that has left its directory: by the conditions of the device's profile and of the scenario.

Decides where the conditions, the speeds of ports and the compute of ranks come from; what they mean is for `results`.
Nothing in here ends a run: a profile or a condition that cannot be read is said before it and marked in the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contract.errors import ConfigError, Problem
from controller.commands_plan import read_file
from controller.rig import parse_rig
from controller.scenario_verdict import AskedVerdict, conditions_of
from dut_profiles.catalogue import find_profile
from results.judging import judged_files
from results.key_figures import vocabulary
from results.kpi_set import KpiBasis
from results.run_dir import add_judgement, read_frames, read_inputs, read_kpis, read_run
from results.verdict import EmulatorLimits, check_mistakes
from results.verdict_set import AskedCheck
from workload.program import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from controller.plan import Plan
    from controller.rig import Rig
    from controller.scenario import Scenario
    from results.summary import Summary


@dataclass(frozen=True, slots=True)
class Asked:
    """All conditions of a run."""

    checks: tuple[AskedCheck, ...]
    limits: EmulatorLimits
    device: str
    unreadable: str
    """Why the profile that the rig names cannot be read; "" otherwise."""


def asked_of(scenario: Scenario, rig: Rig, say: Callable[[str], None]) -> Asked:
    """The conditions of scenario and profile; says those that cannot be read."""
    return _asked(scenario.verdict, rig.dut.profile if rig.dut is not None else "", say)


def _asked(stated: AskedVerdict, device: str, say: Callable[[str], None]) -> Asked:
    unreadable = ""
    checks: tuple[AskedCheck, ...] = ()
    if device:
        try:
            profile = find_profile(device)
        except ConfigError as error:
            unreadable = f"the profile {device} cannot be read: {error}"
            say(f"warning: {unreadable}")
        else:
            device = profile.name
            checks = tuple(AskedCheck(one.expression, one.why, one.where) for one in profile.checks)
    checks += stated.checks
    for check, mistake in check_mistakes(checks, vocabulary()):
        say(f"warning: {check.where}: {check.expression}: {mistake}; the verdict will be inconclusive")
    return Asked(checks, stated.limits, device, unreadable)


def basis_of(scenario: Scenario, rig: Rig, plan: Plan) -> KpiBasis:
    """What key figures need beside the records: speeds of ports, compute of ranks, packets' payload."""
    speeds = {f"{agent.name}/{port.name}": port.link_bps for agent in rig.agents for port in agent.ports}
    job = plan.parts.job
    per_program = [
        int(program.delay_ns[program.kind == OpKind.DELAY].sum(dtype=np.int64)) for program in job.programs
    ]
    compute = tuple(per_program[rank.program] for rank in job.ranks)
    return KpiBasis(speeds, compute, scenario.transport.path_mtu_bytes)


def judge_again(run_dir: Path, conditions: Path | None = None, device: str | None = None) -> Summary:
    """Judges a run of the past by its directory alone, and replaces what the last judgement left.

    By the conditions of the file `conditions` (its `verdict:`, as in a scenario) and of the profile `device`; where neither is
    given, by those of the run's own scenario and rig.

    Raises:
        RunDirError: no run directory, or its tables or its kpis.json cannot be read.
        ConfigError: the conditions, the profile or the run's own files cannot be used.
    """
    basis = read_kpis(run_dir).basis
    said: list[str] = []
    if conditions is None and device is None:
        scenario_text, rig_text = read_inputs(read_run(run_dir).path)
        where = run_dir / "scenario.yaml", run_dir / "rig.yaml"
        checks = conditions_of(scenario_text.encode(), str(where[0]))
        rig = parse_rig(rig_text.encode(), str(where[1]), run_dir)
        return judge_run(run_dir, _asked(checks, rig.dut.profile if rig.dut else "", said.append), basis)
    checks = AskedVerdict() if conditions is None else conditions_of(read_file(conditions), str(conditions))
    asked = _asked(checks, device or "", said.append)
    if said:
        raise ConfigError(*(Problem("verdict", text, "see docs/verdict.md") for text in said))
    return judge_run(run_dir, asked, basis)


def judge_run(
    out_dir: Path, asked: Asked, basis: KpiBasis, *, pages: bool = True, overload: tuple[str, ...] = ()
) -> Summary:
    """Adds key figures, verdict, junit.xml and, with `pages`, report.html and trace.perfetto.json to a run directory.

    `overload`: in which respects a soft switch that stood for the device was itself the limit.
    Returns the summary with its verdict. Raises `RunNotWritten` where they cannot be written; the run stands as it is.
    """
    run = read_run(out_dir)
    summary, texts = judged_files(
        run,
        read_frames(run),
        basis,
        asked.checks,
        asked.limits,
        asked.device,
        asked.unreadable,
        read_inputs(run.path),
        pages=pages,
        overload=overload,
    )
    add_judgement(out_dir, summary, texts)
    return summary
