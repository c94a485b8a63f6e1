"""Reads what a communicating node of a host trace does: kind, bytes, split sizes, group, peer, and the storages it
uses.

Parses `record_param_comms`, which NCCL process groups write for every operation, `c10d::*`, the only trace of a gloo
operation, and operations named in a table (symmetric memory, custom all-reduces). Sizes are those of the input
tensors, as `comm_size` requires. Pure.

Format: torch/csrc/distributed/c10d/ParamCommsUtils.hpp (arguments of record_param_comms), Ops.cpp (schemas of
c10d::*).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, spell
from etloop.workload.readers.pytorch.execution_trace import C10D, PARAM_COMMS, HostNode, Tensor, tensors
from etloop.workload.readers.pytorch.kernel_table import TableEntry
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

UNKNOWN_GROUP: Final = "<Object>"
"""PyTorch's text for a process group that it did not record."""


ROOTED: Final = (
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)


class Role(Enum):
    """Purpose of a communicating node."""

    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    WAIT = "wait"
    NOTHING = "nothing"
    """The node creates a group, or begins or ends a batch."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of the name of an operation."""

    role: Role
    collective: CollectiveKind | None = None
    coalesced: bool = False
    """Whether it is several operations in one, with tensors that are not parts of one buffer."""


_PLAIN: Final = {
    CollectiveKind.ALL_REDUCE: "allreduce allreducesparse allreducecoalesced",
    CollectiveKind.REDUCE: "reduce reduceoop",
    CollectiveKind.ALL_GATHER: "allgather allgatheroop allgatherbase allgathercoalesced allgatherintotensorcoalesced"
    " allgatherintotensor",
    CollectiveKind.GATHER: "gather",
    CollectiveKind.SCATTER: "scatter",
    CollectiveKind.BROADCAST: "broadcast broadcastoop",
    CollectiveKind.ALL_TO_ALL: "alltoall alltoallv alltoallbase alltoallsingle",
    CollectiveKind.REDUCE_SCATTER: "reducescatter reducescatteroop reducescatterbase reducescattertensorcoalesced"
    " reducescattertensor",
    CollectiveKind.BARRIER: "barrier monitoredbarrier",
}
_MEANINGS: Final = {
    **{
        name: Meaning(Role.COLLECTIVE, kind, "coalesced" in name)
        for kind, names in _PLAIN.items()
        for name in names.split()
    },
    "send": Meaning(Role.SEND),
    **dict.fromkeys(("recv", "recvanysource"), Meaning(Role.RECV)),
    "wait": Meaning(Role.WAIT),
    **dict.fromkeys(("init", "startcoalescing", "endcoalescing", "coalesced"), Meaning(Role.NOTHING)),
}
# Index of a c10d operation's input tensors among its arguments, 1 by default; with 1, its outputs are at index 0.
_C10D_INPUT: Final = {
    **dict.fromkeys(("allreduce", "allreducecoalesced", "broadcast", "reduce", "send"), 0),
    **dict.fromkeys(("recv", "recvanysource"), 0),
}


