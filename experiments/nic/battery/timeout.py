"""Measures how long a requester waits for an acknowledgement, how the wait grows, and when it gives up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.asked import AS_ASKED, CHANGED, compare_with_requests
from etloop.experiments.nic.link.figures import (
    Figure,
    Finding,
    by_number,
    interval,
    ratio,
    unseen,
    word,
)
from etloop.experiments.nic.link.probe import Probe, is_data
from etloop.experiments.nic.link.wire import PairSettings

CODE: Final = 14
RETRIES: Final = 5
OTHER_CODE: Final = 15
OTHER_RETRIES: Final = 2
REPEATS: Final = 3
NOMINAL_NS: Final = 4096 << CODE
"""67 ms."""
LONGEST_NS: Final = 200 * NS_PER_S
_GONE_NS: Final = 40 * NOMINAL_NS
MOST_RETRIES: Final = 7
"""Most retries that a queue pair can be set to."""
_TIMER_ERROR: Final = 0.15
"""Relative earliness allowed for timers driven by ticks: two ticks of 4 ms."""


@dataclass(frozen=True, slots=True)
class _Waited:
    """Observation of one write that was not answered."""

    gaps_ns: list[int]
    """Times between its transmissions."""
    state: str
    """State of the queue pair afterwards."""


def _observe_unanswered(probe: Probe, code: int, retries: int) -> _Waited:
    connection = probe.connect(PairSettings(timeout_code=code, retry_count=retries))
    connection.nic.write(connection.end, 64)
    times_ns: list[int] = []
    end_ns = probe.wire.now_ns() + LONGEST_NS
    while len(times_ns) <= MOST_RETRIES + 2 and probe.wire.now_ns() < end_ns:
        longest_ns = max((later - earlier for earlier, later in pairwise(times_ns)), default=0)
        arrival = connection.until(is_data, max(_GONE_NS, 6 * longest_ns))
        if arrival is None:
            break
        times_ns.append(arrival.at_ns)
    state = connection.nic.state(connection.end)
    connection.close()
    return _Waited([later - earlier for earlier, later in pairwise(times_ns)], state)


def run(probe: Probe) -> tuple[Finding, ...]:
    """Have the card write one packet without an answer; then once more with another timeout code and retry count."""
    firsts: list[int] = []
    growths: list[float] = []
    tries: list[int] = []
    states: list[str] = []
    waits: list[int] = []
    for _ in range(REPEATS):
        waited = _observe_unanswered(probe, CODE, RETRIES)
        gaps = waited.gaps_ns
        waits = max(waits, gaps, key=len)
        if gaps:
            firsts.append(gaps[0])
            tries.append(len(gaps))
        growths += [later / earlier for earlier, later in pairwise(gaps)]
        states.append(waited.state)
    if not firsts:
        return (unseen("timeout", "ns", f"no retransmission within {_GONE_NS // NS_PER_MS} ms"),)
    # A ratio of two times that vary by a few percent each varies by their sum.
    figures = [
        _widen(interval("timeout", firsts, probe.wire.resolution_ns, ""), 0.1),
        _widen(ratio("timeout_growth", growths, 0.0, "only one retransmission"), 0.1),
    ]
    other = _observe_unanswered(probe, OTHER_CODE, OTHER_RETRIES).gaps_ns
    figures.append(
        compare_with_requests(
            "timeout_retries", [(RETRIES, tries), (OTHER_RETRIES, [len(other)] if other else [])]
        )
    )
    figures.append(_code_figure(firsts, other))
    figures.append(
        word("after_retries", "error" if set(states) == {"ERR"} else ", ".join(sorted(set(states))))
    )
    return *figures, *by_number(
        "timeout", "Waits of an unacknowledged write", "try (number)", "wait (ms)", waits, 1e6
    )


def _code_figure(firsts_ns: list[int], other_ns: list[int]) -> Figure:
    """Return whether the first timeout is as the code requests: 4.096 us * 2^code, at most four times that."""
    if not other_ns:
        return unseen("timeout_code", "", f"no retransmission with code {OTHER_CODE}")
    shares = [time_ns / NOMINAL_NS for time_ns in firsts_ns] + [other_ns[0] / (4096 << OTHER_CODE)]
    if all(1 - _TIMER_ERROR <= share <= 4 + _TIMER_ERROR for share in shares):
        return word("timeout_code", AS_ASKED, len(shares))
    # Without numbers, so that words of two cards can be compared; `timeout` has the numbers.
    is_short = [share < 1 - _TIMER_ERROR for share in shares]
    deviation = "shorter" if all(is_short) else "shorter or longer" if any(is_short) else "longer"
    return word(
        "timeout_code", f"{CHANGED}: {deviation} than codes {CODE} and {OTHER_CODE} specify", len(shares)
    )


def _widen(figure: Figure, share: float) -> Figure:
    """Return the figure with its interval widened by `share`, for a range that few repeats may have missed."""
    if figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=figure.low * (1 - share), high=figure.high * (1 + share))


EXPERIMENT: Final = Experiment(
    name="timeout",
    provokes=f"{REPEATS} unacknowledged writes with timeout code {CODE} and {RETRIES} retries; one with {OTHER_CODE} and"
    f" {OTHER_RETRIES}",
    reads="times between transmissions, their number, and the state of the queue pair after them; intervals are 10 % wider"
    " than observed because timers vary and repeats are few; whether retries and code are as requested, both times",
    clause="IBTA 1.4 volume 1, 9.9.2.1.2: 4.096 us * 2^code, at most four times that; NVIDIA, Adaptive Retransmission",
    figures={
        "timeout": "ns",
        "timeout_growth": "ratio",
        "timeout_retries": "",
        "timeout_code": "",
        "after_retries": "",
    },
    run=run,
)
