"""Rules for the values that only a NIC has: its packets, congestion control and notifications.

Decides which of them contradict each other. `contradictions` examines the values that every device has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.units import format_bytes
from etloop.contract.model.capabilities import PACKET_OVERHEAD_BYTES
from etloop.dut_profiles.model.findings import NotStated, Rule, where
from etloop.dut_profiles.model.profile import DutKind, DutProfile
from etloop.dut_profiles.rules.maps import way_of_packet

BY_MARKS: Final = ("dcqcn", "dctcp")
"""Algorithms of NICs that slow down by ECN marks alone."""


def _check_path_mtu(profile: DutProfile) -> Iterator[Problem | NotStated]:
    path_mtu = profile.transport.path_mtu_bytes
    if path_mtu.value is None:
        return
    needed = path_mtu.value + PACKET_OVERHEAD_BYTES
    for ports in profile.ports:
        mtu = ports.ip_mtu_bytes
        if mtu.value is not None and mtu.value < needed:
            problem = (
                f"a path MTU of {path_mtu.value} makes IP packets of {needed}B, "
                f"port {ports.name} takes {format_bytes(mtu.value)}"
            )
            yield Problem(
                where(mtu, f"ports[{ports.name}].ip_mtu"), problem, "raise ip_mtu or lower path_mtu"
            )


def _check_ecn_capable(profile: DutProfile) -> Iterator[Problem | NotStated]:
    algorithm, capable = profile.congestion.algorithm.value, profile.transport.ecn_capable
    if algorithm is not None and algorithm.lower() in BY_MARKS and capable.value is False:
        problem = f"{algorithm} waits for ECN marks, and the NIC's packets are not ECN-capable"
        yield Problem(
            where(capable, "transport.ecn_capable"), problem, "no device marks them: make them ECN-capable"
        )


def _check_cnp_marks(profile: DutProfile) -> Iterator[Problem | NotStated]:
    if profile.kind is not DutKind.NIC:
        return
    data, cnp = profile.transport.dscp, profile.cnp.dscp
    if data.value is not None and data.value == cnp.value:
        problem = f"data and congestion notifications both have DSCP {data.value}"
        remedy = "CNPs wait in the queue that they report: give them another DSCP"
        yield Problem(where(cnp, "cnp.dscp"), problem, remedy)
    priority = profile.cnp.priority
    if priority.value is not None and priority.value in (profile.pfc.priorities.value or ()):
        problem = f"congestion notifications have priority {priority.value}, for which PFC is on"
        yield Problem(
            where(priority, "cnp.priority"), problem, "a pause stops them, too: use another priority"
        )


def _check_cnp_priority(profile: DutProfile) -> Iterator[Problem | NotStated]:
    dscp, priority = profile.cnp.dscp.value, profile.cnp.priority
    if dscp is None or priority.value is None or profile.maps.group_to_priority.value is None:
        return
    way = way_of_packet(profile, dscp, None)
    if way is not None and way.priority is not None and way.priority != priority.value:
        problem = (
            f"congestion notifications have priority {priority.value}, but the maps put DSCP {dscp} "
            f"on priority {way.priority}"
        )
        yield Problem(where(priority, "cnp.priority"), problem, "correct cnp.priority, cnp.dscp or the maps")


_C: Final = Severity.ERROR
_R: Final = Severity.WARNING

NIC_RULES: Final[tuple[Rule[DutProfile], ...]] = (
    Rule("path-mtu-beyond-ports", _C, "The NIC's packets are larger than its ports take.", _check_path_mtu),
    Rule(
        "nic-unmarked",
        _C,
        "Congestion control needs marks, but packets are not ECN-capable.",
        _check_ecn_capable,
    ),
    Rule("cnp-with-data", _R, "Congestion can delay congestion notifications.", _check_cnp_marks),
    Rule(
        "cnp-other-priority",
        _C,
        "Notifications have another priority than the maps give their DSCP.",
        _check_cnp_priority,
    ),
)
