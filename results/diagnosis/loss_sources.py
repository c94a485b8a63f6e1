"""Adds up the counters of lost and damaged packets by cause, and words what the rules of loss have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.loss_places import Blame, Side, host_place
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_OF_PORTS: Final = (
    "link_dropped_packets",
    "fault_dropped_packets",
    "fault_corrupted_packets",
    "no_route_packets",
    "overload_frames",
    "rx_error_packets",
)
_OF_LANES: Final = (
    "queue_dropped_packets",
    "group_dropped_packets",
    "queue_watchdog_dropped_packets",
    "queue_trim_dropped_packets",
)
_OF_HOSTS: Final = ("injected_losses", "injected_drops", "injected_bad_icrcs", "receive_overflows")
MOST_NAMED_HOSTS: Final = 4
"""Hosts that are named one by one; more are the job."""


def total_of(values: Floats) -> float:
    """Return the sum of a column without its unknown values; 0 if all are unknown."""
    return float(np.nansum(values))


def sum_columns(columns: Iterable[Floats]) -> Floats:
    """Return the sum of columns by row; NaN in rows where all are unknown."""
    stacked = np.array(list(columns))
    return np.asarray(np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0)))


def losses_by_cause(evidence: Evidence) -> dict[str, float]:
    """Return the packets lost or damaged by each counted cause; causes that were not counted are absent."""
    tables = ((evidence.ports, _OF_PORTS), (evidence.lanes, _OF_LANES), (evidence.hosts, _OF_HOSTS))
    columns = {name: table.counter(name) for table, names in tables for name in names}
    return {name: total_of(column) for name, column in columns.items() if not np.isnan(column).all()}


def is_only_cause(evidence: Evidence, *causes: str) -> bool:
    """Return whether no other counted cause lost packets, so that the losses of flows are those of `causes`."""
    return not any(lost for name, lost in losses_by_cause(evidence).items() if name not in causes)


def counts_drops(evidence: Evidence) -> bool:
    """Return whether the device counts packets that it drops."""
    return any(
        not np.isnan(table.counter(name)).all()
        for table, names in (
            (evidence.ports, ("fault_dropped_packets", "rx_dropped_packets", "tx_dropped_packets")),
            (evidence.lanes, ("queue_dropped_packets", "group_dropped_packets")),
        )
        for name in names
    )


def place_words(blame: Blame) -> str:
    """Return the first place of a blame in words, such as "in at switch/2 (to c/p0)"."""
    place = blame.places[0]
    match blame.side:
        case Side.IN:
            return f"arrive at {place.name}" + (f" from {place.peer}" if place.peer else "")
        case Side.OUT:
            return f"leave by {place.name}" + (f" to {place.peer}" if place.peer else "")
        case Side.ACROSS:
            return f"cross {place.name}"
        case Side.FROM:
            words = f"{place.name} sends"
            is_pair = place.kind is PlaceKind.HOST and place.peer and "/" in place.peer
            return words + (f" to {place.peer}" if is_pair else "")
        case Side.TO:
            return f"are sent to {place.name}"


def cable_words(place: Place) -> str:
    """Return a cable by both of its ends, or its only known one."""
    return f"{place.name} - {place.peer}" if place.peer else place.name


def loss_finding(kind: FindingKind, blame: Blame, verb: str, counter: str, remedy: str) -> Finding:
    """Return the finding of a blame. `verb`: what became of the packets; `remedy` may name the `{cable}`."""
    lost, crossed = round(blame.lost_packets), round(max(blame.crossed_packets, blame.lost_packets))
    be = "is" if lost == 1 else "are"
    sentence = (
        f"{lost:,} of {crossed:,} packets that {place_words(blame)} {be} {verb} ({blame.rate:.2g} a packet)"
    )
    if len(blame.places) > 1:
        alternatives = ", ".join(str(place) for place in blame.places[1:])
        sentence += f"; the flows do not distinguish it from {alternatives}"
    facts = (
        Fact(counter, blame.lost_packets, "packets", 0.0),
        Fact("loss_rate", blame.rate, "share", 0.0, crossed),
    )
    return Finding(
        kind,
        blame.places,
        sentence,
        facts,
        round(blame.probability, 6),
        remedy.format(cable=cable_words(blame.places[0])),
        is_ambiguous=len(blame.places) > 1,
    )


def host_findings(evidence: Evidence, kind: FindingKind, counter: str, clause: str) -> tuple[Finding, ...]:
    """Return findings of hosts that the scenario's own fault rules make lose or damage packets, by a host's counter."""
    values = np.nan_to_num(evidence.hosts.counter(counter))
    rows = np.flatnonzero(values > 0)
    if len(rows) == 0:
        return ()
    remedy = "remove the fault rule from the scenario (transport.faults, faults), if it is not on purpose"
    if len(rows) > MOST_NAMED_HOSTS:
        total = float(values.sum())
        sentence = f"{len(rows)} hosts: each {clause} by the scenario's fault rules, {total:,.0f} packets"
        fact = Fact(counter, total, "packets", 0.0)
        return (Finding(kind, (Place(PlaceKind.JOB, "all hosts"),), sentence, (fact,), 1.0, remedy),)
    ranked = rows[np.argsort(-values[rows], kind="stable")].tolist()
    return tuple(
        Finding(
            kind,
            (host_place(evidence, row),),
            f"{evidence.hosts.names[row]} {clause} by the scenario's fault rules, {values[row]:,.0f} packets",
            (Fact(counter, float(values[row]), "packets", 0.0),),
            1.0,
            remedy,
        )
        for row in ranked
    )
