"""Finds ports that drain below the rate that the rig or the topology states, or below their peers.

Decides which rate a port should have. The rig states that of a host's port. The rate of a port between switches
is that of most ports of the same role (`tiers`), unless all such ports of its switch, or of the one behind its cable, share
the lower rate: then that is how the network is built. A host's port below its peers is slow even if the rig states its rate,
because a rig may have been made of the topology; not if several share that rate. A rate counts only where packets waited that
no pause held, so early marks, pauses, busy agents and collisions of hashes elsewhere make no port slow. The evidence is, by
falling weight: a port that cannot have been idle (`Drain.bps`); one rate for most of the time that packets waited; and a
greatest rate far below that of its peers with as much load.
"""

from __future__ import annotations

from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.drain import Drain, Envelope, drain_of, port_steps
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.diagnosis.tiers import HOST_TIER, role_numbers, roles
from etloop.results.schema.findings import Examination, Examined, Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_KIND: Final = FindingKind.SLOW_LINK
_REMEDY: Final = "reseat the cable; check the negotiated speed, FEC errors and rate limits of the port"
_TOLERANCE: Final = 0.02
_LAB_TOLERANCE: Final = 0.03
"""Share of a rate by which clocks and counters of a device, or the times of readings of a lab, may differ."""
_MAJORITY: Final = 2 / 3
_LEAST_SIGMAS: Final = 4.3
_PLATEAU: Final = 0.5
_PLATEAU_WINDOWS: Final = 10
_PEER_WINDOWS: Final = 5
"""Windows of a plateau that is also below the rates of peers."""
_LEAST_PEERS: Final = 3
_LOAD: Final = 0.8
"""Least load of a peer, as a share of the load of the port."""
_LEAST_SPREAD: Final = 0.01
"""Of rates of peers: what readings cut."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """Rate that a port should have."""

    bps: float
    source: str
    """Who states it, in words that follow the rate."""
    confidence: float
    """Probability that the port should have it."""


@dataclass(frozen=True, slots=True)
class _SlowPort:
    row: int
    bps: float
    expected: _Expected
    confidence: float
    readings: int
    share: float


def look(evidence: Evidence) -> Found:
    """Return the ports and links that drain too slowly."""
    if not evidence.ports.names:
        return no_evidence(_KIND, "no counters of the device")
    if not len(evidence.samples.lane):
        return no_evidence(_KIND, "no readings of the device's queues over time")
    slow, shown, used = _examine(evidence)
    if not shown:
        return not_exercised(_KIND, "no port had packets waiting for long enough to show its rate")
    result = report(_KIND, _findings(evidence, slow))
    if slow or shown == used:
        return result
    why = f"{shown} of the {used} ports with traffic showed their rate"
    return Found((), (Examination(_KIND, Examined.CLEAR, why),))


def slow_ports(evidence: Evidence) -> frozenset[int]:
    """Return the rows in `Ports` that drain too slowly."""
    return frozenset(port.row for port in _examine(evidence)[0])


def _examine(evidence: Evidence) -> tuple[list[_SlowPort], int, int]:
    """Return the slow ports, the number of ports whose rate is known to be slow or right, and that of ports with traffic."""
    drain = drain_of(evidence, port_steps(evidence))
    measured = _measure(evidence, drain)
    expected = expected_rates(evidence)
    rows = np.flatnonzero(np.isfinite(measured.bps)).tolist()
    slow = [port for row in rows for port in _slow_port(evidence, measured, row, expected[row])]
    right = np.array([max((rate.bps for rate in rates), default=np.inf) for rates in expected])
    has_rate = np.isfinite(measured.bps) | (drain.envelope.best_bps >= (1 - _tolerance(evidence)) * right)
    return slow, int(has_rate.sum()), int((evidence.ports.counter("tx_bytes") > 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Rates of ports, one row per row of `Ports`; NaN where the load did not show it."""

    bps: Floats
    error_bps: Floats
    readings: Rows
    busy_ns: Floats


def _measure(evidence: Evidence, drain: Drain) -> _Measured:
    envelope = drain.envelope
    tolerance = _tolerance(evidence)
    is_flat = (envelope.plateau >= _PLATEAU) & (envelope.windows >= _PLATEAU_WINDOWS)
    is_flat |= (
        (envelope.plateau >= _PLATEAU)
        & (envelope.windows >= _PEER_WINDOWS)
        & _are_below_peers(evidence, envelope)
    )
    proven = np.isfinite(drain.bps)
    return _Measured(
        np.where(proven, drain.bps, np.where(is_flat, envelope.best_bps, np.nan)),
        np.where(proven, drain.error_bps, tolerance * envelope.best_bps),
        np.where(proven, drain.steps, envelope.windows),
        envelope.busy_ns,
    )


def _are_below_peers(evidence: Evidence, envelope: Envelope) -> Flags:
    """Return whether the greatest rate of a port is far below those of its peers with as much load (bool per port)."""
    ports = evidence.ports
    role = role_numbers(evidence)
    load, best = ports.counter("tx_bytes"), envelope.best_bps
    below = np.zeros(len(best), bool)
    for row in np.flatnonzero((envelope.windows >= 2) & (load > 0)).tolist():
        peers = (role == role[row]) & (load >= _LOAD * load[row]) & np.isfinite(best)
        peers[row] = False
        if peers.sum() < _LEAST_PEERS:
            continue
        middle = float(np.median(best[peers]))
        sigma = max(1.4826 * float(np.median(np.abs(best[peers] - middle))), _LEAST_SPREAD * middle)
        below[row] = best[row] < middle - _LEAST_SIGMAS * sigma
    return below


