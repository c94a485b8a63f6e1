"""Two pipeline stages, each with experts spread over its ranks; how many tokens an expert gets is data."""

import torch
from torch import distributed, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

HIDDEN, TOKENS, TOP_K, MICROBATCHES, STAGES = 512, 1024, 2, 4, 2


class Experts(nn.Module):
    """Routes tokens to two experts per rank, and back."""

    def __init__(self, group: distributed.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.ranks = group.size()
        self.router = nn.Linear(HIDDEN, 2 * self.ranks)
        self.expert = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts = self.router(x).topk(TOP_K, dim=-1).indices.flatten()
        order = experts.argsort()
        sent = torch.bincount(experts, minlength=2 * self.ranks)
        received = torch.empty_like(sent)
        distributed.all_to_all_single(received, sent, group=self.group)
        to_ranks = sent.view(self.ranks, -1).sum(1).tolist()
        from_ranks = received.view(self.ranks, -1).sum(1).tolist()
        tokens = x.repeat_interleave(TOP_K, dim=0)[order]
        mine = all_to_all_single_autograd(tokens, from_ranks, to_ranks, self.group)
        back = all_to_all_single_autograd(self.expert(mine), to_ranks, from_ranks, self.group)
        return x + back[order.argsort()].view(-1, TOP_K, HIDDEN).sum(1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
ranks = distributed.get_world_size()
mesh = init_device_mesh(device.type, (STAGES, ranks // STAGES), mesh_dim_names=("pp", "ep"))
stage_index = mesh.get_local_rank("pp")
model = nn.Sequential(*[Experts(mesh.get_group("ep")) for _ in range(2)]).to(device)
stage = PipelineStage(model, stage_index, STAGES, device, group=mesh.get_group("pp"))
schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda y, target: (y - target).square().mean())
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(MICROBATCHES * TOKENS, HIDDEN, device=device)
if stage_index == 0:
    schedule.step(batch)
else:
    schedule.step(target=batch)
optimizer.step()
distributed.destroy_process_group()
