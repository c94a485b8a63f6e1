"""Scripts that are recorded: each a class of job, or a way to be recorded wrongly."""

from __future__ import annotations

from typing import Final

HEAD: Final = """
import torch
from torch import distributed, nn
distributed.init_process_group("gloo")
rank, ranks = distributed.get_rank(), distributed.get_world_size()
"""
DDP: Final = (
    HEAD
    + """
from torch.nn.parallel import DistributedDataParallel
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(300, 300) for _ in range(6)])
        self.unused, self.norm = nn.Linear(300, 300), nn.BatchNorm1d(300)
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.norm(x)
model = DistributedDataParallel(Model(), bucket_cap_mb=0.5, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    with model.no_sync():
        model(torch.randn(8, 300)).square().mean().backward()
    model(torch.randn(8, 300)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
PIPELINE: Final = (
    HEAD
    + """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleZBVZeroBubble
def part():
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
def loss(y, target):
    return (y - target).square().mean()
for schedule in (
    Schedule1F1B(PipelineStage(part(), rank, ranks, torch.device("cpu")), 8, loss_fn=loss),
    ScheduleZBVZeroBubble(
        [PipelineStage(part(), i, 2 * ranks, torch.device("cpu")) for i in (rank, 2 * ranks - 1 - rank)], 8, loss_fn=loss
    ),
):
    is_v = isinstance(schedule, ScheduleZBVZeroBubble)
    batch = torch.randn(32, 32)
    is_last = rank == (0 if is_v else ranks - 1)
    schedule.step(*([batch] if rank == 0 else []), target=batch if is_last else None)
"""
)
EXPERTS: Final = (
    HEAD
    + """
experts = torch.randint(0, 2 * ranks, (512,))
sent = torch.bincount(experts, minlength=2 * ranks)
received = torch.empty_like(sent)
distributed.all_to_all_single(received, sent)
to_ranks, from_ranks = (counts.view(ranks, -1).sum(1).tolist() for counts in (sent, received))
tokens = torch.randn(512, 16)
mine = tokens.new_empty(sum(from_ranks), 16)
distributed.all_to_all_single(mine, tokens, from_ranks, to_ranks)
"""
)
REFUSED: Final = {
    "an integer that was read of a tensor has no data": (
        "n = torch.ones(4, dtype=torch.int64).cumsum(0)[-1]\ntorch.empty(n.item())"
    ),
    "depends on data": "torch.randn(8).nonzero()",
    "puts tensors on a GPU": "torch.zeros(4, device='cuda').add_(1)",
    "loads a file of tensors": "torch.load('model.pt')",
    "receive from any source": "distributed.recv(torch.zeros(4))",
    "context_parallel is not recorded": (
        "from torch.distributed.tensor.experimental import context_parallel\ncontext_parallel(None)"
    ),
    "ValueError: own mistake": "raise ValueError('own mistake')",
}
"""Words of the refusal -> lines after the head."""
CUDA_HEAD: Final = """
import os, torch
from torch import distributed, nn
assert torch.cuda.is_available()
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl", device_id=device)
assert distributed.get_backend() == "nccl"
"""
CUDA_DDP: Final = (
    CUDA_HEAD
    + """
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
model[5].weight = model[0].weight
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
model.cuda()
assert model[5].weight is model[0].weight and model[0].weight.is_cuda
assert len(list(model.parameters())) == 11 and optimizer.param_groups[0]["params"][0] is model[0].weight
model = DistributedDataParallel(model, device_ids=[device.index], bucket_cap_mb=1)
model.register_comm_hook(None, default_hooks.bf16_compress_hook)
scaler = torch.amp.GradScaler("cuda")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for _ in range(2):
    start.record()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(64, 512).pin_memory().to(device, non_blocking=True)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end), torch.cuda.max_memory_allocated(), torch.cuda.get_device_name())
distributed.barrier(device_ids=[device.index])
distributed.destroy_process_group()
"""
)
CUDA_FSDP: Final = (
    CUDA_HEAD
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 4096, bias=False), nn.Linear(4096, 1024, bias=False)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))
mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
with torch.device("meta"):
    model = nn.Sequential(*[Block() for _ in range(4)])
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"], mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(model, mesh=mesh["dp"])
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(2):
    loss = model(torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
)
CUDA_RING: Final = (
    CUDA_HEAD
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
mesh = init_device_mesh("cuda", (ranks,), mesh_dim_names=("cp",))
project = nn.Linear(64, 3 * 64, device="cuda", dtype=torch.bfloat16)
x = torch.randn(1, 128 * ranks, 64, device="cuda", dtype=torch.bfloat16)
with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
    q, k, v = (part.view(1, -1, 4, 16).transpose(1, 2) for part in project(x).chunk(3, dim=-1))
    nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean().backward()
"""
)
CUDA_FSDP1: Final = (
    CUDA_HEAD
    + """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 256)
    def forward(self, x):
        return checkpoint(self.up, x, use_reentrant=False)
for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
    model = nn.Sequential(*[FSDP(Block().cuda(), use_orig_params=True, sharding_strategy=strategy) for _ in range(3)])
    model = FSDP(model, device_id=device, use_orig_params=True, sharding_strategy=strategy)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(32, 256, device=device)).square().mean().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
"""
)