@dataclass(frozen=True, slots=True)
class CommOp:
    """One operation as its node describes it."""

    role: Role
    collective: CollectiveKind | None
    label: str
    size_bytes: int
    output_bytes: int
    splits: tuple[int, ...]
    """Bytes to each member; () if the file has none."""
    expected_splits: tuple[int, ...]
    """Bytes from each member; () if the file has none, or does not list the output tensors."""
    group: str | int | None
    """Name, integer of an older schema, `UNKNOWN_GROUP`, or None if the node names none."""
    group_ranks: tuple[int, ...]
    """Ranks of the group if the node itself lists them."""
    peer: int | None
    """Rank of the other end within the group."""
    tag: int
    sequence: int | None
    root: int | None
    """Rank within the group of the root of a broadcast, reduce, gather or scatter."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def kind(self) -> NodeKind:
        """Return the node type that the operation becomes."""
        if self.role is Role.SEND:
            return NodeKind.COMM_SEND
        return NodeKind.COMM_RECV if self.role is Role.RECV else NodeKind.COMM_COLL


def meaning_of(name: str) -> Meaning | None:
    """Return the meaning of an operation's name as any of PyTorch's layers spells it; None if it is unknown."""
    return _MEANINGS.get("".join(c for c in name.lower() if c.isalnum()))


def comm_op(node: HostNode) -> CommOp | None:
    """Return the operation of a node, None if it has none. Raises `JsonFault` for one that cannot be interpreted."""
    if node.comm is None:
        return None
    if node.name == PARAM_COMMS:
        return _param_comms(node, node.comm.inputs)
    if node.name.startswith(C10D):
        return _c10d(node, node.comm.inputs)
    if node.comm.listed is not None and node.comm.listed.collective is not None:
        return _table_operation(node, node.comm.listed, node.comm.inputs)
    return None


def _table_operation(node: HostNode, entry: TableEntry, values: list[Any]) -> CommOp | None:
    """Return an operation named in a table: its input tensor, and as its group the last name among the arguments.
    Raises `JsonFault`."""
    tensors_by_argument = [list(tensors([value])) for value in values]
    if entry.argument is not None:
        inputs = tensors_by_argument[entry.argument] if entry.argument < len(tensors_by_argument) else []
    else:
        inputs = next((argument_tensors for argument_tensors in tensors_by_argument if argument_tensors), [])
    if not inputs:
        raise JsonFault(
            f"{node.place}.inputs",
            f"{node.name[:64]} has no tensor at the argument that the operation table names",
        )
    texts = [value for value in values if isinstance(value, str) and value]
    all_tensors = list(tensors(values))
    storages = tuple({tensor.storage for tensor in all_tensors})
    return CommOp(
        role=Role.COLLECTIVE,
        collective=entry.collective,
        label=node.name,
        size_bytes=total_bytes(inputs, node.place),
        output_bytes=0,
        splits=(),
        expected_splits=(),
        group=entry.group or (texts[-1] if texts else UNKNOWN_GROUP),
        group_ranks=(),
        peer=None,
        tag=ABSENT,
        sequence=None,
        root=None,
        reads=storages,
        writes=storages,
    )


def _param_comms(node: HostNode, values: list[Any]) -> CommOp:
    assert node.comm is not None
    label_index = next(
        (i for i, value in enumerate(values) if isinstance(value, str) and meaning_of(value)), -1
    )
    if label_index < 3:
        shown_name = spell(node.comm.collective_name or values)
        raise JsonFault(node.place, f"{PARAM_COMMS} of an unknown operation: {shown_name}")
    label = values[label_index]
    meaning = meaning_of(label)
    assert meaning is not None
    inputs = list(tensors(values[: label_index - 3]))
    outputs = list(tensors(node.comm.outputs))
    # Only the root of a scatter has inputs; any other operation without inputs is sized by its outputs.
    is_scatter = meaning.collective is CollectiveKind.SCATTER
    size_bytes = total_bytes(inputs if inputs or is_scatter else outputs, node.place)
    output_bytes = total_bytes(outputs, node.place)
    group, ranks = _group(values[label_index - 2], values[label_index + 3 :])
    return CommOp(
        role=meaning.role,
        collective=meaning.collective,
        label=label,
        size_bytes=size_bytes,
        output_bytes=output_bytes,
        splits=_splits(values[label_index + 1 : label_index + 2], size_bytes, inputs, meaning, node.place),
        expected_splits=_splits(
            values[label_index + 2 : label_index + 3],
            output_bytes,
            outputs,
            meaning,
            node.place,
            CollectiveKind.ALL_GATHER,
        )
        if outputs
        else (),
        group=group,
        group_ranks=ranks,
        peer=as_int(values[label_index - 1], f"{node.place}.inputs")
        if isinstance(values[label_index - 1], int)
        else None,
        tag=ABSENT,
        sequence=_sequence(values[label_index - 3]),
        root=_root(meaning, values[label_index - 1 : label_index]),
        reads=tuple({tensor.storage for tensor in inputs}),
        writes=tuple({tensor.storage for tensor in outputs}),
    )


def _root(meaning: Meaning, numbers: Sequence[object]) -> int | None:
    """Return the root of a rooted collective: the rank field of a record, or the first number among the arguments of a
    call."""
    first = numbers[0] if numbers else None
    return first if meaning.collective in ROOTED and type(first) is int and 0 <= first < 1 << 31 else None


def _group(value: object, rest: list[Any]) -> tuple[str | int | None, tuple[int, ...]]:
    """Return the group of a record: its name, and its ranks if they are given as start, stride and size."""
    name: object = value[0] if isinstance(value, list) and value else value
    if isinstance(name, bool) or not isinstance(name, str | int) or name in ("", 0):
        return None, ()
    start, stride, size = rest if len(rest) == 3 else [-1, -1, *rest[:1], -1][:3]
    if not all(type(number) is int for number in (start, stride, size)) or not 0 < size <= 1 << 20:
        return name, ()
    if start < 0 or start > 1 << 20 or not (0 < stride <= 1 << 20 or size == 1):
        return name, ()
    return name, tuple(start + index * stride for index in range(size))


def _sequence(value: object) -> int | None:
    """Return the number of the operation, given alone or with a point-to-point flag. A wait has the number of the
    operation it awaits."""
    first = value[0] if isinstance(value, list) and value else value
    return first if type(first) is int else None


def _c10d(node: HostNode, values: list[Any]) -> CommOp | None:
    label = node.name.removeprefix(C10D)
    meaning = meaning_of(label)
    if meaning is None or meaning.role in (Role.WAIT, Role.NOTHING):
        return None
    plain_label = "".join(c for c in label.lower() if c.isalnum())
    is_barrier = meaning.collective is CollectiveKind.BARRIER
    input_index = _C10D_INPUT.get(plain_label, 1)
    inputs = [] if is_barrier else list(tensors(values[input_index : input_index + 1]))
    outputs = [] if is_barrier or meaning.role is Role.SEND else list(tensors(values[:1]))
    peer, tag = None, ABSENT
    numbers = [value for value in values[1:] if type(value) is int]
    if plain_label in ("send", "recv") and len(numbers) >= 2:
        peer, tag = numbers[0], as_int(numbers[1], node.place)
    size_bytes, output_bytes = total_bytes(inputs, node.place), total_bytes(outputs, node.place)
    has_splits = plain_label == "alltoallbase"
    recv_splits, send_splits = (values[3:4], values[4:5]) if has_splits else ([], [])
    return CommOp(
        role=meaning.role,
        collective=meaning.collective,
        label=label,
        size_bytes=size_bytes,
        output_bytes=output_bytes,
        splits=_splits(send_splits, size_bytes, inputs, meaning, node.place),
        expected_splits=_splits(
            recv_splits, output_bytes, outputs, meaning, node.place, CollectiveKind.ALL_GATHER
        ),
        group=UNKNOWN_GROUP,
        group_ranks=(),
        peer=peer,
        tag=tag,
        sequence=None,
        root=_root(meaning, numbers),
        reads=tuple({tensor.storage for tensor in inputs}),
        writes=tuple({tensor.storage for tensor in outputs}),
    )


def total_bytes(some: Sequence[Tensor], place: str) -> int:
    """Return the total bytes of tensors. Raises `JsonFault` if it is not a valid size."""
    return as_int(sum(tensor.size_bytes for tensor in some), f"{place}.inputs", 0)


def _splits(
    row: Sequence[object],
    size_bytes: int,
    tensor_list: list[Tensor],
    meaning: Meaning,
    place: str,
    part_of: CollectiveKind = CollectiveKind.REDUCE_SCATTER,
) -> tuple[int, ...]:
    if meaning.collective is not CollectiveKind.ALL_TO_ALL:
        return _parts(tensor_list, meaning, part_of)
    counts = (
        [as_int(count, f"{place}.splits", 0) for count in as_list(row[0], f"{place}.splits")] if row else []
    )
    if not counts and len(tensor_list) > 1:
        return tuple(tensor.size_bytes for tensor in tensor_list)
    return split_bytes(counts, size_bytes, place)


def _parts(some: list[Tensor], meaning: Meaning, part_of: CollectiveKind) -> tuple[int, ...]:
    """Return the sizes of a tensor list with one tensor per member (inputs of a reduce-scatter, outputs of an
    all-gather), if they differ."""
    sizes = tuple(tensor.size_bytes for tensor in some)
    is_list = meaning.collective is part_of and not meaning.coalesced
    return sizes if is_list and len(set(sizes)) > 1 else ()


def split_bytes(counts: Sequence[int], size_bytes: int, place: str) -> tuple[int, ...]:
    """Return split sizes in bytes. `counts` are in rows, of one element or many, that together make up the whole
    buffer. Raises `JsonFault` if they do not divide it."""
    rows = sum(counts)
    if not counts or (not rows and not size_bytes):
        return tuple(counts)
    if not rows or size_bytes % rows:
        raise JsonFault(
            place, f"has split sizes of {rows} rows in total, which do not divide its {size_bytes} bytes"
        )
    return tuple(count * (size_bytes // rows) for count in counts)
