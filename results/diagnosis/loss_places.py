"""Decides where packets were lost or damaged: at a port of arrival, at a port of departure, or in a whole switch.

Every hypothesis names the flows that it would hit. Under a constant rate per packet, X losses among the S packets of a
hypothesis have the probability S^-X, so the smallest set of flows that covers all losses wins, and places whose sets are
equal cannot be distinguished. Counters of the port of arrival add what they know about packets without a flow, such as
acknowledgements.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Place, PlaceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence, Flows, Streams

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

LOG_OUTSIDE: Final = float(np.log(1e3))
"""Penalty of a loss outside the flows of a hypothesis, in natural logarithms: counters of a run are read at slightly
different times, so that one stray loss does not refute a place."""
LEAST_POSTERIOR: Final = 0.05
"""Hypotheses below this posterior probability are not listed."""
MOST_FOLLOWED: Final = 8
"""Switches whose flows are followed, those with most losses; of further ones, the counters of ports decide alone."""
MOST_BAD_PORTS: Final = 4
"""Ports of one switch that are named one by one; more are the switch."""


_SHORT: Final = ("acks_tx", "naks_tx", "np_cnp_sent")
_SHORT_ARRIVED: Final = ("acks_rx", "naks_rx", "rp_cnp_handled", "rp_cnp_ignored")
"""Counters of packets without payload, of both ends of a flow."""


class Side(StrEnum):
    """Direction of the packets at a place."""

    IN = "in at"
    OUT = "out of"
    ACROSS = "across"
    FROM = "from"
    TO = "to"


@dataclass(frozen=True, slots=True)
class Blame:
    """Places that explain losses, the most likely first; several: the evidence cannot distinguish them."""

    places: tuple[Place, ...]
    side: Side
    """Direction at the first place."""
    lost_packets: float
    crossed_packets: float
    """Packets that crossed the first place, lost ones included."""
    probability: float
    """Probability that the cause is one of `places`."""

    @property
    def rate(self) -> float:
        """Return the share of packets lost at the first place."""
        return self.lost_packets / max(self.crossed_packets, self.lost_packets, 1.0)


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    score: float
    place: Place
    side: Side
    lost: float
    crossed: float


@dataclass(frozen=True, slots=True, eq=False)
class PacketLosses:
    """Packets from one port of the rig to another that share a way: data by stream, then answers to data and
    acknowledgements of answers by flow."""

    src_host: Rows
    """Row in `Hosts` of the port that sends, -1 if not known."""
    dst_host: Rows
    sent: Floats
    lost: Floats
    """Packets that left and did not arrive, neither whole nor trimmed; NaN if an end did not report."""
    way_first: Rows
    """Row i crosses the egress ports `way_port[way_first[i]:way_first[i + 1]]`, in this order; all equal: not known."""
    way_port: NDArray[np.integer[Any]]


def packet_losses(evidence: Evidence) -> PacketLosses:
    """Return what was sent and lost in each direction of each flow, by the counters of both of its ends."""
    flows, streams = evidence.flows, evidence.streams

    def count(end: Mapping[str, Floats], names: tuple[str, ...]) -> Floats:
        columns = [end[name] for name in names if name in end]
        return np.asarray(np.sum(columns, axis=0)) if columns else np.full(len(flows.src_rank), np.nan)

    trimmed = np.nan_to_num(flows.received.get("trimmed_received", np.zeros(len(flows.src_rank))))
    by_stream = len(streams.ports) > 0 and not trimmed.any()
    if by_stream:
        data = (streams.src_host, streams.dst_host, streams.sent_packets, streams.lost_packets)
        hashed = _is_one_way(streams)
        length = np.where(hashed, np.diff(streams.way_first), 0)
        way_port = streams.way_port[np.repeat(hashed, np.diff(streams.way_first))]
    else:
        sent = count(flows.sent, ("tx_packets",))
        data = (flows.src_host, flows.dst_host, sent, sent - count(flows.received, ("rx_packets",)) - trimmed)
        length, way_port = np.zeros(len(sent), np.int64), np.empty(0, np.int64)
    there, back = count(flows.sent, _SHORT), count(flows.received, ("tx_packets", *_SHORT))
    there_lost = there - count(flows.received, _SHORT_ARRIVED)
    back_lost = back - count(flows.sent, ("rx_packets", *_SHORT_ARRIVED))
    return PacketLosses(
        np.r_[data[0], flows.src_host, flows.dst_host],
        np.r_[data[1], flows.dst_host, flows.src_host],
        np.r_[data[2], there, back],
        np.r_[data[3], there_lost, back_lost],
        np.r_[0, np.cumsum(np.r_[length, np.zeros(2 * len(there), np.int64)])],
        way_port,
    )


def _is_one_way(streams: Streams) -> NDArray[np.bool_]:
    """Return the streams whose packets all take one known way."""
    unknown = (streams.way_port < 0) | (streams.way_share < 1)
    return np.asarray(np.bincount(streams.way_stream[unknown], minlength=len(streams.ports)) == 0)


def data_losses(flows: Flows) -> Floats:
    """Return data packets that left and did not arrive, neither whole nor trimmed, by flow; NaN if an end did not report."""
    trimmed = flows.received.get("trimmed_received")
    return flows.missing_packets() - (0.0 if trimmed is None else np.nan_to_num(trimmed))


def blame_arrivals(
    evidence: Evidence, losses: PacketLosses, lost_at: Floats, *, is_only_cause: bool
) -> tuple[Blame, ...]:
    """Return the places of losses that the device counted at ports of arrival.

    `lost_at`: losses by port of arrival (float64). `is_only_cause`: nothing else lost packets, so that the losses of flows
    are the same packets.
    """
    ports = evidence.ports
    names, switch_of_port = np.unique(np.array(ports.switch, object), return_inverse=True)
    lost_at = np.nan_to_num(lost_at)
    by_switch = np.bincount(switch_of_port, lost_at, len(names))
    affected = np.argsort(-by_switch, kind="stable")[: np.count_nonzero(by_switch)]
    crossings = _Crossings(evidence, losses, switch_of_port.astype(np.int64))
    sent, gone = np.nan_to_num(losses.sent), np.maximum(np.nan_to_num(losses.lost), 0.0)
    blames: list[Blame] = []
    for rank, switch in enumerate(affected.tolist()):
        rows = np.flatnonzero(switch_of_port == switch)
        flow, arrival, departure = crossings.of(switch) if rank < MOST_FOLLOWED else crossings.none
        column = np.full(len(ports.names) + 1, -1)
        column[rows] = np.arange(len(rows))
        traffic = _Traffic(column[arrival], column[departure], sent[flow], gone[flow], ports.host[rows] < 0)
        lost = lost_at[rows]
        arrived = np.maximum(np.nan_to_num(ports.counter("rx_packets")[rows]), lost)
        uses_flows = is_only_cause and len(affected) == 1 and 0 < traffic.lost.sum() <= 1.02 * lost.sum()
        scores = _by_flows(traffic, lost, arrived) if uses_flows else _by_arrivals(traffic, lost, arrived)
        blames += _blame_in_switch(evidence, rows, lost, arrived, scores)
    return tuple(sorted(blames, key=lambda blame: -blame.lost_packets))


class _Crossings:
    """Which rows of losses cross a switch, and by which of its ports; -1: by a port between switches that is not known."""

    def __init__(self, evidence: Evidence, losses: PacketLosses, switch_of_port: Rows) -> None:
        host_port = np.append(evidence.hosts.port, -1)
        switch_of = np.append(switch_of_port, -1)
        self._peer_row = evidence.ports.peer_row
        self._switch_of_port = switch_of_port
        self._way_first, self._way_port = losses.way_first, losses.way_port
        self._src, self._dst = host_port[losses.src_host], host_port[losses.dst_host]
        self._src_switch, self._dst_switch = switch_of[self._src], switch_of[self._dst]
        self._by_ends = (np.diff(losses.way_first) == 0) & (self._src >= 0) & (self._dst >= 0)
        empty = np.empty(0, np.int64)
        self.none = (empty, empty, empty)

    def of(self, switch: int) -> tuple[Rows, Rows, Rows]:
        """Return the rows that cross a switch, with the ports where they arrive and leave."""
        hops = np.flatnonzero(self._switch_of_port[self._way_port] == switch)
        flow = np.searchsorted(self._way_first, hops, side="right") - 1
        before = self._way_port[np.maximum(hops - 1, 0)]
        is_first = hops == self._way_first[flow]
        arrival = np.where(is_first, self._src[flow], self._peer_row[before])
        leaves, enters = self._src_switch == switch, self._dst_switch == switch
        ends = np.flatnonzero(self._by_ends & (leaves | enters))
        if not len(hops) and not len(ends):
            return self._between(switch)
        return (
            np.concatenate([flow, ends]),
            np.concatenate([arrival, np.where(leaves[ends], self._src[ends], -1)]),
            np.concatenate([self._way_port[hops], np.where(enters[ends], self._dst[ends], -1)]),
        )

    def _between(self, switch: int) -> tuple[Rows, Rows, Rows]:
        """Return the rows that may cross a switch without hosts: those between two of its neighbours.

        Which of them do cross it does not matter to compare its ports; several cables to one neighbour are not distinguished.
        """
        rows = np.flatnonzero(self._switch_of_port == switch)
        rows = rows[self._peer_row[rows] >= 0]
        neighbour = self._switch_of_port[self._peer_row[rows]]
        port_of = np.full(int(self._switch_of_port.max()) + 2, -1)
        port_of[neighbour] = rows
        several, count = np.unique(neighbour, return_counts=True)
        port_of[several[count > 1]] = -1
        arrival, departure = port_of[self._src_switch], port_of[self._dst_switch]
        flow = np.flatnonzero((arrival >= 0) & (departure >= 0) & (arrival != departure))
        return flow, arrival[flow], departure[flow]


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
    """Return the most likely hypothesis with those that cannot be distinguished from it."""
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


def blame_hosts(
    evidence: Evidence, src_host: Rows, dst_host: Rows, sent: Floats, lost: Floats
) -> Blame | None:
    """Return the port of the rig, pair of ports, or all paths whose flows share the losses; None without losses.

    A scan over senders, receivers and pairs with two rates, inside and outside (Kulldorff's statistic). The columns have a
    row for each flow.
    """
    hosts = evidence.hosts
    total, packets = float(lost.sum()), float(sent.sum())
    if total <= 0 or not len(hosts.names):
        return None
    count = len(hosts.names)
    pair = src_host * count + dst_host
    pairs, pair_of_flow = np.unique(pair, return_inverse=True)
    groups = (
        (Side.FROM, src_host, count),
        (Side.TO, dst_host, count),
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
