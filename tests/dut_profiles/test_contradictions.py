"""What `etloop dut check` finds: every rule with a profile that breaks it, one that does not, and one that says too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.dut_profiles.model.findings import ProfileVerdict
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.rules.buffers import least_headroom_bytes
from etloop.dut_profiles.rules.contradictions import RULES, check_profile
from etloop.dut_profiles.rules.job import (
    JOB_RULES,
    RIG_RULES,
    JobDemands,
    JobLink,
    RigLinks,
    check_job,
    check_rig,
)

SOUND = """
profile: p
kind: switch
summary: s
sources: {s: {title: t, date: 2025-01-31}}
basis: configured
source: s
ports: [{name: front, count: 4, speed: 100Gbps, speeds: [100Gbps], ip_mtu: 9100B, cable_metres: 100}]
buffer: {total: 32MB, headroom: 1MB, pools: [{name: shared, size: 30MB, headroom: 1MB}]}
groups:
  - {group: 0, lossless: false}
  - {group: 3, lossless: true, headroom: 100kB, xoff: 500kB, xon: 400kB, xon_offset: 10kB}
queues:
  - {queue: 0, scheduler: dwrr, ecn: {enabled: false}}
  - {queue: 3, scheduler: dwrr, ecn: {enabled: true, kmin: 100kB, kmax: 400kB, pmax: 20%}}
  - {queue: 6, scheduler: strict, ecn: {enabled: false}}
maps:
  trust: dscp
  dscp_to_class: {default: 0, 26: 3, 48: 6}
  pcp_to_class: identity
  class_to_queue: {default: 0, 3: 3, 6: 6}
  class_to_group: {default: 0, 3: 3}
  group_to_priority: identity
  priority_to_queue: identity
