"""The time that a plan should take: on an ideal network, and on the device as a topology describes it. Pure; virtual time only.

Decides at which level each is worked out, and how much of the job: as many of its first iterations as are affordable. The
ideal network is always without packets; the twin has them where one iteration's can be afforded, else it is without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path, PlannedStream
from etloop.contract.model.run import ExpectedRun
from etloop.contract.model.topology import Topology
from etloop.controller.inputs.scenario.timeline import TimelineEvent, ends_of
from etloop.controller.plan.plan import MOST_KEPT_ROWS
from etloop.controller.run.topology_check import DescribedDevice, check_device
from etloop.results.measure.joined import MeasuredOps
from etloop.results.tables.switch_tables import totals
from etloop.traffic.flow_level import (
    FlowLevelSettings,
    FlowNetwork,
    flow_level,
    ideal_network,
    lasts,
    less_streams,
)
from etloop.traffic.flow_network import left_out, network_of
from etloop.traffic.twin import LinkChange, TwinSettings, twin

if TYPE_CHECKING:
    from etloop.controller.plan.plan import Plan

IDEAL: Final = "ideal"
TWIN: Final = "twin"
MOST_PACKETS: Final = 10_000_000
"""Most packets of the packet level: about ten seconds of CPU time."""
MOST_MESSAGES: Final = 10_000_000
"""Most messages of the flow level: ten to thirty seconds of CPU time."""
NO_TOPOLOGY: Final = (
    "twin: no topology is known; name one as `twin` in the scenario or as `topology` in the rig"
)


@dataclass(frozen=True, slots=True)
class Affordable:
    """How much is worked out at most."""

    packets: int = MOST_PACKETS
    messages: int = MOST_MESSAGES
    """0: any number."""
    limit_ns: int = FlowLevelSettings().limit_ns
    """Virtual time after which a job without packets is given up."""


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """The expected runs, and the reasons for those that are absent."""

    runs: tuple[ExpectedRun, ...]
    absent: tuple[str, ...]


_ENOUGH: Final = Affordable()
_IDEALS_KEPT: Final = 4


def expect(
    plan: Plan,
    device: DescribedDevice | None,
    affordable: Affordable = _ENOUGH,
    iterations: int | None = None,
) -> Expectation:
    """Ideal and, if a device is described, twin. Raises `PlanError` as `check_device`.

    `iterations`: number of first iterations, None for all. Iterations that an aborted run did not reach have no expectation.
    """
    assignment = plan.whole()
    if iterations is not None:
        assignment = replace(assignment, iterations=min(iterations, assignment.iterations))
    if device is not None:
        assignment = at_device_rates(assignment, device.topology)
    ideal = _ideal(assignment, affordable, plan)
    twin_run = NO_TOPOLOGY if device is None else _twin(assignment, device, affordable, plan)
    return _expectation(ideal, twin_run)


def expect_by_flows(plan: Plan, device: DescribedDevice, limit_ns: int) -> Expectation:
    """Ideal and twin without packets, whatever the size of the job: who asks for it by itself waits for all of it, or not.

    `limit_ns`: virtual time after which a job is given up. Raises `PlanError` as `check_device`, and where links go down.
    """
    check_device(plan, device)
    if changing := _changing_links(plan, device.topology):
        remedy = "leave out --level flow, or remove them"
        raise PlanError(Problem("--level flow", f"{changing}, which only the packet level models", remedy))
    assignment = at_device_rates(plan.whole(), device.topology)
    affordable = Affordable(messages=0, limit_ns=limit_ns)
    ideal = _ideal(assignment, affordable, plan)
    return _expectation(ideal, _twin_by_flows(assignment, device, affordable, plan))


def flow_network(plan: Plan, device: DescribedDevice) -> tuple[Assignment, FlowNetwork, tuple[str, ...]]:
    """Return assignment and network of a plan at flow level, and the names of the effects that they leave out.

    Raises `PlanError` as `check_device`, and where links go down.
    """
    check_device(plan, device)
    if changing := _changing_links(plan, device.topology):
        remedy = "leave out --level flow, or remove them"
        raise PlanError(Problem("--level flow", f"{changing}, which only the packet level models", remedy))
    assignment = at_device_rates(plan.whole(), device.topology)
    streams = plan.parts.streams
    network = less_streams(network_of(assignment, _names(assignment), device.topology), streams)
    return assignment, network, (*network.notes, *left_out(device.topology), *_without_streams(streams))


def _expectation(*results: ExpectedRun | str) -> Expectation:
    """Return the expected runs, and the reasons in place of others."""
    runs = tuple(run for run in results if isinstance(run, ExpectedRun))
    return Expectation(runs, tuple(why for why in results if isinstance(why, str)))


def _ideal(assignment: Assignment, affordable: Affordable, plan: Plan) -> ExpectedRun | str:
    if not plan.is_small or len(plan.tables.ops.rank) * assignment.iterations > MOST_KEPT_ROWS:
        return _made_ideal(assignment, affordable, plan)
    rates_bps = tuple(port.link_bps for port in assignment.ports)
    return _kept_ideal(plan, rates_bps, assignment.iterations, affordable)


# Cached because points of a sweep that differ in the switches only have one ideal network.
@lru_cache(maxsize=_IDEALS_KEPT)
def _kept_ideal(
    plan: Plan, rates_bps: tuple[int, ...], iterations: int, affordable: Affordable
) -> ExpectedRun | str:
    whole = plan.whole()
    ports = tuple(replace(port, link_bps=rate) for port, rate in zip(whole.ports, rates_bps, strict=True))
    return _made_ideal(replace(whole, ports=ports, iterations=iterations), affordable, plan)


def _made_ideal(assignment: Assignment, affordable: Affordable, plan: Plan) -> ExpectedRun | str:
    streams = plan.parts.streams
    network = less_streams(ideal_network(assignment), streams)
    return _by_flows(IDEAL, assignment, network, "", _without_streams(streams), affordable)


def at_device_rates(assignment: Assignment, topology: Topology) -> Assignment:
    """The assignment with every port at the rate of the switch port it is on, whatever the rig says."""
    rate_bps = {
        attachment.rig_port: topology.port_of(attachment.end).rate_bps for attachment in topology.attachments
    }
    ports = tuple(replace(port, link_bps=rate_bps.get(port.name, port.link_bps)) for port in assignment.ports)
    return replace(assignment, ports=ports)


def iterations_reached(ops: MeasuredOps) -> int:
    """Return how many iterations of a run are among `ops`, one at least."""
    return int(ops.records["iteration"].max(initial=0)) + 1


def packets_of_iteration(assignment: Assignment, payload_bytes: NDArray[np.int64]) -> int:
    """Data packets of one iteration, about; `payload_bytes` by connection."""
    wire = assignment.connections.path == Path.WIRE
    return int((-(-payload_bytes[wire] // assignment.transport.path_mtu_bytes)).sum())


def link_changes(timeline: Sequence[TimelineEvent], topology: Topology) -> tuple[LinkChange, ...]:
    """A scenario's timeline as the twin takes it. Raises `PlanError` for links that the topology does not have."""
    ends = ends_of(timeline, topology)
    return tuple(LinkChange(end, event.up, event.at_ns) for end, event in zip(ends, timeline, strict=True))


