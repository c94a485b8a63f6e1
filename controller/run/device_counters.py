"""Counts a device under test during a run: from the rig's sources and the profile to `CountedDevice`.

Decides which sources are read at which interval, and what each device port is connected to. A shell: `counted_run` reads
before, during and after a run. `counters.sampling` decides when to read and how long to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from ipaddress import ip_address
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.capabilities import OUTER_HEADER_BYTES
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import RunOutcome
from etloop.contract.model.topology import Topology
from etloop.contract.model.transport import AS_DATA
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.udp_streams import plain_datagrams
from etloop.controller.run.device_check import known_profile
from etloop.controller.run.device_demands import demands_of
from etloop.controller.run.prepare import read_device
from etloop.counters.readers.gnmi_settings import GnmiSource, with_stated_paths
from etloop.counters.registry import reader_of
from etloop.counters.sampling import Sampled, Sampling
from etloop.counters.settings import (
    DEFAULT_INTERVAL_NS,
    CounterSource,
    LinuxSource,
    Side,
    SoftSwitchSource,
    SourceSettings,
)
from etloop.dut_profiles.model.profile import CounterAccess, DutKind, DutProfile
from etloop.dut_profiles.reading.profile_file import DEFAULT_TOLERANCE_PER_MILLION
from etloop.dut_profiles.rules.maps import way_of_packet
from etloop.results.device.class_queues import ExpectedClass, PacketKind
from etloop.results.device.reconcile import TAG_BYTES
from etloop.results.device.summary import DeviceBasis, RigPortFacts

_AT_ONCE_NS: Final = 0


@dataclass(frozen=True, slots=True)
class Counting:
    """The sources to read from a device, and the profile and tolerance for comparing its counts with the agents'."""

    profile: str
    tolerance_per_million: int
    sources: tuple[Sampled, ...]


def counting_of(rig: Rig) -> Counting | None:
    """Return the counting that a rig requests; None if it names no source of counters.

    Raises `ConfigError` if the topology of the rig, which gives the peers of the device's other ports, cannot be read.
    """
    if rig.dut is None or not rig.dut.counters:
        return None
    device = read_device(rig.topology)
    topology = device.topology if device is not None else None
    profile = known_profile(rig)
    rig_ports = frozenset(rig.ports)
    sources = tuple(_sampled_source(source, profile, topology, rig_ports) for source in rig.dut.counters)
    profile_tolerance = profile.counters.tolerance_per_million.value if profile is not None else None
    tolerance = DEFAULT_TOLERANCE_PER_MILLION if profile_tolerance is None else profile_tolerance
    return Counting(rig.dut.profile if profile is None else profile.name, tolerance, sources)


def _sampled_source(
    source: SourceSettings, profile: DutProfile | None, topology: Topology | None, leased: frozenset[str]
) -> Sampled:
    access = _access(source, profile)
    profile_interval_ns = access.interval_ns.value if access is not None else None
    topology_ports = _port_names(topology)
    # A topology names ports SWITCH/PORT, as the reader of a lab does.
    covers_several = isinstance(source.reader_settings, SoftSwitchSource) or any(
        port in topology_ports for port in source.ports.values()
    )
    peers = tuple((port, rig_port) for rig_port, port in source.ports.items() if rig_port in leased)
    return Sampled(
        name=source.name,
        reader_name=str(source.reader),
        reader=reader_of(_with_profile_paths(source.reader_settings, profile), tuple(source.ports.values())),
        interval_ns=source.interval_ns or profile_interval_ns or DEFAULT_INTERVAL_NS,
        timeout_ns=source.timeout_ns,
        refresh_ns=profile_interval_ns or _AT_ONCE_NS,
        peers=peers + (topology.cables() if covers_several and topology is not None else ()),
        several_devices=covers_several,
        host_side=_is_host_side(source, profile),
        rig_ports=frozenset(port for port, _ in peers),
    )


def _with_profile_paths(source: CounterSource, profile: DutProfile | None) -> CounterSource:
    """Return a source with its open settings filled in from the profile."""
    accesses = profile.counters.access if profile is not None else ()
    return with_stated_paths(source, accesses) if isinstance(source, GnmiSource) else source


def _is_host_side(source: SourceSettings, profile: DutProfile | None) -> bool:
    if not isinstance(source.reader_settings, LinuxSource):
        return False
    if source.reader_settings.side is not None:
        return source.reader_settings.side is Side.HOST
    return profile is not None and profile.kind is DutKind.NIC


def _access(source: SourceSettings, profile: DutProfile | None) -> CounterAccess | None:
    accesses = profile.counters.access if profile is not None else ()
    same_reader = [access for access in accesses if access.reader is source.reader]
    paths = source.reader_settings.paths if isinstance(source.reader_settings, GnmiSource) else None
    return next(
        (access for access in same_reader if access.paths is paths), same_reader[0] if same_reader else None
    )


def _port_names(topology: Topology | None) -> frozenset[str]:
    switches = topology.switches if topology is not None else ()
    return frozenset(f"{switch.name}/{port.name}" for switch in switches for port in switch.ports)


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


async def counted_run(
    counting: Counting | None,
    session: Callable[[], Awaitable[RunOutcome]],
    report: Callable[[str], None],
    stops: Callable[[], AbstractContextManager[list[str]]],
) -> tuple[RunOutcome, CountedDevice | None]:
    """Run a session, and read the device before, during and after it. Raises what `session` raises.

    Failures of counters are reported and never raised. A reason to stop that appears in `stops` ends the wait for the device
    to become idle.
    """
    if counting is None:
        return await session(), None
    sampling = Sampling(counting.sources, report)
    try:
        for problem in await sampling.begin():
            report(f"{problem}; the run goes on, and the gap will be marked")
        sampling.started()
        outcome = await session()
    except BaseException:
        await sampling.give_up()
        raise
    with stops() as stop_reasons:
        sources = await sampling.finish(stop_reasons)
    return outcome, CountedDevice(counting.profile, counting.tolerance_per_million, sources)
