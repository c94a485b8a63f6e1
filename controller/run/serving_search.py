"""The highest request rate that meets a service-level objective: the same requests, faster and slower, in virtual time.

Decides which rates are tried. Drawn requests are drawn at each rate from the same seed; the gaps of a trace are scaled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.plan.serving_jobs import requests_of
from etloop.results.schema.serving import RatePoint, RateSearch
from etloop.results.serving.run import ServingRun
from etloop.workload.serving.arrivals import DrawnRequests
from etloop.workload.serving.spec import ServingLoad

_MILLION: Final = 10**6
MOST_RUNS: Final = 32
PRECISION: Final = 0.01
"""The search ends when a rate that meets the objective and one that does not differ by at most this share."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A workload at a multiple of its rate."""

    load: ServingLoad
    rate: float
    """Requests a second, of all arrivals over the time of the last."""


def find_rate(load: ServingLoad, share: float, serve: Callable[[ServingLoad], ServingRun]) -> RateSearch:
    """Return the highest rate at which at least `share` of the requests meet the objective, and every rate that was tried.

    Raises `PlanError` without an objective.
    """
    objective = load.keys.objective
    if not objective.ttft_ns and not objective.itl_ns:
        problem = "no objective is stated"
        raise PlanError(
            Problem("workload.serving.slo", problem, "write ttft, itl or both, such as {ttft: 500ms}")
        )
    points: list[RatePoint] = []

    def meets(factor: Fraction) -> bool:
        scaled = _at_rate(load, factor)
        run = serve(scaled.load)
        point = _point(run, scaled.rate, share)
        points.append(point)
        return point.meets

    low, high = _bracket(meets)
    while low and high and high > low * Fraction(1 + PRECISION) and len(points) < MOST_RUNS:
        middle = ((low + high) / 2).limit_denominator(10**6)
        low, high = (middle, high) if meets(middle) else (low, middle)
    best = max((point.rate for point in points if point.meets), default=0.0)
    lowest_failing = min(
        (point.rate for point in points if not point.meets and point.rate > best), default=None
    )
    return RateSearch(
        share,
        best,
        lowest_failing,
        tuple(sorted(points, key=lambda point: point.rate)),
        objective.ttft_ns,
        objective.itl_ns,
    )


def _bracket(meets: Callable[[Fraction], bool]) -> tuple[Fraction | None, Fraction | None]:
    """Return a factor that meets the objective and a larger one that does not, by doubling or halving; None: not found."""
    factor = Fraction(1)
    if meets(factor):
        for _ in range(10):
            if not meets(factor * 2):
                return factor, factor * 2
            factor *= 2
        return factor, None
    for _ in range(10):
        factor /= 2
        if meets(factor):
            return factor, factor * 2
    return None, factor


def _at_rate(load: ServingLoad, factor: Fraction) -> _Scaled:
    requests = load.requests
    if isinstance(requests, DrawnRequests):
        rate = max(int(requests.rate_per_million_s * factor), 1)
        return _Scaled(replace(load, requests=replace(requests, rate_per_million_s=rate)), rate / _MILLION)
    scaled = replace(load, requests=replace(requests, time=requests.time / factor))
    arrivals = requests_of(scaled).requests
    return _Scaled(scaled, len(arrivals) / max(arrivals[-1].arrival_ns, 1) * 1e9)


def _point(run: ServingRun, rate: float, share: float) -> RatePoint:
    figures = run.figures
    met_share = figures.met_objective / max(figures.arrived, 1)
    ttft, itl, fabric = figures.ttft, figures.itl, figures.ttft_fabric
    return RatePoint(
        rate=rate,
        met_share=met_share,
        meets=not run.failure and met_share >= share,
        ttft_mean_ns=0.0 if ttft is None else ttft.mean,
        ttft_p99_ns=0 if ttft is None else ttft.p99,
        ttft_fabric_p99_ns=0 if fabric is None else fabric.p99,
        itl_p99_ns=0 if itl is None else itl.p99,
        goodput=figures.goodput,
        output_tokens_per_s=figures.output_tokens_per_s,
    )
