"""Compares a profile with a scenario and a rig, before a run or for `etloop dut check`.

The rules are those of `dut_profiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, Severity
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.run.device_demands import demands_of, links_of
from etloop.controller.run.topology_check import DescribedDevice
from etloop.dut_profiles.described_switch import check_topology
from etloop.dut_profiles.model.findings import ProfileVerdict, Rule, apply
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.dut_profiles.rules.contradictions import check_profile
from etloop.dut_profiles.rules.job import check_job, check_rig, check_usual_job
from etloop.results.schema.verdict import RequestedCondition
from etloop.results.verdict.verdict import find_condition_mistakes


def _unreadable_conditions(checks: tuple[RequestedCondition, ...]) -> Iterator[Problem]:
    # Imported here, because its names come from all tables and key figures, which a run needs only at its end.
    from etloop.results.kpis.run_kpis import vocabulary

    for check, mistake in find_condition_mistakes(checks, vocabulary()):
        problem = f"{check.expression}: column {mistake.at + 1}: {mistake.what}"
        yield Problem(check.where, problem, mistake.remedy)


CHECK_RULE: Final = Rule(
    "check-unreadable",
    Severity.ERROR,
    "A condition of the verdict cannot be evaluated.",
    _unreadable_conditions,
)


def check_conditions(profile: DutProfile, scenario: Scenario | None) -> ProfileVerdict:
    """Check that the conditions of a profile and a scenario can be evaluated. A run reports this itself, and goes on."""
    conditions = tuple(
        RequestedCondition(condition.expression, condition.why, condition.where)
        for condition in profile.checks
    )
    return apply((CHECK_RULE,), conditions + (scenario.verdict.checks if scenario is not None else ()))


def profile_verdict(
    profile: DutProfile,
    scenario: Scenario | None,
    rig: Rig | None,
    *,
    scenario_name: str = "scenario",
    rig_name: str = "rig",
) -> ProfileVerdict:
    """Return the contradictions of a profile to itself, and to rig and scenario if given; the names are for messages."""
    verdict = check_profile(profile)
    if scenario is None:
        verdict += check_usual_job(profile)
    if rig is not None:
        verdict += check_rig(profile, links_of(rig, rig_name))
    if scenario is not None:
        verdict += check_job(profile, demands_of(scenario, rig, scenario_name))
    return verdict


def contradictions_of(scenario: Scenario, rig: Rig) -> tuple[Problem, ...]:
    """Return the contradictions of a run to the profile of its device; () without a readable profile, which is reported
    elsewhere."""
    profile = known_profile(rig)
    return () if profile is None else profile_verdict(profile, scenario, rig).contradictions


def topology_verdict(scenario: Scenario, rig: Rig, device: DescribedDevice | None) -> ProfileVerdict:
    """Return what the switches of a run's topology contradict, by the same rules; nothing without a topology."""
    if device is None:
        return ProfileVerdict()
    return check_topology(device.topology, device.source, demands_of(scenario, rig, "scenario"))


def known_profile(rig: Rig) -> DutProfile | None:
    """Return the profile of a rig's device, or None if it names none or an unreadable one, which the verdict reports."""
    try:
        return None if rig.dut is None else find_profile(rig.dut.profile)
    except ConfigError:
        return None
