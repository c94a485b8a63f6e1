"""Finds queues that dropped packets for want of buffer in a class without PFC.

Decides whether that is a fault. In a network whose switches all have the data in a lossy class, drops of a full queue are
what the configuration asks for, and the job's own matter. They are a fault where other switches have the class lossless,
where the group is lossless and PFC is off, and where nothing describes the switches and the transport needs a lossless
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.configured import DataClass, data_class_at, data_classes
from etloop.results.diagnosis.loss_sources import sum_columns, total_of
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_KIND: Final = FindingKind.BUFFER_DROPS
MOST_NAMED: Final = 4
"""Queues that are named; the rest is a number."""


def look(evidence: Evidence) -> Found:
    """Return the queues that dropped packets for want of buffer, those with most drops first."""
    lanes, ports = evidence.lanes, evidence.ports
    dropped = sum_columns((lanes.counter("queue_dropped_packets"), lanes.counter("group_dropped_packets")))
    if not len(dropped) or np.isnan(dropped).all():
        return no_evidence(_KIND, "the device does not count packets dropped for want of buffer")
    classes = data_classes(evidence)
    order = np.argsort(-np.nan_to_num(dropped), kind="stable").tolist()
    rows = [row for row in order if dropped[row] > 0 and not _is_lossless(evidence, row)]
    if not rows:
        full = np.nanmax(np.r_[0.0, np.nan_to_num(lanes.counter("queue_watermark_bytes"))])
        return report(_KIND, ()) if full > 0 else not_exercised(_KIND, "no queue held packets")
    by_switch: dict[str, list[int]] = {}
    for row in rows:
        by_switch.setdefault(ports.switch[lanes.port[row]], []).append(row)
    roles = {name: _role_and_reason(evidence, name, classes) for name in by_switch}
    faults = [name for name, (role, _) in roles.items() if role is Role.FAULT]
    normal = [row for row in rows if roles[ports.switch[lanes.port[row]]][0] is Role.JOB]
    groups = [(by_switch[name], *roles[name]) for name in faults]
    if normal:
        groups.append((normal, Role.JOB, roles[ports.switch[lanes.port[normal[0]]]][1]))
    return report(_KIND, tuple(_finding(evidence, rows, dropped, role, why) for rows, role, why in groups))


def _role_and_reason(evidence: Evidence, switch: str, classes: dict[str, DataClass]) -> tuple[Role, str]:
    """Return whether drops of a switch are a fault, and why."""
    configured = classes.get(switch)
    lossless = sum(other.is_lossless for other in classes.values())
    if configured is None and evidence.needs.needs_lossless:
        return Role.FAULT, "the transport needs a network that does not drop"
    if configured is not None and configured.settings.lossless and not configured.has_pfc:
        return Role.FAULT, f"group {configured.group} of {switch} is lossless, but PFC is off"
    if lossless and not (configured is not None and configured.is_lossless):
        return Role.FAULT, f"the class has PFC on {lossless} of {len(classes)} switches, but not on {switch}"
    return Role.JOB, "it has no PFC, so it drops when it is full"


def _is_lossless(evidence: Evidence, lane: int) -> bool:
    """Return whether drops of a lane concern a group that pauses its senders: other rules decide those."""
    port = int(evidence.lanes.port[lane])
    configured = data_class_at(evidence, port)
    number = int(evidence.lanes.number[lane])
    if configured is not None:
        return configured.is_lossless and number in (configured.group, configured.queue)
    at_queue = total_of(evidence.lanes.counter("queue_dropped_packets")[[lane]])
    return at_queue == 0 and total_of(evidence.lanes.counter("pfc_tx")[[lane]]) > 0


def _finding(evidence: Evidence, rows: list[int], dropped: Floats, role: Role, why: str) -> Finding:
    """Return the finding of lanes, the one with most drops first."""
    lanes, ports = evidence.lanes, evidence.ports
    places = tuple(_place(evidence, row) for row in rows)
    port = int(lanes.port[rows[0]])
    at_queue = places[0].kind is PlaceKind.QUEUE
    subject = str(places[0]) if at_queue else f"group {lanes.number[rows[0]]} of {places[0]}"
    sentence = f"{subject} dropped {dropped[rows[0]]:,.0f} packets for want of buffer: {why}"
    senders = _senders(evidence, port) if at_queue else 0
    if senders > 1:
        sentence += f"; {senders} hosts send to it"
    total = float(dropped[rows].sum())
    if len(rows) > 1:
        sentence += f"; {len(rows)} queues dropped {total:,.0f} packets"
    facts = (
        Fact(
            "queue_dropped_packets" if at_queue else "group_dropped_packets",
            float(dropped[rows[0]]),
            "packets",
            0.0,
        ),
        Fact("dropped_packets", total, "packets", 0.0, len(rows)),
        Fact("senders", float(senders), "hosts"),
    )
    remedy = (
        "spread the incast, mark earlier (ECN), or use a transport for lossy networks (selective repeat)"
        if role is Role.JOB
        else f"enable PFC for the data's priority on {ports.switch[port]}, with headroom, as on its neighbours"
    )
    return Finding(_KIND, places[:MOST_NAMED], sentence, facts, 1.0, remedy, role)


def _place(evidence: Evidence, lane: int) -> Place:
    """Return the queue of a lane, or its port if the packets were dropped on arrival."""
    ports, port = evidence.ports, int(evidence.lanes.port[lane])
    if np.nan_to_num(evidence.lanes.counter("queue_dropped_packets")[lane]) > 0:
        return Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(evidence.lanes.number[lane]))
    return Place(PlaceKind.PORT, ports.names[port], ports.peers[port])


def _senders(evidence: Evidence, port: int) -> int:
    """Return the number of hosts that send data to the host on a port; 0 for ports between switches."""
    host = int(evidence.ports.host[port])
    flows = evidence.flows
    return 0 if host < 0 else len(np.unique(flows.src_host[flows.dst_host == host]))
