"""What a lab says of itself: snapshots of its switch as plain values for JSON, and as text for people. Pure.

The same values go to programs (`lab status --json`, the lab's socket) and into the text, so that both say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import format_duration, format_rate
from etloop.contract.model.switch_counters import OVERLOAD_COUNTERS
from etloop.lab.plan import runs_of

if TYPE_CHECKING:
    import numpy as np
    from etloop.contract.model.topology import Topology
    from etloop.lab.plan import Capacity, LabPlan
    from etloop.traffic.soft_switch import SoftSnapshot

Values = dict[str, Any]
"""A JSON object. Its keys are the counters' names of contract/model/switch_counters.py."""
VERSION: Final = 1


def row_values(row: np.void) -> Values:
    """One row of counters by name, rows within it likewise."""
    assert row.dtype.names is not None
    return {name: _plain(row[name]) for name in row.dtype.names}


def _plain(value: Any) -> Any:
    if getattr(value, "shape", ()):
        return [_plain(one) for one in value]
    return row_values(value) if value.dtype.names else int(value)


def counter_values(topology: Topology, snapshot: SoftSnapshot) -> Values:
    """All counters of a lab's switches and of the soft switch itself."""
    return {
        "version": VERSION,
        "at_ns": snapshot.at_ns,
        "age_ns": snapshot.at_ns - snapshot.begin_ns,
        "switches": [
            {
                "name": settings.name,
                "pool_bytes": pool[0],
                "pool_watermark_bytes": pool[1],
                "ports": [
                    {"name": port.name, "up": (number, index) not in snapshot.down} | row_values(row)
                    for index, (port, row) in enumerate(zip(settings.ports, rows, strict=True))
                ],
            }
            for number, (settings, pool, rows) in enumerate(
                zip(topology.switches, snapshot.pools, snapshot.switch_ports, strict=True)
            )
        ],
        "attachments": [
            {
                "port": attachment.rig_port,
                "end": topology.port_name(attachment.end),
                "card": row_values(card),
                "soft_switch": row_values(port),
            }
            for attachment, card, port in zip(
                topology.attachments, snapshot.cards, snapshot.ports, strict=True
            )
        ],
        "soft_switch": {
            "overload_frames": snapshot.overload_frames,
            "late_frames": int(snapshot.ports["late_frames"].sum()),
            "lateness_ns_p50": snapshot.lateness_ns(50),
            "lateness_ns_p99": snapshot.lateness_ns(99),
            "lateness_ns_max": snapshot.worst_lateness_ns,
            "processor_ns": snapshot.processor_ns,
            "turns": snapshot.turns,
            "frames_inside": snapshot.frames_inside,
            "real_time": snapshot.real_time,
        },
    }


def plan_values(plan: LabPlan, capacity: Capacity | None, *, within_capacity: bool) -> Values:
    """What the lab is, apart from its counters."""
    return {
        "bind": plan.bind,
        "mtu_bytes": plan.mtu_bytes,
        "within_capacity": within_capacity,
        "held_bps": None if capacity is None else capacity.held_bps,
        "measured_frames_per_s": None if capacity is None else capacity.frames_per_s,
        "agents": [
            {
                "name": agent.name,
                "ports": [
                    {
                        "port": port.port,
                        "interface": port.interface,
                        "mac": port.mac,
                        "addresses": list(port.addresses),
                        "rate_bps": port.rate_bps,
                        "end": port.end,
                    }
                    for port in agent.ports
                ],
            }
            for agent in plan.agents
        ],
    }


