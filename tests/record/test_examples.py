"""The scripts in examples/record, recorded at 8 ranks: their operations, and that the recording can be planned.

Continuous integration runs this file with PyTorch (.ci/run); test_recording.py compares the same scripts with gloo.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import etloop
from etloop.cli.main import main
from etloop.workload.readers.files import read_trace
from tests.support.places import ROOT
from tests.support.record.recording import HAS_TORCH, NO_TORCH, operations, record

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_TORCH, reason=NO_TORCH),
]
RANKS = 8


@pytest.mark.parametrize(
    ("name", "options", "counts"),
    [
        ("ddp", (), {"ALL_GATHER": 1, "ALL_REDUCE": 9, "BROADCAST": 5}),
        ("fsdp_tp", (), {"ALL_GATHER": 16, "ALL_REDUCE": 18, "REDUCE_SCATTER": 8, "SCATTER": 8}),
        ("moe_pipeline", ("--tokens", "balanced"), {"ALL_TO_ALL": 36, "COMM_RECV": 4, "COMM_SEND": 4}),
    ],
)
def test_an_example_is_recorded_checked_and_planned(
    name: str, options: tuple[str, ...], counts: dict[str, int], tmp_path: Path
) -> None:
    script = (ROOT / f"examples/record/{name}.py").read_text()
    assert record(tmp_path, script, RANKS, "--cpu", *options) == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    ranks = [operations(rank) for rank in read_trace(tmp_path / "job").ranks]
    assert Counter(kind for kind, _ in ranks[0]) == counts
    agents = [
        {"name": name, "ports": [{"name": "p0", "addresses": f"10.0.{i}.1-10.0.{i}.4", "link": "400Gbps"}]}
        for i, name in enumerate("ab")
    ]
    plan = etloop.make_plan({"workload": {"trace": str(tmp_path / "job")}}, {"agents": agents})
    assert plan.payload_bytes > 0


def test_gradients_are_reduced_once_a_step(tmp_path: Path) -> None:
    """DDP broadcasts parameters once and reduces as many bytes in each of the two steps."""
    assert record(tmp_path, (ROOT / "examples/record/ddp.py").read_text(), 2, "--cpu") == 0
    (first, *_) = read_trace(tmp_path / "job").ranks
    sizes = Counter[str]()
    for kind, size in operations(first):
        sizes[kind] += size
    assert sizes["ALL_REDUCE"] == pytest.approx(2 * sizes["BROADCAST"], rel=1e-4)
