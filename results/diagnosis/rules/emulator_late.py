"""Finds where the agents, or the host of a soft switch, were late, busy or lost packets themselves.

Decides nothing new: the limits are those above which a verdict is inconclusive (`EmulatorLimits`). A run in virtual time
cannot be late. Needless retransmissions count only where no packet was lost and no port paused: a pause longer than the timer
makes them as well, and is not a matter of the agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.rule import Found, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind
from etloop.results.schema.needless import is_asked_for
from etloop.results.verdict.verdict import EmulatorLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

KIND: Final = FindingKind.EMULATOR_LATE
PIN: Final = "pin the agents to cores of their own, slow the job down (scale), or use packet or xdp ports"
PAUSED_SHARE: Final = 0.01
"""Share of the run from which pauses may have made timers expire."""


def look(evidence: Evidence) -> Found:
    """Return how the emulator itself was the limit; none in virtual time."""
    if evidence.is_virtual:
        return report(KIND, ())
    limits = EmulatorLimits()
    parts = (
        _late(evidence, limits),
        _busy(evidence, limits),
        _find_losses(evidence),
        _find_overload(evidence),
    )
    return report(KIND, tuple(row for part in (*parts, _needless(evidence, limits)) for row in part))


def _finding(place: Place, sentence: str, fact: Fact, remedy: str = PIN) -> Finding:
    return Finding(KIND, (place,), sentence, (fact,), 1.0, remedy)


def _late(evidence: Evidence, limits: EmulatorLimits) -> Iterator[Finding]:
    share = evidence.figures.get("slip_share", 0.0)
    if share <= limits.slip_share:
        return
    place, name = _latest_host(evidence)
    yield _finding(
        place,
        f"late agents (most at {name}) explain up to {share:.1%} of an iteration: times are the host's, not the device's",
        Fact("slip_share", share, "ratio", limits.slip_share),
    )


def _latest_host(evidence: Evidence) -> tuple[Place, str]:
    """Return the port of the rig whose ranks were late for the longest in sum."""
    rank = evidence.run.column("ops", "rank").astype(np.int64)
    late_ns = np.bincount(rank, evidence.run.column("ops", "slip_ns").clip(min=0))
    name = evidence.run.plan.port_names[int(late_ns.argmax())]
    return Place(PlaceKind.HOST, name), name


def _busy(evidence: Evidence, limits: EmulatorLimits) -> Iterator[Finding]:
    turns, idle = evidence.hosts.counter("loop_turns"), evidence.hosts.counter("idle_turns")
    busy = 1 - idle / np.where(turns > 0, turns, np.nan)
    for place, name, share in _rows_above(evidence, busy, limits.busy_share):
        yield _finding(
            place,
            f"the agent's loop of {name} had work in {share:.1%} of its turns: rates there may be those of its host",
            Fact("busy_share", share, "ratio", limits.busy_share),
        )


def _find_losses(evidence: Evidence) -> Iterator[Finding]:
    for place, name, packets in _rows_above(evidence, evidence.hosts.counter("receive_overflows"), 0):
        yield _finding(
            place,
            f"{name} lost {packets:.0f} packets in its own receive buffer: the device did not lose them",
            Fact("receive_overflows", packets, "packets"),
            "raise the receive buffer (net.core.rmem_max), or use packet or xdp ports",
        )


def _rows_above(
    evidence: Evidence, values: NDArray[np.float64], limit: float
) -> Iterator[tuple[Place, str, float]]:
    for row in np.flatnonzero(np.nan_to_num(values) > limit).tolist():
        name = evidence.hosts.names[row]
        yield Place(PlaceKind.HOST, name), name, float(values[row])


def _find_overload(evidence: Evidence) -> Iterator[Finding]:
    frames = evidence.run.summary.overload_frames
    if frames:
        yield _finding(
            Place(PlaceKind.JOB, "soft switch"),
            f"the soft switch lost {frames} frames because its host could not keep up",
            Fact("overload_frames", frames, "frames"),
            "lower the rates of the lab, or give its host more cores",
        )


def _needless(evidence: Evidence, limits: EmulatorLimits) -> Iterator[Finding]:
    figures, counts = evidence.figures, evidence.run.summary.transport
    share = figures.get("needless_share", 0.0)
    was_lost = figures.get("lost_packets", 0.0) or figures.get("dut_dropped_packets", 0.0)
    if share <= limits.needless_share or was_lost or is_asked_for(counts) or _was_paused(evidence):
        return
    again = evidence.flows.received.get("duplicate_request", np.zeros(len(evidence.flows.src_host)))
    known = np.flatnonzero(evidence.flows.src_host >= 0)
    by_host = np.bincount(evidence.flows.src_host[known], np.nan_to_num(again[known]))
    name = evidence.hosts.names[int(by_host.argmax())] if len(by_host) else ""
    yield _finding(
        Place(PlaceKind.HOST, name) if name else Place(PlaceKind.JOB, "job"),
        f"{share:.2%} of the packets, most of {name or 'the job'}, were sent again although none was lost or paused: the"
        " retransmission timer is shorter than a round trip, or an agent was descheduled",
        Fact("needless_share", share, "ratio", limits.needless_share),
        "raise transport.timeout_floor",
    )


def _was_paused(evidence: Evidence) -> bool:
    """Return whether a queue or a host was paused for a share of the run that may have made timers expire."""
    longest_ns = PAUSED_SHARE * max(evidence.duration_ns, 1)
    columns = (evidence.lanes.counter("queue_paused_ns"), evidence.hosts.counter("paused_ns"))
    return any(bool((np.nan_to_num(column) > longest_ns).any()) for column in columns)
