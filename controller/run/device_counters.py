"""Counts a device under test during a run: from the rig's sources and the profile to `CountedDevice`.

Decides which sources are read at which interval, and the peer of each device port. A shell: `add_device_counters` reads
before, during and after a run. `counters.sampling` decides when to read and how long to wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterBatch
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import RunOutcome
from etloop.contract.model.topology import Topology
from etloop.controller.inputs.rig import Rig
from etloop.controller.run.device_check import known_profile
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


async def add_device_counters(
    counting: Counting | None,
    session: Callable[[], Awaitable[RunOutcome]],
    report: Callable[[str], None],
    stops: Callable[[], AbstractContextManager[list[str]]],
    counted: Callable[[str, CounterBatch], None] | None = None,
) -> tuple[RunOutcome, CountedDevice | None]:
    """Run a session, and read the device before, during and after it. Raises what `session` raises.

    `counted` gets the name of a source with each of its readings.

    Failures of counters are reported and never raised. A reason to stop that appears in `stops` ends the wait for the device
    to become idle.
    """
    if counting is None:
        return await session(), None
    sampling = Sampling(counting.sources, report, counted)
    try:
        for problem in await sampling.begin():
            report(f"{problem}; the run goes on, and the gap will be marked")
        sampling.note_start()
        outcome = await session()
    except BaseException:
        await sampling.give_up()
        raise
    with stops() as stop_reasons:
        sources = await sampling.finish(stop_reasons)
    return outcome, CountedDevice(counting.profile, counting.tolerance_per_million, sources)
