"""Serving next to checkpoints and to KV caches in storage, on the same ports, at both levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

import etloop
from etloop.results.serving.figures import little_errors
from tests.support.companion_files import DLIO, LOG

if TYPE_CHECKING:
    from pathlib import Path

PORTS = ("p/0", "d/0")
TOPOLOGY = {"single": {"ports": list(PORTS), "rate": "100Gbps", "delay": "500ns"}}
CHAT = {
    "model": "llama-3.1-8b",
    "prefill": {"instances": 1},
    "decode": {"instances": 1},
    "kv": {"unit": "block", "blocks": 1024},
    "compute": {"prefill": ["1 5ms"], "decode": ["1 1ms"]},
    "requests": {"rate": 100, "count": 30, "input": 64, "output": 3},
}


def scenario(folder: Path, *names: str) -> Path:
    """Return a scenario of serving and the named companions; all jobs are on both ports."""
    loads = {
        "saving": {
            "checkpoint": {"file": "tiny.yaml", "ranks": 8, "servers": 2, "writes": 40, "interval": "1ms"}
        },
        "caches": {"kv_offload": {"file": "log.csv", "clients": 2, "servers": 1}},
    }
    (folder / "tiny.yaml").write_text(DLIO)
    (folder / "log.csv").write_text(LOG)
    jobs: list[dict[str, Any]] = [{"name": name, "workload": loads[name]} for name in names]
    jobs.append({"name": "chat", "workload": {"serving": CHAT}})
    mapping = {"ranks_per_host": 1, "placement": "round_robin"}
    path = folder / f"{'-'.join(names) or 'alone'}.yaml"
    path.write_text(yaml.safe_dump({"jobs": jobs, "mapping": mapping}))
    return path


def transfers(run: etloop.ServingRun) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(run.records.requests["transfer_ns"], np.int64)


def test_checkpoints_and_offloaded_caches_slow_transfers_and_have_times_of_their_own(tmp_path: Path) -> None:
    alone = etloop.serve(scenario(tmp_path), topology=TOPOLOGY, level="flow")
    ends_ns = {}
    for level in ("packet", "flow"):
        run = etloop.serve(scenario(tmp_path, "saving", "caches"), topology=TOPOLOGY, level=level)
        assert run.failure == ""
        assert run.figures.finished == run.figures.arrived == 30
        assert max(little_errors(run.figures.queues, run.figures.duration_ns).values()) < 1e-9
        saving, caches = run.figures.jobs
        assert [(job.name, job.iterations, job.complete) for job in (saving, caches)] == [
            ("saving", 1, 1),
            ("caches", 1, 1),
        ]
        assert transfers(run).max() > 1.05 * transfers(alone).max()
        ends_ns[level] = saving.end_ns
        # The last operation of the log begins 4 ms after the first one.
        assert 4_000_000 < caches.end_ns < 5_000_000
    assert ends_ns["flow"] == pytest.approx(ends_ns["packet"], rel=0.03)


@pytest.mark.parametrize("name", ["saving", "caches"])
def test_each_companion_runs_next_to_serving_by_itself(tmp_path: Path, name: str) -> None:
    run = etloop.serve(scenario(tmp_path, name), topology=TOPOLOGY, level="flow")
    (job,) = run.figures.jobs
    assert (job.name, job.complete, run.figures.finished) == (name, 1, 30)
    assert job.iteration is not None
    assert job.iteration.count == 1
