"""Checkpoints: a storage node with the bytes of the tensors; no file is written or read."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import checkpoint

from ..events import Refusal
from ..recorder import Record
from ..storages import tensors_in


def install(record: Record) -> None:
    """Replace `torch.save` and `torch.load`, and those of distributed checkpoints."""

    def save(value: Any, *args: Any, **kwargs: Any) -> None:
        record.storage_bytes(_local_bytes(value), "torch.save")
        record.note("checkpoints become storage nodes with the bytes of their tensors; no file is written")

    def save_distributed(state_dict: Any, *args: Any, **kwargs: Any) -> None:
        record.storage_bytes(_local_bytes(state_dict), "checkpoint.save")
        record.note(
            "distributed checkpoints become storage nodes with the bytes of each rank's shards; the plans that ranks "
            "exchange are left out"
        )

    def load(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(
            "the script loads a file of tensors, which has no meaning without data",
            "skip loading while recording",
        )

    torch.save = save
    torch.load = load
    checkpoint.save = save_distributed
    checkpoint.state_dict_saver.save = save_distributed
    checkpoint.load = load
    checkpoint.async_save = load
    checkpoint.state_dict_saver.async_save = load


def _local_bytes(value: Any) -> int:
    """Return the bytes of this rank's part of all tensors in a value."""
    total = 0
    for tensor in tensors_in(value):
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        total += local.numel() * local.element_size()
    return total
