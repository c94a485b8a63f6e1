"""Name the module that runs: by hooks in the forward pass, and in the backward pass by the sequence numbers of autograd.

Every node of the graph has the number that was current when its forward operator ran, so the module of a backward operator is
the one that was innermost at that number. (torch.utils.module_tracker refuses `autograd.grad`, which pipelines call.)
"""

from __future__ import annotations

import bisect
import weakref
from typing import Any, Self

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


class ModuleNames:
    """The stack of running modules, as a context."""

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._stack: list[str] = []
        self._numbers: list[int] = []
        self._innermost: list[str] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._enter_module),
            module_hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def current(self) -> str:
        """Return the name of the innermost module, with ` backward` in a backward pass; "" outside the model."""
        node = torch._C._current_autograd_node()
        if node is None or self._stack:
            return self._stack[-1] if self._stack else ""
        index = bisect.bisect_right(self._numbers, node._sequence_nr()) - 1
        name = self._innermost[index] if index >= 0 else ""
        return f"{name} backward".strip()

    def _enter_module(self, module: nn.Module, _: object) -> None:
        if module not in self._names:
            prefix = f"{self._stack[-1]}." if self._stack else ""
            for path, child in module.named_modules():
                name = prefix + path if path else (self._stack[-1] if self._stack else type(module).__name__)
                for wrapper in _WRAPPERS:
                    name = name.replace(wrapper, "")
                self._names.setdefault(child, name.removeprefix("module."))
        self._stack.append(self._names[module])
        self._mark()

    def _leave_module(self, *_: object) -> None:
        if self._stack:
            self._stack.pop()
        self._mark()

    def _mark(self) -> None:
        number = torch.autograd._get_sequence_nr()
        if self._numbers and number < self._numbers[-1]:
            return
        self._numbers.append(number)
        self._innermost.append(self._stack[-1] if self._stack else "")
