"""Finds queues that dropped packets for want of buffer in a class without PFC.

Decides whether that is a fault. In a network whose switches all have the data in a lossy class, drops of a full queue are
what the configuration asks for, and the job's own matter. They are a fault where other switches have the class lossless,
where the group is lossless and PFC is off, and where nothing describes the switches and the transport needs a lossless
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.configured import data_classes
from etloop.results.diagnosis.loss_sources import summed, total_of
from etloop.results.diagnosis.rule import Found, found, no_evidence, not_exercised
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
    dropped = summed((lanes.counter("queue_dropped_packets"), lanes.counter("group_dropped_packets")))
    if not len(dropped) or np.isnan(dropped).all():
        return no_evidence(_KIND, "the device does not count packets dropped for want of buffer")
    classes = data_classes(evidence)
    rows = [row for row in np.argsort(-np.nan_to_num(dropped)).tolist() if dropped[row] > 0]
    rows = [row for row in rows if not _is_lossless(evidence, row)]
    if not rows:
        full = np.nanmax(np.r_[0.0, np.nan_to_num(lanes.counter("queue_watermark_bytes"))])
        return found(_KIND, ()) if full > 0 else not_exercised(_KIND, "no queue held packets")
    lossless = sum(configured.is_lossless for configured in classes.values())
    findings = []
    for row in rows[:MOST_NAMED]:
        name = ports.switch[lanes.port[row]]
        role = Role.JOB
        why = "the class has no PFC on any switch, so drops of a full queue are what it is configured for"
        configured = classes.get(name)
        if configured is None and evidence.needs.needs_lossless:
            role, why = Role.FAULT, "the transport needs a network that does not drop"
        elif configured is not None and configured.settings.lossless:
            role, why = Role.FAULT, f"group {configured.group} of {name} is lossless, but PFC is off"
        elif lossless:
            role, why = Role.FAULT, f"the class has PFC on {lossless} of {len(classes)} switches, but not on {name}"
        findings.append(_finding(evidence, row, float(dropped[row]), len(rows), role, why))
    return found(_KIND, tuple(findings))


def _is_lossless(evidence: Evidence, lane: int) -> bool:
    """Return whether drops of a lane concern a group that pauses its senders: other rules judge those."""
    port = int(evidence.lanes.port[lane])
    configured = data_classes(evidence).get(evidence.ports.switch[port])
    number = int(evidence.lanes.number[lane])
    if configured is not None:
        return configured.is_lossless and number in (configured.group, configured.queue)
    at_queue = total_of(evidence.lanes.counter("queue_dropped_packets")[[lane]])
    return at_queue == 0 and total_of(evidence.lanes.counter("pfc_tx")[[lane]]) > 0


def _finding(
    evidence: Evidence, lane: int, dropped: float, count: int, role: Role, why: str
) -> Finding:
    lanes, ports = evidence.lanes, evidence.ports
    port = int(lanes.port[lane])
    at_queue = np.nan_to_num(lanes.counter("queue_dropped_packets")[lane]) > 0
    place = Place(
        PlaceKind.QUEUE if at_queue else PlaceKind.PORT, ports.names[port], ports.peers[port], int(lanes.number[lane])
    )
    passed = float(np.nan_to_num(lanes.counter("queue_packets")[lane]))
    where = f"queue {place.number} of {place.name}" if at_queue else f"group {place.number} of {place.name}"
    to = f" (to {place.peer})" if place.peer else ""
    sentence = f"{where}{to} dropped {dropped:,.0f} packets for want of buffer: {why}"
    senders = _senders(evidence, port)
    if at_queue and senders > 1:
        sentence += f"; {senders} hosts send to it"
    if count > MOST_NAMED:
        sentence += f"; {count} queues dropped packets"
    facts = [
        Fact("queue_dropped_packets" if at_queue else "group_dropped_packets", dropped, "packets", 0.0),
        Fact("queue_packets", passed, "packets"),
        Fact("senders", float(senders), "hosts"),
    ]
    remedy = (
        "spread the incast, mark earlier (ECN), or use a transport for lossy networks (selective repeat)"
        if role is Role.JOB
        else f"enable PFC for the data's priority on {ports.switch[port]}, with headroom, as on its neighbours"
    )
    return Finding(_KIND, (place,), sentence, tuple(facts), 1.0, remedy, role)


def _senders(evidence: Evidence, port: int) -> int:
    """Return the number of hosts that send data to the host on a port; 0 for ports between switches."""
    host = int(evidence.ports.host[port])
    flows = evidence.flows
    return 0 if host < 0 else len(np.unique(flows.src_host[flows.dst_host == host]))
