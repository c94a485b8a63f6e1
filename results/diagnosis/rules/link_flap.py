"""Finds links that went down or came up in the run, and how long they carried nothing.

Decides by scheduled events, outages of the topology, and packets that a port dropped because its link was down. The
recovery time is from the last packet before the event to the first one after it, in the samples of the port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import FOREVER_NS
from etloop.results.diagnosis.loss_places import port_place
from etloop.results.diagnosis.rule import Found, no_evidence, report
from etloop.results.schema.findings import Fact, Finding, FindingKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.LINK_FLAP
_REMEDY: Final = (
    "check optics, power and error counters of {link}; shorten detection and convergence (BFD, fast failover) if the gap "
    "is longer than the outage"
)


@dataclass(frozen=True, slots=True)
class _Outage:
    """A span in which a link was down; `until_ns` is `FOREVER_NS` if it stayed down."""

    from_ns: int
    until_ns: int


def look(evidence: Evidence) -> Found:
    """Return the links that were down, those with most dropped packets first."""
    ports = evidence.ports
    dropped = ports.counter("link_dropped_packets")
    outages = _outages(evidence)
    if not ports.names or (np.isnan(dropped).all() and evidence.topology is None and not outages):
        return no_evidence(_KIND, "no port of the device counts packets dropped at a link that is down")
    by_port = {row: list(spans) for row, spans in outages.items()}
    peer = ports.peer_row
    for row in np.flatnonzero(np.nan_to_num(dropped) > 0).tolist():
        if row not in by_port and int(peer[row]) not in by_port:
            by_port[row] = []
    findings = [_finding(evidence, row, spans) for row, spans in by_port.items()]
    return report(_KIND, tuple(sorted(findings, key=lambda finding: -finding.evidence[0].value)))


def _outages(evidence: Evidence) -> dict[int, list[_Outage]]:
    """Return the spans in which links were down while the job ran, by row of the port that names the link."""
    row_of = {name: row for row, name in enumerate(evidence.ports.names)}
    spans: dict[int, list[_Outage]] = {}
    topology, duration_ns = evidence.topology, evidence.duration_ns or FOREVER_NS
    for outage in topology.outages if topology is not None else ():
        row = row_of.get(topology.port_name(outage.end)) if topology is not None else None
        if row is not None and outage.from_ns < duration_ns:
            spans.setdefault(row, []).append(_Outage(outage.from_ns, outage.until_ns))
    for event in sorted(evidence.run.summary.timeline, key=lambda event: event.at_ns):
        row = row_of.get(event.link)
        if row is None or event.done_ns < 0:
            continue
        of_link = spans.setdefault(row, [])
        if not event.up:
            of_link.append(_Outage(event.done_ns, FOREVER_NS))
        elif of_link and of_link[-1].until_ns == FOREVER_NS:
            of_link[-1] = _Outage(of_link[-1].from_ns, event.done_ns)
    return {row: of_link for row, of_link in spans.items() if of_link}


def _finding(evidence: Evidence, row: int, spans: list[_Outage]) -> Finding:
    ports = evidence.ports
    place = port_place(evidence, row)
    ends = [row, int(ports.peer_row[row])] if ports.peer_row[row] >= 0 else [row]
    dropped = float(np.nan_to_num(ports.counter("link_dropped_packets")[ends]).sum())
    facts = [Fact("link_dropped_packets", dropped, "packets", 0.0)]
    sentence = f"the link of {place} was down"
    if spans:
        first = spans[0]
        sentence = f"the link of {place} went down at {first.from_ns / 1e6:,.6g} ms"
        end_ns = min(first.until_ns, evidence.duration_ns or first.until_ns)
        if first.until_ns < FOREVER_NS:
            sentence += f" for {(first.until_ns - first.from_ns) / 1e6:,.4g} ms"
        else:
            sentence += " and stayed down"
        if len(spans) > 1:
            sentence += f", {len(spans)} times in all"
        facts.append(Fact("outage_ns", float(max(end_ns - first.from_ns, 0)), "ns", 0.0, len(spans)))
        silent_ns = _silent_ns(evidence, ends, first)
        if silent_ns is not None:
            sentence += f"; it carried its next packet {silent_ns / 1e6:,.4g} ms after the last"
            facts.append(Fact("recovery_ns", float(silent_ns), "ns"))
    sentence += f"; {dropped:,.0f} packets were lost there"
    link = f"{place.name} - {place.peer}" if place.peer else place.name
    return Finding(_KIND, (place,), sentence, tuple(facts), 1.0, _REMEDY.format(link=link))


def _silent_ns(evidence: Evidence, ends: list[int], outage: _Outage) -> int | None:
    """Return the time from the last packet before an outage to the first after its begin; None if a side has none."""
    samples, lanes = evidence.samples, evidence.lanes
    if not len(samples.lane):
        return None
    rows = np.flatnonzero(np.isin(lanes.port[samples.lane], ends))
    sent = samples.value("tx_packets")[rows]
    moved: NDArray[np.bool_] = (np.diff(sent) > 0) & (np.diff(samples.lane[rows]) == 0)
    times = np.sort(samples.time_ns[rows][1:][moved])
    before = times[times <= outage.from_ns]
    after = times[times > max(outage.from_ns, min(outage.until_ns, outage.from_ns + 1))]
    if outage.until_ns < FOREVER_NS:
        after = times[times >= outage.until_ns]
    return int(after[0] - before[-1]) if len(before) and len(after) else None
