"""Sweeps of serving workloads: runs with their own directories, and the figures of each point over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import etloop
from etloop.contract.base.errors import InputError

SCENARIO = """\
workload:
  serving:
    model: llama-3.1-8b
    prefill: {instances: 1}
    decode: {instances: 1}
    kv: {unit: block, blocks: 1024}
    compute: {prefill: ["1 5ms"], decode: ["1 1ms"]}
    requests: {rate: 50, count: 4, input: 64, output: 2}
"""
SWEEP = """\
scenario: scenario.yaml
topology: topology.yaml
repeats: 2
axes: {topology.single.rate: [100Gbps, 10Gbps]}
"""


def test_points_have_the_figures_of_their_runs(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    (tmp_path / "topology.yaml").write_text("single: {ports: [p/0, d/0], rate: 100Gbps}\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    out = tmp_path / "out"
    fast, slow = etloop.run_sweep(tmp_path / "sweep.yaml", out).to_pylist()
    assert slow["ttft_transfer_p50_ns"] == pytest.approx(10 * fast["ttft_transfer_p50_ns"], rel=0.05)
    assert fast["runs"] == slow["runs"] == 2
    record = json.loads((out / "sweep.json").read_text())
    assert [run["result"] for run in record["runs"]] == ["no_verdict"] * 4
    arrivals = [
        json.loads((out / "points" / "p000" / f"r00{repeat}" / "serving.json").read_text())["duration_ns"]
        for repeat in (0, 1)
    ]
    assert arrivals[0] != arrivals[1], "each repeat draws its requests"
    with pytest.raises(InputError, match="is not an empty directory"):
        etloop.run_sweep(tmp_path / "sweep.yaml", out)
