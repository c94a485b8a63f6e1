"""Finds switches whose queues drop or pause at their dynamic threshold while most of the shared buffer is free.

Decides by the free buffer at the threshold: a queue that drops, or a group that pauses, holds alpha times what is free. One
of alpha 1 leaves half of the buffer free, several leave less. The sum of the greatest uses of all groups bounds it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.configured import settings_by_switch
from etloop.results.diagnosis.loss_sources import sum_columns
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from etloop.contract.model.topology import SwitchSettings
    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.BUFFER_SHARE_SMALL
FREE_SHARE: Final = 0.6
"""Share of the shared buffer that is free, above which the threshold and not the buffer is the limit: alpha 1 leaves
at most 0.5 free."""


def look(evidence: Evidence) -> Found:
    """Return the switches that drop or pause with most of their buffer free."""
    lanes, ports = evidence.lanes, evidence.ports
    used = lanes.counter("group_shared_watermark_bytes")
    settings = settings_by_switch(evidence)
    if not settings or np.isnan(used).all():
        return no_evidence(_KIND, "the size of the shared buffer, or its use by priority group, is not known")
    limited = np.nan_to_num(
        sum_columns(
            lanes.counter(name) for name in ("queue_dropped_packets", "group_dropped_packets", "pfc_tx")
        )
    )
    if not limited.sum():
        return not_exercised(_KIND, "no queue dropped or paused")
    findings = []
    switch_of_lane = np.array(ports.switch, object)[lanes.port]
    for name, switch in settings.items():
        rows = np.flatnonzero((switch_of_lane == name) & (limited > 0))
        if not len(rows):
            continue
        worst = int(rows[np.argmax(limited[rows])])
        use = _use(evidence, switch, worst, float(np.nansum(used[switch_of_lane == name])))
        if use.most_bytes < (1 - FREE_SHARE) * use.pool_bytes:
            findings.append(_finding(evidence, worst, use, float(limited[rows].sum())))
    return report(_KIND, tuple(sorted(findings, key=lambda finding: -finding.evidence[0].value)))


@dataclass(frozen=True, slots=True)
class _Use:
    """Use of the shared buffer of a switch."""

    limited: str
    """The queue or group that its threshold limits."""
    alpha: float
    most_bytes: float
    pool_bytes: float


def _use(evidence: Evidence, switch: SwitchSettings, lane: int, sum_bytes: float) -> _Use:
    """Return the use of a switch's buffer when a lane reached its threshold. `sum_bytes`: greatest uses of all groups."""
    lanes, number = evidence.lanes, int(evidence.lanes.number[lane])
    at_queue = np.nan_to_num(lanes.counter("queue_dropped_packets")[lane]) > 0
    rules = switch.rules_of(evidence.ports.names[int(lanes.port[lane])].rpartition("/")[2])
    limits = rules.queues[number] if at_queue else rules.groups[number]
    counter = "queue_watermark_bytes" if at_queue else "group_shared_watermark_bytes"
    held = float(np.nan_to_num(lanes.counter(counter)[lane])) - (limits.reserved_bytes if at_queue else 0)
    pool, alpha = float(switch.buffer_bytes - switch.set_aside_bytes), 2.0**limits.alpha_log2
    most = min(sum_bytes, max(pool - max(held, 0.0) / alpha, 0.0))
    return _Use(f"{'queue' if at_queue else 'group'} {number}", alpha, most, pool)


def _finding(evidence: Evidence, lane: int, use: _Use, limited: float) -> Finding:
    lanes, ports = evidence.lanes, evidence.ports
    port = int(lanes.port[lane])
    name = ports.switch[port]
    at = Place(PlaceKind.QUEUE, ports.names[port], ports.peers[port], int(lanes.number[lane]))
    share = use.most_bytes / use.pool_bytes
    sentence = (
        f"{name} drops or pauses ({limited:,.0f} times, most at {at.name}) while about {share:.0%} of its shared buffer "
        f"of {use.pool_bytes / 1e6:.3g} MB is in use: alpha of {use.limited} is {use.alpha:g}"
    )
    facts = (
        Fact("drops_and_pauses", limited, "count"),
        Fact("shared_used_bytes", use.most_bytes, "bytes", use.pool_bytes),
        Fact("alpha", use.alpha, "ratio"),
    )
    remedy = f"raise alpha of {use.limited} on {name}; with 1, one port may take half of the free buffer"
    return Finding(_KIND, (Place(PlaceKind.SWITCH, name), at), sentence, facts, 1.0, remedy)
