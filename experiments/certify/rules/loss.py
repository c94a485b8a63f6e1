"""Finds where packets were lost, from the packets that each pair of hosts sent and received.

Decides how losses are localised: the cable whose traffic explains most of them is named first, its losses are taken out,
and the rest is examined again (007, NSDI 2018). Packets that a queue dropped for want of buffer are not losses of a cable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.certify.rules.parts import FALSE_PARTS, Answer, cable_of, cable_of_host
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

LEAST_LOST: Final = 3
"""Lost packets below which no part is named."""
MOST_PARTS: Final = 16
_NEARLY_ALL: Final = 0.9
_FEW: Final = 0.2
_ALIKE: Final = 3.0
"""Difference of log-likelihood below which two candidates cannot be distinguished."""


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Directions of cables that packets cross: `crosses[i, j]` of flow i over cable j."""

    places: tuple[Place, ...]
    crosses: NDArray[np.bool_]


def look(evidence: Evidence) -> Answer:
    """Return the cables that lost packets, the one that explains most losses first."""
    flows = evidence.flows
    lost = np.maximum(np.nan_to_num(flows.missing_packets()), 0)
    sent = np.nan_to_num(flows.sent.get("tx_packets", np.zeros(len(lost))))
    figures = _by_host(evidence, lost)
    if not len(lost) or not sent.sum():
        return Answer(figures=figures, untested="no packet was sent")
    dropped = float(np.nan_to_num(evidence.lanes.counter("queue_dropped_packets")).sum())
    dropped += float(np.nan_to_num(evidence.lanes.counter("group_dropped_packets")).sum())
    if lost.sum() - dropped < LEAST_LOST:
        return Answer(figures=figures)
    if dropped > _FEW * lost.sum():
        words = f"{dropped:.0f} of {lost.sum():.0f} lost packets were dropped for want of buffer, and hide the others"
        return Answer(figures=figures, untested=words)
    candidates = _candidates(evidence)
    findings = []
    for _ in range(MOST_PARTS):
        finding, crossing = _worst(evidence, candidates, lost, sent)
        if finding is None:
            break
        findings.append(finding)
        lost, sent = np.where(crossing, 0, lost), np.where(crossing, 0, sent)
    return Answer(tuple(findings), figures)


