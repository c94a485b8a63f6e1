"""Reports on a lab: snapshots of its switch as messages, and as text for display. Pure.

Programs (`lab status --json`, the lab's socket) and the text get the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import format_duration, format_rate
from etloop.contract.model.switch_counters import OVERLOAD_COUNTERS
from etloop.contract.model.topology import Topology
from etloop.contract.protocol.lab import (
    AttachmentStatus,
    LabAgentStatus,
    LabCounters,
    LabDescription,
    LabPortStatus,
    LabStatus,
    SoftSwitchStatus,
    SwitchPortStatus,
    SwitchStatus,
)
from etloop.lab.plan import Capacity, LabPlan, runs_of
from etloop.traffic.soft_switch import SoftSnapshot


def counters_of(topology: Topology, snapshot: SoftSnapshot) -> LabCounters:
    """Return all counters of a lab's switches and of the soft switch itself."""
    return LabCounters(
        at_ns=snapshot.at_ns,
        age_ns=snapshot.at_ns - snapshot.begin_ns,
        switches=tuple(
            SwitchStatus(
                name=settings.name,
                pool_bytes=pool[0],
                pool_watermark_bytes=pool[1],
                ports=tuple(
                    SwitchPortStatus(port.name, (number, index) not in snapshot.down, row)
                    for index, (port, row) in enumerate(zip(settings.ports, rows, strict=True))
                ),
            )
            for number, (settings, pool, rows) in enumerate(
                zip(topology.switches, snapshot.pools, snapshot.switch_ports, strict=True)
            )
        ),
        attachments=tuple(
            AttachmentStatus(attachment.rig_port, topology.port_name(attachment.end), card, port)
            for attachment, card, port in zip(
                topology.attachments, snapshot.cards, snapshot.ports, strict=True
            )
        ),
        soft_switch=SoftSwitchStatus(
            overload_frames=snapshot.overload_frames,
            late_frames=int(snapshot.ports["late_frames"].sum()),
            lateness_ns_p50=snapshot.lateness_ns(50),
            lateness_ns_p99=snapshot.lateness_ns(99),
            lateness_ns_max=snapshot.worst_lateness_ns,
            processor_ns=snapshot.processor_ns,
            turns=snapshot.turns,
            frames_inside=snapshot.frames_inside,
            real_time=snapshot.real_time,
        ),
    )


def description_of(plan: LabPlan, capacity: Capacity | None) -> LabDescription:
    """Return the description of the lab: its status without counters."""
    return LabDescription(
        bind=plan.bind,
        mtu_bytes=plan.mtu_bytes,
        within_capacity=capacity is not None and plan.rate_bps <= capacity.held_bps,
        held_bps=None if capacity is None else capacity.held_bps,
        measured_frames_per_s=None if capacity is None else capacity.frames_per_s,
        agents=tuple(
            LabAgentStatus(
                agent.name,
                tuple(
                    LabPortStatus(
                        port.port, port.interface, port.mac, port.addresses, port.rate_bps, port.end
                    )
                    for port in agent.ports
                ),
            )
            for agent in plan.agents
        ),
    )


def status_text(status: LabStatus) -> str:
    """Return a lab's status as text for display."""
    counters = status.counters
    lines = [_head(status)]
    for agent in status.agents:
        running = status.processes.get(agent.name, "no agent started by the lab")
        lines.append(f"agent {agent.name}: {running}")
        for port in agent.ports:
            runs = runs_of(port.addresses)
            span = ", ".join(first if first == last else f"{first} to {last}" for first, last in runs)
            rate = format_rate(port.rate_bps)
            lines.append(f"  {port.port}  {port.interface}  {span}  {rate}  on {port.end}")
    if status.gnmi is not None:
        lines.append(f"gNMI at {status.gnmi.address}: {status.gnmi.process}")
    ports = [*_port_table(counters), *_down_lines(counters), *_corrupted_lines(counters)]
    lines += ["", *ports, "", *_soft_lines(counters)]
    return "\n".join(lines) + "\n"


def _head(status: LabStatus) -> str:
    age = format_duration(status.counters.age_ns // NS_PER_S * NS_PER_S)
    held_bps = status.held_bps
    if held_bps is None:
        capacity_text = "not measured, so it is unknown whether it sustains its rates"
    elif status.within_capacity:
        capacity_text = (
            f"this host holds {held_bps / 1e9:.2f} Gbps of it in all, more than the topology asks for"
        )
    else:
        capacity_text = f"OVERCOMMITTED: this host holds {held_bps / 1e9:.2f} Gbps in all, less than the topology asks for"
    return f"lab {status.name}: process {status.pid}, up for {age}, frames to {status.mtu_bytes} bytes; {capacity_text}"


_COLUMNS: Final = (
    "port",
    "in",
    "out",
    "queued",
    "marked",
    "dropped",
    "trimmed",
    "pauses out",
    "pauses in",
    "paused (us)",
)


def _port_table(counters: LabCounters) -> list[str]:
    rows = [_COLUMNS]
    for name, port in _ports(counters):
        row = port.counters
        queues, groups = row["queues"], row["groups"]
        dropped = queues["dropped_packets"].sum() + queues["watchdog_dropped_packets"].sum()
        dropped += groups["dropped_packets"].sum()
        dropped += row["link_dropped_packets"] + row["fault_dropped_packets"] + row["no_route_packets"]
        rows.append(
            (
                name,
                str(row["rx_packets"]),
                str(row["tx_packets"]),
                str(queues["current_bytes"].sum()),
                str(queues["ecn_marked_packets"].sum()),
                str(dropped),
                str(queues["trimmed_packets"].sum()),
                str(row["pfc_tx"].sum()),
                str(row["pfc_rx"].sum()),
                str(queues["paused_ns"].sum() // 1000),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _ports(counters: LabCounters) -> Iterator[tuple[str, SwitchPortStatus]]:
    """Yield every port of every switch, with its full name "switch/port"."""
    for switch in counters.switches:
        for port in switch.ports:
            yield f"{switch.name}/{port.name}", port


def _down_lines(counters: LabCounters) -> list[str]:
    down = [name for name, port in _ports(counters) if not port.up]
    return [f"down: {', '.join(down)}"] if down else []


def _corrupted_lines(counters: LabCounters) -> list[str]:
    frames_by_port = [
        f"{port.counters['fault_corrupted_packets']} at {name}"
        for name, port in _ports(counters)
        if port.counters["fault_corrupted_packets"]
    ]
    return (
        [f"received frames corrupted by faults of the topology: {', '.join(frames_by_port)}"]
        if frames_by_port
        else []
    )


def _soft_lines(counters: LabCounters) -> list[str]:
    soft = counters.soft_switch
    late_ns = (soft.lateness_ns_p50, soft.lateness_ns_p99, soft.lateness_ns_max)
    lateness = "/".join(f"{lateness_ns / 1000:.1f}" for lateness_ns in late_ns)
    lines = [
        f"soft switch: {soft.overload_frames} frames lost to its own overload, {soft.late_frames} late; "
        f"handed over {lateness} us after their scheduled time (p50/p99/max)"
        + (
            ""
            if soft.real_time
            else "; its thread has no real-time priority because the lab does not run as root"
        )
    ]
    for attachment in counters.attachments:
        counts = attachment.soft_switch
        losses = [
            f"{counts[name]} {name.removesuffix('_frames').replace('_', ' ')}"
            for name in OVERLOAD_COUNTERS
            if counts[name]
        ]
        if losses:
            lines.append(f"  OVERLOAD at {attachment.port}: {', '.join(losses)}")
    return lines
