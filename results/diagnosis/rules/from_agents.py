"""Finds lossy and slow links without any counters of the device: from the packets and rates that agents recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.units import format_rate
from etloop.results.diagnosis.localise import LossyLink, SlowHost, lossy_links, slow_hosts
from etloop.results.diagnosis.rule import Found
from etloop.results.schema.findings import Examination, Examined, Fact, Finding, FindingKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

_MOST_NAMED = 4


def look(evidence: Evidence) -> Found:
    """Return lossy and slow links if the device counts nothing; no outcome at all if it does."""
    if evidence.ports.counters or not len(evidence.streams.ports):
        return Found()
    findings = [_lossy(link) for link in lossy_links(evidence) if not link.is_clustered]
    findings += [_slow(host) for host in slow_hosts(evidence)]
    kinds = dict.fromkeys(finding.kind for finding in findings)
    return Found(tuple(findings), tuple(Examination(kind, Examined.FOUND) for kind in kinds))


def _lossy(link: LossyLink) -> Finding:
    names = " or ".join(str(place) for place in link.places[:_MOST_NAMED])
    more = f" or {len(link.places) - _MOST_NAMED} more" if len(link.places) > _MOST_NAMED else ""
    rate = link.lost_packets / link.crossed_packets
    sentence = (
        f"{names}{more} loses {rate:.2g} of the packets: {link.lost_packets:.0f} of {link.crossed_packets:.0f} in "
        f"{link.streams} streams, by the agents' records alone"
    )
    facts = (
        Fact("missing_packets", link.lost_packets, "packets", 0.0, link.streams),
        Fact("loss_share", rate, "ratio", 0.0, round(link.crossed_packets)),
    )
    remedy = "exchange cable, transceiver and port one at a time; read the device's counters (dut.counters) to narrow it down"
    return Finding(
        FindingKind.LOSSY_LINK,
        link.places,
        sentence,
        facts,
        1 - link.chance,
        remedy,
        is_ambiguous=len(link.places) > 1,
    )


def _slow(host: SlowHost) -> Finding:
    verb = "sends" if host.sends else "receives"
    sentence = (
        f"{host.place} never {verb} faster than {format_rate(round(host.rate_bps))} of payload; the median of its peers is "
        f"{format_rate(round(host.expected_bps))}"
    )
    fact = Fact(f"{verb}_bps", host.rate_bps, "bit/s", host.expected_bps, host.intervals)
    remedy = "reseat the cable, check negotiated speed and FEC at both ends"
    return Finding(FindingKind.SLOW_LINK, (host.place,), sentence, (fact,), 1 - host.chance, remedy)
