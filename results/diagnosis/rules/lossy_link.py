"""Finds links, ports and hosts that lose packets, and not for want of buffer.

Decides which counter is the evidence: drops that a port counted, frames that left one end of a cable and did not reach the
other, and, where the device counts no drops, the packets that flows miss. Losses of congestion differ between the flows of
a place by more than chance; losses of a bad link have one rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.localise import lossy_links
from etloop.results.diagnosis.loss_places import (
    Blame,
    Side,
    blame_arrivals,
    data_losses,
    packet_losses,
    port_place,
)
from etloop.results.diagnosis.loss_sources import (
    counts_drops,
    host_findings,
    is_only_cause,
    loss_finding,
    losses_by_cause,
    sum_columns,
    total_of,
)
from etloop.results.diagnosis.pause_graph import ended_paused
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.device import Direction
from etloop.results.schema.findings import Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_KIND: Final = FindingKind.LOSSY_LINK
_MODELLED: Final = "fault_dropped_packets"
_REMEDY: Final = (
    "exchange cable, transceiver and port of {cable} one at a time; then check its filters and policers"
)
LEAST_UNEXPLAINED_PACKETS: Final = 3.0
"""Frames of other senders and readings at different times explain fewer."""


def look(evidence: Evidence) -> Found:
    """Return the places that lose packets although they have buffer."""
    flows = evidence.flows
    lost = data_losses(flows)
    injected = host_findings(evidence, _KIND, "injected_losses", "loses packets before they reach the cable")
    injected += host_findings(evidence, _KIND, "injected_drops", "drops packets that arrived")
    dropped = sum_columns((evidence.ports.counter(_MODELLED), _drops_with_room(evidence, total_of(lost))))
    if np.isnan(dropped).all() and np.isnan(lost).all():
        return no_evidence(_KIND, "neither ports of the device nor both ends of flows count packets")
    findings = [*injected]
    if total_of(dropped) > 0:
        blames = blame_arrivals(
            evidence, packet_losses(evidence), dropped, is_only_cause=is_only_cause(evidence, _MODELLED)
        )
        findings += [loss_finding(_KIND, blame, "lost", _MODELLED, _REMEDY) for blame in blames]
    unexplained = _count_unexplained(evidence, lost)
    if not findings and unexplained > LEAST_UNEXPLAINED_PACKETS and not ended_paused(evidence):
        findings += _on_cables(evidence, unexplained) or _by_records(evidence)
    if not findings and not total_of(flows.sent.get("tx_packets", np.zeros(1))):
        return not_exercised(_KIND, "no data packets were counted")
    return report(_KIND, tuple(findings))


def _drops_with_room(evidence: Evidence, missing: float) -> Floats:
    """Return arrivals that a port dropped whole and not for want of buffer, by port; NaN where it does not count them."""
    ports, lanes = evidence.ports, evidence.lanes
    room = np.bincount(lanes.port, np.nan_to_num(lanes.counter("group_dropped_packets")), len(ports.names))
    dropped = np.maximum(ports.counter("rx_dropped_packets") - room, 0.0)
    # Devices count frames of other protocols here too, so only losses of the job's flows make it evidence.
    if missing < 0.5 * total_of(dropped):
        return np.full(len(ports.names), np.nan)
    return np.asarray(dropped)


def _count_unexplained(evidence: Evidence, lost: Floats) -> float:
    """Return data packets that no end received and no counter explains."""
    return (
        total_of(np.maximum(lost, 0.0))
        - sum(losses_by_cause(evidence).values())
        - total_of(evidence.hosts.counter("rx_icrc_encapsulated"))
        * (total_of(evidence.ports.counter("fault_corrupted_packets")) == 0)
    )


def _on_cables(evidence: Evidence, unexplained: float) -> list[Finding]:
    """Return cables whose ends count different packets, if they explain at least half of the losses."""
    blames = [*_between_switches(evidence), *_to_hosts(evidence)]
    if sum(blame.lost_packets for blame in blames) < 0.5 * unexplained:
        return []
    blames.sort(key=lambda blame: -blame.lost_packets)
    return [
        loss_finding(_KIND, blame, "lost on the cable", "cable_lost_packets", _REMEDY) for blame in blames[:4]
    ]


def _between_switches(evidence: Evidence) -> list[Blame]:
    """Return cables between ports of the device on which packets are missing, by the port that should receive them."""
    ports = evidence.ports
    if total_of(ports.counter("link_dropped_packets")) > 0:
        return []
    sent, received = ports.counter("tx_packets"), ports.counter("rx_packets")
    errors = np.nan_to_num(ports.counter("rx_error_packets"))
    peer = ports.peer_row
    missing = np.where(peer >= 0, sent[peer] - received - errors, np.nan) if len(peer) else received
    rows = np.flatnonzero(np.nan_to_num(missing) > LEAST_UNEXPLAINED_PACKETS)
    return [
        Blame((port_place(evidence, row),), Side.IN, float(missing[row]), float(sent[peer[row]]), 1.0)
        for row in rows.tolist()
    ]


def _to_hosts(evidence: Evidence) -> list[Blame]:
    """Return cables between device and hosts on which packets are missing."""
    ports, dut = evidence.ports, evidence.run.summary.dut
    if dut is None:
        return []
    row_of_peer = {peer: row for row, peer in enumerate(ports.peers)}
    blames = []
    for row in dut.reconciliation:
        arrives = row.direction is Direction.TO_DEVICE
        if row.difference_frames is None or row.agent_frames is None or row.port not in row_of_peer:
            continue
        missing = -row.difference_frames if arrives else row.difference_frames
        if missing <= LEAST_UNEXPLAINED_PACKETS:
            continue
        place = port_place(evidence, row_of_peer[row.port])
        crossed = row.agent_frames + (0 if arrives else missing)
        side = Side.IN if arrives else Side.OUT
        blames.append(Blame((place,), side, float(missing), float(crossed), 1.0))
    return blames


def _by_records(evidence: Evidence) -> list[Finding]:
    """Return the links whose streams share the losses that no counter explains, by the agents' records alone."""
    overflows = np.append(np.nan_to_num(evidence.hosts.counter("receive_overflows")), 0.0)
    streams = evidence.streams
    lost = np.where(overflows[streams.dst_host] > 0, 0.0, streams.lost_packets)
    links = lossy_links(replace(evidence, streams=replace(streams, lost_packets=lost)))
    return [
        loss_finding(
            _KIND,
            Blame(link.places, Side.ACROSS, link.lost_packets, link.crossed_packets, 1 - link.chance),
            "lost",
            "missing_packets",
            _REMEDY,
        )
        for link in links
        if counts_drops(evidence) or not link.is_clustered
    ]
