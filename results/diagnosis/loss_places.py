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


def data_losses(flows: Flows) -> Floats:
    """Return data packets that left and did not arrive, neither whole nor trimmed, by flow; NaN if an end did not report."""
    trimmed = flows.received.get("trimmed_received")
    missing = flows.missing_packets()
    return missing if trimmed is None else missing - trimmed


def crossings(evidence: Evidence, switch_of_port: Rows) -> Crossings:
    """Return the switches that each flow crosses: all of them where ways are known, else those at its ends."""
    flows, ports = evidence.flows, evidence.ports
    host_port = np.append(evidence.hosts.port, -1)
    src, dst = host_port[flows.src_host], host_port[flows.dst_host]
    rows = np.arange(len(src))
    length = np.diff(flows.way_first)
    is_hashed = flows.has_ways and not evidence.needs.sprays
    known = (length > 0) & is_hashed & (src >= 0)
    entry_flow = np.repeat(rows, length)
    is_first = np.zeros(len(entry_flow), bool)
    is_first[flows.way_first[:-1][length > 0]] = True
    before = np.append(flows.way_port[:1] * 0 - 1, flows.way_port[:-1])
    arrival = np.where(
        is_first, src[entry_flow], ports.peer_row[before] if len(ports.peer_row) else before
    )
    kept = known[entry_flow]
    ends = ~known & (src >= 0) & (dst >= 0)
    local = ends & (switch_of_port[src] == switch_of_port[dst])
    remote = ends & ~local
    unknown = np.full(int(remote.sum()), -1)
    arrivals = np.concatenate([arrival[kept], src[local], src[remote], unknown]).astype(np.int64)
    departures = np.concatenate([flows.way_port[kept], dst[local], unknown, dst[remote]]).astype(np.int64)
    anchor = np.concatenate([flows.way_port[kept], dst[local], src[remote], dst[remote]]).astype(np.int64)
    flow = np.concatenate([entry_flow[kept], rows[local], rows[remote], rows[remote]]).astype(np.int64)
    return Crossings(flow, switch_of_port[anchor], arrivals, departures)


def blame_arrivals(evidence: Evidence, lost_at: Floats, by_flow: Floats | None) -> tuple[Blame, ...]:
    """Return the places of losses that the device counted at ports of arrival.

    `lost_at`: losses by port of arrival (float64). `by_flow`: data packets lost by flow, if no other cause lost any;
    None: flows do not separate the causes.
    """
    ports = evidence.ports
    names, switch_of_port = np.unique(np.array(ports.switch, object), return_inverse=True)
    switch_of_port = switch_of_port.astype(np.int64)
    lost_at = np.nan_to_num(lost_at)
    by_switch = np.bincount(switch_of_port, lost_at, len(names))
    affected = np.flatnonzero(by_switch > 0)
    if len(affected) == 0:
        return ()
    crossed = crossings(evidence, switch_of_port)
    if len(affected) > 1:
        by_flow = None
    blames: list[Blame] = []
    for switch in affected.tolist():
        blames += _blame_in_switch(evidence, str(names[switch]), crossed, switch_of_port, lost_at, by_flow)
    return tuple(sorted(blames, key=lambda blame: -blame.lost_packets))


def _blame_in_switch(
    evidence: Evidence,
    name: str,
    crossed: Crossings,
    switch_of_port: Rows,
    lost_at: Floats,
    by_flow: Floats | None,
) -> list[Blame]:
    ports = evidence.ports
    rows = np.flatnonzero(np.array(ports.switch, object) == name)
    switch = int(switch_of_port[rows[0]])
    lost, total = lost_at[rows], float(lost_at[rows].sum())
    arrived = np.maximum(np.nan_to_num(ports.counter("rx_packets")[rows]), lost)
    bad = rows[np.argsort(-lost, kind="stable")][: int((lost > 0).sum())]
    here = crossed.switch == switch
    entries = Crossings(
        crossed.flow[here], crossed.switch[here], crossed.arrival[here], crossed.departure[here]
    )
    scores = _scores(evidence, entries, rows, lost, arrived, by_flow)
    set_score = float((lost[lost > 0] * np.log(lost[lost > 0] / total)).sum()) - (len(bad) - 1) * np.log(
        len(rows) + 1
    )
    others = max(hypothesis.score for hypothesis in scores if hypothesis.side is not Side.IN)
    if 1 < len(bad) <= MOST_BAD_PORTS and set_score > others + LOG_OUTSIDE:
        return [
            Blame(
                (port_place(evidence, int(row)),),
                Side.IN,
                float(lost_at[row]),
                float(np.nan_to_num(ports.counter("rx_packets")[row])),
                1.0 - float(np.exp(others - set_score)),
            )
            for row in bad.tolist()
        ]
    return [_choose(scores, total)]


