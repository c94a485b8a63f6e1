"""Finds slow ports without any counters of the device: from the rates that agents recorded. `lossy_link` finds losses so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.units import format_rate
from etloop.results.diagnosis.localise import SlowHost, slow_hosts
from etloop.results.diagnosis.rule import Found
from etloop.results.schema.findings import Examination, Examined, Fact, Finding, FindingKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence


def look(evidence: Evidence) -> Found:
    """Return slow ports if the device counts nothing; no outcome at all if it does."""
    if evidence.ports.counters or not len(evidence.streams.ports):
        return Found()
    findings = [_slow(host) for host in slow_hosts(evidence)]
    kinds = dict.fromkeys(finding.kind for finding in findings)
    return Found(tuple(findings), tuple(Examination(kind, Examined.FOUND) for kind in kinds))


def _slow(host: SlowHost) -> Finding:
    verb = "sends" if host.sends else "receives"
    sentence = (
        f"{host.place} never {verb} faster than {format_rate(round(host.rate_bps))} of payload; the median of its peers is "
        f"{format_rate(round(host.expected_bps))}"
    )
    fact = Fact(f"{verb}_bps", host.rate_bps, "bit/s", host.expected_bps, host.intervals)
    remedy = "reseat the cable, check negotiated speed and FEC at both ends"
    return Finding(FindingKind.SLOW_LINK, (host.place,), sentence, (fact,), 1 - host.chance, remedy)
