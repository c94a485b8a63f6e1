"""How long a queue pair waits for an answer before it sends again, where the scenario leaves that open. Pure.

A timer that is shorter than the longest queue sends again what was only late, and the time that this takes would look like the
device's. Decides the timeout and its floor from the slowest link and from what can stand in a queue before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.base.units import NS_PER_S, format_bytes, format_duration, format_rate
from etloop.contract.model.topology import Topology
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.inputs.scenario.transport import Transport

MOST_UNDER_WAY_BYTES: Final = 8 << 20
"""What the receivers behind one port let come to it at a time (`kMostInFlightBytes` of traffic/native)."""
MOST_SWITCHES: Final = 3
"""Between two ports of a fabric of two tiers."""
LONGEST_TIMEOUT_NS: Final = 60 * NS_PER_S


def patient(scenario: Scenario, slowest_bps: int, topology: Topology | None) -> Scenario:
    """Return the scenario with timers that outlast a queue before a link of `slowest_bps`, if it states none itself.

    Timers are of all jobs, whatever they go by.
    """
    transport = scenario.transport
    if not (transport.open_timeouts.timeout or transport.open_timeouts.floor):
        return scenario
    queued_bytes = _most_queued_bytes(topology)
    round_trip_ns = _there_and_back_ns(queued_bytes, slowest_bps)
    floor_ns = min(-(-round_trip_ns // NS_PER_MS) * NS_PER_MS, LONGEST_TIMEOUT_NS // 2)
    if floor_ns <= transport.recovery.timeout_floor_ns:
        return scenario
    recovery, timeout_ns = transport.recovery, transport.timeout_ns
    if transport.open_timeouts.floor:
        most_ns = floor_ns if transport.open_timeouts.timeout else timeout_ns
        recovery = replace(recovery, timeout_floor_ns=min(floor_ns, most_ns))
    if transport.open_timeouts.timeout:
        timeout_ns = max(timeout_ns, 2 * floor_ns)
    note = (
        f"transport.timeout_floor {format_duration(recovery.timeout_floor_ns)} and timeout {format_duration(timeout_ns)}: "
        f"{format_bytes(queued_bytes)} before a link of {format_rate(slowest_bps)} take that long, there and back"
    )

    def patient_one(each: Transport) -> Transport:
        own = replace(each.recovery, timeout_floor_ns=recovery.timeout_floor_ns)
        return replace(each, recovery=own, timeout_ns=timeout_ns, notes=(*each.notes, note))

    stall_ns = scenario.stall_timeout_ns
    if scenario.stall_open:
        # A queue pair that gives up names its connection, which a run that is given up before it does not.
        stall_ns = max(stall_ns, timeout_ns * (transport.retry_limit + 1))
    return replace(scenario.with_transports(patient_one), stall_timeout_ns=stall_ns)


def card_floor_ns(topology: Topology, floor_ns: int) -> int:
    """Return the least first wait of a card: what the queues of switches that drop take, there and back, at most `floor_ns`.

    Where a class is paused nothing is lost to its queues, and a packet waits for as long as the pauses last.
    """
    if _pauses(topology):
        return floor_ns
    buffers = sorted((switch.buffer_bytes for switch in topology.switches), reverse=True)
    slowest_bps = min(port.rate_bps for switch in topology.switches for port in switch.ports)
    return min(_there_and_back_ns(sum(buffers[:MOST_SWITCHES]), slowest_bps), floor_ns)


def _there_and_back_ns(queued_bytes: int, slowest_bps: int) -> int:
    """There behind data, and back behind the data of the other direction; a quarter more for headers and hosts."""
    return 2 * queued_bytes * 8 * NS_PER_S * 5 // (4 * slowest_bps)


def _pauses(topology: Topology) -> bool:
    return any(switch.pfc and any(group.lossless for group in switch.groups) for switch in topology.switches)


def _most_queued_bytes(topology: Topology | None) -> int:
    """What can stand before a packet: where nobody is paused, no more than the buffers on its way hold."""
    if topology is None or _pauses(topology):
        return MOST_UNDER_WAY_BYTES
    buffers = sorted((switch.buffer_bytes for switch in topology.switches), reverse=True)
    return min(sum(buffers[:MOST_SWITCHES]), MOST_UNDER_WAY_BYTES)