def _by_host(evidence: Evidence, lost: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    flows, hosts = evidence.flows, evidence.hosts
    sums = [
        np.bincount(rows[rows >= 0], lost[rows >= 0], len(hosts.names))
        for rows in (flows.src_host, flows.dst_host)
    ]
    return {
        name: {"lost_sent": float(sums[0][row]), "lost_received": float(sums[1][row])}
        for row, name in enumerate(hosts.names)
    }


def _candidates(evidence: Evidence) -> _Candidates:
    """Return both directions of every cable of a host, and of every cable between switches if the ways of flows are known;
    else the switches of hosts."""
    flows = evidence.flows
    columns: list[tuple[Place, NDArray[np.bool_]]] = [
        (cable_of_host(evidence, host), rows == host)
        for rows in (flows.src_host, flows.dst_host)
        for host in np.unique(rows[rows >= 0]).tolist()
    ]
    count = len(flows.src_host)
    if not flows.has_ways:
        columns += _of_switches(evidence)
    else:
        flow_of = np.repeat(np.arange(count), np.diff(flows.way_first))
        for port in np.unique(flows.way_port[flows.way_port >= 0]).tolist():
            if evidence.ports.peer_row[port] >= 0:
                column = np.zeros(count, bool)
                column[flow_of[flows.way_port == port]] = True
                columns.append((cable_of(evidence, port), column))
    crosses = np.array([column for _, column in columns]).reshape(len(columns), count).T
    return _Candidates(tuple(place for place, _ in columns), crosses)


def _of_switches(evidence: Evidence) -> list[tuple[Place, NDArray[np.bool_]]]:
    """Return each switch with hosts, with the flows that enter the rest of the fabric there, and those that leave it."""
    flows, hosts = evidence.flows, evidence.hosts
    switch_of = [evidence.ports.switch[port] if port >= 0 else "" for port in hosts.port.tolist()]
    names = sorted(set(switch_of) - {""})
    if len(names) < 2:
        return []
    number = np.array([names.index(name) if name else -1 for name in switch_of], np.int64)
    source, destination = number[flows.src_host], number[flows.dst_host]
    return [
        (Place(PlaceKind.SWITCH, name), (source != destination) & (end == row))
        for row, name in enumerate(names)
        for end in (source, destination)
    ]


def _worst(
    evidence: Evidence, candidates: _Candidates, lost: NDArray[np.float64], sent: NDArray[np.float64]
) -> tuple[Finding | None, NDArray[np.bool_]]:
    """Return the part that explains most of the losses, with the flows that cross it; None if no part does."""
    from scipy.stats import binom

    nothing = np.zeros(len(lost), bool)
    total_lost, total_sent = float(lost.sum()), float(sent.sum())
    if total_lost < LEAST_LOST:
        return None, nothing
    over = np.asarray(candidates.crosses.T.astype(np.float64) @ np.column_stack((lost, sent)), np.float64)
    lost_over, sent_over = over[:, 0], over[:, 1]
    score = _gain(lost_over, sent_over, total_lost, total_sent)
    best = int(np.argmax(score))
    chance = float(binom.sf(lost_over[best] - 1, total_lost, sent_over[best] / total_sent))
    chance = min(1.0, chance * len(candidates.places))
    if lost_over[best] < LEAST_LOST or chance > FALSE_PARTS:
        return _inside(evidence, total_lost, total_sent)
    alike = np.flatnonzero(score >= score[best] - _ALIKE)
    alike = alike[np.argsort(-score[alike])]
    places = tuple(dict.fromkeys(_narrow(evidence, candidates.places[index]) for index in alike.tolist()))
    share = lost_over[best] / sent_over[best]
    words = (
        f"{lost_over[best]:.0f} of the {total_lost:.0f} lost packets cross {' or '.join(map(str, places))}"
    )
    sentence = f"{words}, which is {share:.2g} of the {sent_over[best]:.0f} packets of the same ports"
    if places[0] != candidates.places[best]:
        sentence = f"{words}: its device counted them; they are {share:.2g} of the traffic of {candidates.places[best]}"
    facts = (Fact("lost_packets", float(lost_over[best]), "packets", 0.0, int(sent_over[best])),)
    remedy = "swap the cable, then the optics, then the port, one at a time"
    kind = _kind(evidence)
    finding = Finding(kind, places, sentence, facts, 1 - chance, remedy, is_ambiguous=len(places) > 1)
    return finding, candidates.crosses[:, best]


def _gain(
    lost: NDArray[np.float64], sent: NDArray[np.float64], total_lost: float, total_sent: float
) -> NDArray[np.float64]:
    """Return by candidate the gain in log-likelihood of two loss rates, on it and elsewhere, over a single one."""

    def likelihood(count: NDArray[np.float64], of: NDArray[np.float64]) -> NDArray[np.float64]:
        rate = np.clip(count / np.maximum(of, 1), 1e-12, 1 - 1e-12)
        return np.asarray(count * np.log(rate) + (of - count) * np.log1p(-rate))

    apart = likelihood(lost, sent) + likelihood(total_lost - lost, total_sent - sent)
    together = likelihood(np.array([total_lost]), np.array([total_sent]))
    higher = lost * total_sent > sent * total_lost
    return np.where(higher, apart - together, -np.inf)


def _inside(evidence: Evidence, lost: float, sent: float) -> tuple[Finding | None, NDArray[np.bool_]]:
    """Return the switch with counters of losses that no cable explains."""
    ports = evidence.ports
    counted = _count_losses(evidence)
    everything = np.ones(len(evidence.flows.src_host), bool)
    if counted.sum() < LEAST_LOST:
        return None, everything
    sums: dict[str, float] = {}
    for switch, count in zip(ports.switch, counted.tolist(), strict=True):
        sums[switch] = sums.get(switch, 0.0) + count
    worst = max(sums, key=sums.__getitem__)
    place = _narrow(evidence, Place(PlaceKind.SWITCH, worst))
    sentence = f"{place} loses packets: it counted {sums[worst]:.0f}, out of {lost:.0f} lost of {sent:.0f}"
    fact = Fact("lost_packets", sums[worst], "packets", 0.0, int(sent))
    remedy = "swap the cables of the switch one at a time"
    return Finding(_kind(evidence), (place,), sentence, (fact,), 1.0, remedy), everything


def _count_losses(evidence: Evidence) -> NDArray[np.float64]:
    """Return by port of the device the packets that its counters show as lost on arrival (float64)."""
    names = ("fault_dropped_packets", "fault_corrupted_packets", "rx_error_packets", "rx_dropped_packets")
    return np.asarray(sum(np.nan_to_num(evidence.ports.counter(name)) for name in names), np.float64)


def _narrow(evidence: Evidence, place: Place) -> Place:
    """Return the cable of the port that counted nearly all losses that the device counted; else `place`, if it is a cable."""
    counted = _count_losses(evidence)
    if place.kind is not PlaceKind.SWITCH or not counted.size or counted.sum() < LEAST_LOST:
        return place
    top = int(np.argmax(counted))
    return cable_of(evidence, top) if counted[top] >= _NEARLY_ALL * counted.sum() else place


def _kind(evidence: Evidence) -> FindingKind:
    """Return whether most missing packets arrived damaged."""
    damaged = np.nansum(evidence.hosts.counter("rx_icrc_encapsulated"))
    lost = np.maximum(np.nan_to_num(evidence.flows.missing_packets()), 0).sum()
    return FindingKind.DAMAGED_LINK if 2 * damaged >= lost else FindingKind.LOSSY_LINK
