"""Judges queues that hosts held by pauses: whether each port stopped, and at which lengths released queues mark.

Decides what counts as ignored: most messages of a held round arrived while the host paused. No packet arrives at a released
queue, so between two readings it shrinks by the packets that it sent: their lengths are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.experiments.certify.rules import marks
from etloop.experiments.certify.rules.parts import Answer, switches_or_cables
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.experiments.certify.rules.hold_times import HoldTimes
    from etloop.results.diagnosis.evidence import Evidence

IGNORED: Final = 0.5
"""Share of messages that arrive during pauses from which on a port ignores them."""
LEAST_MESSAGES: Final = 3
_INCASTS: Final = "Kmin and Kmax are those of incasts"


def look(evidence: Evidence, times: HoldTimes) -> Answer:
    """Return ports that ignore the pauses of their hosts, and ports that mark at other lengths than their peers."""
    early, count = arrivals_in_pauses(evidence, times)
    is_held = times.outlasts_sends(times.hold_ns_at(evidence.hosts.link_bps))
    fast = int(np.count_nonzero(~is_held))
    too_fast = f"{fast} ports are too fast to be held as long as the slowest one; " if fast else ""
    tested = np.flatnonzero(is_held & (count >= LEAST_MESSAGES))
    if not len(tested):
        return Answer(untested=f"no host received a message; {_INCASTS}")
    deaf = tested[early[tested] > IGNORED * count[tested]]
    if len(deaf) == len(tested):
        words = f"no port stopped while its host paused priority {times.priority}: its class has no PFC, or "
        words += f"another priority; {_INCASTS}"
        return Answer(untested=words) if evidence.needs.needs_lossless else Answer(limits=words)
    findings = tuple(_ignoring(evidence, times, deaf, tested, early, count))
    is_held[deaf] = False
    held = marks.look(evidence, is_held)
    if held.untested:
        return Answer(findings, limits=f"{too_fast}{held.untested}; {_INCASTS}")
    limits = f"{too_fast}Kmin and Kmax of {len(held.figures)} ports to hosts are those of held queues, "
    limits += "of other ports of incasts"
    return Answer((*findings, *held.findings), held.figures, limits=limits)


def arrivals_in_pauses(evidence: Evidence, times: HoldTimes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return by rig port how many messages arrived whole while it paused, and how many arrived (int64 each)."""
    ops = evidence.run.frames["ops"].columns
    received = np.array(ops["kind"] == "receive", bool)
    row_of = {name: row for row, name in enumerate(evidence.hosts.names)}
    host_of_rank = np.array([row_of.get(name, -1) for name in evidence.run.plan.port_names], np.int64)
    host = host_of_rank[ops["rank"][received].astype(np.int64)]
    phase_ns = ops["completed_ns"][received].astype(np.int64) % times.period_ns
    hold_ns = times.hold_ns_at(evidence.hosts.link_bps)[host]
    in_pause = (phase_ns > times.margin_ns) & (phase_ns < hold_ns - times.margin_ns)
    size = len(row_of)
    return np.bincount(host[in_pause], minlength=size), np.bincount(host, minlength=size)


def _ignoring(
    evidence: Evidence,
    times: HoldTimes,
    deaf: NDArray[np.int64],
    tested: NDArray[np.int64],
    early: NDArray[np.int64],
    count: NDArray[np.int64],
) -> list[Finding]:
    hosts = evidence.hosts
    known = {int(hosts.port[host]): host for host in deaf.tolist() if hosts.port[host] >= 0}
    parts: dict[Place, list[int]] = {
        place: [known[row] for row in rows]
        for place, rows in switches_or_cables(evidence, known, hosts.port[tested].tolist()).items()
    }
    parts |= {
        Place(PlaceKind.HOST, hosts.names[host]): [host] for host in deaf.tolist() if hosts.port[host] < 0
    }
    findings = []
    for place, rows in parts.items():
        seen, total = int(early[rows].sum()), int(count[rows].sum())
        sentence = (
            f"{place} goes on sending while its host pauses priority {times.priority}: {seen} of {total} messages arrived "
            "during pauses"
        )
        fact = Fact("messages_in_pauses", float(seen), "messages", 0.0, total)
        remedy = f"enable PFC for priority {times.priority} on the port, and let it pause the queue of data"
        findings.append(Finding(FindingKind.PFC_IGNORED, (place,), sentence, (fact,), 1.0, remedy))
    return findings
