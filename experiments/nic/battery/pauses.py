"""Measures the reaction of a card's port to pause frames (priority flow control), on a link without a switch."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.endless import acknowledge_packets
from etloop.experiments.nic.link.figures import Figure, latency, unseen, word
from etloop.experiments.nic.link.probe import Probe
from etloop.experiments.nic.link.wire import PairSettings

REPEATS: Final = 5
BASE_PACKETS: Final = 64
PATH_MTU: Final = 4096
FRAME_BITS: Final = 8 * (PATH_MTU + 82)
QUANTUM_BITS: Final = 512
MOST_SPREAD: Final = 1.3
"""Largest ratio between measured lengths of a quantum; above, the stops have another cause."""
_UNRESOLVED: Final = 0.1
"""Relative error of a stop, which lasts at least 20 times the resolution."""
MOST_QUANTA: Final = 65_535
_STOP_PACKETS: Final = 40
"""Length of a stop, in packet times."""
_MOST_PACKETS: Final = 20_000
_LONGEST_REACTION_NS: Final = 100_000
"""Longest reaction time, round trip included."""


def run(probe: Probe) -> tuple[Figure, ...]:
    """Have the card write endlessly, acknowledge all of it, and pause its port, alternately for one length and twice
    that.
    """
    quantum_ns: list[float] = []
    reactions: list[int] = []
    spacing_ns = 0
    resolution_ns = probe.wire.resolution_ns
    for number in range(REPEATS):
        connection = probe.connect(PairSettings(path_mtu=PATH_MTU))
        connection.nic.write(connection.end, _MOST_PACKETS * PATH_MTU)
        before = acknowledge_packets(connection, BASE_PACKETS, None)
        if len(before) < BASE_PACKETS:
            connection.close()
            return (unseen("pauses", "", f"only {len(before)} packets arrived"),)
        gaps = [later - earlier for earlier, later in pairwise(before)]
        spacing_ns = max(round(median(gaps)), 1)
        wanted_ns = max(_STOP_PACKETS * spacing_ns, 3 * max(gaps), 20 * resolution_ns) * (1 + number % 2)
        quanta = min(-(-wanted_ns * FRAME_BITS // (spacing_ns * QUANTUM_BITS)), MOST_QUANTA)
        left_ns = connection.pause(quanta)
        after = acknowledge_packets(connection, _MOST_PACKETS, left_ns + 3 * wanted_ns + _LONGEST_REACTION_NS)
        connection.close()
        if len(after) < 2:
            continue
        gap_ns, last_ns = max((later - earlier, earlier) for earlier, later in pairwise(after))
        if gap_ns >= max(wanted_ns // 2, 2 * max(gaps)):
            quantum_ns.append(gap_ns / quanta)
            reactions.append(last_ns - left_ns)
    if not quantum_ns:
        return (word("pauses", "ignored, or not forwarded by a device on the path", REPEATS),)
    # A stop with another cause does not last twice as long when the pause does.
    if len(quantum_ns) < REPEATS or max(quantum_ns) > MOST_SPREAD * min(quantum_ns):
        return (unseen("pauses", "", "unknown: its packets are uneven without a pause"),)
    return _figures(quantum_ns, reactions, spacing_ns, probe)


def _figures(
    quantum_ns: list[float], reactions: list[int], spacing_ns: int, probe: Probe
) -> tuple[Figure, ...]:
    # The packet that was being sent arrives up to one spacing late, and the next one would have, too.
    reaction = latency(
        "pause_reaction", reactions, probe.floor_ns() + spacing_ns, probe.wire.resolution_ns, ""
    )
    assert reaction.high is not None
    # A stop is at least as long as requested, and is observed with a packet spacing on either side.
    error = 2 / _STOP_PACKETS + _UNRESOLVED
    low_ns, high_ns = min(quantum_ns) * (1 - error), max(quantum_ns) * (1 + _UNRESOLVED)
    quantum = Figure("pause_quantum", "ns", median(quantum_ns), low_ns, high_ns, "", REPEATS)
    return word("pauses", "stops", REPEATS), replace(reaction, high=reaction.high + spacing_ns), quantum


EXPERIMENT: Final = Experiment(
    name="pauses",
    provokes=f"an endless write, and a pause of all priorities for some {_STOP_PACKETS} packets' time",
    reads="the longest gap afterwards: time until it began, and its length per quantum of 512 bits",
    clause="IEEE 802.1Q, 36.2 (PFC); 802.3, annex 31B: a quantum is 512 bit times",
    figures={
        "pauses": "",
        "pause_reaction": "ns",
        "pause_quantum": "ns",
    },
    run=run,
)
