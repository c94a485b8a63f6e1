"""Ways in which a recording could succeed and be wrong: each gives the right figures, or is refused by its name.

Figures are worked out by hand from the shapes in the scripts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.record.launch import RecordOrder, record_job
from etloop.workload.recording.device import Device, MeasuredTimes, OperatorTimes
from etloop.workload.recording.events import Compute, RecordedRank
from etloop.workload.recording.graph import build_graph
from tests.record.scripts import HEAD
from tests.support.record.recording import HAS_TORCH, NO_TORCH, PYTHON, record

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_TORCH, reason=NO_TORCH),
]

SILENT = (
    HEAD
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed._functional_collectives import all_reduce
mesh = init_device_mesh("cpu", (ranks,))

class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner):
        self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = func(*(a.inner if isinstance(a, Wrapped) else a for a in args), **(kwargs or {}))
        distributed.all_reduce(out)
        return cls(out)

wrapped = Wrapped(torch.randn(8, 8))
wrapped @ wrapped                                              # 0: all-reduce of 256 bytes

left = DTensor.from_local(torch.randn(16, 32), mesh, [Shard(1)])   # global 16 x 64
right = DTensor.from_local(torch.randn(32, 4), mesh, [Shard(0)])   # global 64 x 4
(left @ right).redistribute(placements=[Replicate()])          # 1: all-reduce of the partial 16 x 4
DTensor.from_local(torch.randn(6), mesh, [Shard(0)]).norm().full_tensor()   # 2: all-reduce of a norm

gathered = torch.empty(2 * ranks, 5)
distributed.all_gather_into_tensor(gathered, torch.randn(2, 5))   # 3
buffer = torch.empty(2 * ranks * 5)
torch.cat([gathered.flatten()[:10], gathered.flatten()[10:]], out=buffer)
distributed.reduce_scatter_tensor(torch.empty(10), buffer)     # 4: from 3, through out=
split = [torch.empty(10), torch.empty(10 * ranks - 10)]
torch.split_with_sizes_copy(buffer, [10, 10 * ranks - 10], out=split)
distributed.all_reduce(split[0])                               # 5: from 3

loss = torch.randn(()).square()
if torch.isnan(loss) or not torch.isfinite(loss).all() or torch.isinf(loss.sum()):
    raise SystemExit("a step that no real run takes")
lengths = torch.randn(10, 3).softmax(-1)
round(loss.item(), 3), float(loss) * 2, f"{loss.item():.3f}"
compiled = torch.compile(nn.Linear(4, 4))
compiled(torch.randn(2, 4))
nn.LSTM(4, 4)(torch.randn(3, 2, 4))
"""
)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> RecordedRank:
    """Record the script on rank 0 of two."""
    path = tmp_path_factory.mktemp("silent") / "train.py"
    path.write_text(SILENT)
    recordings, _ = record_job(RecordOrder(path, (), 2, ranks=(0,), python=PYTHON, on_cpu=True))
    return recordings[0]


def test_operations_within_a_class_of_tensors_are_recorded(silent: RecordedRank) -> None:
    """DTensor's own, and those of any class that makes other operators of one."""
    assert [(operation.type, operation.input_bytes) for operation in silent.operations] == [
        ("all_reduce", 8 * 8 * 4),
        ("all_reduce", 16 * 4 * 4),
        ("all_reduce", 4),
        ("all_gather", 2 * 5 * 4),
        ("reduce_scatter", 20 * 4),
        ("all_reduce", 10 * 4),
    ]


def test_flops_of_a_dtensor_are_those_of_its_local_part(silent: RecordedRank) -> None:
    products = [
        event.flops for event in silent.events if isinstance(event, Compute) and ".mm." in event.operator
    ]
    assert products[:2] == [2 * 8 * 8 * 8, 2 * 16 * 32 * 4]


def test_what_is_written_to_an_out_argument_is_followed(silent: RecordedRank) -> None:
    device = Device("d", "s", 1, 1, 1, {"float32": 1})  # type: ignore[arg-type]
    nodes = build_graph(silent, OperatorTimes(device, MeasuredTimes({}), 1)).nodes  # type: ignore[arg-type]
    operations = [index for index, node in enumerate(nodes) if node.operation is not None]
    assert nodes[operations[4]].data_from == (operations[3],)
    assert nodes[operations[5]].data_from == (operations[3],)


def test_numbers_are_finite_and_floats_are_named(silent: RecordedRank) -> None:
    assert any("False: numbers are finite" in answer for answer in silent.answers)
    assert any("1.0" in answer for answer in silent.answers)


