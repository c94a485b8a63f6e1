"""Moving modules (`.to()`, `.cuda()`, `.to_empty()`): parameters are replaced, because fake ones cannot be swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..recorder import Record

_OF_THE_OLD_TENSOR = ("fake_device", "fake_mode", "constant")


def install(record: Record) -> None:
    """Replace `Module._apply`."""

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for name, parameter in list(self._parameters.items()):
            if parameter is None:
                continue
            with torch.no_grad():
                moved = fn(parameter)
            if moved is not parameter:
                self._parameters[name] = _replacement(parameter, moved)
        for name, buffer in list(self._buffers.items()):
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    nn.Module._apply = apply


def _replacement(parameter: nn.Parameter, moved: torch.Tensor) -> nn.Parameter:
    made = moved if isinstance(moved, nn.Parameter) else nn.Parameter(moved, parameter.requires_grad)
    attributes: dict[str, Any] = {
        name: value
        for name, value in vars(parameter).items()
        if name not in vars(made) and name not in _OF_THE_OLD_TENSOR
    }
    vars(made).update(attributes)
    return made
