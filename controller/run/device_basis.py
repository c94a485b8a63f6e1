"""The facts of a run's scenario and rig that the evaluation of its device counters needs. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES
from etloop.contract.model.run import RunOutcome
from etloop.contract.model.transport import AS_DATA
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.udp_streams import plain_datagrams
from etloop.controller.run.device_check import known_profile
from etloop.controller.run.device_demands import demands_of
from etloop.dut_profiles.model.profile import DutKind
from etloop.dut_profiles.rules.maps import way_of_packet
from etloop.results.device.class_queues import ExpectedClass, PacketKind
from etloop.results.device.reconcile import TAG_BYTES
from etloop.results.device.summary import DeviceBasis, RigPortFacts


def device_basis(scenario: Scenario, rig: Rig, outcome: RunOutcome) -> DeviceBasis:
    """Return the facts that results need in addition to the counts: those of the rig's ports, and the queues of the job's
    packets."""
    added_bytes = _added_bytes(scenario, rig)
    ports = {
        label: RigPortFacts(
            _ip_version(port.addresses),
            counts_packets=port.backend is not PortBackend.VERBS,
            sees_damaged=port.backend is not PortBackend.UDP,
            added_bytes=added_bytes,
            is_plane=bool(port.card),
        )
        for label, port in rig.ports.items()
    }
    plain = plain_datagrams(scenario.streams, outcome.agents, scenario.transport.path_mtu_bytes)
    return DeviceBasis(outcome.start_ns, ports, _expected_classes(scenario, rig), plain)


def _added_bytes(scenario: Scenario, rig: Rig) -> int | None:
    """Return the bytes per frame of the VLAN tag and of the outer header of SRv6.

    None if not all packets have the outer header, or if the interface of some port may add the tag instead of ETLoop.
    """
    transport = scenario.transport
    has_segments = {used_transport.endpoint.srv6 is not None for used_transport in scenario.used_transports}
    if len(has_segments) > 1:
        return None
    outer_bytes = OUTER_HEADER_BYTES if True in has_segments else 0
    if transport.vlan_id < 0:
        return outer_bytes
    backends = {port.backend for port in rig.ports.values()}
    return TAG_BYTES + outer_bytes if backends <= {PortBackend.PACKET, PortBackend.XDP} else None


def _ip_version(addresses: tuple[str, ...]) -> int:
    versions = {ip_address(address).version for address in addresses}
    return versions.pop() if len(versions) == 1 else 0


def _expected_classes(scenario: Scenario, rig: Rig) -> tuple[ExpectedClass, ...]:
    """Return the job's classes of packets with the queue of each by the profile's maps; () without a switch profile."""
    profile = known_profile(rig)
    if profile is None or profile.kind is not DutKind.SWITCH:
        return ()
    demands, transport = demands_of(scenario, rig, "scenario"), scenario.transport
    data = demands.dscp, demands.pcp
    kinds = {PacketKind.DATA: data}
    for kind, marks in ((PacketKind.ANSWERS, transport.ack), (PacketKind.GRANTS, transport.clear_to_send)):
        dscp = demands.dscp if marks.traffic_class == AS_DATA else marks.traffic_class >> 2
        pcp = demands.pcp if marks.vlan_priority == AS_DATA else marks.vlan_priority
        if (dscp, pcp) != data:
            kinds[kind] = dscp, pcp
    if demands.cnp_dscp is not None:
        kinds[PacketKind.NOTIFICATIONS] = demands.cnp_dscp, demands.cnp_pcp
    way_by_kind = {kind: way_of_packet(profile, dscp, pcp) for kind, (dscp, pcp) in kinds.items()}
    return tuple(
        ExpectedClass(kinds[kind][0], None if way is None else way.queue, kind)
        for kind, way in way_by_kind.items()
    )
