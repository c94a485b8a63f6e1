"""A serving workload over real sockets: agents begin every message when the cluster decides so, and every byte arrives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import etloop
from etloop.results.schema.serving import TTFT_PARTS
from etloop.results.serving.figures import little_errors
from tests.support.first_light import commands

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * commands.PATIENCE_S)]
ONE_TOKEN = 131_072  # Llama 3.1 8B


@pytest.mark.parametrize("direction", ["push", "pull"])
def test_agents_carry_the_caches_of_prompts_that_arrive(tmp_path: Path, direction: str) -> None:
    """Two prefill instances on one agent, two decode instances on the other; compute of 10 and 2 ms."""
    place = commands.free_place(tmp_path)
    rig = place.rig(ranks_per_agent=2)
    load = {
        "model": "llama-3.1-8b",
        "prefill": {"instances": 2},
        "decode": {"instances": 2},
        "kv": {"direction": direction, "layers": 8},
        "compute": {"prefill": ["1 10ms"], "decode": ["1 2ms"]},
        "requests": {"rate": 40, "count": 12, "input": 4, "output": 3, "seed": 3},
    }
    scenario = {"workload": {"serving": load}, "limits": {"gather_timeout": "30s", "stall_timeout": "2s"}}
    with commands.agents(place):
        run = etloop.serve(scenario, rig, level="rig", out_dir=tmp_path / "run")
    assert run.failure == ""
    assert run.figures.finished == run.figures.arrived == 12
    rows = {
        name: np.asarray(run.records.requests[name], np.int64)
        for name in ("kv_bytes", "ttft_ns", *TTFT_PARTS)
    }
    assert rows["kv_bytes"].tolist() == [4 * ONE_TOKEN] * 12
    parts = np.sum([rows[name] for name in TTFT_PARTS], axis=0)
    assert parts.tolist() == rows["ttft_ns"].tolist()
    # Compute is exact however late the machine is; only the transfer has the way of orders and packets in it.
    assert set(rows["prefill_ns"].tolist()) == {10_000_000}
    assert set(rows["decode_ns"].tolist()) == {2_000_000}
    assert rows["transfer_ns"].min() > 0
    assert run.figures.slip is not None
    assert run.figures.slip.count == 12 * (4 if direction == "push" else 5)
    assert max(little_errors(run.figures.queues, run.figures.duration_ns).values()) < 1e-9
