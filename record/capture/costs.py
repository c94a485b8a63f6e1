"""Count the floating-point operations and the bytes of one operator call.

FLOPs come from PyTorch's own counter (torch.utils.flop_counter), completed by the formulas below. Bytes are those of all
tensors read and written; a table lookup counts the rows that it takes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from .storages import tensors_in

_LOOKUPS = ("embedding", "index_select", "gather", "index", "_index", "take")
"""Operators that read as many elements of their first argument as they return."""

_MATRIX_WORDS = (
    "mm",
    "matmul",
    "bmm",
    "conv",
    "attention",
    "addmv",
    "mv",
    "dot",
    "ger",
    "linear",
    "einsum",
    "gemm",
    "rnn",
    "lstm",
    "gru",
    "cdist",
    "trilinear",
    "bilinear",
    "cholesky",
    "eigh",
    "fft",
    "inv",
    "inverse",
    "lu",
    "qr",
    "solve",
    "svd",
)
_NO_MATRIX = ("_fused_rms_norm", "comm")


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> int | None:
    """Return the FLOPs of a call, 0 for operators that memory bandwidth limits, None if a formula is missing."""
    packet = func._overloadpacket
    formula = flop_registry.get(packet)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=out))
    name = func._schema.name.split("::")[1]
    if name.startswith("_grouped_mm") or name == "_scaled_grouped_mm":
        return _grouped_mm_flops(args[0], args[1])
    if name in ("mv", "addmv"):
        matrix = args[-2] if name == "addmv" else args[0]
        return 2 * int(matrix.numel())
    if name in ("dot", "vdot"):
        return 2 * int(args[0].numel())
    words = name.strip("_").split("_")
    is_matrix = any(word == matrix or word.endswith("mm") for word in words for matrix in _MATRIX_WORDS)
    is_foreign = func.namespace not in ("aten", "prims", "fsdp", "_c10d_functional", "c10d")
    return None if (is_matrix or is_foreign) and name not in _NO_MATRIX else 0


def _grouped_mm_flops(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the FLOPs of a grouped product: rows of all groups together times the two sides of one matrix.

    [m, k] x [g, k, n] has m rows over all groups; [g, m, k] x [g, k, n] has g * m; the product of two matrices whose inner
    side is cut into groups, [m, k] x [k, n], has 2 * m * k * n over all groups.
    """
    return 2 * int(math.prod(left.shape) * right.shape[-1])


def bytes_of(func: Any, reads: object, written: object) -> int:
    """Return the bytes that a call reads and writes."""
    name = func._schema.name.split("::")[1]
    outputs = tensors_in(written)
    write_bytes = sum(_bytes(tensor) for tensor in outputs)
    inputs = tensors_in(reads)
    if name.split(".")[0] in _LOOKUPS and outputs:
        return 2 * write_bytes + sum(_bytes(tensor) for tensor in inputs[1:])
    if name in ("zero_", "fill_", "copy_", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like"):
        inputs = [tensor for tensor in inputs if all(tensor is not output for output in outputs)]
        if name != "copy_":
            inputs = []
    return write_bytes + sum(_bytes(tensor) for tensor in inputs)


def bytes_in(values: object) -> int:
    """Return the bytes of all tensors in nested values."""
    return sum(_bytes(tensor) for tensor in tensors_in(values))


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; expanded dimensions are stored once."""
    count = 1
    for size, stride in zip(
        tensor.shape, tensor.stride() if tensor.layout == torch.strided else (1,) * tensor.dim(), strict=True
    ):
        if stride or size == 0:
            count *= int(size)
    return count * int(tensor.element_size())


def type_of(args: object) -> str:
    """Return the data type in which an operator computes: that of its first floating-point tensor, else of its first."""
    tensors = tensors_in(args)
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return type_name(tensor)
    return type_name(tensors[0]) if tensors else ""


def type_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's data type, such as `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def signature(func: Any, args: object, kwargs: object) -> str:
    """Return operator and shapes in one text, such as `aten.mm.default(bfloat16[8,4], bfloat16[4,2])`."""
    shapes = ", ".join(
        f"{type_name(tensor)}[{','.join(map(str, tensor.shape))}]"
        for tensor in tensors_in((args, kwargs))[:8]
    )
    return f"{func}({shapes})"