def _tolerance(evidence: Evidence) -> float:
    return _TOLERANCE if evidence.is_virtual else _LAB_TOLERANCE


def expected_rates(evidence: Evidence) -> tuple[tuple[_Expected, ...], ...]:
    """Return the rates that each port should have: the stated ones, and that of its peers."""
    ports, hosts = evidence.ports, evidence.hosts
    role = roles(evidence)
    members: dict[tuple[int, int], list[int]] = {}
    for row, own in enumerate(role):
        members.setdefault(own, []).append(row)
    usual = {own: _usual_rate(ports.described_bps[rows]) for own, rows in members.items()}
    expected = []
    for row, own in enumerate(role):
        described = float(ports.described_bps[row])
        stated = float(hosts.link_bps[ports.host[row]]) if ports.host[row] >= 0 else float("nan")
        rates = [_Expected(described, "by the topology", 1.0)] if described > 0 else []
        if stated > 0:
            rates.append(_Expected(stated, "as the rig states", 1.0))
        if usual[own] > described and _is_odd(evidence, role, members[own], row):
            peers = int(np.sum(ports.described_bps[members[own]] == usual[own]))
            named = "ports to hosts" if own[1] == HOST_TIER else "ports between the same tiers"
            source = f"the rate of {peers} of {len(members[own]) - 1} other {named}"
            rates.append(_Expected(usual[own], source, 0.99))
        expected.append(tuple(rates))
    return tuple(expected)


def _usual_rate(rates: Floats) -> float:
    """Return the rate of most ports of a role; NaN if there are fewer than three, or no rate is of two thirds of them."""
    known = rates[np.isfinite(rates)]
    if len(known) < 3:
        return float("nan")
    rate, count = Counter(known.tolist()).most_common(1)[0]
    return rate if count >= _MAJORITY * len(known) else float("nan")


def _is_odd(evidence: Evidence, role: tuple[tuple[int, int], ...], members: list[int], row: int) -> bool:
    """Return whether a port's described rate is an exception among ports of its role, and no choice of a whole switch."""
    ports = evidence.ports
    rates = ports.described_bps
    if role[row][1] == HOST_TIER:
        return int(np.sum(rates[members] == rates[row])) == 1
    for end in (row, int(ports.peer_row[row])):
        siblings = [
            other
            for other in range(len(ports.names))
            if ports.switch[other] == ports.switch[end] and role[other] == role[end]
        ]
        if len(siblings) > 1 and all(rates[sibling] == rates[row] for sibling in siblings):
            return False
    return True


def _slow_port(
    evidence: Evidence, measured: _Measured, row: int, rates: tuple[_Expected, ...]
) -> list[_SlowPort]:
    """Return the port if it drains below the greatest rate that it should have, by more than the errors of reading."""
    if not rates:
        return []
    tolerance = _tolerance(evidence)
    expected = max(rates, key=lambda rate: rate.bps)
    bps = float(measured.bps[row])
    sigma = max(float(measured.error_bps[row]) / 2, tolerance / 4 * expected.bps)
    sigmas = (expected.bps - bps) / sigma
    if bps >= (1 - tolerance) * expected.bps or sigmas < _LEAST_SIGMAS:
        return []
    chance = (1 - NormalDist().cdf(sigmas)) * len(evidence.ports.names)
    busy = measured.busy_ns[row] / evidence.duration_ns if evidence.duration_ns else 0.0
    share = (1 - bps / expected.bps) * min(1.0, float(busy))
    confidence = max(0.0, expected.confidence - chance)
    return [_SlowPort(row, bps, expected, confidence, int(measured.readings[row]), share)]


def _findings(evidence: Evidence, slow: list[_SlowPort]) -> tuple[Finding, ...]:
    """Return a finding per cable."""
    ports = evidence.ports
    by_row = {port.row: port for port in slow}
    findings = []
    for port in sorted(slow, key=lambda port: -port.share):
        other = by_row.get(int(ports.peer_row[port.row]))
        if other is not None and (other.share, -other.row) > (port.share, -port.row):
            continue
        kind = PlaceKind.PORT if other is None else PlaceKind.LINK
        place = Place(kind, ports.names[port.row], ports.peers[port.row])
        both = "" if other is None else " in both directions"
        expected = port.expected
        sentence = f"{place} drains at {_rate(port.bps)}{both}; it should be {_rate(expected.bps)}, {expected.source}"
        facts = [Fact("drain_bps", port.bps, "bit/s", expected.bps, port.readings)]
        if other is not None:
            facts.append(Fact("reverse_drain_bps", other.bps, "bit/s", other.expected.bps, other.readings))
        findings.append(
            Finding(
                _KIND, (place,), sentence, tuple(facts), port.confidence, _REMEDY, share=port.share or None
            )
        )
    return tuple(findings)


def _rate(bps: float) -> str:
    return f"{bps / 1e9:.4g} Gb/s" if bps >= 1e9 else f"{bps / 1e6:.4g} Mb/s"
