"""Examines the switches of a topology by the rules of `etloop dut check`.

Decides how the settings of a modelled switch read as a profile, the reverse of `switch_settings`, and which rules apply: those
about ECN, PFC, maps and thresholds. Switches with equal faults share one finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.model.capabilities import PACKET_OVERHEAD_BYTES
from etloop.contract.model.switch_presets import CNP_DSCP, ROCE_DSCP
from etloop.dut_profiles.model.findings import Finding, ProfileVerdict, apply
from etloop.dut_profiles.model.profile import (
    Buffer,
    DutKind,
    DutProfile,
    Ecn,
    Maps,
    Pfc,
    PortGroup,
    PriorityGroup,
    Queue,
    Scheduler,
    Trust,
)
from etloop.dut_profiles.model.stated import Claim, Source, Stated
from etloop.dut_profiles.rules.buffers import BUFFER_RULES
from etloop.dut_profiles.rules.job import JOB_RULES, JobDemands, ProfiledJob
from etloop.dut_profiles.rules.maps import MAP_RULES

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchQueue, SwitchSettings, Topology

T = TypeVar("T")

_TOPOLOGY: Final = Source("topology", "topology", "", date.min)
_RULES: Final = frozenset(
    {
        *("kmin-above-kmax", "never-marks", "pause-before-mark"),
        *("lossless-without-pfc", "pfc-without-headroom", "pause-stops-another"),
    }
)
"""Rules about a switch alone."""
_JOB_KEYS: Final[Mapping[str, str]] = {
    "job-in-lossy-queue": "maps.dscp_to_class.{dscp}",
    "job-unmarked": "queues.{queue}.ecn",
    "job-cnp-with-data": "maps.dscp_to_class.{cnp_dscp}",
}
"""Rules about a switch with a job: rule -> key of the switch that decides it."""
_MOST_NAMES: Final = 3
DEFAULT_JOB: Final = JobDemands(
    source="the default transport",
    dscp=ROCE_DSCP,
    pcp=None,
    ecn_capable=True,
    path_mtu_bytes=4096,
    packet_bytes=4096 + PACKET_OVERHEAD_BYTES,
    lossless=True,
    congestion_algorithm="dcqcn",
    needs_marks=True,
    needs_telemetry=False,
    accepts_out_of_order=False,
    cnp_dscp=CNP_DSCP,
    pause_priorities=(),
)
"""A job whose scenario states nothing about its transport, for labs, which are made before any scenario is known."""


def check_topology(topology: Topology, source: str, job: JobDemands | None) -> ProfileVerdict:
    """Return the contradictions and remarks about the switches of a topology, alone and with a job if there is one.

    `source` names the topology in messages. A job that expects no loss is compared only with topologies that have lossless
    groups: one without any is lossy by intention.
    """
    all_rules = (rules for switch in topology.switches for rules in switch.all_rules)
    if job is not None and not any(group.lossless for rules in all_rules for group in rules.groups):
        job = replace(job, lossless=False)
    names_by_settings: dict[SwitchSettings, list[str]] = {}
    for switch in topology.switches:
        if len(switch.ports) < 2:
            continue
        alike = replace(switch, name="", seed=0, faults=(), usids=None)
        for number, rules in enumerate(switch.all_rules):
            ports = tuple(replace(port, rules=0) for port in switch.ports if port.rules == number)
            if not ports:
                continue
            of_ports = replace(
                alike, ports=ports, groups=rules.groups, queues=rules.queues, pfc=rules.pfc, port_rules=()
            )
            port_names = ", ".join(port.name for port in ports)
            name = f"{switch.name} (ports {port_names})" if switch.port_rules else switch.name
            names_by_settings.setdefault(of_ports, []).append(name)
    switches_of: dict[Finding, list[str]] = {}
    for settings, names in names_by_settings.items():
        for finding in _findings_of_switch(settings, job):
            switches_of.setdefault(finding, []).extend(names)
    return ProfileVerdict(
        tuple(
            replace(finding, problem=_at_switches(finding.problem, source, names))
            for finding, names in switches_of.items()
        )
    )


def topology_notes(topology: Topology, source: str, *, strict: bool) -> tuple[str, ...]:
    """Return a sentence for every problem of a topology with a job of the default transport.

    Raise `ConfigError` with the contradictions if `strict`.
    """
    verdict = check_topology(topology, source, DEFAULT_JOB)
    if strict and verdict.contradictions:
        raise ConfigError(*verdict.contradictions)
    return tuple(str(finding.problem) for finding in verdict.findings)


def _at_switches(problem: Problem, source: str, names: list[str]) -> Problem:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    place = f"{source}: {'switches' if len(names) > 1 else 'switch'} {', '.join(names[:_MOST_NAMES])}{more}"
    return replace(problem, where=f"{place}: {problem.where}")


def _findings_of_switch(settings: SwitchSettings, job: JobDemands | None) -> tuple[Finding, ...]:
    profile = profile_of_switch(settings)
    rules = [rule for rule in (*BUFFER_RULES, *MAP_RULES) if rule.name in _RULES]
    findings = apply(rules, profile).findings
    if job is None:
        return findings
    profiled = ProfiledJob(profile, job)
    way = profiled.way
    numbers = {"dscp": job.dscp, "cnp_dscp": job.cnp_dscp, "queue": None if way is None else way.queue}
    job_rules = [rule for rule in JOB_RULES if rule.name in _JOB_KEYS]
    return findings + tuple(
        replace(finding, problem=replace(finding.problem, where=_JOB_KEYS[finding.rule].format(**numbers)))
        for finding in apply(job_rules, profiled).findings
    )


def profile_of_switch(settings: SwitchSettings) -> DutProfile:
    """Return the settings of a modelled switch as a profile; places of values are keys of the switch in a topology file."""
    rates = dict.fromkeys(port.rate_bps for port in settings.ports)
    lossless_priorities = {
        settings.group_to_priority[number] for number, group in enumerate(settings.groups) if group.lossless
    }
    return DutProfile(
        name=settings.name or "switch",
        kind=DutKind.SWITCH,
        summary="",
        sources=(_TOPOLOGY,),
        ports=tuple(
            PortGroup(
                str(rate_bps),
                count=_claim(sum(port.rate_bps == rate_bps for port in settings.ports), "ports"),
                speed_bps=_claim(rate_bps, "ports"),
            )
            for rate_bps in rates
        ),
        buffer=Buffer(
            total_bytes=_claim(settings.buffer_bytes, "buffer"),
            headroom_bytes=Stated()
            if settings.headroom_pool_bytes is None
            else _claim(settings.headroom_pool_bytes, "headroom_pool"),
        ),
        groups=tuple(
            PriorityGroup(
                number,
                lossless=_claim(group.lossless, f"groups.{number}.lossless"),
                reserved_bytes=_claim(group.reserved_bytes, f"groups.{number}.reserved"),
                alpha=_claim(Fraction(2) ** group.alpha_log2, f"groups.{number}.alpha"),
                headroom_bytes=_claim(group.headroom_bytes, f"groups.{number}.headroom")
                if settings.headroom_pool_bytes is None
                else Stated(),
            )
            for number, group in enumerate(settings.groups)
        ),
        queues=tuple(_queue(number, queue) for number, queue in enumerate(settings.queues)),
        maps=Maps(
            trust=_claim(Trust.DSCP, "maps"),
            dscp_to_class=_claim(settings.dscp_to_class, "maps.dscp_to_class"),
            class_to_queue=_claim(settings.class_to_queue, "maps.class_to_queue"),
            class_to_group=_claim(settings.class_to_group, "maps.class_to_group"),
            group_to_priority=_claim(settings.group_to_priority, "maps.group_to_priority"),
            priority_to_queue=_claim(settings.priority_to_queue, "maps.priority_to_queue"),
        ),
        pfc=Pfc(priorities=_claim(tuple(sorted(lossless_priorities)) if settings.pfc else (), "pfc.enabled")),
    )


def _queue(number: int, queue: SwitchQueue) -> Queue:
    path, marking = f"queues.{number}", queue.marking
    ecn = Ecn(enabled=_claim(marking is not None, f"{path}.ecn.enabled"))
    if marking is not None:
        ecn = replace(
            ecn,
            kmin_bytes=_claim(marking.kmin_bytes, f"{path}.ecn.kmin"),
            kmax_bytes=_claim(marking.kmax_bytes, f"{path}.ecn.kmax"),
            pmax_per_million=_claim(marking.pmax_per_million, f"{path}.ecn.pmax"),
        )
    scheduler = Scheduler.STRICT if queue.strict else Scheduler.DWRR
    return Queue(number, scheduler=_claim(scheduler, f"{path}.strict"), ecn=ecn)


def _claim(value: T, key: str) -> Stated[T]:
    return Stated(configured=Claim(value, _TOPOLOGY, key))
