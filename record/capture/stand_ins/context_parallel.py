"""Context parallelism of PyTorch is refused on the CPU: its ring attention calls kernels that exist on GPUs only."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed.tensor.experimental  # noqa: F401 - loads the modules that are looked up below

from ..events import Refusal
from ..recorder import Record

_NAMES = ("context_parallel", "_context_parallel_shard", "_ContextParallel")


def install(record: Record) -> None:
    """Replace the entries of torch.distributed.tensor.experimental, unless scripts have a GPU."""
    if record.streams is not None:
        return

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(
            "context_parallel is not recorded on the CPU: its ring attention has kernels for GPUs only",
            "record it with a CUDA build of PyTorch: --python, without --cpu",
        )

    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed.tensor.experimental"):
            for name in _NAMES:
                if hasattr(module, name):
                    setattr(module, name, refuse)