def _scores(
    evidence: Evidence, entries: Crossings, rows: Rows, lost: Floats, arrived: Floats, by_flow: Floats | None
) -> list[_Hypothesis]:
    """Return the hypotheses of one switch with their log-likelihoods."""
    sent = np.nan_to_num(_sent(evidence.flows))[entries.flow]
    total = float(lost.sum())
    share = np.maximum(arrived, 1.0) / max(float(np.maximum(arrived, 1.0).sum()), 1.0)
    column = np.full(len(evidence.ports.names) + 1, -1)
    column[rows] = np.arange(len(rows))
    arrival, departure = column[entries.arrival], column[entries.departure]
    losses = None if by_flow is None else np.maximum(np.nan_to_num(by_flow), 0.0)[entries.flow]
    data = 0.0 if losses is None else float(losses.sum())
    uses_flows = losses is not None and 0 < data <= 1.05 * total + 1
    fabric = evidence.ports.host[rows] < 0
    hypotheses = []
    if uses_flows and losses is not None:
        control = np.maximum(lost - _sums(arrival, losses, fabric), 0.0)
        control *= max(total - data, 0.0) / max(float(control.sum()), 1.0)
        spread = float((control * np.log(share)).sum())
        everything = -data * np.log(max(float(sent.sum()), 1.0))
        inside_in, packets_in = _sums(arrival, losses, fabric), _sums(arrival, sent, fabric)
        inside_out, packets_out = _sums(departure, losses, fabric), _sums(departure, sent, fabric)
        outside_in = np.maximum(data - inside_in, 0) + float(control.sum()) - control
        outside_out = np.maximum(data - inside_out, 0)
        stray = LOG_OUTSIDE + np.log(max(float(sent.sum()), 1.0))
        score_in = -inside_in * np.log(np.maximum(packets_in, 1.0)) - outside_in * stray
        score_out = -inside_out * np.log(np.maximum(packets_out, 1.0)) - outside_out * stray + spread
        score_in += fabric * _of_unknown_way(arrival, losses, fabric)
        score_out += fabric * _of_unknown_way(departure, losses, fabric)
        everything += spread
    else:
        everything = float((lost * np.log(share)).sum())
        score_in = -(total - lost) * (LOG_OUTSIDE + np.log(len(rows)))
        score_out = _out_by_arrivals(arrival, departure, sent, lost, len(rows))
        packets_out = _sums(departure, sent, fabric)
    for index, row in enumerate(rows.tolist()):
        place = port_place(evidence, row)
        hypotheses.append(
            _Hypothesis(
                float(score_in[index]), place, Side.IN, float(lost[index]), float(arrived[index])
            )
        )
        if np.isfinite(score_out[index]):
            hypotheses.append(
                _Hypothesis(float(score_out[index]), place, Side.OUT, total, float(packets_out[index]))
            )
    whole = Place(PlaceKind.SWITCH, evidence.ports.switch[int(rows[0])])
    hypotheses.append(_Hypothesis(float(everything), whole, Side.ACROSS, total, float(arrived.sum())))
    return hypotheses


def _out_by_arrivals(arrival: Rows, departure: Rows, sent: Floats, lost: Floats, count: int) -> Floats:
    """Return by port of departure the log-likelihood of losses by port of arrival; -inf where its traffic is not known."""
    known = (arrival >= 0) & (departure >= 0)
    cells = np.bincount(arrival[known] * count + departure[known], sent[known], count * count)
    traffic = cells.reshape(count, count)
    whole = traffic.sum(axis=0)
    share = (traffic + 0.01 * whole / count) / np.maximum(1.01 * whole, 1e-9)
    scores = lost @ np.log(np.maximum(share, 1e-12))
    return np.asarray(np.where(whole > 0, scores, -np.inf))


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


def _sent(flows: Flows) -> Floats:
    sent = flows.sent.get("tx_packets")
    return np.full(len(flows.src_rank), np.nan) if sent is None else sent


def blame_flows(evidence: Evidence, by_flow: Floats) -> Blame | None:
    """Return the port of the rig, pair of ports, or all paths whose flows share the losses; None without losses.

    Uses the agents' records alone: a scan over senders, receivers and pairs with two rates, inside and outside
    (Kulldorff's statistic).
    """
    flows, hosts = evidence.flows, evidence.hosts
    lost, sent = np.maximum(np.nan_to_num(by_flow), 0.0), np.nan_to_num(_sent(flows))
    total, packets = float(lost.sum()), float(sent.sum())
    if total <= 0 or not len(hosts.names):
        return None
    count = len(hosts.names)
    pair = flows.src_host * count + flows.dst_host
    pairs, pair_of_flow = np.unique(pair, return_inverse=True)
    groups = ((Side.FROM, flows.src_host, count), (Side.TO, flows.dst_host, count), (None, pair_of_flow, len(pairs)))
    hypotheses = [_Hypothesis(0.0, Place(PlaceKind.JOB, "all paths"), Side.ACROSS, total, packets)]
    for side, group, size in groups:
        inside = np.bincount(group, lost, size)
        crossed = np.bincount(group, sent, size)
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
                _Hypothesis(float(scores[index]), place, side or Side.FROM, float(inside[index]), float(crossed[index]))
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
