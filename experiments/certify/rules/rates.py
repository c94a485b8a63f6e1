"""Measures the rate of every port: what each host sends and receives at best, and at which rate each queue drains.

Decides what counts as a rate. Of hosts it is the best goodput of the rounds: a slow port has no good round, while a
collision on a link spoils single rounds. Rounds over one switch and over several are compared apart, because the way back of
a grant costs time. Of ports of the device it is the drain rate while the queue cannot have been empty and was not paused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.certify.rules.parts import Answer, cable_of, cable_of_host
from etloop.results.diagnosis.drain import drain_of, port_steps
from etloop.results.diagnosis.rules import emulator_late
from etloop.results.diagnosis.tiers import role_numbers
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

SLOW: Final = 0.97
"""Share of the expected rate below which a port is slow."""
LEAST_Z: Final = 4.0
"""Robust standard deviations below the peers that goodput needs in addition."""
LEAST_BUSY_FRAMES: Final = 150
"""Frames that a queue sends while it cannot be empty for its drain rate to count."""
FRAME_BYTES: Final = 4_158
_READING_ERROR: Final = 0.005
"""Least spread of the peers, as a share of their median."""


def look_at_hosts(evidence: Evidence) -> Answer:
    """Return hosts that send or receive slowly even in their best round."""
    sends, receives = (
        _best_of(goodput) for goodput in (goodput_bps(evidence, "rank"), goodput_bps(evidence, "peer"))
    )
    figures = {
        name: {"sends_bps": float(sends[row]), "receives_bps": float(receives[row])}
        for row, name in enumerate(evidence.hosts.names)
        if np.isfinite(sends[row]) and np.isfinite(receives[row])
    }
    slow = _slow_hosts(evidence)
    late = emulator_late.look(evidence).findings
    if slow and late:
        return Answer((), figures, f"slow hosts may be late agents: {late[0].sentence}")
    return Answer(slow, figures)


def look_at_drains(evidence: Evidence) -> Answer:
    """Return ports of the device that drain slowly; a port whose queue was never busy has no rate."""
    return Answer(_slow_drains(evidence, drain_bps(evidence)))


def look_at_long_drains(evidence: Evidence) -> Answer:
    """Return ports that drain a long incast slowly: readings of a lab or a switch are too far apart for short transfers."""
    return Answer() if evidence.is_virtual else look_at_drains(evidence)


@dataclass(frozen=True, slots=True, eq=False)
class _Transfers:
    """The transfers of all rounds, one per row."""

    rate_bps: NDArray[np.float64]
    """Payload rate."""
    host_of: Mapping[str, NDArray[np.int64]]
    """Row of `Evidence.hosts` of the sender ("rank") and of the receiver ("peer")."""
    distance: NDArray[np.int64]
    """0 over one switch, 1 over several."""


def goodput_bps(evidence: Evidence, end: str) -> NDArray[np.float64]:
    """Return the best payload rate of a transfer by rig port and by distance: over one switch, over several (float64, bit/s,
    of shape (ports, 2)); NaN without any.

    `end`: column of the ranks to which transfers belong, "rank" for senders and "peer" for receivers.
    """
    transfers = _transfers(evidence)
    best = np.full((len(evidence.hosts.names), 2), -np.inf)
    np.maximum.at(best, (transfers.host_of[end], transfers.distance), transfers.rate_bps)
    return np.where(np.isfinite(best), best, np.nan)


def _is_below_most_rounds(evidence: Evidence, end: str, share: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the hosts whose best round is below the median round of all hosts, at every distance (bool by rig port).

    Agents on a busy machine lose time in some rounds: the best of twelve rounds of a healthy port is below the median round
    once in 4,096 times, however busy the machine is. `share`: best goodput per stated rate by host and distance.
    """
    transfers = _transfers(evidence)
    rounds = transfers.rate_bps / evidence.hosts.link_bps[transfers.host_of[end]]
    medians = np.array(
        [
            np.median(rounds[at]) if (at := transfers.distance == distance).any() else np.nan
            for distance in (0, 1)
        ]
    )
    return np.asarray((~(share >= medians)).all(axis=1), bool)


def _transfers(evidence: Evidence) -> _Transfers:
    """Return the transfers of the step's run."""
    ops = evidence.run.frames["ops"].columns
    # A message may be complete when it left its host's port: its bytes have arrived when they are acknowledged.
    arrived_ns = np.fmax(ops["completed_ns"].astype(np.float64), ops["acknowledged_ns"].astype(np.float64))
    time_ns = arrived_ns - ops["issued_ns"].astype(np.float64)
    sent = np.array(ops["kind"] == "send", bool) & (time_ns > 0)
    rate = ops["message_bytes"][sent].astype(np.float64) * 8e9 / time_ns[sent]
    hosts = evidence.hosts
    row_of = {name: row for row, name in enumerate(hosts.names)}
    host_of_rank = np.array([row_of.get(name, -1) for name in evidence.run.plan.port_names], np.int64)
    switch_names = list(dict.fromkeys(evidence.ports.switch))
    switch = np.array(
        [-1 if port < 0 else switch_names.index(evidence.ports.switch[port]) for port in hosts.port.tolist()],
        np.int64,
    )
    ends = {name: host_of_rank[ops[name][sent].astype(np.int64)] for name in ("rank", "peer")}
    return _Transfers(rate, ends, (switch[ends["rank"]] != switch[ends["peer"]]).astype(np.int64))


