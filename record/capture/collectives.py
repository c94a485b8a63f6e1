"""From a call of a communication operator to its bytes on the network.

Names of operators: torch/csrc/distributed/c10d/Ops.cpp and Functional.cpp. An operator of these libraries that is not in the
tables is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import distributed

from .costs import type_name
from .events import Refusal

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Call:
    """One communication operation as a rank issues it."""

    kind: str
    """`all_reduce` and so on, `send` or `recv`."""
    group: Any
    input_bytes: int
    """Bytes that the rank puts in; for a scatter the bytes of the root's input, on every member."""
    data_type: str
    elements: int
    inputs: Tensors
    outputs: Tensors
    send_splits: tuple[int, ...] | None = None
    """Bytes to each member, for an all-to-all of unequal parts."""
    root: int | None = None
    """Position of the root in the group."""
    peer: int | None = None
    """Position of the peer in the group."""
    tag: int = 0
    is_uneven: bool = False
    """An all-gather or reduce-scatter with unequal parts, which runs as an all-to-all."""


WAIT = "_c10d_functional::wait_tensor"
_NO_TRAFFIC = frozenset({WAIT, "c10d::check_for_nan"})
_LIBRARIES = (
    "c10d",
    "_c10d_functional",
    "_c10d_functional_autograd",
    "_dtensor",
    "symm_mem",
    "c10d_functional",
)


def is_communication(func: Any) -> bool:
    """Decide whether an operator belongs to a library of collectives."""
    return func.namespace in _LIBRARIES and not func._schema.name.endswith("_wrap_tensor_autograd")


def call_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: object) -> Call | None:
    """Return the operation of a call; None if it moves nothing. Raise `Refusal` for an unknown operator."""
    name = func._schema.name
    if name in _NO_TRAFFIC:
        return None
    read = _READERS.get(name)
    if read is None:
        raise Refusal(
            f"the communication operator {name} is not one that can be recorded",
            "use torch.distributed or its functional collectives, or replace it with --hook FILE",
        )
    named = {
        argument.name: args[index] if index < len(args) else kwargs.get(argument.name, argument.default_value)
        for index, argument in enumerate(func._schema.arguments)
    }
    return read(named, out)


def _sizes(kind: str, group: Any, inputs: Tensors, outputs: Tensors, **more: Any) -> Call:
    most = list(inputs) or list(outputs)
    return Call(
        kind,
        group,
        sum(_bytes(tensor) for tensor in inputs),
        type_name(most[0]) if most else "",
        sum(tensor.numel() for tensor in inputs),
        tuple(inputs),
        tuple(outputs),
        **more,
    )


def _bytes(tensor: torch.Tensor) -> int:
    count = tensor.numel()
    if not isinstance(count, int):
        raise Refusal(
            "the size of a communicated tensor depends on data",
            "declare the counts with --tokens, or replace the operation with --hook FILE",
        )
    return count * int(tensor.element_size())


def _c10d_group(value: Any) -> Any:
    return distributed.ProcessGroup.unbox(value)


def _named_group(name: str) -> Any:
    return distributed.distributed_c10d._resolve_process_group(name)


def _in_place(kind: str) -> Callable[[dict[str, Any], object], Call]:
    def read(named: dict[str, Any], _: object) -> Call:
        tensors = named["tensors"]
        return _sizes(
            kind, _c10d_group(named["process_group"]), tensors, tensors, root=named.get("root_rank")
        )

    return read


def _base(kind: str, output: str, source: str) -> Callable[[dict[str, Any], object], Call]:
    def read(named: dict[str, Any], _: object) -> Call:
        inputs, outputs = named[source], named[output]
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return _sizes(kind, _c10d_group(named["process_group"]), inputs, outputs)

    return read


def _all_gather_lists(named: dict[str, Any], _: object) -> Call:
    group, inputs = _c10d_group(named["process_group"]), named["input_tensors"]
    outputs = [tensor for tensors in named["output_tensors"] for tensor in tensors]
    sizes = {_bytes(tensor) for tensor in named["output_tensors"][0]}
    if len(sizes) > 1:
        own = _bytes(inputs[0])
        return _as_uneven(_sizes("all_to_all", group, inputs, outputs), (own,) * group.size())
    return _sizes("all_gather", group, inputs, outputs)


def _reduce_scatter_lists(named: dict[str, Any], _: object) -> Call:
    group = _c10d_group(named["process_group"])
    inputs = [tensor for tensors in named["input_tensors"] for tensor in tensors]
    parts = tuple(_bytes(tensor) for tensor in inputs)
    call = _sizes("reduce_scatter", group, inputs, named["output_tensors"])
    return _as_uneven(call, parts, "all_to_all") if len(set(parts)) > 1 else call


def _as_uneven(call: Call, splits: tuple[int, ...], kind: str = "") -> Call:
    return replace(call, kind=kind or call.kind, input_bytes=sum(splits), send_splits=splits, is_uneven=True)


def _all_to_all_base(named: dict[str, Any], _: object) -> Call:
    return _all_to_all(
        _c10d_group(named["process_group"]), named["input"], named["output"], named["input_split_sizes"]
    )


def _all_to_all(group: Any, source: torch.Tensor, output: torch.Tensor, rows: Sequence[int]) -> Call:
    call = _sizes("all_to_all", group, [source], [output])
    if not rows:
        return call
    row_bytes = call.input_bytes // max(1, source.shape[0]) if source.dim() else source.element_size()
    parts = tuple(_whole(row) * row_bytes for row in rows)
    return replace(call, send_splits=parts if len(set(parts)) > 1 or not call.input_bytes else None)


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise Refusal(
            "a split of an all-to-all depends on data", "declare the counts with --tokens, or use --hook FILE"
        )
    return value


