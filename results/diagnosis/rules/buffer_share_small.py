"""Finds switches whose queues drop or pause at their dynamic threshold while most of the shared buffer is free.

Decides by the greatest use of each priority group: the sum over a switch is at least its greatest simultaneous use. One
group of weight (alpha) 1 may take half of the buffer, several take more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.configured import settings_by_switch
from etloop.results.diagnosis.loss_sources import summed
from etloop.results.diagnosis.rule import Found, found, no_evidence, not_exercised
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.BUFFER_SHARE_SMALL
FREE_SHARE: Final = 0.6
"""Share of the shared buffer that is never used, above which the threshold and not the buffer is the limit: alpha 1 leaves
at most 0.5 free."""


def look(evidence: Evidence) -> Found:
    """Return the switches that drop or pause with most of their buffer free."""
    lanes, ports = evidence.lanes, evidence.ports
    used = lanes.counter("group_shared_watermark_bytes")
    settings = settings_by_switch(evidence)
    if not settings or np.isnan(used).all():
        return no_evidence(_KIND, "the size of the shared buffer, or its use by priority group, is not known")
    limited = np.nan_to_num(
        summed(lanes.counter(name) for name in ("queue_dropped_packets", "group_dropped_packets", "pfc_tx"))
    )
    if not limited.sum():
        return not_exercised(_KIND, "no queue dropped or paused")
    findings = []
    switch_of_lane = np.array(ports.switch, object)[lanes.port]
    for name, switch in settings.items():
        rows = np.flatnonzero(switch_of_lane == name)
        pool = switch.buffer_bytes - switch.set_aside_bytes
        most = float(np.nansum(used[rows]))
        if pool <= 0 or not limited[rows].sum() or most >= (1 - FREE_SHARE) * pool:
            continue
        worst = int(rows[np.argmax(limited[rows])])
        number = int(lanes.number[worst])
        at_queue = np.nan_to_num(lanes.counter("queue_dropped_packets")[worst]) > 0
        limits = switch.queues[number] if at_queue else switch.groups[number]
        use = _Use(f"{'queue' if at_queue else 'group'} {number}", 2.0**limits.alpha_log2, most, float(pool))
        findings.append(_finding(evidence, worst, use, float(limited[rows].sum())))
    return found(_KIND, tuple(sorted(findings, key=lambda finding: -finding.evidence[0].value)))


@dataclass(frozen=True, slots=True)
class _Use:
    """Use of the shared buffer of a switch."""

    limited: str
    """The queue or group that its threshold limits."""
    alpha: float
    most_bytes: float
    pool_bytes: float


def _finding(evidence: Evidence, lane: int, use: _Use, limited: float) -> Finding:
    lanes, ports = evidence.lanes, evidence.ports
    port = int(lanes.port[lane])
    name = ports.switch[port]
    at = Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[lane]))
    share = use.most_bytes / use.pool_bytes
    sentence = (
        f"{name} drops or pauses ({limited:,.0f} times, most at {at.name}) while at most {share:.0%} of its shared buffer "
        f"of {use.pool_bytes / 1e6:.3g} MB is in use: alpha of {use.limited} is {use.alpha:g}"
    )
    facts = (
        Fact("drops_and_pauses", limited, "count"),
        Fact("shared_used_bytes", use.most_bytes, "bytes", use.pool_bytes),
        Fact("alpha", use.alpha, "ratio"),
    )
    remedy = f"raise alpha of {use.limited} on {name}; with 1, one port may take half of the free buffer"
    return Finding(_KIND, (Place(PlaceKind.SWITCH, name), at), sentence, facts, 1.0, remedy)
