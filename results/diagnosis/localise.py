"""Names the links that lose packets, and the ports that are slow, from the records of agents alone.

Losses: each link gets the likelihood ratio of two loss rates, one on the link and one elsewhere, against a single rate, over the
streams that cross it. The best link's losses are taken out, and the search goes on (as 007 does with votes: Arzani et al., NSDI
2018). Links that explain the losses as well as the best, because the same streams cross them, are one answer with several
names.

Rates: a port that is slow has no interval of full rate; one that waits for others has. So the fastest intervals of a port are
compared with those of its peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.chi_square import chi_square_beyond
from etloop.results.schema.findings import Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

LIMIT: Final = 1e-3
"""Probability of a healthy run, over all links, below which a link is at fault."""
MOST_LINKS: Final = 8
"""Links that are named at most."""
_ROUNDS: Final = 30
_AS_GOOD: Final = 3.0
"""Difference of log likelihoods up to which links explain losses equally well: odds of 20 to 1."""
_CLUSTERED: Final = 1e-3
"""Probability of the spread of losses over a link's streams below which congestion explains them better."""
_ANY: Final = "other switches"
INTERVALS: Final = 20
"""Intervals of the job over which rates are averaged."""


@dataclass(frozen=True, slots=True)
class LossyLink:
    """A link, or several that the evidence cannot distinguish, on which packets are lost."""

    places: tuple[Place, ...]
    """The likeliest first."""
    lost_packets: float
    crossed_packets: float
    chance: float
    """Probability in a healthy run, corrected for the number of links."""
    streams: int
    is_clustered: bool
    """Whether losses come in clusters on some streams, as those of congestion do."""


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A port of the rig that never reaches the rate of its peers."""

    place: Place
    sends: bool
    """Whether its sending direction is slow."""
    rate_bps: float
    expected_bps: float
    """Median of its peers, or the stated rate if there are fewer than four."""
    chance: float
    intervals: int


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Which streams cross which links: the cables from hosts, those behind the device's egress ports, and, where ways are not
    known, all paths between two switches, from one and to one."""

    link: Rows
    """Row in `places`."""
    stream: Rows
    share: Floats
    places: tuple[Place, ...]


