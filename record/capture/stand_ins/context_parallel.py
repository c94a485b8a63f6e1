"""Context parallelism of PyTorch is refused: its ring attention calls kernels that exist on GPUs only."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed.tensor.experimental  # noqa: F401 - loads the modules that are looked up below

from ..events import Refusal

_NAMES = ("context_parallel", "_context_parallel_shard", "_ContextParallel")


def install() -> None:
    """Replace the entries of torch.distributed.tensor.experimental."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(
            "context_parallel is not recorded: its ring attention has kernels for GPUs only",
            "record the script without it, or write the exchange of keys and values as sends or all-gathers",
        )

    for path, module in list(sys.modules.items()):
        if path.startswith("torch.distributed.tensor.experimental"):
            for name in _NAMES:
                if hasattr(module, name):
                    setattr(module, name, refuse)
