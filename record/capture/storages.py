"""Number the storages of tensors, so that events can say what they read and write."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_iter


class StorageNumbers:
    """A number for each storage, never used again: addresses of freed storages are."""

    def __init__(self) -> None:
        self._by_address: dict[int, tuple[StorageWeakRef, int]] = {}
        self._next = 0

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._by_address.get(address)
        if known is not None and not known[0].expired():
            return known[1]
        self._by_address[address] = (StorageWeakRef(storage), self._next)
        self._next += 1
        return self._next - 1

    def renew(self, storage: torch.UntypedStorage) -> None:
        """Give a storage a new number: its memory was freed, and its next contents are unrelated."""
        self._by_address.pop(storage._cdata, None)

    def numbers(self, values: object) -> list[int]:
        """Return the numbers of all tensors in nested values, each once."""
        return list(dict.fromkeys(self.number(tensor) for tensor in tensors_in(values)))


def tensors_in(values: object) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    return [value for value in tree_iter(values) if isinstance(value, torch.Tensor)]


def accesses(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> tuple[object, object]:
    """Return the nested values that an operator reads and those that it writes, by its schema.

    Arguments marked as written are both read and written, unless the operator overwrites whole storages; results that alias no
    argument are written.
    """
    schema = func._schema
    written: list[object] = []
    overwritten: set[int] = set()
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            written.append(value)
            if argument.is_out or (index == 0 and schema.name in _OVERWRITERS):
                overwritten |= {id(tensor) for tensor in tensors_in(value) if _fills_storage(tensor)}
    results = out if isinstance(out, (tuple, list)) else (out,)
    returns = (
        schema.returns
        if len(schema.returns) == len(results)
        else [schema.returns[0]] * len(results)
        if schema.returns
        else []
    )
    written += [value for value, stated in zip(results, returns, strict=False) if stated.alias_info is None]
    if not overwritten:
        return (args, kwargs), written
    return [tensor for tensor in tensors_in((args, kwargs)) if id(tensor) not in overwritten], written


def _fills_storage(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


def moves_nothing(func: Any) -> bool:
    """Decide whether an operator only makes a view, or memory without contents."""
    schema = func._schema
    name = schema.name
    if name in _NO_WORK or name.startswith("prim::"):
        return True
    aliases = [stated.alias_info for stated in schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


_OVERWRITERS = frozenset(
    f"aten::{name}"
    for name in "copy_ zero_ fill_ normal_ uniform_ random_ bernoulli_ exponential_ eye_".split()
)
_NO_WORK = frozenset(
    f"aten::{name}"
    for name in (
        "empty empty_strided empty_like new_empty new_empty_strided detach detach_ lift lift_fresh set_ resize_"
        " _reshape_alias requires_grad_ record_stream is_pinned sym_size sym_numel sym_stride is_same_size"
        " _has_compatible_shallow_copy_type as_strided_ transpose_ t_ unsqueeze_ squeeze_ swapaxes_"
        " _unsafe_view _local_scalar_dense _nested_tensor_from_mask_left_aligned"
    ).split()
)
