"""The retransmission timeout and its floor, if the scenario leaves them open. Pure.

A timer shorter than the longest queueing delay retransmits packets that are only late, and the time this costs would be
attributed to the device. Decides both from the slowest link and from the bytes that can be queued ahead of a packet.
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
"""Most bytes in flight to the receivers of one port (`kMostInFlightBytes` of traffic/native)."""
MOST_SWITCHES: Final = 3
"""Most switches between two ports of a two-tier fabric."""
LONGEST_TIMEOUT_NS: Final = 60 * NS_PER_S


def patient(scenario: Scenario, slowest_bps: int, topology: Topology | None) -> Scenario:
    """Return the scenario with timers that outlast a full queue ahead of a link of `slowest_bps`, unless it states them.

    The same timers apply to the transports of all jobs.
    """
    transport = scenario.transport
    if not (transport.open_timeouts.timeout or transport.open_timeouts.floor):
        return scenario
    queued_bytes = _most_queued_bytes(topology)
    round_trip_ns = _round_trip_ns(queued_bytes, slowest_bps)
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
        f"{format_bytes(queued_bytes)} before a link of {format_rate(slowest_bps)} need that long for the round trip"
    )

    def with_timers(transport: Transport) -> Transport:
        new_recovery = replace(transport.recovery, timeout_floor_ns=recovery.timeout_floor_ns)
        return replace(
            transport, recovery=new_recovery, timeout_ns=timeout_ns, notes=(*transport.notes, note)
        )

    stall_ns = scenario.limits.stall_timeout_ns
    if scenario.stall_open:
        # Let queue pairs exhaust their retries before the run stalls: their error names the connection.
        stall_ns = max(stall_ns, timeout_ns * (transport.retry_limit + 1))
    limits = replace(scenario.limits, stall_timeout_ns=stall_ns)
    return replace(scenario.with_transports(with_timers), limits=limits)


def card_floor_ns(topology: Topology, floor_ns: int) -> int:
    """Return the timeout floor of a NIC: the round trip through full buffers of switches that drop, at most `floor_ns`.

    If some switch pauses a lossless class, the floor stays `floor_ns`, because a packet waits for as long as the pauses last.
    """
    if _has_pfc(topology):
        return floor_ns
    buffers = sorted((switch.buffer_bytes for switch in topology.switches), reverse=True)
    slowest_bps = min(port.rate_bps for switch in topology.switches for port in switch.ports)
    return min(_round_trip_ns(sum(buffers[:MOST_SWITCHES]), slowest_bps), floor_ns)


def _round_trip_ns(queued_bytes: int, slowest_bps: int) -> int:
    """Return the round trip time behind queued data in both directions, plus a quarter for headers and hosts."""
    return 2 * queued_bytes * 8 * NS_PER_S * 5 // (4 * slowest_bps)


def _has_pfc(topology: Topology) -> bool:
    rules = (rules for switch in topology.switches for rules in switch.all_rules)
    return any(of_ports.pfc and any(group.lossless for group in of_ports.groups) for of_ports in rules)


def _most_queued_bytes(topology: Topology | None) -> int:
    """Return the most bytes that can be queued ahead of a packet: the buffers on its path, if no switch sends pauses."""
    if topology is None or _has_pfc(topology):
        return MOST_UNDER_WAY_BYTES
    buffers = sorted((switch.buffer_bytes for switch in topology.switches), reverse=True)
    return min(sum(buffers[:MOST_SWITCHES]), MOST_UNDER_WAY_BYTES)
