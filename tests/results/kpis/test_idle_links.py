"""A known link that carried nothing counts as zero: in the balance over links, in tables, and in conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etloop.results.store.run_dir import read_kpis
from etloop.results.tables.frames import frame_of

import etloop


def fabric(**leaf: Any) -> dict[str, Any]:
    """Two leaves of two ports below four spines."""
    return {
        "leaf_spine": {
            "leaves": [{"ports": ["a/p", "b/p"]}, {"ports": ["c/p", "d/p"]}],
            "spines": 4,
            "rate": "100Gbps",
            "leaf": leaf,
        }
    }


def run_over(directory: Path, topology: dict[str, Any], *checks: str) -> etloop.Run:
    """Run an all-to-all over the fabric."""
    scenario: dict[str, Any] = {
        "workload": {"collective": {"kind": "all_to_all", "ranks": 4, "size": "1MiB", "count": 1}},
        "mapping": {"placement": "round_robin"},
    }
    if checks:
        scenario["verdict"] = {"checks": [{"check": check} for check in checks]}
    return etloop.run_twin(scenario, out_dir=directory / "run", topology=topology)


def test_one_of_four_spines_has_an_index_of_a_quarter(tmp_path: Path) -> None:
    idle = 'min(switches[peer == "spine0/0"].queue_bytes) > 0'
    run = run_over(tmp_path, fabric(hash=["dst_port"]), "uplinks_jain >= 0.8", idle)
    kpis = read_kpis(run.path)
    assert kpis.value("uplinks_jain") == pytest.approx(0.25, rel=0.001)
    assert kpis.value("uplinks_max_to_mean") == pytest.approx(4.0, rel=0.001)
    assert run.summary.verdict is not None
    assert [check.result for check in run.summary.verdict.checks] == ["fail", "fail"]


def test_every_port_has_a_row_of_every_class_in_use_and_of_no_other(tmp_path: Path) -> None:
    frame = frame_of("switches", run_over(tmp_path, fabric(hash=["dst_port"])).table("switches"))
    ports = {(str(a), str(b)) for a, b in zip(frame.columns["switch"], frame.columns["port"], strict=True)}
    classes = set(frame.columns["cos"].tolist())
    assert len(ports) == 2 * (2 + 4) + 4 * 2
    assert frame.rows == len(ports) * len(classes)
    used = {int(cos): frame.columns["queue_bytes"][frame.columns["cos"] == cos].sum() for cos in classes}
    assert all(used.values()), used
    assert np.sum(frame.columns["queue_bytes"] == 0) >= 3 * 2 * len(classes), "three idle spines"
