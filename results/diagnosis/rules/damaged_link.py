"""Finds cables, ports and hosts behind which packets arrive damaged: a wrong FCS at a port, or a wrong ICRC at a host.

Decides which counter is the evidence. The port behind the cable counts frames with a wrong FCS; where only hosts find a
wrong ICRC, the flows that lost packets name the place. A cut-through switch passes damage on, so a port whose errors the
arrivals of its neighbour explain is not a place of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.loss_places import (
    Blame,
    Side,
    blame_arrivals,
    blame_hosts,
    host_place,
    packet_losses,
)
from etloop.results.diagnosis.loss_sources import (
    host_findings,
    is_only_cause,
    loss_finding,
    sum_columns,
    total_of,
)
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.DAMAGED_LINK
_MODELLED: Final = "fault_corrupted_packets"
_FCS: Final = "rx_error_packets"
_ICRC: Final = "rx_icrc_encapsulated"
_REMEDY: Final = "clean and reseat {cable}, then exchange cable, transceiver and port one at a time, and watch rx_error_packets"
_HOST_REMEDY: Final = (
    "frames are whole (no FCS errors) and their ICRC is wrong: exchange the cable of {cable}, then suspect the memory of "
    "its network card or of a switch on the path"
)


def look(evidence: Evidence) -> Found:
    """Return the places behind which packets arrive damaged."""
    ports = evidence.ports
    errors, modelled = _first_errors(evidence, ports.counter(_FCS)), ports.counter(_MODELLED)
    damaged = sum_columns((errors, modelled))
    icrcs = evidence.hosts.counter(_ICRC)
    if np.isnan(damaged).all() and np.isnan(icrcs).all():
        return no_evidence(_KIND, "neither ports of the device nor hosts count damaged packets")
    injected = host_findings(evidence, _KIND, "injected_bad_icrcs", "sends packets with a wrong ICRC")
    if total_of(damaged) > 0:
        counter = _FCS if total_of(errors) > 0 else _MODELLED
        is_only = is_only_cause(evidence, _MODELLED, _FCS)
        blames = blame_arrivals(evidence, packet_losses(evidence), damaged, is_only_cause=is_only)
        return report(_KIND, injected + tuple(_finding(blame, counter, _REMEDY) for blame in blames))
    if injected:
        return report(_KIND, injected)
    # A host takes packets that were cut down for damaged unless the scenario states their DSCP: see trim_unanswered.
    cut = total_of(evidence.lanes.counter("queue_trim_sent_packets")) - total_of(
        evidence.hosts.counter("trimmed_datagrams")
    )
    if total_of(icrcs) > max(cut, 0.0):
        return report(_KIND, (_finding(_blame_hosts(evidence, icrcs), _ICRC, _HOST_REMEDY),))
    if not np.nansum(evidence.flows.received.get("rx_packets", np.zeros(1))):
        return not_exercised(_KIND, "no data arrived")
    return report(_KIND, ())


def _finding(blame: Blame, counter: str, remedy: str) -> Finding:
    return loss_finding(_KIND, blame, "damaged", counter, remedy)


def _first_errors(evidence: Evidence, errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return frame errors without those that a cut-through neighbour passed on: a port between switches is cleared if its
    neighbour's other ports counted at least half as many."""
    ports = evidence.ports
    known = np.nan_to_num(errors)
    if not known.any():
        return errors
    names, switch = np.unique(np.array(ports.switch, object), return_inverse=True)
    by_switch = np.bincount(switch, known, len(names))
    neighbour = np.where(ports.peer_row >= 0, switch[ports.peer_row], -1)
    back = np.where(ports.peer_row >= 0, known[ports.peer_row], 0.0)
    before = np.where(neighbour >= 0, by_switch[neighbour] - back, 0.0)
    passed = (ports.host < 0) & (known > 0) & (before >= 0.5 * known)
    return np.asarray(np.where(passed, 0.0, errors))


def _blame_hosts(evidence: Evidence, icrcs: NDArray[np.float64]) -> Blame:
    """Return the place of wrong ICRCs that hosts found and no port of the device counted."""
    losses = packet_losses(evidence)
    if is_only_cause(evidence):
        lost = np.maximum(np.nan_to_num(losses.lost), 0.0)
        blame = blame_hosts(evidence, losses.src_host, losses.dst_host, np.nan_to_num(losses.sent), lost)
        if blame is not None:
            return blame
    worst = int(np.nanargmax(icrcs))
    wrong, arrived = float(icrcs[worst]), evidence.hosts.counter("rx_datagrams")
    return Blame(
        (host_place(evidence, worst),),
        Side.TO,
        wrong,
        float(np.nan_to_num(arrived[worst])),
        wrong / total_of(icrcs),
    )