def test_eager_mode_and_missing_formulas_are_named(silent: RecordedRank) -> None:
    assert any("torch.compile is not applied" in note for note in silent.notes)
    assert any("lstm" in name or "rnn" in name for name in silent.missing)


@pytest.mark.parametrize(
    "line",
    [
        "n = int(torch.randn(()).item() * 8)",
        "import math; n = math.ceil(torch.randn(()).abs().item())",
        "n = round(0.5 * torch.randn(()).item())",
        "n = int(torch.randn(()))",
        "n = range(torch.randint(0, 9, ()))",
        "n = torch.zeros(torch.arange(3).sum().item())",
        "n = torch.randn(8)[: torch.arange(3).sum().item() + 1]",
        "n = torch.randn(8).view(-1, torch.arange(3).sum().item())",
        "n = 1 if torch.arange(3).sum().item() > 2 else 0",
        "n = [0] * torch.arange(3).sum().item()",
        "n = int(sum([torch.arange(3).sum().item(), 0]) / 2)",
        "n = torch.zeros(torch.tensor([torch.arange(3).sum().item(), 3])[0].item())",
        "n = int(torch.tensor(torch.randn(()).item()).item())",
        "n = torch.zeros(torch.arange(3).tolist())",
    ],
)
def test_an_integer_that_is_data_is_refused(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(tmp_path, HEAD + line, 1, "--cpu") == 65
    error = capsys.readouterr().err
    assert "train.py:6" in error
    assert "--item" in error


def test_a_share_of_right_predictions_is_answered(tmp_path: Path) -> None:
    lines = """
right = (torch.randn(8, 10).argmax(1) == torch.randint(0, 10, (8,))).sum()
distributed.all_reduce(right)
total = 0
total += right.item()
share = 100.0 * total / (8 * ranks)
print(f"{share:.1f} % of {total}")
both = torch.tensor([total, 8])
distributed.all_reduce(both)
print(both[0].item() / both[1].item())
"""
    assert record(tmp_path, HEAD + lines, 1, "--cpu") == 0


def test_a_loop_that_waits_for_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A truncated normal distribution draws again while values are outside."""
    script = HEAD + "nn.init.trunc_normal_(torch.empty(8, 8))\nwhile (torch.randn(8) > 0).any(): pass"
    assert record(tmp_path, script, 1, "--cpu") == 65
    error = capsys.readouterr().err
    assert "train.py:7" in error
    assert "--item" in error


@pytest.mark.parametrize(
    "seed",
    [
        "(torch.randint(0, 1 << 40, ()).item() + 1) % (1 << 62)",
        "(torch.get_rng_state()[:8].view(torch.int64).item() + 1) % (1 << 32)",
        "torch.randint(0, (1 << 31) - 1, ()).item() & 0x7FFFFFFF",
    ],
)
def test_a_random_seed_is_read_and_listed(seed: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + f"torch.manual_seed({seed})")
    recordings, _ = record_job(RecordOrder(path, (), 1, ranks=(0,), python=PYTHON, on_cpu=True))
    assert any("a random seed" in answer for answer in recordings[0].answers)


def test_a_small_number_made_of_a_seed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert record(tmp_path, HEAD + "n = torch.randint(0, 1 << 40, ()).item() % 8", 1, "--cpu") == 65
    error = capsys.readouterr().err
    assert "train.py:6" in error
    assert "--item" in error


def test_shards_of_shards_are_initialized(tmp_path: Path) -> None:
    """FSDP2 cuts what tensor parallelism has cut along the same dimension: DTensor computes the places of such shards."""
    script = (
        HEAD
        + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(16, 64))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
model.to_empty(device="cpu")
nn.init.trunc_normal_(model[0].weight)
assert model[0].weight.to_local().shape == (16, 16)
"""
    )
    assert record(tmp_path, script, 4, "--cpu") == 0


def test_a_grouped_product_counts_its_flops(tmp_path: Path) -> None:
    """[m, k] x [groups, k, n] is 2 m k n over all groups, and its two gradients are as much again."""
    path = tmp_path / "train.py"
    path.write_text(
        HEAD
        + """
left = torch.randn(64, 32, dtype=torch.bfloat16, requires_grad=True)
right = torch.randn(4, 32, 16, dtype=torch.bfloat16, requires_grad=True)
torch._grouped_mm(left, right, offs=torch.tensor([16, 32, 48, 64], dtype=torch.int32)).square().mean().backward()
"""
    )
    recordings, _ = record_job(RecordOrder(path, (), 1, python=PYTHON, on_cpu=True))
    flops = [
        event.flops
        for event in recordings[0].events
        if isinstance(event, Compute) and "_grouped_mm" in event.operator
    ]
    assert flops == [2 * 64 * 32 * 16] * 3
