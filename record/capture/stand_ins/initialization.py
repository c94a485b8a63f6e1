"""Truncated normal distributions: PyTorch draws again until no value is outside, and a fake tensor has no values."""

from __future__ import annotations

import torch

from ..recorder import Record


def install(record: Record) -> None:
    """Let `torch.nn.init.trunc_normal_` draw once."""

    def draw(
        tensor: torch.Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        record.note(
            "torch.nn.init.trunc_normal_ draws once, without checking values: how often it draws, and the all-gathers with which"
            " it checks shards, depend on data"
        )
        with torch.no_grad():
            return tensor.normal_(mean, std, generator=generator).clamp_(a, b)

    torch.nn.init._no_grad_trunc_normal_ = draw