def crossings(evidence: Evidence) -> Crossings:
    """Return the links of all streams: all of their ways, or only their first and last cable if ways are not known."""
    streams, ports, hosts = evidence.streams, evidence.ports, evidence.hosts
    port_of = np.concatenate([hosts.port, [-1]])
    src_port, dst_port = port_of[streams.src_host], port_of[streams.dst_host]
    is_unknown = np.diff(streams.way_first) == 0
    first = np.flatnonzero(streams.src_host >= 0)
    known = np.flatnonzero(streams.way_port >= 0)
    last = np.flatnonzero(is_unknown & (streams.dst_host >= 0))
    hosts_behind = len(ports.names) + len(hosts.names) + streams.dst_host[last]
    names, switch = np.unique(np.array([*ports.switch, ""], object), return_inverse=True)
    src_switch, dst_switch = switch[src_port], switch[dst_port]
    between = np.flatnonzero(is_unknown & (src_port >= 0) & (dst_port >= 0) & (src_switch != dst_switch))
    # Switch number 0 is "": any other switch.
    ends = (src_switch[between] * len(names), dst_switch[between])
    pairs, pair = np.unique(np.concatenate([ends[0] + ends[1], *ends]), return_inverse=True)
    between = np.tile(between, 3)
    rows = (
        (streams.way_port[known], streams.way_stream[known], streams.way_share[known]),
        (len(ports.names) + streams.src_host[first], first, np.ones(len(first))),
        (np.where(dst_port[last] >= 0, dst_port[last], hosts_behind), last, np.ones(len(last))),
        (len(ports.names) + 2 * len(hosts.names) + pair.reshape(-1), between, np.ones(len(between))),
    )
    cables = [
        Place(PlaceKind.HOST, name, ports.names[port] if port >= 0 else "")
        for name, port in zip(hosts.names, hosts.port.tolist(), strict=True)
    ]
    paths = [
        Place(PlaceKind.LINK, names[number // len(names)] or _ANY, names[number % len(names)] or _ANY)
        for number in pairs.tolist()
    ]
    egress = [Place(PlaceKind.PORT, name, peer) for name, peer in zip(ports.names, ports.peers, strict=True)]
    link, stream, share = (np.concatenate(column) for column in zip(*rows, strict=True))
    places = (*egress, *cables, *cables, *paths)
    return Crossings(link.astype(np.int64), stream.astype(np.int64), share.astype(np.float64), places)


def lossy_links(evidence: Evidence) -> tuple[LossyLink, ...]:
    """Return the links that lose packets, the greatest losses first."""
    streams = evidence.streams
    counted = np.isfinite(streams.lost_packets)
    sent = np.where(counted, streams.sent_packets, 0.0)
    lost = np.where(counted, np.clip(streams.lost_packets, 0, None), 0.0)
    crossed = crossings(evidence)
    used = len(np.unique(crossed.link))
    named: list[LossyLink] = []
    for _ in range(MOST_LINKS):
        if lost.sum() < 1:
            break
        ratio, rate, elsewhere = _likelihood_ratios(crossed, sent, lost)
        best = int(ratio.argmax())
        chance = min(chi_square_beyond(1, 2 * max(ratio[best], 0.0)) * used, 1.0)
        if chance >= LIMIT:
            break
        rows = np.flatnonzero(crossed.link == best)
        members, share = crossed.stream[rows], crossed.share[rows]
        place = crossed.places[best]
        of_link = share * rate[best] / (share * rate[best] + elsewhere[best])
        named.append(
            LossyLink(
                places=_places(crossed, ratio, best),
                lost_packets=float((lost[members] * of_link).sum()),
                crossed_packets=float((sent[members] * share).sum()),
                chance=chance,
                streams=len(members),
                is_clustered=_is_clustered(
                    lost[members],
                    sent[members] * (share * rate[best] + elsewhere[best]),
                    is_one_of_several=place.kind is PlaceKind.LINK,
                ),
            )
        )
        lost[members] *= 1 - of_link
        lost[lost < 0.5] = 0.0
    return tuple(sorted(named, key=lambda link: -link.lost_packets))


def _likelihood_ratios(crossed: Crossings, sent: Floats, lost: Floats) -> tuple[Floats, Floats, Floats]:
    """Return by link the log likelihood ratio of an own loss rate, that rate, and the rate elsewhere (Poisson losses).

    A stream loses sent * (elsewhere + share * rate) packets: solved by expectation and maximisation.
    """
    packets, losses = sent.sum(), lost.sum()
    n, x, share = sent[crossed.stream], lost[crossed.stream], crossed.share
    reach = np.maximum(_sums(crossed, n * share), 1e-9)
    inside = _sums(crossed, x)
    rate = _sums(crossed, x * share) / reach
    elsewhere = np.maximum((losses - inside) / np.maximum(packets - _sums(crossed, n), 1.0), 1e-12)
    for _ in range(_ROUNDS):
        own = share * rate[crossed.link]
        own_losses = _sums(crossed, x * own / (own + elsewhere[crossed.link]))
        rate = own_losses / reach
        elsewhere = np.maximum((losses - own_losses) / packets, 1e-12)
    expected = elsewhere[crossed.link] + share * rate[crossed.link]
    ratio = _sums(crossed, x * np.log(expected)) + (losses - inside) * np.log(elsewhere)
    ratio -= packets * elsewhere + rate * reach
    return ratio - (losses * np.log(losses / packets) - losses), rate, elsewhere


def _sums(crossed: Crossings, values: Floats) -> Floats:
    return np.bincount(crossed.link, values, len(crossed.places)).astype(np.float64)


def _is_clustered(lost: Floats, expected: Floats, *, is_one_of_several: bool) -> bool:
    """Return whether losses differ between streams by more than a constant rate per packet allows.

    `is_one_of_several`: the streams take one of several links each, so that only those with losses are compared.
    """
    if is_one_of_several:
        hit = lost > 0
        lost, expected = lost[hit], expected[hit] * lost.sum() / max(float(expected[hit].sum()), 1e-12)
    if not len(expected) or not expected.max():
        return False
    # Neighbours that expect few losses are put together: chi-square holds from about one on. Order by size would not do:
    # streams that lost a packet have sent more.
    bins = np.floor(np.cumsum(expected) / max(1.0, float(expected.max()))).astype(np.int64)
    seen, mean = np.bincount(bins, lost), np.bincount(bins, expected)
    used = mean > 0.5
    deviation = float((np.square(seen - mean)[used] / mean[used]).sum())
    return bool(used.sum() > 1 and chi_square_beyond(int(used.sum()) - 1, deviation) < _CLUSTERED)


def _places(crossed: Crossings, ratio: Floats, best: int) -> tuple[Place, ...]:
    """Return the best link, and those that the same streams cross and that explain the losses as well."""
    alike = np.flatnonzero(ratio >= ratio[best] - _AS_GOOD)
    of_best = np.unique(crossed.stream[crossed.link == best])
    shares_streams = np.isin(crossed.stream, of_best)
    near = [link for link in alike.tolist() if (shares_streams & (crossed.link == link)).any()]
    near.sort(key=lambda link: -ratio[link])
    # Of equal answers, two switches say more than one.
    certain = max((ratio[link] for link in near if not _is_any(crossed.places[link])), default=-np.inf)
    kept = [link for link in near if not _is_any(crossed.places[link]) or ratio[link] > certain + 1e-6]
    return tuple(dict.fromkeys(crossed.places[link] for link in kept))


def _is_any(place: Place) -> bool:
    """Return whether a place is all paths from or to one switch."""
    return _ANY in (place.name, place.peer)


def slow_hosts(evidence: Evidence) -> tuple[SlowHost, ...]:
    """Return the ports of the rig whose fastest intervals are slower than those of their peers.

    Needs the series of rates (`cc` of a run): bytes that queue pairs had acknowledged, over time.
    """
    rates = _interval_rates(evidence)
    if rates is None:
        return ()
    slow = []
    hosts = evidence.hosts
    for sends, by_host in zip((True, False), rates, strict=True):
        top = np.percentile(by_host, 95, axis=1)
        works = np.flatnonzero((top > 0) & np.isfinite(hosts.link_bps))
        for stated in np.unique(hosts.link_bps[works]).tolist():
            peers = works[hosts.link_bps[works] == stated]
            if len(peers) < 4:
                continue
            middle = float(np.median(top[peers]))
            spread = max(1.4826 * float(np.median(np.abs(top[peers] - middle))), 0.005 * middle)
            for host in peers[(top[peers] < 0.97 * middle) & (top[peers] < middle - 4 * spread)].tolist():
                port = int(hosts.port[host])
                peer = evidence.ports.names[port] if port >= 0 else ""
                place = Place(PlaceKind.HOST, hosts.names[host], peer)
                score = (middle - top[host]) / spread
                chance = min(chi_square_beyond(1, score**2) * 2 * len(works), 1.0)
                slow.append(SlowHost(place, sends, float(top[host]), middle, chance, by_host.shape[1]))
    return tuple(sorted(slow, key=lambda host: host.rate_bps / host.expected_bps))


def _interval_rates(evidence: Evidence) -> tuple[Floats, Floats] | None:
    """Return the payload rates that ports of the rig sent and received in equal intervals (by port and interval, bit/s); None
    without a series of rates."""
    frame = evidence.run.frames.get("cc")
    if frame is None or not frame.rows or not len(evidence.hosts.names):
        return None
    columns = frame.columns
    order = np.lexsort((columns["time_ns"], columns["local_qpn"], columns["dst_rank"], columns["src_rank"]))
    src, dst, number, time_ns, acked = (
        columns[name][order].astype(np.int64)
        for name in ("src_rank", "dst_rank", "local_qpn", "time_ns", "acked_bytes")
    )
    same = np.r_[False, (src[1:] == src[:-1]) & (dst[1:] == dst[:-1]) & (number[1:] == number[:-1])]
    step = np.where(same, np.diff(acked, prepend=0), acked)
    first, last = int(time_ns.min()), int(time_ns.max())
    if last <= first:
        return None
    interval = np.minimum((time_ns - first) * INTERVALS // (last - first), INTERVALS - 1)
    host_of = {name: row for row, name in enumerate(evidence.hosts.names)}
    host = np.array([host_of.get(name, -1) for name in evidence.run.plan.port_names], np.int64)
    seconds = (last - first) / INTERVALS / 1e9
    rates = []
    for rank in (src, dst):
        known = host[rank] >= 0
        cell = host[rank][known] * INTERVALS + interval[known]
        sums = np.bincount(cell, step[known].astype(np.float64), len(host_of) * INTERVALS)
        rates.append(sums.reshape(len(host_of), INTERVALS) * 8 / seconds)
    return rates[0], rates[1]
