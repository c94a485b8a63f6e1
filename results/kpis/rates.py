"""Key figures of cc.parquet: round trips, when rates have settled, and how evenly.

Decides when a rate counts as settled (BMWG AI-fabric draft, test 3.3: within 10 %).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.kpis.job import Value, spread
from etloop.results.verdict.evaluation import aggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput

SETTLED_WITHIN: Final = 0.10
LEAST_SAMPLES: Final = 8
NOT_SAMPLED: Final = "the scenario does not ask for samples of rates (cc.parquet)"
_NAMES: Final = (
    *("rtt_min_ns", "rtt_p50_ns", "rtt_p99_ns"),
    *("convergence_p50_ns", "convergence_max_ns", "rates_jain"),
)


def rate_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the figures of round trips and convergence."""
    if "cc" not in inputs.frames or not inputs.frames["cc"].rows:
        for name in _NAMES:
            yield name, NOT_SAMPLED
        return
    rtt = inputs.column("cc", "rtt_ns")
    yield from spread("rtt", "min p50 p99", rtt[~np.isnan(rtt)], "no round trip was measured")
    settled, rates = find_settled_rates(inputs)
    absent = "no queue pair's rate settled" if len(rates) else "no queue pair has a rate over enough samples"
    times = np.array([time_ns for time_ns in settled if time_ns is not None], np.float64)
    yield "convergence_p50_ns", aggregate("p50", times) if times.size else absent
    all_settled = times.size == len(rates)
    unsettled = f"{len(rates) - times.size} of {len(rates)} queue pairs never settled"
    yield (
        "convergence_max_ns",
        (aggregate("max", times) if all_settled else unsettled) if times.size else absent,
    )
    final = np.array(rates, np.float64)
    yield (
        "rates_jain",
        aggregate("jain", final) if final.size > 1 else "fewer than two queue pairs have a rate",
    )


def find_settled_rates(inputs: KpiInput) -> tuple[list[float | None], list[float]]:
    """Return per paced queue pair the time from its first sample until its rate stays settled (None: never), and its last
    rate."""
    columns = inputs.frames["cc"].columns
    pair = np.stack(
        [np.unique(columns["agent"].astype(str), return_inverse=True)[1], inputs.column("cc", "local_qpn")],
        axis=1,
    )
    _, member = np.unique(pair, axis=0, return_inverse=True)
    member = member.reshape(-1)
    time_ns, rate = inputs.column("cc", "time_ns"), inputs.column("cc", "rate_bps")
    order = np.lexsort((time_ns, member))
    settled: list[float | None] = []
    rates: list[float] = []
    for rows in np.split(order, np.flatnonzero(np.diff(member[order])) + 1):
        paced = rows[rate[rows] > 0]
        if len(paced) < LEAST_SAMPLES:
            continue
        settled.append(settling_ns(time_ns[paced], rate[paced]))
        rates.append(_last(rate[paced]))
    return settled, rates


def _last(rate: NDArray[np.float64]) -> float:
    """Return the mean of the last quarter of the samples."""
    return float(rate[-max(len(rate) // 4, 1) :].mean())


def settling_ns(time_ns: NDArray[np.float64], rate: NDArray[np.float64]) -> float | None:
    """Return the time from the first sample to the one after which all stay within 10 % of the mean of the last quarter.

    None if that point is within the last quarter itself, where the rate cannot be seen to stay settled.
    """
    outside = np.abs(rate - _last(rate)) > SETTLED_WITHIN * _last(rate)
    first = int(np.flatnonzero(outside)[-1]) + 1 if outside.any() else 0
    if first > len(rate) - max(len(rate) // 4, 1):
        return None
    return float(time_ns[first] - time_ns[0])
