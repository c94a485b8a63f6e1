"""FSDP: freed storages are new when used again; FSDP1 moves modules by `Module._apply` and compares no data of other ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import utils
from torch.distributed.fsdp import _flat_param, _init_utils

from ..recorder import Record


def install(record: Record) -> None:
    """Replace how FSDP1 moves modules to their device, and notice freed storages."""
    original_resize = torch.UntypedStorage.resize_

    def resize(self: torch.UntypedStorage, size: int) -> Any:
        if not size:
            record.storages.renew(self)
        return original_resize(self, size)

    torch.UntypedStorage.resize_ = resize

    def move_module(
        module: Any, ignored_parameters: Any, ignored_buffers: Any, device: torch.device | None, *args: Any
    ) -> None:
        if device is not None:
            module._apply(lambda tensor: tensor.to(device))

    def is_allocated(tensor: torch.Tensor) -> bool:
        return bool(tensor.untyped_storage().size() > 0)

    for module in (_flat_param, utils):
        if hasattr(module, "_data_ptr_allocated"):
            module._data_ptr_allocated = is_allocated
    _init_utils._move_module_to_device = move_module
    _init_utils._move_states_to_device = lambda *args, **kwargs: None
