"""Decides where packets were lost or damaged: at a port of arrival, at a port of departure, or in a whole switch.

Every hypothesis names the flows that it would hit. Under a constant rate per packet, X losses among the S packets of a
hypothesis have the probability S^-X, so the smallest set of flows that covers all losses wins, and places whose sets are
equal cannot be told apart. Counters of the port of arrival add what they know about packets without a flow, such as
acknowledgements.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Place, PlaceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence, Flows

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

LOG_OUTSIDE: Final = float(np.log(1e3))
"""Penalty of a loss outside the flows of a hypothesis, in natural logarithms: counters of a run are read at slightly
different times, so that one stray loss does not refute a place."""
LEAST_POSTERIOR: Final = 0.05
"""Hypotheses below this posterior probability are not listed."""
MOST_BAD_PORTS: Final = 4
"""Ports of one switch that are named one by one; more are the switch."""


_SENT: Final = ("tx_packets", "acks_tx", "naks_tx", "np_cnp_sent")
_ARRIVED: Final = (
    "rx_packets",
    "acks_rx",
    "naks_rx",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "trimmed_received",
)
"""Counters of one end of a flow that count every packet once; trimmed packets are neither data nor answers."""


class Side(StrEnum):
    """Direction of the packets at a place."""

    IN = "in at"
    OUT = "out of"
    ACROSS = "across"
    FROM = "from"
    TO = "to"


@dataclass(frozen=True, slots=True)
class Blame:
    """Places that explain losses, the most likely first; several: the evidence cannot tell them apart."""

    places: tuple[Place, ...]
    side: Side
    """Of the first place."""
    lost_packets: float
    crossed_packets: float
    """Packets that crossed the first place, lost ones included."""
    probability: float
    """That the cause is one of `places`."""

    @property
    def rate(self) -> float:
        """Return the share of packets lost at the first place."""
        return self.lost_packets / max(self.crossed_packets, self.lost_packets, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Which flow crosses which switch, one row each; -1: through a port between switches that is not known."""

    flow: Rows
    switch: Rows
    arrival: Rows
    departure: Rows


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    score: float
    place: Place
    side: Side
    lost: float
    crossed: float


@dataclass(frozen=True, slots=True, eq=False)
class PacketLosses:
    """Packets of each flow in the direction of its data, and after these all rows again in the direction of the answers."""

    src_host: Rows
    """Row in `Hosts` of the port that sends, -1 if not known."""
    dst_host: Rows
    sent: Floats
    lost: Floats
    """Packets that left and did not arrive, neither whole nor trimmed; NaN if an end did not report."""


def packet_losses(flows: Flows) -> PacketLosses:
    """Return what each direction of each flow sent and lost, by the counters of both of its ends."""

    def count(end: Mapping[str, Floats], names: tuple[str, ...]) -> Floats:
        columns = [end[name] for name in names if name in end]
        return np.asarray(np.sum(columns, axis=0)) if columns else np.full(len(flows.src_rank), np.nan)

    there, back = count(flows.sent, _SENT), count(flows.received, _SENT)
    return PacketLosses(
        np.r_[flows.src_host, flows.dst_host],
        np.r_[flows.dst_host, flows.src_host],
        np.r_[there, back],
        np.r_[there - count(flows.received, _ARRIVED), back - count(flows.sent, _ARRIVED)],
    )


def crossings(evidence: Evidence, losses: PacketLosses, switch_of_port: Rows) -> Crossings:
    """Return the switches that each row of `losses` crosses: all of them where ways are known, else those at its ends."""
    flows, ports = evidence.flows, evidence.ports
    host_port = np.append(evidence.hosts.port, -1)
    src, dst = host_port[losses.src_host], host_port[losses.dst_host]
    rows = np.arange(len(src))
    length = np.zeros(len(src), np.int64)
    if flows.has_ways and not evidence.needs.sprays:
        length[: len(flows.src_rank)] = np.diff(flows.way_first)
    entry = np.repeat(rows, length)
    departure = flows.way_port[: len(entry)]
    is_first = np.r_[True, entry[1:] != entry[:-1]][: len(entry)]
    before = np.r_[departure[:1], departure[:-1]]
    arrival = np.where(is_first, src[entry], ports.peer_row[before]) if len(entry) else entry
    ends = (length == 0) & (src >= 0) & (dst >= 0)
    is_local = switch_of_port[src] == switch_of_port[dst]
    local, remote = ends & is_local, ends & ~is_local
    unknown = np.full(int(remote.sum()), -1)
    anchor = np.r_[departure, dst[local], src[remote], dst[remote]]
    return Crossings(
        np.r_[entry, rows[local], rows[remote], rows[remote]],
        switch_of_port[anchor],
        np.r_[arrival, src[local], src[remote], unknown],
        np.r_[departure, dst[local], unknown, dst[remote]],
    )


