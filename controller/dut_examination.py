"""Holds a profile against a scenario and a rig, before a run or for `etloop dut check`.

What is looked for, `dut_profiles` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from contract.errors import ConfigError, Problem
from controller.dut_demands import demands_of, links_of
from dut_profiles.catalogue import find_profile
from dut_profiles.contradictions import examine
from dut_profiles.examination import Examination, Gravity, Rule, apply
from dut_profiles.job_contradictions import examine_job, examine_rig
from results.key_figures import vocabulary
from results.verdict import check_mistakes
from results.verdict_set import AskedCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.rig import Rig
    from controller.scenario import Scenario
    from dut_profiles.profile import DutProfile


def _unreadable(checks: tuple[AskedCheck, ...]) -> Iterator[Problem]:
    for check, mistake in check_mistakes(checks, vocabulary()):
        what = f"{check.expression}: column {mistake.at + 1}: {mistake.what}"
        yield Problem(check.where, what, mistake.remedy)


CHECK_RULE: Final = Rule(
    "check-unreadable",
    Gravity.CONTRADICTION,
    "A condition of the verdict says nothing that a run can be held against.",
    _unreadable,
)


def conditions_examined(profile: DutProfile, scenario: Scenario | None) -> Examination:
    """Whether the conditions that a run would be judged by can be read. A run says so itself, and goes on."""
    checks = tuple(AskedCheck(each.expression, each.why, each.where) for each in profile.checks)
    return apply((CHECK_RULE,), checks + (scenario.verdict.checks if scenario is not None else ()))


def examination_of(
    profile: DutProfile,
    scenario: Scenario | None,
    rig: Rig | None,
    *,
    scenario_name: str = "scenario",
    rig_name: str = "rig",
) -> Examination:
    """What in a profile contradicts itself, the rig and the scenario, as far as they are there; the names are for messages."""
    found = examine(profile)
    if rig is not None:
        found += examine_rig(profile, links_of(rig, rig_name))
    if scenario is not None:
        found += examine_job(profile, demands_of(scenario, rig, scenario_name))
    return found


def contradictions_of(
    scenario: Scenario, rig: Rig, scenario_name: str = "scenario", rig_name: str = "rig"
) -> tuple[Problem, ...]:
    """What a run through the rig's device cannot be; () without a profile that can be read, which others tell."""
    if rig.dut is None:
        return ()
    try:
        profile = find_profile(rig.dut.profile)
    except ConfigError:
        return ()
    return examination_of(
        profile, scenario, rig, scenario_name=scenario_name, rig_name=rig_name
    ).contradictions