def status_text(values: Values) -> str:
    """A lab's status for people; `values` is what its socket answers to `status`."""
    counters = values["counters"]
    lines = [_head(values)]
    for agent in values["agents"]:
        running = values["processes"].get(agent["name"], "no agent started by the lab")
        lines.append(f"agent {agent['name']}: {running}")
        for port in agent["ports"]:
            runs = runs_of(port["addresses"])
            span = ", ".join(first if first == last else f"{first} to {last}" for first, last in runs)
            rate = format_rate(port["rate_bps"])
            lines.append(f"  {port['port']}  {port['interface']}  {span}  {rate}  on {port['end']}")
    if values.get("gnmi"):
        lines.append(f"gNMI at {values['gnmi']['address']}: {values['gnmi']['process']}")
    ports = [*_port_table(counters), *_down_lines(counters), *_corrupted_lines(counters)]
    lines += ["", *ports, "", *_soft_lines(counters)]
    return "\n".join(lines) + "\n"


def _head(values: Values) -> str:
    age = format_duration(values["counters"]["age_ns"] // NS_PER_S * NS_PER_S)
    held = values["held_bps"]
    if held is None:
        capacity_text = "not measured, so it is not known whether it holds its rates"
    elif values["within_capacity"]:
        capacity_text = f"this host holds {held / 1e9:.2f} Gbps of it in all, more than the topology asks for"
    else:
        capacity_text = (
            f"OVERCOMMITTED: this host holds {held / 1e9:.2f} Gbps in all, less than the topology asks for"
        )
    return f"lab {values['name']}: process {values['pid']}, up for {age}, frames to {values['mtu_bytes']} bytes; {capacity_text}"


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


def _port_table(counters: Values) -> list[str]:
    rows = [_COLUMNS]
    for switch in counters["switches"]:
        for port in switch["ports"]:
            queues, groups = port["queues"], port["groups"]
            dropped = sum(queue["dropped_packets"] + queue["watchdog_dropped_packets"] for queue in queues)
            dropped += sum(group["dropped_packets"] for group in groups)
            dropped += port["link_dropped_packets"] + port["fault_dropped_packets"] + port["no_route_packets"]
            rows.append(
                (
                    f"{switch['name']}/{port['name']}",
                    str(port["rx_packets"]),
                    str(port["tx_packets"]),
                    str(sum(queue["current_bytes"] for queue in queues)),
                    str(sum(queue["ecn_marked_packets"] for queue in queues)),
                    str(dropped),
                    str(sum(queue["trimmed_packets"] for queue in queues)),
                    str(sum(port["pfc_tx"])),
                    str(sum(port["pfc_rx"])),
                    str(sum(queue["paused_ns"] for queue in queues) // 1000),
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _down_lines(counters: Values) -> list[str]:
    down = [
        f"{switch['name']}/{port['name']}"
        for switch in counters["switches"]
        for port in switch["ports"]
        if not port["up"]
    ]
    return [f"down: {', '.join(down)}"] if down else []


def _corrupted_lines(counters: Values) -> list[str]:
    # A lab that an earlier version brought up does not count them.
    found = [
        f"{port['fault_corrupted_packets']} at {switch['name']}/{port['name']}"
        for switch in counters["switches"]
        for port in switch["ports"]
        if port.get("fault_corrupted_packets")
    ]
    return (
        [f"corrupted by faults of the topology, of those that came in: {', '.join(found)}"] if found else []
    )


def _soft_lines(counters: Values) -> list[str]:
    soft = counters["soft_switch"]
    lateness = "/".join(
        f"{soft[key] / 1000:.1f}" for key in ("lateness_ns_p50", "lateness_ns_p99", "lateness_ns_max")
    )
    lines = [
        f"soft switch: {soft['overload_frames']} frames lost to its own overload, {soft['late_frames']} late; "
        f"handed over {lateness} us after their time (p50/p99/max)"
        + ("" if soft["real_time"] else "; its thread waits its turn like any other, for it is not root's")
    ]
    for one in counters["attachments"]:
        own = one["soft_switch"]
        lost = [
            f"{own[name]} {name.removesuffix('_frames').replace('_', ' ')}"
            for name in OVERLOAD_COUNTERS
            if own[name]
        ]
        if lost:
            lines.append(f"  OVERLOAD at {one['port']}: {', '.join(lost)}")
    return lines
