"""Finds congestion notifications that are lost, or wait in their queue, on the way back.

Decides loss by the counts of both ends, compared with the loss of data; waiting by Little's law: the mean time in a queue is
its mean length divided by its rate. The queue of the notifications is evaluated only where the data has another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.units import approximate_duration
from etloop.results.diagnosis.rule import Found, not_exercised, report
from etloop.results.diagnosis.rules.traffic_class import ClassWay
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_LEAST_LOST: Final = 10
_LEAST_SENT: Final = 10
_DEVIATIONS: Final = 4.3
"""Distance from the mean of a Poisson count: 0.01 false findings in a run."""
_LATE_FRAMES: Final = 16
"""Wait of a notification in frames of data at the rate of its port: one of each data queue may be before it at every hop."""
_ALMOST_ALL: Final = 0.9
_LESS_THAN_HALF: Final = 0.5


def look(evidence: Evidence) -> Found:
    """Return lost notifications, and the switches at which they wait."""
    kind = FindingKind.CNP_LATE
    flows = evidence.flows
    sent, handled, ignored = (
        _both_ends(evidence, name) for name in ("np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")
    )
    total = float(np.nansum(sent))
    if evidence.needs.cnp_dscp < 0 or total < _LEAST_SENT:
        return not_exercised(kind, "fewer than 10 congestion notifications were sent")
    lost = total - float(np.nansum(handled) + np.nansum(ignored))
    findings = []
    data_sent = float(np.nansum(flows.sent.get("tx_packets", np.zeros(1))))
    data_lost = max(float(np.nansum(flows.missing_packets())), 0.0)
    usual = total * data_lost / max(data_sent, 1.0)
    if lost >= max(_LEAST_LOST, usual + _DEVIATIONS * np.sqrt(usual)) and lost > 2 * usual:
        findings.append(_report_loss(evidence, lost, total, usual))
    findings += _waiting(evidence)
    return report(kind, tuple(findings))


def _both_ends(evidence: Evidence, name: str) -> Floats:
    """Return a counter of both ends of each flow, summed."""
    flows = evidence.flows
    nothing = np.zeros(len(flows.src_rank))
    totals: Floats = nothing + np.nan_to_num(flows.sent.get(name, nothing))
    return totals + np.nan_to_num(flows.received.get(name, nothing))


def _report_loss(evidence: Evidence, lost: float, total: float, usual: float) -> Finding:
    place = _dropping_place(evidence) or _losing_host(evidence)
    where = "" if place is None else f", most of them at {place}"
    sentence = f"{lost:.0f} of {total:.0f} congestion notifications did not arrive{where}"
    facts = (Fact("lost_cnps", lost, "packets", usual, int(total)),)
    places = (Place(PlaceKind.JOB, "job") if place is None else place,)
    remedy = "give notifications a queue and DSCP of their own on every switch, and compare np_cnp_sent with rp_cnp_handled"
    return Finding(FindingKind.CNP_LATE, places, sentence, facts, 1.0, remedy)


def _dropping_place(evidence: Evidence) -> Place | None:
    """Return the queue of notifications that dropped most packets, None if none did."""
    lanes, ports = evidence.lanes, evidence.ports
    is_queue = np.array(_queue_of_lane(evidence, is_shared=True), np.int64) == lanes.number
    dropped = np.where(is_queue, np.nan_to_num(lanes.counter("queue_dropped_packets")), 0.0)
    if not dropped.max(initial=0.0):
        return None
    lane = int(dropped.argmax())
    port = int(lanes.port[lane])
    return Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[lane]))


def _losing_host(evidence: Evidence) -> Place | None:
    """Return the host from or to which all lost notifications were sent, if other hosts had most of the others."""
    flows = evidence.flows
    nothing = np.zeros(len(flows.src_rank))
    sent = np.nan_to_num(flows.received.get("np_cnp_sent", nothing))
    arrived = sum(
        (np.nan_to_num(flows.sent.get(name, nothing)) for name in ("rp_cnp_handled", "rp_cnp_ignored")),
        nothing,
    )
    for host in (flows.src_host, flows.dst_host):
        known = host >= 0
        lost = np.bincount(host[known], np.maximum(sent - arrived, 0)[known], 1)
        share = np.bincount(host[known], sent[known], len(lost)) / max(float(sent.sum()), 1.0)
        worst = int(lost.argmax())
        if lost[worst] and lost[worst] >= _ALMOST_ALL * lost.sum() and share[worst] < _LESS_THAN_HALF:
            return Place(PlaceKind.HOST, evidence.hosts.names[worst])
    return None


def _queue_of_lane(evidence: Evidence, *, is_shared: bool = False) -> list[int]:
    """Return for each lane the queue of the notifications at its switch, -1 if it is not known.

    Queues that the data use as well are -1 unless `is_shared`.
    """
    needs, topology = evidence.needs, evidence.topology
    by_switch: dict[str, int] = {}
    for switch in () if topology is None else topology.switches:
        queue = ClassWay.of(switch, needs.cnp_dscp).queue
        has_data = needs.data_dscp >= 0 and ClassWay.of(switch, needs.data_dscp).queue == queue
        by_switch[switch.name] = -1 if has_data and not is_shared else queue
    return [by_switch.get(evidence.ports.switch[port], -1) for port in evidence.lanes.port.tolist()]


def _waiting(evidence: Evidence) -> list[Finding]:
    """Return the ports at which notifications wait longer than a few frames of data take."""
    lanes, samples, ports = evidence.lanes, evidence.samples, evidence.ports
    queues = np.array(_queue_of_lane(evidence), np.int64)
    chosen = np.flatnonzero(queues == lanes.number) if len(queues) else np.empty(0, np.int64)
    if not len(chosen) or len(samples.lane) < 2:
        return []
    frame_bytes = evidence.needs.path_mtu_bytes
    queued, sent = samples.value("queued_bytes"), samples.value("tx_bytes")
    step = np.flatnonzero(samples.lane[1:] == samples.lane[:-1])
    gap_ns = samples.time_ns[step + 1] - samples.time_ns[step]
    area = np.bincount(
        samples.lane[step], np.nan_to_num(queued[step] + queued[step + 1]) / 2 * gap_ns, len(lanes.port)
    )
    moved = np.bincount(samples.lane[step], np.nan_to_num(sent[step + 1] - sent[step]), len(lanes.port))
    wait_ns = area / np.maximum(moved, 1.0)
    limit_ns = _LATE_FRAMES * frame_bytes * 8e9 / ports.described_bps[lanes.port]
    packets = np.nan_to_num(lanes.counter("queue_packets"))
    findings = []
    late = chosen[(wait_ns > limit_ns)[chosen] & (packets[chosen] >= _LEAST_SENT)]
    for lane in late[np.argsort(-wait_ns[late])][:4].tolist():
        port = int(lanes.port[lane])
        place = Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[lane]))
        sentence = (
            f"congestion notifications wait {approximate_duration(int(wait_ns[lane]))} on average at {place}, longer than "
            f"{_LATE_FRAMES} frames of data take"
        )
        facts = (Fact("mean_wait_ns", float(wait_ns[lane]), "ns", float(limit_ns[lane]), int(packets[lane])),)
        remedy = f"serve queue {place.number} before the data: strict priority, or a greater weight"
        findings.append(Finding(FindingKind.CNP_LATE, (place,), sentence, facts, 0.9999, remedy))
    return findings
