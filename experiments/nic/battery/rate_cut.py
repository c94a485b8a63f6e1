"""What a requester does to its rate at a congestion notification, and when it begins to climb."""

from __future__ import annotations

from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Figure, unseen
from etloop.experiments.nic.link.probe import Connection, Probe, is_data
from etloop.experiments.nic.link.wire import PairSettings

BASE_PACKETS: Final = 128
WATCHED_NS: Final = 2 * NS_PER_MS
MOST_PACKETS: Final = 30_000
MOST_NOISE: Final = 0.05
"""By how much the times of packets may vary before the notification; above, nothing is said."""
AT_ONCE: Final = 8
"""Packets whose time together makes one rate."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card write without end, acknowledge all of it, and notify it once."""
    connection = probe.connect(PairSettings(path_mtu=4096))
    connection.nic.write(connection.end, MOST_PACKETS * 4096)
    before = _acknowledged(connection, BASE_PACKETS, None)
    if len(before) < BASE_PACKETS:
        connection.close()
        return (unseen("cnp_cut", "ratio", f"only {len(before)} packets came"),)
    left_ns = connection.notify()
    after = _acknowledged(connection, MOST_PACKETS, left_ns + WATCHED_NS)
    connection.close()
    return _figures(before, after, probe.wire.resolution_ns + probe.floor_ns())


def _figures(before: list[int], after: list[int], error_ns: int) -> tuple[Figure, Figure]:
    """What arrival times before a notification and after it say of the rate."""
    quiet, spans = _spans(before), _spans(after)
    usual, slowest = median(quiet), max(spans, default=0.0)
    noise = max(quiet) / usual if usual else float("inf")
    if noise > 1 + MOST_NOISE:
        seen = f"varies {noise:.2g}-fold by itself" if usual else "cannot be told: its packets come at once"
        why = f"its rate {seen}, or we do not see it evenly"
        return unseen("cnp_cut", "ratio", why), unseen("cnp_recovery", "ns", why)
    if slowest <= 1.06 * usual:
        why = "its rate did not change"
        return Figure("cnp_cut", "ratio", 0.0, 0.0, 0.06, why, 1), unseen("cnp_recovery", "ns", why)
    level = [index for index, span in enumerate(spans) if span > 0.98 * slowest]
    cut = 1 - usual / median([spans[index] for index in level])
    found = Figure("cnp_cut", "ratio", cut, cut - 0.03, cut + 0.03, "", len(level))
    if level[-1] + 1 >= len(spans):
        return found, unseen("cnp_recovery", "ns", f"it did not climb within {WATCHED_NS // NS_PER_MS} ms")
    # A span is slow through and through when all its packets are: the cut began a span before the first such.
    lasted_ns = after[AT_ONCE + level[-1]] - after[AT_ONCE + level[0]] + slowest
    error_ns += round(3 * slowest)
    low_ns = max(lasted_ns - error_ns, 0.0)
    return found, Figure("cnp_recovery", "ns", lasted_ns, low_ns, lasted_ns + error_ns, "", len(level))


def _acknowledged(connection: Connection, most: int, until_ns: int | None) -> list[int]:
    """When packets came, each acknowledged at once."""
    found: list[int] = []
    while len(found) < most:
        arrival = connection.until(is_data) if until_ns is None else connection.receive(until_ns)
        if arrival is None:
            break
        if is_data(arrival):
            found.append(arrival.at_ns)
            connection.answer(arrival.packet.psn)
    return found


def _spans(times_ns: list[int]) -> list[float]:
    """Per packet, how long it and those before it took."""
    return [float(later - earlier) for earlier, later in zip(times_ns, times_ns[AT_ONCE:], strict=False)]


EXPERIMENT: Final = Experiment(
    name="rate_cut",
    provokes="an endless write, acknowledged packet by packet, and one congestion notification",
    reads=f"how long {AT_ONCE} packets take, before and after; how deep the first cut is, and how long until it climbs",
    clause="Zhu et al., SIGCOMM 2015 (DCQCN); NVIDIA DOCA, DCQCN parameters: rpg_time_reset",
    run=run,
)
