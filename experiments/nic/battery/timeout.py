"""How long a requester waits for an acknowledgement, how that grows, and when it gives up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import (
    Figure,
    Finding,
    by_number,
    count,
    interval,
    ratio,
    unseen,
    word,
)
from etloop.experiments.nic.link.probe import Probe, is_data
from etloop.experiments.nic.link.wire import PairSettings

CODE: Final = 14
RETRIES: Final = 5
REPEATS: Final = 3
NOMINAL_NS: Final = 4096 << CODE
"""67 ms."""
LONGEST_NS: Final = 60 * NS_PER_S
_GONE_NS: Final = 40 * NOMINAL_NS


def run(probe: Probe) -> tuple[Finding, ...]:
    """Have the card write one packet, and never answer."""
    firsts: list[int] = []
    growths: list[float] = []
    tries: list[int] = []
    states: list[str] = []
    waits: list[int] = []
    for _ in range(REPEATS):
        connection = probe.connect(PairSettings(timeout_code=CODE, retry_count=RETRIES))
        connection.nic.write(connection.end, 64)
        times_ns: list[int] = []
        end_ns = probe.wire.now_ns() + LONGEST_NS
        while len(times_ns) <= RETRIES + 2 and probe.wire.now_ns() < end_ns:
            longest_ns = max((later - earlier for earlier, later in pairwise(times_ns)), default=0)
            arrival = connection.until(is_data, max(_GONE_NS, 6 * longest_ns))
            if arrival is None:
                break
            times_ns.append(arrival.at_ns)
        gaps = [later - earlier for earlier, later in pairwise(times_ns)]
        waits = max(waits, gaps, key=len)
        if gaps:
            firsts.append(gaps[0])
            tries.append(len(gaps))
        growths += [later / earlier for earlier, later in pairwise(gaps)]
        states.append(connection.nic.state(connection.end))
        connection.close()
    if not firsts:
        return (unseen("timeout", "ns", f"nothing was sent again within {_GONE_NS // NS_PER_MS} ms"),)
    # A ratio of two times that vary by a few percent each varies by their sum.
    found = [
        _widened(interval("timeout", firsts, probe.wire.resolution_ns, ""), 0.1),
        _widened(ratio("timeout_growth", growths, 0.0, "it was sent again only once"), 0.1),
    ]
    if len(set(tries)) == 1:
        found.append(count("timeout_retries", tries[0], "count", len(tries)))
    else:
        found.append(word("timeout_retries", f"{min(tries)} to {max(tries)}", len(tries)))
    found.append(word("after_retries", "error" if set(states) == {"ERR"} else ", ".join(sorted(set(states)))))
    return *found, *by_number(
        "timeout", "Waits of a write that nobody answers", "try (number)", "wait (ms)", waits, 1e6
    )


def _widened(figure: Figure, share: float) -> Figure:
    """The figure with an interval that holds what few repeats may not have shown."""
    if figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=figure.low * (1 - share), high=figure.high * (1 + share))


EXPERIMENT: Final = Experiment(
    name="timeout",
    provokes=f"{REPEATS} writes that nobody answers, with timeout code {CODE} and {RETRIES} retries",
    reads="the times between its sendings, their number, and the state of the queue pair after them; intervals are 10 % wider"
    " than what was seen, for timers vary and repeats are few",
    clause="IBTA 1.4 volume 1, 9.9.2.1.2: 4.096 us * 2^code, at most four times that; NVIDIA, Adaptive Retransmission",
    figures={
        "timeout": "ns",
        "timeout_growth": "ratio",
        "timeout_retries": "count",
        "after_retries": "",
    },
    run=run,
)