def _best_of(goodput: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.fmax(goodput[:, 0], goodput[:, 1])


def drain_bps(evidence: Evidence) -> NDArray[np.float64]:
    """Return by port of the device its drain rate (float64, bit/s); NaN if its queue was not busy for long enough."""
    proven = drain_of(evidence, port_steps(evidence)).bps
    return np.where(np.isfinite(proven), proven, _coarse_drain_bps(evidence))


def _coarse_drain_bps(evidence: Evidence) -> NDArray[np.float64]:
    """Return the best rate between readings in a row that all found packets waiting (float64, bit/s by port); NaN without.

    For readings that are far apart, as those of a lab or a switch: longer than any queue lasts.
    """
    samples, lanes = evidence.samples, evidence.lanes
    queued, sent, paused = (samples.value(name) for name in ("queued_bytes", "tx_bytes", "paused_ns"))
    size, gap_ns = np.diff(sent), np.diff(samples.time_ns)
    waiting = (np.diff(samples.lane) == 0) & (queued[:-1] > 0) & (queued[1:] > 0)
    waiting &= (np.nan_to_num(np.diff(paused)) == 0) & (size >= LEAST_BUSY_FRAMES * FRAME_BYTES)
    before, after = np.r_[False, waiting[:-1]], np.r_[waiting[1:], False]
    rows = np.flatnonzero(waiting & before & after)
    best = np.full(len(evidence.ports.names), -np.inf)
    np.maximum.at(best, lanes.port[samples.lane[rows]], size[rows] * 8e9 / gap_ns[rows])
    return np.where(np.isfinite(best), best, np.nan)


def _slow_drains(evidence: Evidence, drains: NDArray[np.float64]) -> tuple[Finding, ...]:
    ports, hosts = evidence.ports, evidence.hosts
    tier = role_numbers(evidence)
    expected = np.full(len(ports.names), np.nan)
    for number in np.unique(tier).tolist():
        rows = np.flatnonzero(tier == number)
        if np.isfinite(drains[rows]).any():
            expected[rows] = np.nanmedian(drains[rows])
    of_hosts = ports.host >= 0
    expected[of_hosts] = hosts.link_bps[ports.host[of_hosts]]
    findings = []
    for row in np.flatnonzero(drains < SLOW * expected).tolist():
        source = "its host should reach" if of_hosts[row] else "its peers drain at"
        findings.append(
            _finding(cable_of(evidence, row), "drains", "drain_bps", drains[row], expected[row], source)
        )
    return tuple(findings)


def _slow_hosts(evidence: Evidence) -> tuple[Finding, ...]:
    """Return hosts whose best goodput per stated rate is below that of the other hosts at every distance."""
    link, proven = evidence.hosts.link_bps, _reached_rate(evidence)
    findings = []
    for end, verb in (("rank", "sends"), ("peer", "receives")):
        rates = goodput_bps(evidence, end)
        share = rates / link[:, None]
        typical = np.full(2, np.nan)
        for distance in range(2):
            if np.isfinite(share[:, distance]).any():
                typical[distance] = np.nanmedian(share[:, distance])
        relative = _best_of(share / typical)
        known = relative[np.isfinite(relative)]
        if not len(known):
            continue
        middle = float(np.median(known))
        spread = 1.4826 * float(np.median(np.abs(known - middle)))
        limit = min(SLOW * middle, middle - LEAST_Z * max(spread, _READING_ERROR))
        is_slow = (relative < limit) & ~(proven if end == "peer" else False)
        if not evidence.is_virtual:
            is_slow &= _is_below_most_rounds(evidence, end, share)
        findings += [
            _finding(
                cable_of_host(evidence, row),
                f"{verb} at most",
                f"{verb}_bps",
                _best_of(rates)[row],
                _best_of(rates)[row] / relative[row] * middle,
                "hosts of the same rate reach",
            )
            for row in np.flatnonzero(is_slow).tolist()
        ]
    return tuple(findings)


def _reached_rate(evidence: Evidence) -> NDArray[np.bool_]:
    """Return whether the device's port to each host sent at its rate at some time (bool by rig port)."""
    hosts = evidence.hosts
    best_bps = np.r_[drain_of(evidence, port_steps(evidence)).envelope.best_bps, np.nan][hosts.port]
    return np.asarray(best_bps >= SLOW * hosts.link_bps, bool)


def _finding(place: Place, verb: str, figure: str, rate: float, expected: float, source: str) -> Finding:
    joined = verb if verb.endswith("most") else f"{verb} at"
    sentence = f"{place} {joined} {rate / 1e9:.4g} Gb/s; {source} {expected / 1e9:.4g} Gb/s"
    fact = Fact(figure, float(rate), "bit/s", float(expected))
    return Finding(
        FindingKind.SLOW_LINK,
        (place,),
        sentence,
        (fact,),
        1.0,
        "reseat the cable, check negotiated speed and FEC",
    )