pfc: {priorities: [3], watchdog_detect: 200ms}
balancing: {mode: ecmp, modes: [ecmp, spray], hash_fields: [src_ip, dst_ip, src_port]}
trimming: {enabled: true, size: 128B, dscp: 48}
telemetry: [gnmi]
"""
NIC = """
profile: p
kind: nic
summary: s
sources: {s: {title: t, date: 2025-01-31}}
basis: configured
source: s
ports: [{name: port, count: 1, speed: 400Gbps, ip_mtu: 4200B}]
transport: {path_mtu: 4096, dscp: 26}
pfc: {priorities: [3]}
cnp: {dscp: 48, priority: 6}
congestion_control: {algorithm: dcqcn, sends_probes: false}
"""
JOB = JobDemands(
    source="s.yaml",
    dscp=26,
    pcp=None,
    ecn_capable=True,
    path_mtu_bytes=4096,
    packet_bytes=4160,
    lossless=True,
    congestion_algorithm="dcqcn",
    needs_marks=True,
    needs_telemetry=False,
    accepts_out_of_order=False,
    cnp_dscp=48,
    pause_priorities=(),
)


def profile(text: str, *changes: tuple[str, str]) -> DutProfile:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse_profile(text.encode(), "p.yaml")


def found(verdict: ProfileVerdict) -> dict[str, str]:
    return {each.rule: str(each.problem) for each in verdict.findings}


def missing(verdict: ProfileVerdict) -> dict[str, tuple[str, ...]]:
    return {each.rule: each.missing for each in verdict.skipped}


def test_a_sound_profile_has_nothing_to_be_said_of() -> None:
    for text in (SOUND, NIC):
        verdict = check_profile(profile(text)) + check_job(profile(text), JOB)
        assert verdict == ProfileVerdict()
    links = RigLinks("r.yaml", (JobLink("a/p0", 100_000_000_000),))
    assert check_rig(profile(SOUND), links) == ProfileVerdict()


BROKEN_SWITCHES = [
    (
        "xoff-out-of-reach",
        "xoff: 500kB",
        "xoff: 32MB",
        "xoff 32MB of priority group 3 is not below the whole buffer, 32MB; it drops before it sends a pause",
    ),
    ("marks-incomplete", "kmax: 400kB", "kmax: 33MB", "Kmax 33MB of queue 3 is above the whole buffer, 32MB"),
    (
        "headroom-beyond-buffer",
        "headroom: 1MB, pools",
        "headroom: 33MB, pools",
        "of all ports is 33MB, the buffer 32MB",
    ),
    (
        "headroom-beyond-buffer",
        "30MB, headroom: 1MB",
        "20MB, headroom: 2MB",
        "pool shared has 2MB of headroom, all ports together 1MB",
    ),
    (
        "headroom-beyond-buffer",
        "headroom: 100kB",
        "headroom: 2MB",
        "priority group 3 has 2MB of headroom, all ports together 1MB",
    ),
    (
        "reserved-beyond-buffer",
        "true, headroom",
        "true, reserved: 9MB, headroom",
        "groups of all ports reserve 36MB, the buffer has 32MB",
    ),
    (
        "reserved-beyond-buffer",
        "strict, ecn",
        "strict, reserved: 9MB, ecn",
        "queues of all ports reserve 36MB, the buffer has 32MB",
    ),
    (
        "ports-beyond-speed",
        "speeds: [100Gbps]",
        "speeds: [100Gbps], lanes: 2, breakouts: [4x25Gbps]",
        "breakout 4x25Gbps of a port with 2 lanes",
    ),
    (
        "ports-beyond-capacity",
        "ports: [{",
        "identity: {capacity: 399Gbps}\nports: [{",
        "all ports together are 400Gbps, the device 399Gbps",
    ),
    (
        "pfc-without-headroom",
        "group_to_priority: identity\n  priority_to_queue: identity\npfc: {priorities: [3]",
        "group_to_priority: {default: 0, 3: 3}\n  priority_to_queue: identity\npfc: {priorities: [3, 4]",
        "PFC is on for priority 4, but no priority group maps to it; turn it off, or map a lossless group to it",
    ),
    (
        "lossless-unreached",
        "26: 3, 48",
        "26: 0, 48",
        "no DSCP maps to lossless group 3; its headroom is unused",
    ),
    (
        "way-not-described",
        "3: 3, 6: 6",
        "3: 3, 6: 5",
        "class 6 (DSCP 48) goes to queue 5, which is not described",
    ),
    (
        "way-not-described",
        "class_to_group: {default: 0, 3: 3}",
        "class_to_group: {default: 1, 3: 3}",
        "class 6 (DSCP 48) goes to group 1, which is not described",
    ),
    ("weight-of-strict", "strict, ecn", "strict, weight: 5, ecn", "queue 6 is strict and has weight 5"),
    (
        "never-trims",
        "size: 128B",
        "size: 9118B",
        "packets are trimmed to 9118B, the largest of ports front are 9118B",
    ),
    (
        "counters-not-there",
        "telemetry:",
        "counters: {access: [{reader: snmp, paths: sonic, objects: [port]}]}\ntelemetry:",
        "p.yaml:28: counters.access[0].paths: snmp reads no counters under the names of sonic; write paths: if_mib or pfc_mib",
    ),
    (
        "counters-not-there",
        "telemetry:",
        "counters: {access: [{reader: gnmi, paths: openconfig, objects: [port, priority, pool]}]}\ntelemetry:",
        "openconfig has no counters of a priority, pool; it has those of a port, queue",
    ),
    (
        "xon-above-xoff",
        "xon: 400kB",
        "xon: 600kB",
        (
            "p.yaml:12: groups[1].xon: xon 600kB is above xoff 500kB of priority group 3; "
            "a paused sender would never resume: state xon below xoff"
        ),
    ),
    ("kmin-above-kmax", "kmin: 100kB", "kmin: 401kB", "Kmin 401kB of queue 3 is above Kmax 400kB"),
    (
        "never-marks",
        "kmin: 100kB, kmax: 400kB",
        "kmin: 32MB, kmax: 33MB",
        "Kmin 32MB of queue 3 is not below the whole buffer, 32MB",
    ),
    ("never-marks", "pmax: 20%", "pmax: 0%", "Pmax of queue 3 is 0% between Kmin and Kmax"),
    (
        "pause-before-mark",
        "xoff: 500kB",
        "xoff: 100kB",
        "Kmin 100kB of queue 3 is not below xoff 100kB of group 3",
    ),
    (
        "pause-before-mark",
        "xoff: 500kB, xon: 400kB, ",
        "alpha: 1/512, ",
        "Kmin 100kB of queue 3 is not below the 58.5 kB at which alpha 1/512 of group 3 pauses a single sender",
    ),
    (
        "headroom-too-small",
        "headroom: 100kB",
        "headroom: 30kB",
        (
            "headroom 30kB of lossless group 3 is below the 30860B that "
            "arrive after xoff at 100Gbps over 100 m with packets of 9100B"
        ),
    ),
    (
        "headroom-shared",
        "headroom: 1MB, pools",
        "headroom: 300kB, pools",
        "of all ports is 400kB, their pool has 300kB; enough while at most 75%",
    ),
    (
        "pool-beyond-buffer",
        "size: 30MB",
        "size: 31500kB",
        "pool shared with its headroom is 32500kB, the buffer 32MB",
    ),
    (
        "ports-beyond-speed",
        "speeds: [100Gbps]",
        "speeds: [100Gbps], breakouts: [8x25Gbps]",
        "breakout 8x25Gbps is more than a port of 100Gbps",
    ),
    (
        "ports-beyond-speed",
        "speeds: [100Gbps]",
        "speeds: [400Gbps]",
        "ports run at 100Gbps, speeds lists 400Gbps",
    ),
    (
        "balancing-not-offered",
        "modes: [ecmp, spray]",
        "modes: [spray]",
        "ecmp is in use, the device offers spray",
    ),
    (
        "watchdog-within-pause",
        "watchdog_detect: 200ms",
        "watchdog_detect: 300us",
        "the watchdog acts after 300us, a single pause at 100Gbps may last 335539ns",
    ),
    ("trimmed-too-far", "size: 128B", "size: 40B", "packets are trimmed to 40B, Ethernet to BTH take 54B"),
    (
        "measured-otherwise",
        "kmin: 100kB",
        "kmin: {configured: 100kB, measured: {value: 300kB, source: s}}",
        "queues[3].ecn.kmin_bytes is 100kB by configuration and 300kB by measurement (t)",
    ),
    (
        "other-than-declared",
        "total: 32MB",
        "total: {declared: 64MB, configured: 32MB}",
        "buffer.total_bytes is 32MB as configured, 64MB as declared; the configured value is used",
    ),
    (
        "class-without-way",
        "48: 6}\n  pcp",
        "48: 6, 50: 9}\n  pcp",
        "class 9 (DSCP 50) has no group; map class 9",
    ),
    (
        "lossless-without-pfc",
        "priorities: [3]",
        "priorities: []",
        "group 3 is lossless, but PFC is off for its priority 3",
    ),
    (
        "pfc-without-headroom",
        "priorities: [3]",
        "priorities: [0, 3]",
        "PFC is on for priority 0, but its group 0 is not lossless",
    ),
    ("pfc-without-headroom", "headroom: 100kB", "headroom: 0B", "group 3 of PFC priority 3 has no headroom"),
    (
        "pause-stops-another",
        "priority_to_queue: identity",
        "priority_to_queue: {default: 0}",
        (
            "class 3 (DSCP 26) leaves by queue 3 with PFC priority 3, but a received pause of priority 3 stops queue 0; "
            "map priority 3 to queue 3, or the class to queue 0"
        ),
    ),
    (
        "lossless-shares-queue",
        "{default: 0, 3: 3, 6: 6}",
        "{default: 3}",
        "queue 3 carries lossless class 3 and lossy class 0 (DSCP 0-25, 27-47, 49-63), class 6 (DSCP 48)",
    ),
    (
        "blind-hash",
        "[src_ip, dst_ip, src_port]",
        "[src_ip, dst_ip]",
        "ECMP hashes src_ip, dst_ip; all queue pairs of two addresses",
    ),
    (
        "trimmed-waits",
        "size: 128B, dscp: 48",
        "size: 128B, dscp: 1",
        "trimmed packets (DSCP 1) leave by queue 0, which is not strict",
    ),
]


@pytest.mark.parametrize(("rule", "old", "new", "message"), BROKEN_SWITCHES)
def test_a_broken_switch_is_found(rule: str, old: str, new: str, message: str) -> None:
    assert message in found(check_profile(profile(SOUND, (old, new))))[rule]


def test_a_nic_whose_notifications_are_held_up() -> None:
    verdict = check_profile(profile(NIC, ("dscp: 48, priority: 6", "dscp: 26, priority: 3")))
    assert [each.problem.what for each in verdict.findings] == [
        "data and congestion notifications both have DSCP 26",
        "congestion notifications have priority 3, for which PFC is on",
    ]


NIC_MAPS = (
    "maps: {trust: dscp, dscp_to_class: {default: 0, 26: 3, 48: 5}, class_to_queue: identity, class_to_group: identity, "
    "group_to_priority: identity}\npfc: {"
)
BROKEN_NICS = [
    ("path-mtu-beyond-ports", "ip_mtu: 4200B", "ip_mtu: 4159B",
     "a path MTU of 4096 makes IP packets of 4160B, port port takes 4159B"),
    ("nic-unmarked", "dscp: 26}", "dscp: 26, ecn_capable: false}",
     "dcqcn waits for ECN marks, and the NIC's packets are not ECN-capable"),
    ("cnp-other-priority", "pfc: {", NIC_MAPS, "notifications have priority 6, but the maps put DSCP 48 on priority 5"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new", "message"), BROKEN_NICS)
def test_a_broken_nic_is_found(rule: str, old: str, new: str, message: str) -> None:
    assert message in found(check_profile(profile(NIC, (old, new))))[rule]


BROKEN_JOBS = [
    ("job-in-lossy-queue", NIC.replace("[3]", "[]"), {}, ("PFC of the NIC is off, but the job expects no loss; "
     "it neither honours nor sends pauses: enable PFC, or write lossless: false")),
    ("job-in-lossy-queue", NIC.replace("pfc: {", NIC_MAPS), {"dscp": 48},
     "PFC of the NIC is off for priority 5, that of DSCP 48, but the job expects no loss"),
    ("job-in-lossy-queue", SOUND, {"dscp": 25}, ("s.yaml: transport.dscp: DSCP 25 is class 0, queue 0, priority group 0, "
     "which is lossy, but the job expects no loss; send on DSCP 26, map it to a lossless class, or write lossless: false")),
    ("job-in-lossy-queue", SOUND.replace("[3], w", "[], w"), {}, ("DSCP 26 is class 3, queue 3, priority group 3; "
     "PFC is off for its priority 3, but the job expects no loss; the device has no lossless class")),
    ("job-in-lossy-queue", SOUND.replace("trust: dscp", "trust: pcp"), {},
     "untagged frames (the device trusts PCP) is class 0, queue 0"),
    ("job-in-lossy-queue", SOUND.replace("trust: dscp", "trust: pcp"), {"pcp": 5}, "PCP 5 is class 5, queue 0"),
    ("job-beyond-mtu", SOUND.replace("9100B", "4100B"), {}, ("s.yaml: transport.path_mtu: a path MTU of 4096 makes IP packets "
     "of 4160B, ports front take 4100B; raise the device's MTU to 4160 or lower path_mtu")),
    ("job-beyond-mtu", NIC.replace("path_mtu: 4096", "path_mtu: 1024"), {}, "path_mtu is 4096, the NIC takes at most 1024"),
    ("job-unmarked", SOUND, {"dscp": 1, "lossless": False},
     "dcqcn waits for ECN marks, and DSCP 1 leaves by queue 0, which does not mark"),
    ("job-not-ecn-capable", SOUND, {"ecn_capable": False},
     "packets are not ECN-capable, and queue 3 does active queue management"),
    ("job-reordered", SOUND.replace("mode: ecmp", "mode: spray"), {}, "the device balances by spray, which reorders"),
    ("job-cnp-with-data", SOUND, {"cnp_dscp": 26}, "data (DSCP 26) and notifications (DSCP 26) both leave by queue 3"),
    ("job-pause-ignored", SOUND, {"pause_priorities": (3, 4)}, "the job pauses priority 4, for which the device has PFC off"),
    ("job-without-telemetry", SOUND, {"needs_telemetry": True, "congestion_algorithm": "hpcc"},
     "hpcc needs in-band telemetry, which the device does not offer"),
    ("job-unanswered-probes", NIC.replace("probes: false", "probes: true"), {},
     "measures round trips by probes, which no agent answers"),
    ("job-other-dscp", NIC, {"dscp": 24}, "the job sends with DSCP 24, the NIC with 26"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "changes", "message"), BROKEN_JOBS)
def test_a_job_that_the_device_cannot_carry(
    rule: str, text: str, changes: dict[str, object], message: str
) -> None:
    assert message in found(check_job(profile(text), replace(JOB, **changes)))[rule]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (SOUND.replace("[3], w", "[], w"), {"lossless": False, "dscp": 1, "needs_marks": False}),
        (SOUND.replace("trust: dscp", "trust: pcp"), {"pcp": 3, "dscp": 0}),
        (SOUND.replace("mode: ecmp", "mode: spray"), {"accepts_out_of_order": True}),
        (SOUND.replace("telemetry: [gnmi]", "telemetry: [int]"), {"needs_telemetry": True}),
        (SOUND.replace("9100B", "4160B"), {}),
        (SOUND, {"cnp_dscp": None}),
    ],
)
def test_a_job_that_fits_is_let_through(text: str, changes: dict[str, object]) -> None:
    assert check_job(profile(text), replace(JOB, **changes)) == ProfileVerdict()  # type: ignore[arg-type]


def test_a_rig_that_does_not_fit() -> None:
    links = tuple(JobLink(f"a/p{port}", 25_000_000_000) for port in range(5))
    assert found(check_rig(profile(SOUND), RigLinks("r.yaml", links))) == {
        "rig-link-speed": "r.yaml: agents: the link of a/p0 and 4 more is 25Gbps, which no port of the device has; "
        "the device offers 100Gbps",
        "rig-more-ports": "r.yaml: agents: 5 ports of the rig, the device has at most 4; "
        "use fewer ports, or name the right profile",
    }


def test_breakouts_give_speeds_and_ports() -> None:
    text = SOUND.replace("speeds: [100Gbps]", "speeds: [100Gbps], breakouts: [4x25Gbps]")
    links = tuple(JobLink(f"a/p{port}", 25_000_000_000) for port in range(16))
    assert check_rig(profile(text), RigLinks("r.yaml", links)) == ProfileVerdict()


def test_a_link_takes_its_part_of_a_port_that_is_broken_out() -> None:
    text = SOUND.replace("speeds: [100Gbps]", "speeds: [100Gbps], breakouts: [4x25Gbps]")
    mixed = [JobLink(f"a/p{port}", 25_000_000_000) for port in range(13)]
    assert found(check_rig(profile(text), RigLinks("r.yaml", tuple(mixed)))) == {}
    mixed.append(JobLink("b/p0", 100_000_000_000))
    assert found(check_rig(profile(text), RigLinks("r.yaml", tuple(mixed)))) == {
        "rig-more-ports": "r.yaml: agents: 14 ports of the rig, which take 5 of the device's, the device has at most 4; "
        "use fewer ports, or name the right profile",
    }


BARE = "\n".join(SOUND.splitlines()[:7]) + "\n"


def test_what_cannot_be_examined_is_said_and_not_passed_over() -> None:
    verdict = check_job(profile(BARE), replace(JOB, needs_telemetry=True, pause_priorities=(3,)))
    assert verdict.findings == ()
    assert missing(verdict) == {
        "job-in-lossy-queue": ("maps.dscp_to_class", "maps.class_to_queue", "maps.class_to_group"),
        "job-unmarked": ("maps.dscp_to_class", "maps.class_to_queue", "maps.class_to_group"),
        "job-pause-ignored": ("pfc.priorities",),
        "job-without-telemetry": ("telemetry",),
    }
    assert missing(check_rig(profile(BARE), RigLinks("r", ()))) == {"rig-link-speed": ("ports.speeds",)}


@pytest.mark.parametrize(
    ("rule", "gone", "needs"),
    [
        ("headroom-too-small", ", cable_metres: 100", ("ports[front].cable_metres",)),
        ("headroom-shared", "headroom: 1MB, pools", ("buffer.headroom",)),
        ("kmin-above-kmax", "kmin: 100kB, ", ("queues[3].ecn.kmin",)),
        ("pool-beyond-buffer", "total: 32MB, ", ("buffer.total",)),
        ("lossless-without-pfc", "  group_to_priority: identity\n", ("maps.group_to_priority",)),
        ("pause-stops-another", "  priority_to_queue: identity\n", ("maps.priority_to_queue",)),
        ("trimmed-waits", ", dscp: 48", ("trimming.dscp",)),
    ],
)
def test_a_rule_names_the_value_that_it_lacks(rule: str, gone: str, needs: tuple[str, ...]) -> None:
    new = "pools" if gone.endswith("pools") else ""
    assert missing(check_profile(profile(SOUND, (gone, new))))[rule] == needs


def test_headroom_by_hand() -> None:
    # 400 Gbit/s is 50 bytes a nanosecond: 2 * 150 m * 5 ns * 50, two packets with 38 bytes around each, one pause frame.
    assert least_headroom_bytes(400_000_000_000, 9000, 150) == 75_000 + 2 * 9038 + 84


def test_every_rule_has_a_profile_that_breaks_it() -> None:
    broken = {rule for rule, *_ in (*BROKEN_SWITCHES, *BROKEN_NICS)} | {rule for rule, *_ in BROKEN_JOBS}
    names = [rule.name for rule in RULES]
    names += [rule.name for rule in JOB_RULES] + [rule.name for rule in RIG_RULES]
    assert set(names) == broken | {"cnp-with-data", "rig-link-speed", "rig-more-ports"}
    assert len(set(names)) == len(names)


def test_only_contradictions_forbid_a_run() -> None:
    verdict = check_profile(profile(SOUND, ("total: 32MB", "total: {declared: 64MB, configured: 32MB}")))
    assert [each.severity for each in verdict.findings] == ["warning"]
    assert verdict.contradictions == ()
