"""Measures how evenly the switches spread flows of equal size over their equal-cost links.

Decides the null hypothesis: every queue pair is a flow that falls on each link with equal probability. A hash that ignores
the source port moves all queue pairs of a pair of hosts at once, which multiplies the spread by their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etloop.experiments.certify.rules.parts import FALSE_PARTS, Answer
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind
from etloop.traffic.topology.routes import routes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology
    from etloop.results.diagnosis.evidence import Evidence


def look(evidence: Evidence) -> Answer:
    """Return switches that spread flows less evenly over equal-cost links than chance does."""
    from scipy.stats import chi2

    if evidence.topology is None:
        return Answer(untested="needs a topology, which states which links are equal")
    sent = evidence.ports.counter("tx_bytes")
    groups = equal_cost_ports(evidence.topology)
    row_of = {name: row for row, name in enumerate(evidence.ports.names)}
    findings = []
    tested = 0
    size = bytes_of_flow(evidence)
    for switch, names in groups:
        loads = sent[[row_of[name] for name in names if name in row_of]]
        if len(loads) < 2 or not np.isfinite(loads).all() or loads.sum() < len(loads) * size:
            continue
        tested += 1
        mean = float(loads.mean())
        spread = float(np.square(loads - mean).sum() / (mean * size))
        chance = min(1.0, float(chi2.sf(spread, len(loads) - 1)) * len(groups))
        if chance < FALSE_PARTS:
            findings.append(_finding(switch, names, loads, spread, chance))
    untested = "" if tested or not groups else "no counters of the device's ports"
    return Answer(tuple(findings), untested=untested)


def bytes_of_flow(evidence: Evidence) -> float:
    """Return the frame bytes of one queue pair in its direction of data, 1 if none sent."""
    frame = evidence.run.frames["flows"].columns
    sends = np.array(frame["role"] == "sender", bool)
    payload = frame["tx_payload_bytes"][sends].astype(np.float64)
    packets = frame["tx_packets"][sends].astype(np.float64)
    used = payload >= np.max(payload, initial=0) / 2
    if not used.any():
        return 1.0
    headers = 58  # Ethernet with check sequence, IPv4, UDP, BTH and ICRC
    return float(np.median(payload[used] + headers * packets[used]))


def equal_cost_ports(topology: Topology) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the groups of two or more ports of a switch that are equally close to some host, each with its switch."""
    ways = routes(topology)
    groups = []
    for number, switch in enumerate(topology.switches):
        distinct = sorted({ports for ports in ways[number] if len(ports) > 1})
        groups += [
            (switch.name, tuple(f"{switch.name}/{switch.ports[port].name}" for port in ports))
            for ports in distinct
        ]
    return tuple(groups)


def _finding(
    switch: str, names: tuple[str, ...], loads: NDArray[np.float64], spread: float, chance: float
) -> Finding:
    share = loads / loads.sum()
    effective = float(1 / np.square(share).sum())
    bundle = spread / (len(loads) - 1)
    sentence = (
        f"{switch} spreads flows over {effective:.3g} of {len(loads)} equal links, as if {bundle:.0f} queue pairs "
        f"were one flow: {', '.join(f'{name} {part:.0%}' for name, part in zip(names, share, strict=True))}"
    )
    facts = (
        Fact("effective_links", effective, "links", float(len(loads)), len(loads)),
        Fact("flows_moved_as_one", bundle, "flows", 1.0),
    )
    remedy = "let the hash of the switch cover the UDP source port and both addresses"
    place = Place(PlaceKind.SWITCH, switch)
    return Finding(FindingKind.HASH_COLLAPSE, (place,), sentence, facts, 1 - chance, remedy)
