"""Measures a responder's reaction to a packet that a switch trimmed instead of dropping it."""

from __future__ import annotations

from typing import Final

from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.answers import answer_words
from etloop.experiments.nic.link.figures import Figure, latency, unseen, word
from etloop.experiments.nic.link.probe import Probe

DSCP: Final = 48
"""DSCP of trimmed packets, as in SONiC's example."""
REPEATS: Final = 15


def run(probe: Probe) -> tuple[Figure, ...]:
    """Send the beginning of a packet, with corrected lengths and with those of the full packet."""
    figures: list[Figure] = []
    times_ns: list[int] = []
    for says_so, name in ((True, "trimmed_new_lengths"), (False, "trimmed_old_lengths")):
        behaviours: list[str] = []
        connection = probe.connect()
        for psn in range(REPEATS):
            left_ns = connection.trimmed_write(psn, DSCP, says_so=says_so)
            first = connection.until(lambda arrival: bool(answer_words(arrival)), _PATIENCE_NS)
            behaviours.append(
                "dropped in silence" if first is None else answer_words(first).rstrip(" 0123456789")
            )
            if first is None:
                break
            times_ns.append(first.at_ns - left_ns)
            connection.write(psn)
            connection.collect()
        connection.close()
        figures.append(word(name, " or ".join(sorted(set(behaviours))), len(behaviours)))
    if not times_ns:
        return *figures, unseen("trim_to_answer", "ns", "no reply to a trimmed packet")
    floor_ns, resolution_ns = probe.floor_ns(), probe.wire.resolution_ns
    return *figures, latency("trim_to_answer", times_ns, floor_ns, resolution_ns, "")


_PATIENCE_NS: Final = 20_000_000

EXPERIMENT: Final = Experiment(
    name="trims",
    provokes=f"the first 128 bytes of a write of a kilobyte, DSCP {DSCP}, with corrected and with original lengths",
    reads="the first reply to each, and its time; a card without trimming support does not reply",
    clause="no standard for RoCEv2; SONiC packet trimming, docs/trimming.md",
    figures={
        "trimmed_new_lengths": "",
        "trimmed_old_lengths": "",
        "trim_to_answer": "ns",
    },
    run=run,
)
