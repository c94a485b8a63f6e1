"""What a scenario needs of a device under test, and how a rig reaches it, as values that profiles are held against."""

from __future__ import annotations

import ipaddress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from etloop.contract.model.capabilities import OUTER_HEADER_BYTES, packet_overhead_bytes
from etloop.contract.model.congestion import CongestionSettings
from etloop.dut_profiles.rules.job import JobDemands, JobLink, RigLinks
from etloop.traffic.cc_library import library_of
from etloop.traffic.congestion import Algorithm, Need, built_in, of_library

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.inputs.scenario.transport import Transport

_ECT: Final = (1, 2)


def links_of(rig: Rig, source: str) -> RigLinks:
    """The ports of a rig; `source` names its file."""
    return RigLinks(source, tuple(JobLink(label, port.link_bps) for label, port in rig.ports.items()))


def demands_of(scenario: Scenario, rig: Rig | None, source: str) -> JobDemands:
    """What a scenario needs; `source` names its file. The rig says whether packets are IPv6; None: they are IPv4.

    Of several transports: whatever one of them needs.
    """
    used = scenario.used_transports
    transport = used[0]
    needs = reduce(or_, (_algorithm(each.congestion).needs for each in used))
    ipv6 = rig is not None and _speaks_ipv6(rig)
    algorithms = dict.fromkeys(each.congestion.algorithm for each in used)
    notifying = [each.cnp for each in used if each.cnp.interval_ns >= 0]
    return JobDemands(
        source=source,
        dscp=transport.traffic_class >> 2,
        pcp=transport.vlan_priority if transport.vlan_id >= 0 else None,
        ecn_capable=transport.traffic_class & 3 in _ECT,
        path_mtu_bytes=transport.path_mtu_bytes,
        packet_bytes=transport.path_mtu_bytes
        + max(_overhead_bytes(each, ipv6=ipv6) for each in used)
        + (OUTER_HEADER_BYTES if any(each.endpoint.srv6 is not None for each in used) else 0),
        lossless=any(each.lossless for each in used),
        congestion_algorithm=" and ".join(algorithms),
        needs_marks=bool(needs & (Need.ECN | Need.CNP)),
        needs_telemetry=bool(needs & Need.INT),
        accepts_out_of_order=all(each.recovery.accept_out_of_order or each.takes_any_order for each in used),
        cnp_dscp=notifying[0].traffic_class >> 2 if notifying else None,
        cnp_pcp=(notifying[0] if notifying else transport.cnp).vlan_priority
        if transport.vlan_id >= 0
        else None,
        pause_priorities=tuple(pause.rule.priority for pause in transport.pauses),
    )


def _overhead_bytes(transport: Transport, *, ipv6: bool) -> int:
    asks = transport.multipath.uet.credit.granted
    return packet_overhead_bytes(transport.kind, asks_for_credit=asks, ipv6=ipv6)


def _algorithm(congestion: CongestionSettings) -> Algorithm:
    if congestion.plugin_name:
        return of_library(str(library_of(congestion.plugin_name, congestion.plugin.tobytes())))
    return next(each for each in built_in() if each.name == congestion.algorithm)


def _speaks_ipv6(rig: Rig) -> bool:
    return any(
        ipaddress.ip_address(address).version == 6
        for port in rig.ports.values()
        for address in port.addresses[:1]
    )