def _all_to_all_lists(named: dict[str, Any], _: object) -> Call:
    inputs = named["input_tensors"]
    call = _sizes("all_to_all", _c10d_group(named["process_group"]), inputs, named["output_tensors"])
    parts = tuple(_bytes(tensor) for tensor in inputs)
    return replace(call, send_splits=parts) if len(set(parts)) > 1 else call


def _gather(named: dict[str, Any], _: object) -> Call:
    outputs = [tensor for tensors in named["output_tensors"] for tensor in tensors]
    group = _c10d_group(named["process_group"])
    return _sizes("gather", group, named["input_tensors"], outputs, root=named["root_rank"])


def _scatter(named: dict[str, Any], _: object) -> Call:
    group, outputs = _c10d_group(named["process_group"]), named["output_tensors"]
    inputs = [tensor for tensors in named["input_tensors"] for tensor in tensors]
    call = _sizes("scatter", group, inputs, outputs, root=named["root_rank"])
    elements = sum(tensor.numel() for tensor in outputs) * group.size()
    return replace(
        call,
        input_bytes=elements * outputs[0].element_size(),
        elements=elements,
        data_type=type_name(outputs[0]),
    )


def _barrier(named: dict[str, Any], _: object) -> Call:
    return Call("barrier", _c10d_group(named["process_group"]), 0, "", 0, (), ())


def _message(kind: str, peer: str) -> Callable[[dict[str, Any], object], Call]:
    def read(named: dict[str, Any], _: object) -> Call:
        tensors, group = named["tensors"], _c10d_group(named["process_group"])
        inputs = tensors if kind == "send" else []
        outputs = tensors if kind == "recv" else []
        call = _sizes(kind, group, tensors, outputs, peer=named[peer], tag=named["tag"])
        return replace(call, inputs=tuple(inputs))

    return read


def _any_source(_: dict[str, Any], __: object) -> Call:
    raise Refusal("a receive from any source has no peer to record", "name the source in recv(src=...)")


def _functional(kind: str) -> Callable[[dict[str, Any], object], Call]:
    def read(named: dict[str, Any], out: object) -> Call:
        inputs = named.get("inputs", named.get("input"))
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        outputs = list(out) if isinstance(out, (list, tuple)) else [out]
        root = named.get("src") if kind == "broadcast" else None
        return _sizes(kind, _named_group(named["group_name"]), inputs, outputs, root=root)

    return read


def _functional_all_to_all(named: dict[str, Any], out: Any) -> Call:
    return _all_to_all(_named_group(named["group_name"]), named["input"], out, named["input_split_sizes"])


_READERS: dict[str, Callable[[dict[str, Any], Any], Call]] = {
    "_dtensor::shard_dim_alltoall": _functional("all_to_all"),
    "c10d::allreduce_": _in_place("all_reduce"),
    "c10d::allreduce_coalesced_": _in_place("all_reduce"),
    "c10d::broadcast_": _in_place("broadcast"),
    "c10d::reduce_": _in_place("reduce"),
    "c10d::allgather_": _all_gather_lists,
    "c10d::_allgather_base_": _base("all_gather", "output_tensor", "input_tensor"),
    "c10d::allgather_coalesced_": _base("all_gather", "output_lists", "input_list"),
    "c10d::allgather_into_tensor_coalesced_": _base("all_gather", "outputs", "inputs"),
    "c10d::reduce_scatter_": _reduce_scatter_lists,
    "c10d::_reduce_scatter_base_": _base("reduce_scatter", "output_tensor", "input_tensor"),
    "c10d::reduce_scatter_tensor_coalesced_": _base("reduce_scatter", "outputs", "inputs"),
    "c10d::alltoall_base_": _all_to_all_base,
    "c10d::alltoall_": _all_to_all_lists,
    "c10d::gather_": _gather,
    "c10d::scatter_": _scatter,
    "c10d::barrier": _barrier,
    "c10d::monitored_barrier_": _barrier,
    "c10d::send": _message("send", "dst"),
    "c10d::recv_": _message("recv", "src"),
    "c10d::recv_any_source_": _any_source,
    "_c10d_functional::all_reduce": _functional("all_reduce"),
    "_c10d_functional::all_reduce_": _functional("all_reduce"),
    "_c10d_functional::all_reduce_coalesced": _functional("all_reduce"),
    "_c10d_functional::all_reduce_coalesced_": _functional("all_reduce"),
    "_c10d_functional::all_gather_into_tensor": _functional("all_gather"),
    "_c10d_functional::all_gather_into_tensor_out": _functional("all_gather"),
    "_c10d_functional::all_gather_into_tensor_coalesced": _functional("all_gather"),
    "_c10d_functional::reduce_scatter_tensor": _functional("reduce_scatter"),
    "_c10d_functional::reduce_scatter_tensor_out": _functional("reduce_scatter"),
    "_c10d_functional::reduce_scatter_tensor_coalesced": _functional("reduce_scatter"),
    "_c10d_functional::all_to_all_single": _functional_all_to_all,
    "_c10d_functional::broadcast": _functional("broadcast"),
    "_c10d_functional::broadcast_": _functional("broadcast"),
}
