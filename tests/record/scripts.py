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
    "an integer of a tensor on the host": "n = torch.ones(4, dtype=torch.int64).cumsum(0)[-1]\ntorch.empty(n.item())",
    "depends on data": "torch.randn(8).nonzero()",
    "puts tensors on a GPU": "torch.zeros(4, device='cuda').add_(1)",
    "loads a file of tensors": "torch.load('model.pt')",
    "receive from any source": "distributed.recv(torch.zeros(4))",
    "split_group needs a GPU": "distributed.split_group(split_ranks=[[0], [1]])",
    "context_parallel is not recorded": (
        "from torch.distributed.tensor.experimental import context_parallel\ncontext_parallel(None)"
    ),
    "ValueError: own mistake": "raise ValueError('own mistake')",
}
"""Words of the refusal -> lines after the head."""
