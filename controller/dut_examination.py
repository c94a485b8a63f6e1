"""Holds a profile against a scenario and a rig, before a run or for `etloop dut check`.

What is looked for, `dut_profiles` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import ConfigError
from controller.dut_demands import demands_of, links_of
from dut_profiles.catalogue import find_profile
from dut_profiles.contradictions import examine
from dut_profiles.examination import Examination
from dut_profiles.job_contradictions import examine_job, examine_rig

if TYPE_CHECKING:
    from contract.errors import Problem
    from controller.rig import Rig
    from controller.scenario import Scenario
    from dut_profiles.profile import DutProfile


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
