"""Applies rules to ports whose settings differ from those of their device.

Decides how a finding names such ports, and that a finding about all ports is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from etloop.dut_profiles.model.findings import Finding, ProfileVerdict, Rule, apply
from etloop.dut_profiles.model.profile import DutProfile, PortGroup

S = TypeVar("S")


def check_ports(
    rules: Iterable[Rule[S]],
    profile: DutProfile,
    subject_of: Callable[[DutProfile], S],
    known: ProfileVerdict,
) -> ProfileVerdict:
    """Return what the rules find on ports with settings of their own, without what is `known` of the whole device.

    `subject_of` makes the subject of the rules from the profile of some ports.
    """
    rules = tuple(rules)
    verdict = ProfileVerdict()
    for ports in profile.ports:
        if not ports.overrides:
            continue
        of_ports = apply(rules, subject_of(profile.of_ports(ports)))
        verdict += ProfileVerdict(
            tuple(
                _name_ports(finding, ports) for finding in of_ports.findings if finding not in known.findings
            ),
            tuple(rule for rule in of_ports.skipped if rule not in (*known.skipped, *verdict.skipped)),
        )
    return verdict


def _name_ports(finding: Finding, ports: PortGroup) -> Finding:
    names = ports.interfaces.value or ()
    listed = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
    problem = replace(finding.problem, what=f"ports {ports.name}{listed}: {finding.problem.what}")
    return replace(finding, problem=problem)
