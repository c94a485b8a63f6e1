"""The requirements of a scenario on a device under test, and the links of a rig, as values that profiles are compared with."""

from __future__ import annotations

import ipaddress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from etloop.contract.model.capabilities import OUTER_HEADER_BYTES, packet_overhead_bytes
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import TrimAnswer
from etloop.contract.model.transport_kinds import TransportKind
from etloop.dut_profiles.rules.job import JobDemands, JobLink, RigLinks
from etloop.results.schema.network_needs import Needs
from etloop.traffic.cc_library import library_of
from etloop.traffic.congestion import Algorithm, Need, built_in, of_library

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.inputs.scenario.transport import Transport

_ECT: Final = (1, 2)


def links_of(rig: Rig, source: str) -> RigLinks:
    """Return the links of a rig's ports; `source` names its file."""
    return RigLinks(source, tuple(JobLink(label, port.link_bps) for label, port in rig.ports.items()))


def demands_of(scenario: Scenario, rig: Rig | None, source: str) -> JobDemands:
    """Return the requirements of a scenario; `source` names its file. Without a rig, packets are taken to be IPv4.

    With several transports, the requirements of all are combined.
    """
    transports = scenario.used_transports
    transport = transports[0]
    needs = reduce(or_, (_find_algorithm(used_transport.congestion).needs for used_transport in transports))
    ipv6 = rig is not None and _speaks_ipv6(rig)
    algorithms = dict.fromkeys(used_transport.congestion.algorithm for used_transport in transports)
    cnp_settings = [
        used_transport.cnp for used_transport in transports if used_transport.cnp.interval_ns >= 0
    ]
    return JobDemands(
        source=source,
        dscp=transport.traffic_class >> 2,
        pcp=transport.vlan_priority if transport.vlan_id >= 0 else None,
        ecn_capable=transport.traffic_class & 3 in _ECT,
        path_mtu_bytes=transport.path_mtu_bytes,
        packet_bytes=transport.path_mtu_bytes
        + max(_overhead_bytes(used_transport, ipv6=ipv6) for used_transport in transports)
        + (
            OUTER_HEADER_BYTES
            if any(used_transport.endpoint.srv6 is not None for used_transport in transports)
            else 0
        ),
        lossless=any(used_transport.lossless for used_transport in transports),
        congestion_algorithm=" and ".join(algorithms),
        needs_marks=bool(needs & (Need.ECN | Need.CNP)),
        needs_telemetry=bool(needs & Need.INT),
        accepts_out_of_order=all(
            used_transport.recovery.accept_out_of_order or used_transport.takes_any_order
            for used_transport in transports
        ),
        cnp_dscp=cnp_settings[0].traffic_class >> 2 if cnp_settings else None,
        cnp_pcp=(cnp_settings[0] if cnp_settings else transport.cnp).vlan_priority
        if transport.vlan_id >= 0
        else None,
        pause_priorities=tuple(pause.rule.priority for pause in transport.pauses),
    )


def network_needs(scenario: Scenario, rig: Rig) -> Needs:
    """Return what the transport of a scenario needs from the network, as the diagnosis reads it."""
    demands, transports = demands_of(scenario, rig, "scenario"), scenario.used_transports
    return Needs(
        algorithm=demands.congestion_algorithm,
        reacts_to_marks=demands.needs_marks,
        needs_lossless=demands.lossless,
        keeps_order=not demands.accepts_out_of_order,
        sprays=any(used_transport.kind is not TransportKind.ROCE for used_transport in transports),
        data_dscp=demands.dscp,
        cnp_dscp=-1 if demands.cnp_dscp is None else demands.cnp_dscp,
        trims=any(used.recovery.trimming.answer is not TrimAnswer.NONE for used in transports),
        path_mtu_bytes=demands.path_mtu_bytes,
    )


def _overhead_bytes(transport: Transport, *, ipv6: bool) -> int:
    asks_for_credit = transport.multipath.uet.credit.granted
    return packet_overhead_bytes(transport.kind, asks_for_credit=asks_for_credit, ipv6=ipv6)


def _find_algorithm(congestion: CongestionSettings) -> Algorithm:
    if congestion.plugin_name and not congestion.plugin.size:
        # A class of Python states its needs to the engine alone.
        return next(algorithm for algorithm in built_in() if algorithm.name == "none")
    if congestion.plugin_name:
        return of_library(str(library_of(congestion.plugin_name, congestion.plugin.tobytes())))
    return next(algorithm for algorithm in built_in() if algorithm.name == congestion.algorithm)


def _speaks_ipv6(rig: Rig) -> bool:
    return any(
        ipaddress.ip_address(address).version == 6
        for port in rig.ports.values()
        for address in port.addresses[:1]
    )
