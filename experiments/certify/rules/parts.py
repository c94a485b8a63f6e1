"""The form of a rule, and the names by which rules call the parts of a fabric.

Decides that a cable is one part, whichever of its ends shows the fault, and that a switch is the part if most of its ports
show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Finding, Place, PlaceKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

FALSE_PARTS: Final = 1e-4
"""Probability that one test names a healthy part, after correction for the number of parts that it looks at."""
MOST_OF_A_SWITCH: Final = 0.5
"""Share of the tested ports of a switch from which on the switch itself is the part."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings of a rule, and figures of ports. Figures are by the name of a rig port ("agent/port")."""

    findings: tuple[Finding, ...] = ()
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    untested: str = ""
    """Why the step gives no answer, or not for all ports; "" if it does."""
    limits: str = ""
    """By which method figures were measured, if there are several."""


Rule: TypeAlias = "Callable[[Evidence], Answer]"


def cable_of(evidence: Evidence, port: int) -> Place:
    """Return the cable at a port of the device (a row of `Evidence.ports`), by the same name at both ends."""
    ports = evidence.ports
    name, peer = ports.names[port], ports.peers[port]
    if ports.peer_row[port] < 0:
        return Place(PlaceKind.PORT, name, peer)
    return Place(PlaceKind.LINK, min(name, peer), max(name, peer))


def cable_of_host(evidence: Evidence, host: int) -> Place:
    """Return the cable of a rig port (a row of `Evidence.hosts`)."""
    port = int(evidence.hosts.port[host])
    return cable_of(evidence, port) if port >= 0 else Place(PlaceKind.HOST, evidence.hosts.names[host])


def switches_or_cables(
    evidence: Evidence, bad: Iterable[int], tested: Iterable[int]
) -> dict[Place, tuple[int, ...]]:
    """Return the parts that `bad` ports make up, each with its bad ports: a switch if most of its `tested` ports are bad,
    else their cables."""
    ports = evidence.ports
    tested_of: dict[str, int] = {}
    for port in tested:
        tested_of[ports.switch[port]] = tested_of.get(ports.switch[port], 0) + 1
    bad_of: dict[str, list[int]] = {}
    for port in bad:
        bad_of.setdefault(ports.switch[port], []).append(port)
    parts: dict[Place, tuple[int, ...]] = {}
    for switch, rows in bad_of.items():
        if len(rows) >= max(2, MOST_OF_A_SWITCH * tested_of.get(switch, 0)):
            parts[Place(PlaceKind.SWITCH, switch)] = tuple(rows)
            continue
        for row in rows:
            place = cable_of(evidence, row)
            parts[place] = (*parts.get(place, ()), row)
    return parts


def with_peer_rates(evidence: Evidence) -> Evidence:
    """Return the evidence with the rate of most rig ports for all of them, where more than half of them have one.

    For rigs that are made from the topology: their rates describe the fabric under test, and do not state what it should be.
    """
    rates, counts = np.unique(evidence.hosts.link_bps, return_counts=True)
    if not len(rates) or 2 * counts.max() <= len(evidence.hosts.names):
        return evidence
    most = np.full(len(evidence.hosts.names), rates[np.argmax(counts)])
    return replace(evidence, hosts=replace(evidence.hosts, link_bps=most))


def host_names(evidence: Evidence) -> dict[int, str]:
    """Return by port of the device the name of the rig port on its cable, for those with one."""
    hosts = evidence.hosts
    return {port: hosts.names[host] for port, host in enumerate(evidence.ports.host.tolist()) if host >= 0}