def blame_arrivals(evidence: Evidence, lost_at: Floats, *, is_only_cause: bool) -> tuple[Blame, ...]:
    """Return the places of losses that the device counted at ports of arrival.

    `lost_at`: losses by port of arrival (float64). `is_only_cause`: nothing else lost packets, so that the losses of flows
    are the same packets.
    """
    ports = evidence.ports
    names, switch_of_port = np.unique(np.array(ports.switch, object), return_inverse=True)
    switch_of_port = switch_of_port.astype(np.int64)
    lost_at = np.nan_to_num(lost_at)
    affected = np.flatnonzero(np.bincount(switch_of_port, lost_at, len(names)) > 0)
    if len(affected) == 0:
        return ()
    losses = packet_losses(evidence.flows)
    crossed = crossings(evidence, losses, switch_of_port)
    blames: list[Blame] = []
    for switch in affected.tolist():
        rows = np.flatnonzero(switch_of_port == switch)
        here = crossed.switch == switch
        if not here.any():
            crossed_here = _between(evidence, losses, switch_of_port, rows)
        else:
            crossed_here = Crossings(
                *(
                    column[here]
                    for column in (crossed.flow, crossed.switch, crossed.arrival, crossed.departure)
                )
            )
        column = np.full(len(ports.names) + 1, -1)
        column[rows] = np.arange(len(rows))
        flow = crossed_here.flow
        traffic = _Traffic(
            column[crossed_here.arrival],
            column[crossed_here.departure],
            np.nan_to_num(losses.sent)[flow],
            np.maximum(np.nan_to_num(losses.lost), 0.0)[flow],
            ports.host[rows] < 0,
        )
        lost = lost_at[rows]
        arrived = np.maximum(np.nan_to_num(ports.counter("rx_packets")[rows]), lost)
        uses_flows = is_only_cause and len(affected) == 1 and 0 < traffic.lost.sum() <= 1.02 * lost.sum()
        scores = _by_flows(traffic, lost, arrived) if uses_flows else _by_arrivals(traffic, lost, arrived)
        blames += _blame_in_switch(evidence, rows, lost, arrived, scores)
    return tuple(sorted(blames, key=lambda blame: -blame.lost_packets))


def _between(evidence: Evidence, losses: PacketLosses, switch_of_port: Rows, rows: Rows) -> Crossings:
    """Return the flows that may cross a switch without hosts, whose ways are not known: those between two of its neighbours.

    Which of them do cross it does not matter to compare its ports; several cables to one neighbour are not told apart.
    """
    port_of = np.full(int(switch_of_port.max()) + 2, -1)
    peers = evidence.ports.peer_row[rows]
    neighbour = switch_of_port[peers[peers >= 0]]
    port_of[neighbour] = rows[peers >= 0]
    several, count = np.unique(neighbour, return_counts=True)
    port_of[several[count > 1]] = -1
    host_port = np.append(evidence.hosts.port, -1)
    src, dst = host_port[losses.src_host], host_port[losses.dst_host]
    arrival = np.where(src >= 0, port_of[switch_of_port[src]], -1)
    departure = np.where(dst >= 0, port_of[switch_of_port[dst]], -1)
    flow = np.flatnonzero((arrival >= 0) & (departure >= 0) & (arrival != departure))
    return Crossings(flow, np.full(len(flow), switch_of_port[rows[0]]), arrival[flow], departure[flow])


