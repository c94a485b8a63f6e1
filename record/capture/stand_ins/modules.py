"""Moving modules (`.to()`, `.cuda()`, `.to_empty()`): parameters are replaced, because fake ones cannot be swapped.

A parameter that several modules share stays shared, and an optimizer that was made before gets the new parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

_OF_THE_OLD_TENSOR = ("fake_device", "fake_mode", "constant")


def install() -> None:
    """Replace `Module._apply`, and note optimizers as they are made."""
    replaced = _Replaced()
    original_init = Optimizer.__init__

    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        replaced.optimizers.add(self)

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for name, parameter in list(self._parameters.items()):
            if parameter is not None:
                self._parameters[name] = replaced.after(parameter, fn)
        for name, buffer in list(self._buffers.items()):
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    Optimizer.__init__ = init
    nn.Module._apply = apply


class _Replaced:
    """Parameters that were replaced, and who else holds them."""

    def __init__(self) -> None:
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._by_id: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
        """New parameters by the ids of the old ones, which are kept so that their ids stay theirs."""

    def after(self, parameter: nn.Parameter, fn: Callable[[torch.Tensor], torch.Tensor]) -> nn.Parameter:
        """Return what a parameter becomes by a function: the same new one for each module that holds it."""
        with torch.no_grad():
            moved = fn(parameter)
        if moved is parameter:
            return parameter
        known = self._by_id.get(id(parameter))
        if known is not None and known[1].device == moved.device and known[1].dtype == moved.dtype:
            return known[1]
        made = _replacement(parameter, moved)
        if parameter.grad is not None:
            with torch.no_grad():
                made.grad = fn(parameter.grad)
        self._by_id[id(parameter)] = parameter, made
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [made if held is parameter else held for held in group["params"]]
            if parameter in optimizer.state:
                optimizer.state[made] = optimizer.state.pop(parameter)
        return made


def _replacement(parameter: nn.Parameter, moved: torch.Tensor) -> nn.Parameter:
    made = moved if isinstance(moved, nn.Parameter) else nn.Parameter(moved, parameter.requires_grad)
    attributes: dict[str, Any] = {
        name: value
        for name, value in vars(parameter).items()
        if name not in vars(made) and name not in _OF_THE_OLD_TENSOR
    }
    vars(made).update(attributes)
    return made
