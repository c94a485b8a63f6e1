"""FSDP1: modules are moved by `Module._apply`, and data of other ranks is not compared."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import _init_utils


def install() -> None:
    """Replace how FSDP1 moves modules to their device."""

    def move_module(
        module: Any, ignored_parameters: Any, ignored_buffers: Any, device: torch.device | None, *args: Any
    ) -> None:
        if device is not None:
            module._apply(lambda tensor: tensor.to(device))

    _init_utils._move_module_to_device = move_module
    _init_utils._move_states_to_device = lambda *args, **kwargs: None
