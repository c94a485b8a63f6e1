"""Scripts that say `cuda` and `nccl` everywhere are recorded without a GPU; streams and overlap are the script's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from etloop.cli.main import main
from etloop.record.launch import RecordOrder, record_job
from etloop.workload.readers.files import read_trace
from etloop.workload.recording.events import Compute
from etloop.workload.trace.trace import CollectiveKind, NodeKind, RankTrace
from tests.record.scripts import CUDA_DDP, CUDA_FSDP, CUDA_FSDP1, CUDA_HEAD, CUDA_RING
from tests.support.record.recording import (
    HAS_TORCH,
    NO_CUDA,
    NO_TORCH,
    PYTHON,
    has_cuda_build,
    operations,
    record,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_TORCH, reason=NO_TORCH),
    pytest.mark.skipif(HAS_TORCH and not has_cuda_build(), reason=NO_CUDA),
]
CPU_OF = (
    ("cuda", "cpu"),
    ("nccl", "gloo"),
    ("torch.cpu.set_device(device)", ""),
    ("assert torch.cpu.is_available()", ""),
)


def kinds(rank: RankTrace) -> Counter[str]:
    return Counter(kind for kind, _ in operations(rank))


def dependencies(rank: RankTrace, node: int) -> list[int]:
    return [int(number) for number in (*rank.data_deps[node], *rank.ctrl_deps[node])]


def ancestors(rank: RankTrace, node: int) -> set[int]:
    """Return the indices of all nodes that a node follows."""
    seen: set[int] = set()
    pending = [node]
    while pending:
        for parent in dependencies(rank, pending.pop()):
            if parent not in seen:
                seen.add(parent)
                pending.append(parent)
    return seen


def test_ddp_with_mixed_precision_hook_and_an_optimizer_made_before_the_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six layers of 512 x 512, one weight shared: 5 x 512 x 512 + 6 x 512 parameters, reduced as bfloat16."""
    assert record(tmp_path, CUDA_DDP, 2) == 0
    report = capsys.readouterr().out
    assert "queries of CUDA events are answered" in report
    assert main(["lint", str(tmp_path / "job")]) == 0
    rank = read_trace(tmp_path / "job").ranks[0]
    gradient_bytes = sum(size for kind, size in operations(rank) if kind == "ALL_REDUCE")
    assert gradient_bytes == 2 * 2 * (5 * 512 * 512 + 6 * 512)
    assert kinds(rank)["BARRIER"] == 1


def test_fsdp_and_tensor_parallelism_have_the_collectives_of_the_cpu(tmp_path: Path) -> None:
    """As over gloo: 42 without those of set-up, which `to_empty` does not have. Streams: compute, gather, reduce-scatter."""
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cpu").mkdir()
    assert record(tmp_path / "cuda", CUDA_FSDP, 8) == 0
    on_cpu = CUDA_FSDP
    for word, replacement in CPU_OF:
        on_cpu = on_cpu.replace(word, replacement)
    on_cpu = on_cpu.replace(", device_id=device", "").replace("fused=True", "")
    assert record(tmp_path / "cpu", on_cpu, 8, "--cpu") == 0
    cuda, cpu = (read_trace(tmp_path / name / "job").ranks for name in ("cuda", "cpu"))
    assert [operations(rank) for rank in cuda] == [operations(rank) for rank in cpu]
    assert sum(kinds(cuda[0]).values()) == 42
    assert main(["lint", str(tmp_path / "cuda" / "job")]) == 0


def test_a_gather_of_fsdp_does_not_wait_for_the_layer_before(tmp_path: Path) -> None:
    """The gather of the third block is issued while the second computes: it follows the first block's products only."""
    assert record(tmp_path, CUDA_FSDP, 4) == 0
    rank = read_trace(tmp_path / "job").ranks[0]
    is_gather = (rank.kind == NodeKind.COMM_COLL) & (rank.comm.type == CollectiveKind.ALL_GATHER)
    gathers = np.flatnonzero(is_gather).tolist()
    reduces = np.flatnonzero(
        (rank.kind == NodeKind.COMM_COLL) & (rank.comm.type == CollectiveKind.ALL_REDUCE)
    ).tolist()
    assert not ancestors(rank, gathers[1]) & set(reduces)
    assert ancestors(rank, gathers[3]) & set(reduces) < set(reduces[:3])


