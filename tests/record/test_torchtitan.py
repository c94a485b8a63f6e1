"""torchtitan's debug Llama 3 becomes a trace with the traffic of FSDP2 and tensor parallelism.

ETLOOP_TORCHTITAN names a directory with `tests/assets` of torchtitan's repository; torchtitan 0.3.0 is installed for the
interpreter of ETLOOP_TORCH_PYTHON (examples/record/README.md).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.trace import CollectiveKind, NodeKind, RankTrace
from tests.support.record.recording import NO_CUDA, PYTHON, has_cuda_build

ASSETS = os.environ.get("ETLOOP_TORCHTITAN")
OPTIONS = (
    "-m torchtitan.train --module llama3 --config llama3_debugmodel --training.steps 2 --training.disable-cuda-graphs"
    " --parallelism.tensor-parallel-degree 2"
).split()

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        ASSETS is None, reason="ETLOOP_TORCHTITAN names no directory with torchtitan's tests/assets"
    ),
    pytest.mark.skipif(not has_cuda_build(), reason=NO_CUDA),
]
LAYERS, STEPS = 6, 2
DP, TP = 4, 2
LAYER_PARAMETERS = (4 * 256 * 256 + 3 * 256 * 768) // TP + 2 * 256


def calls(rank: RankTrace, groups: dict[str, tuple[int, ...]]) -> Counter[tuple[str, int, int]]:
    """Count kind, size of the group and bytes of a rank's collectives."""
    return Counter(
        (
            CollectiveKind(int(rank.comm.type[index])).name,
            len(groups[rank.pg_names[rank.pg_name[index]]]),
            int(rank.comm.size[index]),
        )
        for index, kind in enumerate(rank.kind.tolist())
        if kind == NodeKind.COMM_COLL and rank.is_cpu_op[index] != 1
    )


def test_the_traffic_of_a_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer is gathered forward and backward and reduced once; its activations cross four times, and twice recomputed."""
    assert ASSETS is not None
    (tmp_path / "tests").symlink_to(Path(ASSETS).resolve() / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    items = ["--item", "trainer.py:893=16384", "--item", "trainer.py:959=65536"]
    words = ["record", "--python", PYTHON, "--ranks", str(DP * TP), *items, "--out", "job"]
    assert main([*words, "--", *OPTIONS]) == 0
    assert main(["lint", "job"]) == 0
    trace = read_trace(tmp_path / "job")
    assert trace.groups is not None
    for rank in trace.ranks:
        counts = calls(rank, trace.groups)
        assert counts["ALL_GATHER", DP, 2 * LAYER_PARAMETERS // DP] == STEPS * 2 * LAYERS
        assert counts["REDUCE_SCATTER", DP, 4 * LAYER_PARAMETERS] == STEPS * LAYERS
        activation_bytes = 8 * 2048 * 256 * 2
        crossings = STEPS * (6 * LAYERS + 2)
        assert counts["ALL_GATHER", TP, activation_bytes // TP] == crossings
        assert counts["REDUCE_SCATTER", TP, activation_bytes] == crossings
