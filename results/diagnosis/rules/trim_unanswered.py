"""Finds trimmed packets that did not arrive, were not recognised, or were not answered.

Decides by four counts of the same packets: trimmed by a queue, sent on, received by a host, answered. Retransmission by
trimming is normal, and so are a few trimmed packets under way at the end of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.loss_places import data_losses, host_place
from etloop.results.diagnosis.loss_sources import losses_by_cause, total_of
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.TRIM_UNANSWERED
LEAST_PACKETS: Final = 3.0
LEAST_SHARE: Final = 0.01
"""Share of the trimmed packets below which loss of some is not a cause of its own."""

LEAST_UNANSWERED: Final = 0.5
"""Share of the trimmed packets of a host from which its answers are missing; duplicates need none."""


def look(evidence: Evidence) -> Found:
    """Return where trimmed packets were lost or left without an answer."""
    lanes, flows = evidence.lanes, evidence.flows
    cut, refused = lanes.counter("queue_trimmed_packets"), lanes.counter("queue_trim_dropped_packets")
    received = flows.received.get("trimmed_received", np.empty(0))
    if np.isnan(cut).all() and np.isnan(received).all():
        return no_evidence(_KIND, "neither the device nor flows count trimmed packets")
    trimmed = total_of(cut) or total_of(received)
    if not trimmed:
        return not_exercised(_KIND, "no packet was trimmed")
    least = max(LEAST_PACKETS, LEAST_SHARE * trimmed)
    findings = []
    if total_of(refused) >= least:
        findings.append(_finding_of_refused(evidence, refused, trimmed))
    arrived = total_of(evidence.hosts.counter("trimmed_datagrams")) or total_of(received)
    sent = total_of(lanes.counter("queue_trim_sent_packets"))
    # Switches mark short packets, too, which stay whole: only what flows miss was lost.
    missing = total_of(np.maximum(data_losses(flows), 0.0)) - sum(losses_by_cause(evidence).values())
    if min(sent - arrived, missing) >= least:
        findings.append(_finding_of_lost(evidence, sent, arrived))
    if len(received) and (finding := _find_unanswered(evidence, np.nan_to_num(received), least)):
        findings.append(finding)
    return report(_KIND, tuple(findings))


def _finding_of_refused(evidence: Evidence, refused: NDArray[np.float64], trimmed: float) -> Finding:
    lanes, ports = evidence.lanes, evidence.ports
    worst = int(np.nanargmax(refused))
    port = int(lanes.port[worst])
    place = Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[worst]))
    total = total_of(refused)
    sentence = (
        f"{total:,.0f} of {trimmed:,.0f} trimmed packets found no room either and were dropped, most at {place}: the queue "
        "of trimmed packets is full"
    )
    facts = (
        Fact("queue_trim_dropped_packets", total, "packets", 0.0),
        Fact("queue_trimmed_packets", trimmed, "packets"),
    )
    remedy = f"give trimmed packets a strict queue of their own on {ports.switch[port]}, with a DSCP that no data has"
    return Finding(_KIND, (place,), sentence, facts, 1.0, remedy)


def _finding_of_lost(evidence: Evidence, sent: float, arrived: float) -> Finding:
    lanes, ports = evidence.lanes, evidence.ports
    worst = int(np.nanargmax(lanes.counter("queue_trim_sent_packets")))
    port = int(lanes.port[worst])
    place = Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[worst]))
    damaged = total_of(evidence.hosts.counter("rx_icrc_encapsulated"))
    sentence = f"{sent - arrived:,.0f} of {sent:,.0f} packets that {place} and others sent on trimmed were not received as such"
    remedy = "give trimmed packets a class that is served first on every switch of their way"
    if damaged >= 0.5 * (sent - arrived):
        sentence += f"; {damaged:,.0f} arrived, and hosts took them for damaged"
        remedy = "state the DSCP that the switches give to trimmed packets in transport.trimming.dscp"
    facts = (
        Fact("queue_trim_sent_packets", sent, "packets"),
        Fact("trimmed_received", arrived, "packets", sent),
        Fact("rx_icrc_encapsulated", damaged, "packets", 0.0),
    )
    return Finding(_KIND, (place,), sentence, facts, 1.0, remedy)


def _find_unanswered(evidence: Evidence, received: NDArray[np.float64], least: float) -> Finding | None:
    """Return the finding of hosts that leave most trimmed packets without an answer."""
    flows, hosts = evidence.flows, len(evidence.hosts.names)
    known = flows.dst_host >= 0
    answered = np.nan_to_num(flows.received.get("trimmed_answered", np.zeros(len(received))))
    at_host, answered_by = (
        np.bincount(flows.dst_host[known], column[known], hosts) for column in (received, answered)
    )
    # A sprayed packet that arrived whole before is not answered. A receiver that keeps order answers once for a gap.
    most = LEAST_UNANSWERED if evidence.needs.sprays else 1 - LEAST_SHARE
    silent = at_host - answered_by >= np.maximum(most * at_host, 1)
    total = float((at_host - answered_by)[silent].sum())
    if total < least:
        return None
    place = host_place(evidence, int(np.argmax(np.where(silent, at_host - answered_by, 0))))
    arrived = float(at_host[silent].sum())
    sentence = (
        f"{total:,.0f} of {arrived:,.0f} trimmed packets were not answered, most by {place.name}: their senders wait for a "
        "timeout"
    )
    facts = (
        Fact("trimmed_received", arrived, "packets"),
        Fact("trimmed_answered", arrived - total, "packets", arrived),
    )
    remedy = (
        "let receivers answer trimmed packets (transport.trimming.answer: nak), or do not trim this class"
    )
    return Finding(_KIND, (place,), sentence, facts, 1.0, remedy)
