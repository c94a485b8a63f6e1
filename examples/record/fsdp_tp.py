"""Fully sharded data parallelism between hosts, tensor parallelism of two within them."""

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

HIDDEN, LAYERS, TOKENS, STEPS = 1024, 4, 2048, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
mesh = init_device_mesh(device.type, (distributed.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(*[Block() for _ in range(LAYERS)]).to(device)
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(STEPS):
    loss = model(torch.randn(TOKENS, HIDDEN, device=device)).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()
