"""A Llama-like model of 80 layers on `cuda` and `nccl`: tensor parallelism of 8, a pipeline of 4 stages, the rest data parallel.

`python llama.py [MICROBATCHES [LAYERS]]` under torchrun's environment. Sizes are those of Llama 3 70B.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, VOCABULARY, SEQUENCE = 8192, 28672, 64, 8, 128256, 8192
TENSOR, PIPELINE = 8, 4
MICROBATCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 8
LAYERS = int(sys.argv[2]) if len(sys.argv) > 2 else 80
HEAD = HIDDEN // HEADS


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.wk = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.wv = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.wo = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, -1, HEAD).transpose(1, 2)
            for project in (self.wq, self.wk, self.wv)
        )
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)
        self.w2 = nn.Linear(FEED_FORWARD, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FEED_FORWARD, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl")
data = distributed.get_world_size() // (TENSOR * PIPELINE)
mesh = init_device_mesh("cuda", (PIPELINE, data, TENSOR), mesh_dim_names=("pp", "dp", "tp"))
stage_index = mesh.get_local_rank("pp")
is_first, is_last = stage_index == 0, stage_index == PIPELINE - 1
with torch.device("meta"):
    parts: dict[str, nn.Module] = {"embed": nn.Embedding(VOCABULARY, HIDDEN)} if is_first else {}
    first = stage_index * LAYERS // PIPELINE
    parts |= {f"layer{first + index}": Block() for index in range(LAYERS // PIPELINE)}
    if is_last:
        parts |= {"norm": nn.RMSNorm(HIDDEN), "output": nn.Linear(HIDDEN, VOCABULARY, bias=False)}
    model = nn.Sequential()
    for name, part in parts.items():
        model.add_module(name, part)
ends = {
    "embed": RowwiseParallel(input_layouts=Replicate()),
    "output": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
}
parallelize_module(model, mesh["tp"], {name: plan for name, plan in ends.items() if name in parts})
for block in model.children():
    if isinstance(block, Block):
        plan = {f"attention.w{which}": ColwiseParallel() for which in "qkv"}
        plan |= {f"feed_forward.w{which}": ColwiseParallel() for which in "13"}
        plan |= {"attention.wo": RowwiseParallel(), "feed_forward.w2": RowwiseParallel()}
        parallelize_module(block, mesh["tp"], plan)
    fully_shard(
        block,
        mesh=mesh["dp"],
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        reshard_after_forward=False,
    )
fully_shard(
    model,
    mesh=mesh["dp"],
    mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    reshard_after_forward=False,
)
model.to_empty(device="cuda")
stage = PipelineStage(model, stage_index, PIPELINE, device, group=mesh.get_group("pp"))
schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss_of)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
tokens = torch.randint(0, VOCABULARY, (MICROBATCHES, SEQUENCE), device=device)
with loss_parallel():
    if is_first:
        schedule.step(tokens)
    elif is_last:
        schedule.step(target=tokens)
    else:
        schedule.step()
optimizer.step()
distributed.destroy_process_group()
