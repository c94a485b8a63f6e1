"""Holds a profile against a scenario and a rig, before a run or for `etloop dut check`.

What is looked for, `dut_profiles` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, Severity
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.run.device_demands import demands_of, links_of
from etloop.dut_profiles.model.findings import ProfileVerdict, Rule, apply
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.rules.contradictions import check_profile
from etloop.dut_profiles.rules.job import check_job, check_rig
from etloop.results.kpis.all import vocabulary
from etloop.results.schema.verdict import RequestedCheck
from etloop.results.verdict.verdict import check_mistakes


def _unreadable(checks: tuple[RequestedCheck, ...]) -> Iterator[Problem]:
    for check, mistake in check_mistakes(checks, vocabulary()):
        what = f"{check.expression}: column {mistake.at + 1}: {mistake.what}"
        yield Problem(check.where, what, mistake.remedy)


CHECK_RULE: Final = Rule(
    "check-unreadable",
    Severity.ERROR,
    "A condition of the verdict says nothing that a run can be held against.",
    _unreadable,
)


def check_conditions(profile: DutProfile, scenario: Scenario | None) -> ProfileVerdict:
    """Whether the conditions that a run would be judged by can be read. A run says so itself, and goes on."""
    checks = tuple(RequestedCheck(each.expression, each.why, each.where) for each in profile.checks)
    return apply((CHECK_RULE,), checks + (scenario.verdict.checks if scenario is not None else ()))


def profile_verdict(
    profile: DutProfile,
    scenario: Scenario | None,
    rig: Rig | None,
    *,
    scenario_name: str = "scenario",
    rig_name: str = "rig",
) -> ProfileVerdict:
    """What in a profile contradicts itself, the rig and the scenario, as far as they are there; the names are for messages."""
    found = check_profile(profile)
    if rig is not None:
        found += check_rig(profile, links_of(rig, rig_name))
    if scenario is not None:
        found += check_job(profile, demands_of(scenario, rig, scenario_name))
    return found


def contradictions_of(scenario: Scenario, rig: Rig) -> tuple[Problem, ...]:
    """What a run through the rig's device cannot be; () without a profile that can be read, which others tell."""
    profile = known_profile(rig)
    return () if profile is None else profile_verdict(profile, scenario, rig).contradictions


def known_profile(rig: Rig) -> DutProfile | None:
    """Return the profile of a rig's device; None where it names none, or one that cannot be read, which the verdict tells."""
    try:
        return None if rig.dut is None else find_profile(rig.dut.profile)
    except ConfigError:
        return None
