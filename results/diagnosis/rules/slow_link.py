"""Finds ports that drain below the rate that the rig or the topology states, or below their peers.

Decides which rate a port should have. Of a host's port it is the rate of the link in the rig. Of a port between switches it
is that of most ports of the same role (`tiers`), unless all such ports of its switch, or of the one behind its cable, share
the lower rate: then that is how the network is built. A host's port below its peers is slow even if the rig states its rate,
because a rig may have been made of the topology; not if several share that rate. A rate counts only where `drain` shows that
the port was not idle, so early marks, pauses, busy agents and collisions of hashes elsewhere make no port slow.
"""

from __future__ import annotations

from collections import Counter
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.drain import Drain, drain_of, port_steps
from etloop.results.diagnosis.rule import Found, found, no_evidence, not_exercised
from etloop.results.diagnosis.tiers import HOST_TIER, roles
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_KIND: Final = FindingKind.SLOW_LINK
_REMEDY: Final = "reseat the cable; check the negotiated speed, FEC errors and rate limits of the port"
_TOLERANCE: Final = 0.02
_LAB_TOLERANCE: Final = 0.03
"""Of a rate: as Ethernet clocks and counters agree, and as readings of a lab or a device are timed."""
_MAJORITY: Final = 2 / 3
_LEAST_SIGMAS: Final = 4.3
_PLATEAU: Final = 0.5
_PLATEAU_WINDOWS: Final = 10


@dataclass(frozen=True, slots=True)
class _Expected:
    """Rate that a port should have."""

    bps: float
    source: str
    """Who states it, in words that follow the rate."""
    confidence: float
    """That the port should have it."""


@dataclass(frozen=True, slots=True)
class _SlowPort:
    row: int
    bps: float
    expected: _Expected
    confidence: float
    steps: int
    share: float


def look(evidence: Evidence) -> Found:
    """Return the ports and links that drain too slowly."""
    if not evidence.ports.names:
        return no_evidence(_KIND, "no counters of the device")
    if not len(evidence.samples.lane):
        return no_evidence(_KIND, "no readings of the device's queues over time")
    drain = drain_of(evidence, port_steps(evidence))
    measured = np.isfinite(drain.bps) | np.isfinite(_plateau_bps(drain))
    if not measured.any():
        return not_exercised(_KIND, "no port had packets waiting for long enough to show its rate")
    expected = expected_rates(evidence)
    slow = [
        port
        for row in np.flatnonzero(measured).tolist()
        for port in _slow_port(evidence, drain, row, expected[row])
    ]
    return found(_KIND, _findings(evidence, slow))


def _plateau_bps(drain: Drain) -> Floats:
    """Return the rate of ports that sent at one rate for most of the time that packets waited; NaN of others."""
    envelope = drain.envelope
    is_flat = (envelope.plateau >= _PLATEAU) & (envelope.windows >= _PLATEAU_WINDOWS)
    return np.where(is_flat, envelope.best_bps, np.nan)


def expected_rates(evidence: Evidence) -> tuple[tuple[_Expected, ...], ...]:
    """Return the rates that each port should have: what is stated, and what its peers have."""
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
            named = "hosts' ports" if own[1] == HOST_TIER else "ports between switches of the same tiers"
            rates.append(_Expected(usual[own], f"as {peers} of {len(members[own]) - 1} other {named}", 0.99))
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
        return sum(rates[member] == rates[row] for member in members) == 1
    for end in (row, int(ports.peer_row[row])):
        siblings = [
            other
            for other in range(len(ports.names))
            if ports.switch[other] == ports.switch[end] and role[other] == role[end]
        ]
        if len(siblings) > 1 and all(rates[sibling] == rates[row] for sibling in siblings):
            return False
    return True


def _slow_port(evidence: Evidence, drain: Drain, row: int, rates: tuple[_Expected, ...]) -> list[_SlowPort]:
    """Return the port if it drains below the greatest rate that it should have, by more than the errors of reading."""
    if not rates:
        return []
    tolerance = _TOLERANCE if evidence.is_virtual else _LAB_TOLERANCE
    expected = max(rates, key=lambda rate: rate.bps)
    bps, error_bps, steps = float(drain.bps[row]), float(drain.error_bps[row]), int(drain.steps[row])
    if not np.isfinite(bps):
        bps, error_bps = float(drain.envelope.best_bps[row]), tolerance * expected.bps
        steps = int(drain.envelope.windows[row])
    sigma = max(error_bps / 2, tolerance / 4 * expected.bps)
    sigmas = (expected.bps - bps) / sigma
    if bps >= (1 - tolerance) * expected.bps or sigmas < _LEAST_SIGMAS:
        return []
    chance = (1 - NormalDist().cdf(sigmas)) * len(evidence.ports.names)
    share = None if not evidence.duration_ns else drain.envelope.busy_ns[row] / evidence.duration_ns
    saved = (1 - bps / expected.bps) * min(1.0, float(share or 0.0))
    return [_SlowPort(row, bps, expected, max(0.0, expected.confidence - chance), steps, saved)]


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
        facts = [Fact("drain_bps", port.bps, "bit/s", expected.bps, port.steps)]
        if other is not None:
            facts.append(Fact("reverse_drain_bps", other.bps, "bit/s", other.expected.bps, other.steps))
        findings.append(
            Finding(
                _KIND, (place,), sentence, tuple(facts), port.confidence, _REMEDY, share=port.share or None
            )
        )
    return tuple(findings)


def _rate(bps: float) -> str:
    return f"{bps / 1e9:.4g} Gb/s" if bps >= 1e9 else f"{bps / 1e6:.4g} Mb/s"
