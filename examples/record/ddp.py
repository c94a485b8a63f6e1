"""Data parallelism: gradients are reduced in buckets while the backward pass goes on."""

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

HIDDEN, LAYERS, TOKENS, STEPS = 1024, 8, 2048, 2

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
layers = [
    nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))
    for _ in range(LAYERS)
]
model = DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=25)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(STEPS):
    loss = model(torch.randn(TOKENS, HIDDEN, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()
