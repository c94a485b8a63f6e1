"""Rules for a profile with a job and a rig: the traffic that is sent through the device, and the links that connect it.

Decides whether the device, as described, can carry the job as the job expects. The callers extract the values from a scenario
and a rig.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_bytes, format_rate
from etloop.contract.model.switch_presets import ROCE_DSCP
from etloop.dut_profiles.model.findings import NotStated, ProfileVerdict, Rule, absent, apply, where
from etloop.dut_profiles.model.profile import BalancingMode, DutKind, DutProfile, PortGroup, Trust
from etloop.dut_profiles.rules.maps import Way, dscps_of, way_of_packet
from etloop.dut_profiles.rules.ports import check_ports

IN_BAND_TELEMETRY: Final = "int"
"""The entry of `telemetry` for queue lengths and rates that switches write into packets."""


@dataclass(frozen=True, slots=True)
class JobLink:
    """A port of the rig towards the device: "agent/port"."""

    name: str
    speed_bps: int


@dataclass(frozen=True, slots=True)
class RigLinks:
    """The links between a rig and the device. `source` names the file for messages."""

    source: str
    links: tuple[JobLink, ...]


@dataclass(frozen=True, slots=True)
class JobDemands:
    """Requirements of a job on the device. `source` names the file for messages."""

    source: str
    dscp: int
    pcp: int | None
    """None: frames are not tagged."""
    ecn_capable: bool
    path_mtu_bytes: int
    packet_bytes: int
    """Largest IP packet."""
    lossless: bool
    """Whether the job expects a lossless class."""
    congestion_algorithm: str
    needs_marks: bool
    needs_telemetry: bool
    accepts_out_of_order: bool
    cnp_dscp: int | None
    """None: no notifications are sent."""
    pause_priorities: tuple[int, ...]
    """Priorities of pause frames that the job itself sends to the device."""
    cnp_pcp: int | None = None
    """None: frames are not tagged."""


@dataclass(frozen=True, slots=True)
class ProfiledJob:
    """A job and the device that it is to run through."""

    profile: DutProfile
    job: JobDemands

    @property
    def way(self) -> Way | None:
        """Return the class, queue, group and priority of its data, or None if the maps do not give the class."""
        return way_of_packet(self.profile, self.job.dscp, self.job.pcp)

    def at(self, key: str) -> str:
        """Return the place of a key of the scenario, for messages."""
        return f"{self.job.source}: {key}"


@dataclass(frozen=True, slots=True)
class ProfiledRig:
    """A rig and the device that it is connected to."""

    profile: DutProfile
    rig: RigLinks


def check_rig(profile: DutProfile, rig: RigLinks) -> ProfileVerdict:
    """Return the contradictions between a rig and a profile, and the rules that could not be applied."""
    return apply(RIG_RULES, ProfiledRig(profile, rig))


def check_job(profile: DutProfile, job: JobDemands) -> ProfileVerdict:
    """Return the contradictions between a job and a profile, the remarks, and the rules that could not be applied."""
    verdict = apply(JOB_RULES, ProfiledJob(profile, job))
    return verdict + check_ports(JOB_RULES, profile, lambda ports: ProfiledJob(ports, job), verdict)


def check_usual_job(profile: DutProfile) -> ProfileVerdict:
    """Return a remark if RoCE with the DSCP that is used unless a scenario states another would be lossy."""
    verdict = apply(USUAL_RULES, profile)
    return verdict + check_ports(USUAL_RULES, profile, lambda ports: ports, verdict)


def _missing_maps(case: ProfiledJob) -> Iterator[NotStated]:
    maps = case.profile.maps
    yield from absent(
        maps__dscp_to_class=maps.pcp_to_class if maps.trust.value is Trust.PCP else maps.dscp_to_class,
        maps__class_to_queue=maps.class_to_queue,
        maps__class_to_group=maps.class_to_group,
    )


def _mark_text(case: ProfiledJob) -> str:
    if case.profile.maps.trust.value is Trust.PCP:
        pcp = case.job.pcp
        return "untagged frames (the device trusts PCP)" if pcp is None else f"PCP {pcp}"
    return f"DSCP {case.job.dscp}"


def _check_lossless(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    if not case.job.lossless:
        return
    way, profile = case.way, case.profile
    if profile.kind is DutKind.NIC:
        yield from _check_nic_pfc(case)
        return
    if way is None or way.group is None:
        yield from _missing_maps(case)
        return
    lossless, priorities = profile.group(way.group).lossless.value, profile.pfc.priorities.value
    treatment = (
        f"{_mark_text(case)} is class {way.traffic_class}, queue {way.queue}, priority group {way.group}"
    )
    remedy = "the device has no lossless class: write lossless: false, or configure PFC"
    if lossless_marks := _lossless_marks(profile):
        remedy = f"send on {lossless_marks}, map it to a lossless class, or write lossless: false"
    elif profile.lossless_groups and profile.pfc.priorities.value:
        remedy = f"map it to a class of lossless group {profile.lossless_groups[0].group}, or write lossless: false"
    key_place = case.at("transport.dscp")
    if lossless is None and priorities is None:
        yield NotStated(f"groups[{way.group}].lossless")
    elif lossless is False:
        yield Problem(key_place, f"{treatment}, which is lossy, but the job expects no loss", remedy)
    elif priorities is not None and way.priority is not None and way.priority not in priorities:
        problem = f"{treatment}; PFC is off for its priority {way.priority}, but the job expects no loss"
        yield Problem(key_place, problem, remedy)


def _check_usual_dscp(profile: DutProfile) -> Iterator[Problem | NotStated]:
    maps = profile.maps
    if profile.kind is DutKind.NIC or maps.trust.value is Trust.PCP or not profile.lossless_groups:
        return
    way = way_of_packet(profile, ROCE_DSCP, None)
    if way is None or way.group is None:
        yield from absent(maps__dscp_to_class=maps.dscp_to_class, maps__class_to_group=maps.class_to_group)
    elif profile.group(way.group).lossless.value is False:
        problem = (
            f"DSCP {ROCE_DSCP}, usual for RoCE, is class {way.traffic_class}, queue {way.queue}, "
            f"priority group {way.group}, which is lossy"
        )
        remedy = "map it to a lossless class, or let the scenario send on another DSCP"
        if lossless_marks := _lossless_marks(profile):
            remedy = f"send on {lossless_marks}, or map it to a lossless class"
        yield Problem(where(maps.dscp_to_class, "maps.dscp_to_class"), problem, remedy)


def _check_nic_pfc(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    way, priorities = case.way, case.profile.pfc.priorities
    priority = None if way is None else way.priority
    if priorities.value is None:
        yield NotStated("pfc.priorities")
    elif not priorities.value or (priority is not None and priority not in priorities.value):
        of_priority = f" for priority {priority}, that of {_mark_text(case)}"
        scope = "" if not priorities.value or priority is None else of_priority
        problem = f"PFC of the NIC is off{scope}, but the job expects no loss"
        remedy = "it neither honours nor sends pauses: enable PFC, or write lossless: false"
        yield Problem(case.at("transport.dscp"), problem, remedy)


def _lossless_marks(profile: DutProfile) -> str:
    """Return the DSCPs of lossless classes, such as "DSCP 3 or 4", or "" if there are none or the device trusts PCP."""
    priorities = profile.pfc.priorities.value or ()
    if profile.maps.trust.value is Trust.PCP:
        return ""
    dscps = []
    for dscp in range(64):
        way = way_of_packet(profile, dscp, None)
        if way is None or way.group is None or way.priority not in priorities:
            continue
        if profile.group(way.group).lossless.value is not False:
            dscps.append(str(dscp))
    return f"DSCP {' or '.join(dscps[:4])}" if dscps else ""


def _check_mtu(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    needed = case.job.packet_bytes
    for ports in case.profile.ports:
        mtu = ports.ip_mtu_bytes.value
        if mtu is None:
            yield NotStated(f"ports[{ports.name}].ip_mtu")
        elif mtu < needed:
            problem = (
                f"a path MTU of {case.job.path_mtu_bytes} makes IP packets of {needed}B, "
                f"ports {ports.name} take {format_bytes(mtu)}"
            )
            remedy = f"raise the device's MTU to {needed} or lower path_mtu"
            yield Problem(case.at("transport.path_mtu"), problem, remedy)
    largest_path_mtu = case.profile.transport.path_mtu_bytes.value
    if (
        case.profile.kind is DutKind.NIC
        and largest_path_mtu is not None
        and largest_path_mtu < case.job.path_mtu_bytes
    ):
        problem = f"path_mtu is {case.job.path_mtu_bytes}, the NIC takes at most {largest_path_mtu}"
        yield Problem(case.at("transport.path_mtu"), problem, f"write path_mtu: {largest_path_mtu}")


def _check_marking(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    if not case.job.needs_marks or case.profile.kind is DutKind.NIC:
        return
    way = case.way
    if way is None or way.queue is None:
        yield from _missing_maps(case)
        return
    enabled = case.profile.queue(way.queue).ecn.enabled.value
    if enabled is None:
        yield NotStated(f"queues[{way.queue}].ecn.enabled")
    elif not enabled:
        problem = (
            f"{case.job.congestion_algorithm} waits for ECN marks, and {_mark_text(case)} leaves by queue {way.queue}, "
            "which does not mark"
        )
        yield Problem(
            case.at("transport.cc"), problem, "enable ECN on the queue, or choose another algorithm"
        )


def _check_ecn_capable(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    way = case.way
    if case.job.ecn_capable or way is None or way.queue is None:
        return
    if case.profile.queue(way.queue).ecn.enabled.value:
        problem = f"packets are not ECN-capable, and queue {way.queue} does active queue management"
        remedy = "many devices drop such packets instead of marking: write ecn: ect0"
        yield Problem(case.at("transport.ecn"), problem, remedy)


def _check_link_speeds(case: ProfiledRig) -> Iterator[Problem | NotStated]:
    # A NIC under test may face links of other speeds than its own.
    if case.profile.kind is DutKind.NIC:
        return
    offered_bps: set[int] = set()
    for ports in case.profile.ports:
        offered_bps.update(ports.speeds_bps.value or ())
        offered_bps.update(breakout.speed_bps for breakout in ports.breakouts.value or ())
        offered_bps.update(() if ports.speed_bps.value is None else (ports.speed_bps.value,))
    if not offered_bps:
        yield NotStated("ports.speeds")
        return
    names_by_speed: dict[int, list[str]] = {}
    for link in case.rig.links:
        if link.speed_bps not in offered_bps:
            names_by_speed.setdefault(link.speed_bps, []).append(link.name)
    for speed_bps, names in names_by_speed.items():
        more_text = f" and {len(names) - 1} more" if len(names) > 1 else ""
        problem = (
            f"the link of {names[0]}{more_text} is {format_rate(speed_bps)}, which no port of the device has"
        )
        speeds = ", ".join(map(format_rate, sorted(offered_bps)))
        yield Problem(f"{case.rig.source}: agents", problem, f"the device offers {speeds}")


def _check_port_count(case: ProfiledRig) -> Iterator[Problem | NotStated]:
    if case.profile.kind is DutKind.NIC:
        return
    ports, count = case.profile.ports, case.profile.port_count
    for group in ports:
        if group.count.value is None:
            yield NotStated(f"ports[{group.name}].count")
    if count is None:
        return
    speeds = Counter(link.speed_bps for link in case.rig.links)
    needed = sum(
        -(-links // max(_parts(group, speed_bps) for group in ports)) for speed_bps, links in speeds.items()
    )
    if needed > count:
        links = len(case.rig.links)
        usage = "" if needed == links else f", which take {needed} of the device's"
        problem = f"{links} ports of the rig{usage}, the device has at most {count}"
        yield Problem(f"{case.rig.source}: agents", problem, "use fewer ports, or name the right profile")


def _parts(ports: PortGroup, speed_bps: int) -> int:
    """Return how many links of a speed one of these ports can be split into; 1 if it states no such breakout."""
    return max(
        (breakout.count for breakout in ports.breakouts.value or () if breakout.speed_bps == speed_bps),
        default=1,
    )


def _order(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    mode = case.profile.balancing.mode.value
    if mode in (BalancingMode.SPRAY, BalancingMode.ADAPTIVE) and not case.job.accepts_out_of_order:
        problem = (
            f"the device balances by {mode}, which reorders, but the job treats packets out of order as lost"
        )
        remedy = "write out_of_order: accept, or balance by flow"
        yield Problem(case.at("transport"), problem, remedy)


def _check_cnp_queue(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    job, way = case.job, case.way
    trusts_pcp = case.profile.maps.trust.value is Trust.PCP
    if job.cnp_dscp is None or not job.needs_marks or way is None or (trusts_pcp and job.cnp_pcp is None):
        return
    cnp_way = way_of_packet(case.profile, job.cnp_dscp, job.cnp_pcp)
    if cnp_way is None or cnp_way.queue is None:
        return
    mark, data_mark, cnp_mark = (
        ("PCP", job.pcp, job.cnp_pcp) if trusts_pcp else ("DSCP", job.dscp, job.cnp_dscp)
    )
    key_place = case.at(f"transport.cnp.{mark.lower()}")
    if cnp_way.queue == way.queue:
        problem = (
            f"data ({mark} {data_mark}) and notifications ({mark} {cnp_mark}) both leave by queue {way.queue}"
        )
        alternative = (
            "another PCP" if trusts_pcp else f"a DSCP outside {dscps_of(case.profile, way.traffic_class)}"
        )
        yield Problem(
            key_place, problem, f"notifications wait in the queue they report: choose {alternative}"
        )
    elif cnp_way.priority is not None and cnp_way.priority in (case.profile.pfc.priorities.value or ()):
        problem = f"notifications ({mark} {cnp_mark}) have priority {cnp_way.priority}, for which PFC is on"
        yield Problem(key_place, problem, "a pause stops them, too: choose a lossy class")


def _check_pause_priorities(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    priorities = case.profile.pfc.priorities.value
    if not case.job.pause_priorities:
        return
    if priorities is None:
        yield NotStated("pfc.priorities")
        return
    for priority in dict.fromkeys(case.job.pause_priorities):
        if priority not in priorities:
            problem = f"the job pauses priority {priority}, for which the device has PFC off"
            yield Problem(
                case.at("transport.faults"), problem, "the device will ignore it: pause another, or enable it"
            )


def _check_telemetry(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    offered = case.profile.telemetry.value
    if not case.job.needs_telemetry:
        return
    if offered is None:
        yield NotStated("telemetry")
    elif IN_BAND_TELEMETRY not in offered:
        problem = f"{case.job.congestion_algorithm} needs in-band telemetry, which the device does not offer"
        yield Problem(case.at("transport.cc"), problem, "choose another algorithm")


def _check_probes(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    if case.profile.kind is DutKind.NIC and case.profile.congestion.sends_probes.best is None:
        yield NotStated("congestion_control.sends_probes")
    if case.profile.congestion.sends_probes.value:
        algorithm = case.profile.congestion.algorithm.value or "congestion control"
        problem = f"{algorithm} of the NIC measures round trips by probes, which no agent answers"
        yield Problem(case.profile.name, problem, "set the NIC to DCQCN (ConnectX: ROCE_CC_LEGACY_DCQCN=1)")


def _check_nic_dscp(case: ProfiledJob) -> Iterator[Problem | NotStated]:
    nic_dscp = case.profile.transport.dscp.value
    if case.profile.kind is DutKind.NIC and nic_dscp is not None and nic_dscp != case.job.dscp:
        problem = f"the job sends with DSCP {case.job.dscp}, the NIC with {nic_dscp}"
        yield Problem(
            case.at("transport.dscp"), problem, "set both alike, or both ways are treated differently"
        )


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

JOB_RULES: Final[tuple[Rule[ProfiledJob], ...]] = (
    Rule(
        "job-in-lossy-queue",
        _C,
        "The job expects no loss, but its DSCP maps to a lossy class.",
        _check_lossless,
    ),
    Rule("job-beyond-mtu", _C, "The job's packets are larger than the device takes.", _check_mtu),
    Rule("job-unmarked", _C, "Congestion control needs marks, but the queue never marks.", _check_marking),
    Rule(
        "job-not-ecn-capable",
        _R,
        "The queue drops the job's packets instead of marking them.",
        _check_ecn_capable,
    ),
    Rule("job-reordered", _C, "The device reorders, but the job needs order.", _order),
    Rule("job-cnp-with-data", _R, "CNPs are delayed by the congestion that they report.", _check_cnp_queue),
    Rule(
        "job-pause-ignored", _R, "The device ignores the pauses that the job sends.", _check_pause_priorities
    ),
    Rule(
        "job-without-telemetry",
        _C,
        "Congestion control needs telemetry, which the device lacks.",
        _check_telemetry,
    ),
    Rule(
        "job-unanswered-probes",
        _C,
        "The NIC measures round trips by probes, which agents do not answer.",
        _check_probes,
    ),
    Rule("job-other-dscp", _R, "The NIC and the agents send with different DSCPs.", _check_nic_dscp),
)

USUAL_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule(
        "roce-in-lossy-queue",
        _R,
        "Without a scenario: DSCP 26, usual for RoCE, maps to a lossy class.",
        _check_usual_dscp,
    ),
)

RIG_RULES: Final[tuple[Rule[ProfiledRig], ...]] = (
    Rule("rig-link-speed", _C, "A link of the rig has a speed that the device lacks.", _check_link_speeds),
    Rule("rig-more-ports", _C, "The rig has more ports than the device.", _check_port_count),
)