def _twin(
    assignment: Assignment,
    device: DescribedDevice,
    affordable: Affordable,
    plan: Plan,
) -> ExpectedRun | str:
    topology, names = device.topology, _names(assignment)
    timeline, streams = plan.parts.scenario.timeline, plan.parts.streams
    settings = TwinSettings(
        most_packets=affordable.packets, link_changes=link_changes(timeline, topology), streams=streams
    )
    outcome = twin(assignment, names, topology, settings)
    run = ExpectedRun(
        network=TWIN,
        level="packet",
        described_by=device.source,
        iterations=assignment.iterations,
        ops=outcome.ops,
        start_ns=outcome.start_ns,
        failure=outcome.failure,
        counters=totals(outcome.switch_ports),
    )
    if not outcome.too_many_packets:
        return run
    if (first := _first_iterations(assignment, run)) is not None:
        return first
    because = f"one iteration has more than {affordable.packets} packets"
    try:
        return _twin_by_flows(assignment, device, affordable, plan, because)
    except PlanError as error:
        return f"twin: {_reasons(error)}; {because}"


def _reasons(error: PlanError) -> str:
    """Return why there are no figures, without what a user of the twin command would do about it."""
    return "; ".join(f"{problem.where}: {problem.what}" for problem in error.problems)


def _twin_by_flows(
    assignment: Assignment,
    device: DescribedDevice,
    affordable: Affordable,
    plan: Plan,
    because: str = "",
) -> ExpectedRun | str:
    if changing := _changing_links(plan, device.topology):
        reason = f"; {because}" if because else ""
        return f"twin: {changing}, which cannot be simulated without packets{reason}"
    streams = plan.parts.streams
    network = less_streams(network_of(assignment, _names(assignment), device.topology), streams)
    notes: tuple[str, ...] = (because,) if because else ()
    notes += (*network.notes, *left_out(device.topology), *_without_streams(streams))
    return _by_flows(TWIN, assignment, network, device.source, notes, affordable)


