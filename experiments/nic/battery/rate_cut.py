"""Measures how a requester cuts its rate at a congestion notification, how it recovers, and how deep a second one cuts."""

from __future__ import annotations

from math import log2
from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.endless import acknowledge_packets
from etloop.experiments.nic.link.figures import Curve, Figure, Finding, unseen
from etloop.experiments.nic.link.probe import Probe
from etloop.experiments.nic.link.wire import PairSettings

BASE_PACKETS: Final = 128
WATCHED_NS: Final = 2 * NS_PER_MS
MOST_PACKETS: Final = 30_000
MOST_NOISE: Final = 0.05
"""Relative variation of the packets' times before the notification above which there is no figure."""
MOST_POINTS: Final = 600
"""Most points of the stored curve."""
AGAIN_NS: Final = NS_PER_MS // 4
"""Observation time after the second notification."""
CUT_ERROR: Final = 0.03
LONGEST_ALPHA_NS: Final = 1000 * NS_PER_MS
AT_ONCE: Final = 8
"""Number of packets over which one rate is computed."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Have the card write endlessly, acknowledge all of it, and notify it once, and again later."""
    connection = probe.connect(PairSettings(path_mtu=4096))
    connection.nic.write(connection.end, MOST_PACKETS * 4096)
    before = acknowledge_packets(connection, BASE_PACKETS, None)
    if len(before) < BASE_PACKETS:
        connection.close()
        return (unseen("cnp_cut", "ratio", f"only {len(before)} packets arrived"),)
    left_ns = connection.notify()
    after = acknowledge_packets(connection, MOST_PACKETS, left_ns + WATCHED_NS)
    again_ns = connection.notify()
    last = acknowledge_packets(connection, MOST_PACKETS, again_ns + AGAIN_NS)
    connection.close()
    cut_figures = first_cut(before, after, probe.wire.resolution_ns + probe.floor_ns())
    alpha = _alpha(cut_figures[0], after, last, again_ns - left_ns)
    return (
        *cut_figures,
        climb_share(before, after, cut_figures[0], cut_figures[1]),
        alpha,
        _curve(before, after + last, left_ns),
    )


def climb_share(before: list[int], after: list[int], cut: Figure, recovery: Figure) -> Figure:
    """Return the share of the cut that the first raise recovers."""
    if recovery.value is None or not cut.value:
        return unseen("cnp_climb", "ratio", "no raise was observed")
    spans = _spans(after)
    usual_span, slowest_span = median(_spans(before)), max(spans)
    last_slow = max(index for index, span in enumerate(spans) if span > 0.98 * slowest_span)
    # The level of the first raise: packets that left within it alone, until shortly before the next raise.
    first, last_ns = last_slow + AT_ONCE, after[last_slow + AT_ONCE] + 0.8 * recovery.value
    level = [
        span for at_ns, span in zip(after[AT_ONCE + first :], spans[first:], strict=False) if at_ns < last_ns
    ]
    if len(level) < AT_ONCE // 2:
        return unseen("cnp_climb", "ratio", "raises follow each other too closely to be separated")
    share = (usual_span / median(level) - usual_span / slowest_span) / (1 - usual_span / slowest_span)
    error = 0.02 / cut.value
    return Figure("cnp_climb", "ratio", share, share - error, share + error, "", len(level))


def _alpha(cut: Figure, before: list[int], after: list[int], apart_ns: int) -> Figure:
    """Return the half-life of a cut's depth (alpha of DCQCN) from the depth of a second cut."""
    if not cut.value or cut.low is None or cut.high is None:
        return unseen("alpha_half_life", "ns", "no first cut was observed")
    at_first, later = _spans(before)[-AT_ONCE:], _spans(after)
    if len(at_first) < AT_ONCE or len(later) < AT_ONCE:
        return unseen("alpha_half_life", "ns", "too few packets arrived around a second notification")
    second = max(1 - median(at_first) / max(later), 0.0)
    if second < 2 * CUT_ERROR:
        return unseen("alpha_half_life", "ns", "the cut of a second notification is below the resolution")
    shallow, deep = (second - CUT_ERROR) / cut.high, (second + CUT_ERROR) / cut.low
    low_ns = apart_ns / log2(1 / shallow)
    high_ns = min(apart_ns / log2(1 / deep), LONGEST_ALPHA_NS) if deep < 1 else LONGEST_ALPHA_NS
    middle = second / cut.value
    value_ns = apart_ns / log2(1 / middle) if middle < 1 else high_ns
    remark = "no decay within the resolution" if deep >= 1 else ""
    return Figure("alpha_half_life", "ns", min(value_ns, high_ns), low_ns, high_ns, remark, 1)