def test_ring_attention_sends_keys_and_values_around(tmp_path: Path) -> None:
    """Keys and values are gathered once forward and once backward; the gradients of both go around in four steps."""
    assert record(tmp_path, CUDA_RING, 4) == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    assert kinds(read_trace(tmp_path / "job").ranks[0]) == {"ALL_GATHER": 2, "ALL_TO_ALL": 4}


def test_fsdp1_gathers_and_scatters_on_streams_of_its_own(tmp_path: Path) -> None:
    """Three units and two steps of each strategy; sharded after the forward pass, a unit is gathered for both passes."""
    assert record(tmp_path, CUDA_FSDP1, 2) == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    counts = kinds(read_trace(tmp_path / "job").ranks[0])
    assert counts["ALL_GATHER"] == 2 * (3 + 3) + 2 * 3
    assert counts["REDUCE_SCATTER"] == 2 * 2 * 3


def test_a_graph_of_cuda_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        CUDA_HEAD
        + "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    torch.ones(4, device=device)\n"
    )
    assert record(tmp_path, script, 2) == 65
    error = capsys.readouterr().err
    assert "CUDA graphs" in error
    assert "train.py:" in error


def test_work_of_two_streams_is_joined_by_events_to_the_microsecond(tmp_path: Path) -> None:
    """Operators take 10 us: randn, a product, two on a side stream and one on the main stream, one after both."""
    script = (
        CUDA_HEAD
        + """
a = torch.randn(64, 64, device=device)
side = torch.cuda.Stream()
b = a @ a
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    c = (b @ b) @ b
    done = side.record_event()
d = b @ b
torch.cuda.current_stream().wait_event(done)
e = c @ d
"""
    )
    times = tmp_path / "times.yaml"
    times.write_text("operators: {aten.mm.default: 10us, aten.randn.default: 10us}\n")
    assert record(tmp_path, script, 1, "--times", str(times)) == 0
    rank = read_trace(tmp_path / "job").ranks[0]
    ends: list[int] = []
    for node in range(len(rank.kind)):
        start_us = max((ends[dep] for dep in dependencies(rank, node)), default=0)
        ends.append(start_us + int(rank.duration_us[node]))
    assert max(ends) == 50


def test_attention_with_a_score_function_counts_its_flops(tmp_path: Path) -> None:
    """Scores are 2 x 4 x 64 x 128; two products forward, five backward, each 2 x 16 a score. Tracing is not recorded."""
    path = tmp_path / "train.py"
    path.write_text(
        CUDA_HEAD
        + """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
def later(batch, head, query, key):
    return query >= key
query = torch.randn(2, 4, 64, 16, device=device, requires_grad=True)
key, value = (torch.randn(2, 2, 128, 16, device=device, requires_grad=True) for _ in range(2))
mask = create_block_mask(later, None, None, 64, 128, device="cuda")
out = flex_attention(query, key, value, score_mod=lambda s, b, h, q, k: s * 0.5, block_mask=mask, enable_gqa=True)
out.square().mean().backward()
"""
    )
    recordings, _ = record_job(RecordOrder(path, (), 1, python=PYTHON))
    flops = [
        (event.operator.partition("(")[0], event.flops)
        for event in recordings[0].events
        if isinstance(event, Compute) and event.flops
    ]
    scores = 2 * 4 * 64 * 128
    assert flops == [
        ("flex_attention", 2 * 2 * 16 * scores),
        ("flex_attention_backward", 5 * 2 * 16 * scores),
    ]