@dataclass(frozen=True, slots=True, eq=False)
class _Traffic:
    """Crossings of one switch; ports by their place among its own."""

    arrival: Rows
    departure: Rows
    sent: Floats
    lost: Floats
    is_fabric: NDArray[np.bool_]
    """By port: whether it leads to another switch, or to an unknown peer."""


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Log-likelihoods of the hypotheses of one switch."""

    arrival: Floats
    """By port: all packets that arrive there are lost alike."""
    departure: Floats
    """By port: all packets that leave there; -inf where its traffic is not known."""
    departed: Floats
    """Packets of each port of departure."""
    several: float
    """Each port of arrival with losses has a rate of its own."""
    whole: float
    """The whole switch loses alike."""


def _by_flows(traffic: _Traffic, lost: Floats, arrived: Floats) -> _Scores:
    """Return the scores by the losses of flows; packets without a flow count at their port of arrival."""
    fabric, packets = traffic.is_fabric, max(float(traffic.sent.sum()), 1.0)
    total = float(traffic.lost.sum())
    inside_in, inside_out = (_sums(end, traffic.lost, fabric) for end in (traffic.arrival, traffic.departure))
    sent_in, sent_out = (_sums(end, traffic.sent, fabric) for end in (traffic.arrival, traffic.departure))
    rest = np.where(fabric & (traffic.arrival < 0).any(), 0.0, np.maximum(lost - inside_in, 0.0))
    rest *= max(float(lost.sum()) - total, 0.0) / max(float(rest.sum()), 1e-9)
    spread = float((rest * np.log(_shares(arrived))).sum())
    stray = LOG_OUTSIDE + np.log(packets)
    is_counted = np.minimum(inside_in, lost)  # A port of arrival that counted no loss is not the place.
    arrival = -is_counted * np.log(np.maximum(sent_in, 1.0))
    arrival -= (np.maximum(total - is_counted, 0) + rest.sum() - rest) * stray
    departure = (
        -inside_out * np.log(np.maximum(sent_out, 1.0)) - np.maximum(total - inside_out, 0) * stray + spread
    )
    arrival += fabric * _of_unknown_way(traffic.arrival, traffic.lost, fabric)
    departure += fabric * _of_unknown_way(traffic.departure, traffic.lost, fabric)
    bad = lost > 0
    several = (lost * (np.log(np.maximum(lost, 1.0) / lost.sum()) - np.log(np.maximum(sent_in, 1.0))))[
        bad
    ].sum()
    return _Scores(arrival, departure, sent_out, float(several), -total * np.log(packets) + spread)


def _by_arrivals(traffic: _Traffic, lost: Floats, arrived: Floats) -> _Scores:
    """Return the scores by the counters of the ports of arrival alone."""
    total, count = float(lost.sum()), len(lost)
    known = (traffic.arrival >= 0) & (traffic.departure >= 0)
    cells = np.bincount(
        traffic.arrival[known] * count + traffic.departure[known], traffic.sent[known], count * count
    ).reshape(count, count)
    departed = cells.sum(axis=0)
    share = (cells + 0.01 * departed / count) / np.maximum(1.01 * departed, 1e-9)
    departure = np.where(departed > 0, lost @ np.log(np.maximum(share, 1e-12)), -np.inf)
    bad = lost > 0
    return _Scores(
        -(total - lost) * (LOG_OUTSIDE + np.log(count)),
        np.asarray(departure),
        departed,
        float((lost[bad] * np.log(lost[bad] / total)).sum()),
        float((lost * np.log(_shares(arrived))).sum()),
    )


def _shares(arrived: Floats) -> Floats:
    counted = np.maximum(arrived, 1.0)
    return np.asarray(counted / counted.sum())


def _blame_in_switch(
    evidence: Evidence, rows: Rows, lost: Floats, arrived: Floats, scores: _Scores
) -> list[Blame]:
    """Return the place in one switch, or each of several ports of arrival."""
    total = float(lost.sum())
    bad = np.flatnonzero(lost > 0)[np.argsort(-lost[lost > 0], kind="stable")].tolist()
    best = max(float(scores.arrival.max()), float(scores.departure.max()), scores.whole)
    several = scores.several - len(bad) * np.log(len(rows) * np.sqrt(total))
    if 1 < len(bad) <= MOST_BAD_PORTS and several > best + LOG_OUTSIDE:
        return [
            Blame(
                (port_place(evidence, int(rows[port])),), Side.IN, float(lost[port]), float(arrived[port]),
                1.0 - float(np.exp(best - several)),
            )
            for port in bad
        ]  # fmt: skip
    places = [port_place(evidence, row) for row in rows.tolist()]
    hypotheses = [
        _Hypothesis(
            float(scores.arrival[port]), places[port], Side.IN, float(lost[port]), float(arrived[port])
        )
        for port in bad
    ]
    hypotheses += [
        _Hypothesis(float(score), places[port], Side.OUT, total, float(scores.departed[port]))
        for port, score in enumerate(scores.departure.tolist())
        if np.isfinite(score)
    ]
    whole = Place(PlaceKind.SWITCH, evidence.ports.switch[int(rows[0])])
    hypotheses.append(_Hypothesis(scores.whole, whole, Side.ACROSS, total, float(arrived.sum())))
    return [_choose(hypotheses, total)]


def _sums(column: Rows, values: Floats, fabric: NDArray[np.bool_]) -> Floats:
    """Return sums by port; flows through an unknown port between switches count for each of these ports."""
    known = column >= 0
    sums = np.bincount(column[known], values[known], len(fabric)).astype(np.float64)
    return np.asarray(sums + fabric * float(values[~known].sum()))


def _of_unknown_way(column: Rows, losses: Floats, fabric: NDArray[np.bool_]) -> float:
    """Return the correction of a port between switches for flows whose port is not known: it carries one part of k of their
    packets, and each flow that lost packets is among them with the probability 1/k."""
    unknown = losses[column < 0]
    return float(np.log(max(int(fabric.sum()), 1)) * (unknown.sum() - (unknown > 0).sum()))


def _choose(hypotheses: list[_Hypothesis], total: float) -> Blame:
    """Return the most likely hypothesis with those that cannot be told apart from it."""
    ranked = sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
    weights = np.exp(np.array([hypothesis.score for hypothesis in ranked]) - ranked[0].score)
    posterior = weights / weights.sum()
    # Equal scores: the port that counted the losses first, then the port of departure, then the switch.
    order = {Side.IN: 0, Side.OUT: 1, Side.ACROSS: 2, Side.FROM: 0, Side.TO: 1}
    listed = [
        (hypothesis, float(probability))
        for hypothesis, probability in zip(ranked, posterior.tolist(), strict=True)
        if probability >= max(LEAST_POSTERIOR, 0.05 * float(posterior[0]))
    ]
    listed.sort(key=lambda pair: (-round(pair[1], 2), order[pair[0].side]))
    first = listed[0][0]
    places = tuple(dict.fromkeys(hypothesis.place for hypothesis, _ in listed))
    return Blame(
        places,
        first.side,
        min(first.lost, total) or total,
        first.crossed,
        min(sum(probability for _, probability in listed), 1.0),
    )


def port_place(evidence: Evidence, row: int) -> Place:
    """Return a port of the device with the other end of its cable."""
    return Place(PlaceKind.PORT, evidence.ports.names[row], evidence.ports.peers[row])


def blame_flows(evidence: Evidence, losses: PacketLosses) -> Blame | None:
    """Return the port of the rig, pair of ports, or all paths whose flows share the losses; None without losses.

    Uses the agents' records alone: a scan over senders, receivers and pairs with two rates, inside and outside
    (Kulldorff's statistic).
    """
    hosts = evidence.hosts
    lost, sent = np.maximum(np.nan_to_num(losses.lost), 0.0), np.nan_to_num(losses.sent)
    total, packets = float(lost.sum()), float(sent.sum())
    if total <= 0 or not len(hosts.names):
        return None
    count = len(hosts.names)
    pair = losses.src_host * count + losses.dst_host
    pairs, pair_of_flow = np.unique(pair, return_inverse=True)
    groups = (
        (Side.FROM, losses.src_host, count),
        (Side.TO, losses.dst_host, count),
        (None, pair_of_flow, len(pairs)),
    )
    hypotheses = [_Hypothesis(0.0, Place(PlaceKind.JOB, "all paths"), Side.ACROSS, total, packets)]
    for side, group, size in groups:
        inside = np.bincount(group, lost, size).astype(np.float64)
        crossed = np.bincount(group, sent, size).astype(np.float64)
        scores = _scan(inside, crossed, total, packets) - np.log(size)
        for index in np.argsort(-scores, kind="stable")[:8].tolist():
            if inside[index] <= 0 or crossed[index] >= packets:
                continue
            if side is None:
                src, dst = divmod(int(pairs[index]), count)
                place = Place(PlaceKind.HOST, hosts.names[src], hosts.names[dst])
            else:
                place = host_place(evidence, index)
            hypotheses.append(
                _Hypothesis(
                    float(scores[index]),
                    place,
                    side or Side.FROM,
                    float(inside[index]),
                    float(crossed[index]),
                )
            )
    return _choose(hypotheses, total)


def host_place(evidence: Evidence, host: int) -> Place:
    """Return a port of the rig with the device's port on its cable, if it is known."""
    port = int(evidence.hosts.port[host])
    return Place(PlaceKind.HOST, evidence.hosts.names[host], evidence.ports.names[port] if port >= 0 else "")


def _scan(inside: Floats, crossed: Floats, total: float, packets: float) -> Floats:
    """Return the log-likelihood ratio of a greater rate inside each group than outside; 0 where it is not greater."""
    outside, rest = total - inside, np.maximum(packets - crossed, 1e-9)
    rate_in, rate_out = inside / np.maximum(crossed, 1e-9), outside / rest
    rate = total / max(packets, 1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = inside * np.log(np.maximum(rate_in, 1e-300) / rate) + np.where(
            outside > 0, outside * np.log(np.maximum(rate_out, 1e-300) / rate), 0.0
        )
    return np.asarray(np.where((rate_in > rate_out) & (inside > 0), ratio, 0.0))