def _changing_links(plan: Plan, topology: Topology) -> str:
    """Return the causes that take links down, as text; "" without any."""
    causes = ["outages of the topology"] if topology.outages else []
    causes += ["a timeline"] if plan.parts.scenario.timeline else []
    return (
        " and ".join(causes) + (" take" if topology.outages else " takes") + " links down" if causes else ""
    )


def _without_streams(streams: Sequence[PlannedStream]) -> tuple[str, ...]:
    names = ", ".join(planned.stream.name for planned in streams if not lasts(planned.stream))
    return (f"without background of plain UDP that is not of the whole run ({names})",) if names else ()


def _by_flows(
    network_name: str,
    assignment: Assignment,
    network: FlowNetwork,
    described_by: str,
    notes: tuple[str, ...],
    affordable: Affordable,
) -> ExpectedRun | str:
    settings = FlowLevelSettings(most_messages=affordable.messages, limit_ns=affordable.limit_ns)
    outcome = flow_level(assignment, network, settings)
    run = ExpectedRun(
        network=network_name,
        level="flow",
        described_by=described_by,
        iterations=assignment.iterations,
        ops=outcome.ops,
        start_ns=0,
        failure=outcome.failure,
        counters={},
        notes=notes,
    )
    if not outcome.too_many_messages:
        return run
    too_many = f"{network_name}: one iteration has more than {affordable.messages} messages"
    return _first_iterations(assignment, run) or too_many


def _first_iterations(assignment: Assignment, run: ExpectedRun) -> ExpectedRun | None:
    """The first iterations of a run that was cut off, as far as they are complete; None where none is."""
    per_program = [int((program.kind != 0).sum()) for program in assignment.programs]
    awaited = [rank for rank in assignment.ranks if not rank.background]
    expected = sum(per_program[rank.program] for rank in awaited)
    ops = run.ops[np.isin(run.ops["rank"], [rank.rank for rank in awaited])]
    counts = np.bincount(ops["iteration"], minlength=1)
    lacking = np.flatnonzero(counts != expected)
    whole = int(lacking[0]) if len(lacking) else len(counts)
    if whole == 0:
        return None
    return replace(run, iterations=whole, ops=ops[ops["iteration"] < whole], failure="")


def _names(assignment: Assignment) -> tuple[str, ...]:
    return tuple(port.name for port in assignment.ports)