def _curve(before: list[int], after: list[int], left_ns: int) -> Curve:
    """Return the rate around the notification, a point for every packet."""
    times_ns = [*before, *after]
    spans = _spans(times_ns)
    all_points = [(at_ns, span) for at_ns, span in zip(times_ns[AT_ONCE:], spans, strict=True) if span > 0]
    every = max(len(all_points) // MOST_POINTS, 1)
    points = all_points[::every]
    bits = 8 * 4096 * AT_ONCE
    return Curve(
        "rate_cut",
        "Rate around a notification",
        "time since the notification (us)",
        "payload (Gbit/s)",
        tuple((at_ns - left_ns) / 1e3 for at_ns, _ in points),
        tuple(bits / span for _, span in points),
    )


def first_cut(before: list[int], after: list[int], error_ns: int) -> tuple[Figure, Figure]:
    """Return cut and recovery time from arrival times before and after a notification."""
    quiet, spans = _spans(before), _spans(after)
    usual_span, slowest_span = median(quiet), max(spans, default=0.0)
    noise = max(quiet) / usual_span if usual_span else float("inf")
    if noise > 1 + MOST_NOISE:
        cause = (
            f"varies {noise:.2g}-fold by itself" if usual_span else "unknown: its packets arrive in one burst"
        )
        why = f"its rate {cause}, or arrival times are uneven"
        return unseen("cnp_cut", "ratio", why), unseen("cnp_recovery", "ns", why)
    if slowest_span <= 1.06 * usual_span:
        why = "its rate did not change"
        return Figure("cnp_cut", "ratio", 0.0, 0.0, 0.06, why, 1), unseen("cnp_recovery", "ns", why)
    level = [index for index, span in enumerate(spans) if span > 0.98 * slowest_span]
    cut = 1 - usual_span / median([spans[index] for index in level])
    cut_figure = Figure("cnp_cut", "ratio", cut, cut - CUT_ERROR, cut + CUT_ERROR, "", len(level))
    if level[-1] + 1 >= len(spans):
        return cut_figure, unseen(
            "cnp_recovery", "ns", f"it did not rise within {WATCHED_NS // NS_PER_MS} ms"
        )
    # A span is entirely slow only if all its packets are: the cut began one span before the first such span.
    lasted_ns = after[AT_ONCE + level[-1]] - after[AT_ONCE + level[0]] + slowest_span
    error_ns += round(3 * slowest_span)
    low_ns = max(lasted_ns - error_ns, 0.0)
    return cut_figure, Figure("cnp_recovery", "ns", lasted_ns, low_ns, lasted_ns + error_ns, "", len(level))


def _spans(times_ns: list[int]) -> list[float]:
    """Return the time in ns over each `AT_ONCE` successive packets."""
    return [float(later - earlier) for earlier, later in zip(times_ns, times_ns[AT_ONCE:], strict=False)]


EXPERIMENT: Final = Experiment(
    name="rate_cut",
    provokes="an endless write, acknowledged packet by packet, a congestion notification, and another 2 ms later",
    reads=f"time for {AT_ONCE} packets, before and after; depth of the first cut, time to the first raise and its size,"
    " and from the second cut the half-life of alpha",
    clause="Zhu et al., SIGCOMM 2015 (DCQCN); NVIDIA DOCA, DCQCN parameters: rpg_time_reset",
    figures={
        "cnp_cut": "ratio",
        "cnp_recovery": "ns",
        "cnp_climb": "ratio",
        "alpha_half_life": "ns",
    },
    run=run,
)
