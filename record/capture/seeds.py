"""Random seeds that a script draws and reads on the host: integers that are data, but not shapes.

Scripts draw a seed, or take it from a generator's state, broadcast it, and seed their generators with it. Such a tensor gets a
note with the value that a read returns, as large as that of a real run could be. The report lists it.
PyTorch refuses a shape of that size; a smaller number computed from it is refused (`answers.AssumedSeed`). Python makes
`int(seed)` a plain integer, which is not followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .storages import tensors_in

_SEED = "_etloop_seed"
_FROM_STATE = (1 << 62) + 1
LEAST_RANGE = 1 << 30
"""Integers drawn from fewer values could be shapes, and are not taken for seeds."""
_PASSED_ON = frozenset(
    "alias clone detach expand reshape select slice squeeze _to_copy unsqueeze view".split()
)


def install() -> None:
    """Note that the states of generators hold seeds."""
    for module in (torch, torch.random, torch.cuda, torch.cuda.random):
        module.get_rng_state = _noting(module.get_rng_state)


def _noting(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def get_rng_state(*args: Any, **kwargs: Any) -> torch.Tensor:
        state = function(*args, **kwargs)
        setattr(state, _SEED, _FROM_STATE)
        return state

    return get_rng_state


def seed_of(tensor: torch.Tensor) -> int | None:
    """Return the value that a read of a seed returns; None of any other tensor."""
    return getattr(tensor, _SEED, None)


def note_seed(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """Note on the result of an operator that it is a seed, if it was drawn as one or taken from one."""
    if not isinstance(out, torch.Tensor) or out.is_floating_point():
        return
    name = func._schema.name.removeprefix("aten::")
    value: int | None = None
    if name == "random_" and len(args) == 1:
        value = min(_FROM_STATE, torch.iinfo(out.dtype).max) if out.dtype.itemsize >= 4 else None
    elif name in ("random_", "randint"):
        bounds = [bound for bound in args[:3] if isinstance(bound, int)]
        low, high = (bounds[0], bounds[1]) if len(bounds) > 1 else (0, bounds[0] if bounds else 0)
        value = high - 1 if high - low >= LEAST_RANGE else None
    elif name in _PASSED_ON:
        values = {seed_of(tensor) for tensor in tensors_in(args)}
        value = values.pop() if len(values) == 1 else None
    if value is not None:
        setattr(out, _SEED, value)
    elif seed_of(out) is not None and name in ("random_", "zero_", "fill_", "copy_"):
        delattr(out, _SEED)
