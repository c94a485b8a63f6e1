"""Scripts whose recording is compared with a run over gloo, operation by operation."""

from __future__ import annotations

from typing import Final

from tests.record.scripts import HEAD

DDP_OPTIONS: Final = (
    HEAD
    + """
from torch.nn.parallel import DistributedDataParallel
class Model(nn.Module):
    def __init__(self, norm=True, frozen=False, double=False):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(200 + 10 * i, 210 + 10 * i) for i in range(6)])
        self.unused = nn.Linear(100, 100)
        self.norm = nn.BatchNorm1d(260) if norm else nn.Identity()
        self.extra = nn.Linear(260, 8, dtype=torch.float64) if double else None
        if frozen:
            self.layers[2].weight.requires_grad_(False)
    def forward(self, x, use=False):
        for layer in self.layers:
            x = torch.relu(layer(x))
        if use:
            x = x + self.unused(x[:, :100]).sum()
        x = self.norm(x)
        return x if self.extra is None else self.extra(x.double())
def train(model, steps=3, sync=lambda step: True, **inputs):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for step in range(steps):
        if sync(step):
            model(torch.randn(8, 200), **inputs).square().mean().backward()
        else:
            with model.no_sync():
                model(torch.randn(8, 200), **inputs).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
def parallel(options, **model):
    return DistributedDataParallel(Model(**model), **options)
train(parallel({}), use=True)
train(parallel({"bucket_cap_mb": 0.3}), use=True)
train(parallel({"bucket_cap_mb": 0.2, "gradient_as_bucket_view": True}), use=True)
train(parallel({"bucket_cap_mb": 0.2, "static_graph": True}))
train(parallel({"bucket_cap_mb": 0.2, "static_graph": True, "gradient_as_bucket_view": True}, frozen=True))
train(parallel({"bucket_cap_mb": 0.4, "find_unused_parameters": True}), steps=4, sync=lambda step: step % 2)
train(parallel({"bucket_cap_mb": 0.2, "find_unused_parameters": True, "broadcast_buffers": False}, double=True))
train(parallel({"bucket_cap_mb": 0.2, "find_unused_parameters": True}, norm=False), use=True)
train(parallel({"bucket_cap_mb": 1, "init_sync": False}, double=True, frozen=True), steps=4, sync=lambda step: step > 1, use=True)
model = parallel({"bucket_cap_mb": 0.2})
(model(torch.randn(8, 200), use=True) + model(torch.randn(8, 200), use=True)).square().mean().backward()
"""
)
DDP_HOOKS: Final = (
    HEAD
    + """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
def halve(state, bucket):
    work = distributed.all_reduce(bucket.buffer().mul_(0.5), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
def nothing(state, bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
for hook, state in (
    (default_hooks.fp16_compress_hook, None),
    (default_hooks.allreduce_hook, None),
    (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None),
    (halve, None),
    (nothing, None),
    ("builtin", None),
):
    layers = [nn.Linear(300, 300) for _ in range(4)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.5)
    if hook == "builtin":
        model._register_builtin_comm_hook(distributed.BuiltinCommHookType.FP16_COMPRESS)
    else:
        model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
)
SHARDED: Final = (
    HEAD
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.tensor import Shard, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, PrepareModuleInput, SequenceParallel, loss_parallel, parallelize_module
)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 128, bias=False), nn.Linear(128, 64, bias=False)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))
mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(*[Block() for _ in range(3)])
for block in model:
    fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    model.set_requires_all_reduce(step == 1)
    model(torch.randn(4, 64)).float().square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(nn.Embedding(128, 64), Block(), Block(), nn.Linear(64, 128, bias=False))
tp = mesh["tp"]
parallelize_module(model, tp, {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "3": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
})
for block in model[1:3]:
    parallelize_module(block, tp, {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    })
    fully_shard(block, mesh=mesh["dp"], reshard_after_forward=False)
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    with loss_parallel():
        logits = model(torch.randint(0, 128, (2, 16)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 128, (32,)))
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
)
OBJECTS: Final = (
    HEAD
    + """
values = [None] * ranks
distributed.all_gather_object(values, {"rank": rank, "text": "x" * (10 * rank)})
assert [value["rank"] for value in values] == list(range(ranks))
own = ["a" * 100, 7] if rank == 1 else [None, None]
distributed.broadcast_object_list(own, src=1)
assert own == ["a" * 100, 7]
out = [None]
distributed.scatter_object_list(out, [f"for {i}" * 9 for i in range(ranks)] if rank == 0 else None, src=0)
assert out == [f"for {rank}" * 9]
gathered = [None] * ranks if rank == 0 else None
distributed.gather_object("y" * (5 + rank), gathered, dst=0)
if rank == 0:
    distributed.send_object_list([list(range(40)), "end"], dst=1)
elif rank == 1:
    received = [None, None]
    distributed.recv_object_list(received, src=0)
    assert received == [list(range(40)), "end"]
group = distributed.new_group([0, 1])
distributed.barrier(group)
if rank < 2:
    tensors = [torch.ones(4) for _ in range(3)]
    with distributed._coalescing_manager(group=group, async_ops=True) as manager:
        for tensor in tensors:
            distributed.all_reduce(tensor, group=group)
    manager.wait()
"""
)
PIPELINES: Final = (
    HEAD
    + """
from torch.distributed.pipelining import (
    PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleLoopedBFS,
    ScheduleZBVZeroBubble
)
def part():
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
def loss(y, target):
    return (y - target).square().mean()
def shapes(is_static):
    if not is_static:
        return {}
    return {"input_args": torch.empty(4, 32, requires_grad=True), "output_args": torch.empty(4, 32, requires_grad=True)}
for is_static in (False, True):
    for kind in (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble,
                 ScheduleZBVZeroBubble):
        is_v = kind is ScheduleZBVZeroBubble
        if kind in (ScheduleGPipe, Schedule1F1B):
            schedule = kind(PipelineStage(part(), rank, ranks, torch.device("cpu"), **shapes(is_static)), 8, loss_fn=loss)
        else:
            indices = (rank, 2 * ranks - 1 - rank) if is_v else (rank, rank + ranks)
            stages = [PipelineStage(part(), i, 2 * ranks, torch.device("cpu"), **shapes(is_static)) for i in indices]
            schedule = kind(stages, 8, loss_fn=loss)
        batch = torch.randn(32, 32)
        is_last = rank == (0 if is_v else ranks - 1)
        for _ in range(2):
            schedule.step(*([batch] if rank == 0 else []), target=batch if is_last else None)
"""
)
COMPARED: Final = {
    "options of DDP": (DDP_OPTIONS, 2),
    "hooks of DDP": (DDP_HOOKS, 2),
    "HSDP, sequence and loss parallelism": (SHARDED, 4),
    "objects": (OBJECTS, 3),
    "pipelines": (PIPELINES, 2),
}
"""Class of scripts -> script and ranks."""
