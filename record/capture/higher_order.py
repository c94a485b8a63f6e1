"""Operators made of others: DTensor's random ones, and attention with a score function of the script (flex_attention)."""

from __future__ import annotations

from typing import Any, Final

from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch._ops import HigherOrderOperator
from torch._prims import rng_prims
from torch.utils._python_dispatch import TorchDispatchMode

from .events import Refusal

ATTENTION: Final = (flex_attention, flex_attention_backward)


def run(
    mode: TorchDispatchMode, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Execute such an operator. `mode` sees the operator that a random one wraps: it sets a generator's offset around it."""
    if func is getattr(rng_prims, "run_dtensor_rng_op", None):
        with mode:
            return args[2](*args[3:], **kwargs)
    if func not in ATTENTION:
        raise Refusal(
            f"the operator {func.name()}, made of others, is not recorded",
            "write it as a function of plain operators, or replace the call in --hook FILE",
        )
    return func(*args, **kwargs)


def attention_flops(func: HigherOrderOperator, args: tuple[Any, ...]) -> int:
    """Return the FLOPs of all scores: two products forward, five backward. Which blocks a mask leaves out is data."""
    query, key, value = args[:3]
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    products = (1, 1) if func is flex_attention else (3, 2)
    return 2 * int(scores) * int(products[0] * query.shape[3] + products[1] * value.shape[3])
