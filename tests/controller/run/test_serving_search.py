"""The search for the highest request rate, over runs of a known limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import etloop
from etloop.contract.base.errors import PlanError
from etloop.controller.run.serving_search import PRECISION, find_rate
from etloop.results.serving.run import ServingRun
from etloop.workload.serving.arrivals import DrawnRequests
from etloop.workload.serving.model_file import find_model
from etloop.workload.serving.spec import Objective, Pool, ServingKeys, ServingLoad

LOAD = ServingLoad(
    find_model("llama-3.1-8b", Path(), "test"),
    ServingKeys("llama-3.1-8b", Pool(1), Pool(1), objective=Objective(ttft_ns=1)),
    DrawnRequests(10_000_000, 10),
    Path(),
    "test",
)


@pytest.mark.parametrize("limit", [0.02, 3.0, 77.7, 4000.0])
def test_the_highest_rate_within_the_objective_is_found(limit: float, one_run: ServingRun) -> None:
    tried = []

    def serve(load: ServingLoad) -> ServingRun:
        assert isinstance(load.requests, DrawnRequests)
        rate = load.requests.rate_per_million_s / 1e6
        tried.append(rate)
        return replace(
            one_run, figures=replace(one_run.figures, met_objective=10 if rate <= limit else 9, arrived=10)
        )

    search = find_rate(LOAD, 0.95, serve)
    assert limit / (1 + PRECISION) <= search.rate <= limit
    assert search.failing_rate is not None
    assert search.failing_rate > limit
    assert [point.rate for point in search.points] == sorted(tried)


def test_no_rate_may_meet_it_and_an_objective_must_be_stated(one_run: ServingRun) -> None:
    failing = replace(one_run, figures=replace(one_run.figures, met_objective=0))
    assert find_rate(LOAD, 0.95, lambda _: failing).rate == 0
    without = replace(LOAD, keys=replace(LOAD.keys, objective=Objective()))
    with pytest.raises(PlanError, match="no objective is stated"):
        find_rate(without, 0.95, lambda _: failing)


@pytest.fixture(scope="module")
def one_run() -> ServingRun:
    """Return a run whose figures tests replace."""
    serving = {
        "model": "llama-3.1-8b",
        "prefill": {"instances": 1},
        "decode": {"instances": 1},
        "requests": {"rate": 1, "count": 2, "output": 2},
    }
    topology = {"single": {"ports": ["p/0", "d/0"], "rate": "100Gbps"}}
    return etloop.serve({"workload": {"serving": serving}}, topology=topology, level="flow")
