"""What a communicating node of a host trace does: kind, bytes, split sizes, group, peer, and what it waits for.

Reads `record_param_comms`, which NCCL process groups write for every operation, `c10d::*`, the only trace of a gloo
operation, and what a table names (symmetric memory, custom all-reduces).
Bytes are those of the input tensors, which is what `comm_size` means. Pure.
Format: torch/csrc/distributed/c10d/ParamCommsUtils.hpp (arguments of record_param_comms), Ops.cpp (schemas of c10d::*).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, spelled
from etloop.workload.readers.pytorch.execution_trace import C10D, PARAM_COMMS, HostNode, Tensor, tensors
from etloop.workload.readers.pytorch.kernel_table import TableEntry
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

UNKNOWN_GROUP: Final = "<Object>"
"""How PyTorch spells a process group that it did not record."""


ROOTED: Final = (
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)


class Role(Enum):
    """What a communicating node is for."""

    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    WAIT = "wait"
    NOTHING = "nothing"
    """Marks the making of a group, or the begin or end of a batch."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the name of an operation stands for."""

    role: Role
    collective: CollectiveKind | None = None
    coalesced: bool = False
    """Whether it is several operations in one, whose tensors are no parts of one buffer."""


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
# Where the tensors that a c10d operation puts in stand among its arguments; its outputs stand at 0 where this is 1.
_C10D_INPUT: Final = {
    **dict.fromkeys(("allreduce", "allreducecoalesced", "broadcast", "reduce", "send"), 0),
    **dict.fromkeys(("recv", "recvanysource"), 0),
}


@dataclass(frozen=True, slots=True)
class CommOp:
    """One operation as its node tells it."""

    role: Role
    collective: CollectiveKind | None
    label: str
    size_bytes: int
    output_bytes: int
    splits: tuple[int, ...]
    """Bytes for each member; () where the file has none."""
    expected_splits: tuple[int, ...]
    """Bytes from each member; () where the file has none, or does not list the tensors they make up."""
    group: str | int | None
    """Name, integer of an older schema, `UNKNOWN_GROUP`, or None where the node names none."""
    group_ranks: tuple[int, ...]
    """Ranks of the group where the node itself tells them."""
    peer: int | None
    """Rank of the other end inside the group."""
    tag: int
    sequence: int | None
    root: int | None
    """Rank of the root inside the group, of a broadcast, reduce, gather or scatter."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def kind(self) -> NodeKind:
        if self.role is Role.SEND:
            return NodeKind.COMM_SEND
        return NodeKind.COMM_RECV if self.role is Role.RECV else NodeKind.COMM_COLL


def meaning_of(name: str) -> Meaning | None:
    """The meaning of an operation's name as any of PyTorch's layers spells it; None if it is not known."""
    return _MEANINGS.get("".join(c for c in name.lower() if c.isalnum()))


def comm_op(node: HostNode) -> CommOp | None:
    """The operation of a node, None if it is none. Raises `JsonFault` for one that cannot be understood."""
    if node.comm is None:
        return None
    if node.name == PARAM_COMMS:
        return _param_comms(node, node.comm.inputs)
    if node.name.startswith(C10D):
        return _c10d(node, node.comm.inputs)
    if node.comm.listed is not None and node.comm.listed.collective is not None:
        return _listed(node, node.comm.listed, node.comm.inputs)
    return None


def _listed(node: HostNode, entry: TableEntry, values: list[Any]) -> CommOp | None:
    """An operation that a table names: the tensor that it puts in, among the group that it names last."""
    given = [list(tensors([value])) for value in values]
    if entry.argument is not None:
        chosen = given[entry.argument] if entry.argument < len(given) else []
    else:
        chosen = next((some for some in given if some), [])
    if not chosen:
        raise JsonFault(f"{node.place}.inputs", f"{node.name[:64]} has no tensor where its table expects one")
    named = [value for value in values if isinstance(value, str) and value]
    every = list(tensors(values))
    storages = tuple({tensor.storage for tensor in every})
    return CommOp(
        role=Role.COLLECTIVE,
        collective=entry.collective,
        label=node.name,
        size_bytes=total_bytes(chosen, node.place),
        output_bytes=0,
        splits=(),
        expected_splits=(),
        group=entry.group or (named[-1] if named else UNKNOWN_GROUP),
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
    at = next((i for i, one in enumerate(values) if isinstance(one, str) and meaning_of(one)), -1)
    if at < 3:
        named = spelled(node.comm.collective_name or values)
        raise JsonFault(node.place, f"{PARAM_COMMS} of an operation that is not known: {named}")
    label = values[at]
    meaning = meaning_of(label)
    assert meaning is not None
    given = list(tensors(values[: at - 3]))
    made = list(tensors(node.comm.outputs))
    # Only the root of a scatter puts anything in; who does not knows its own part.
    scattered = meaning.collective is CollectiveKind.SCATTER
    size_bytes = total_bytes(given if given or scattered else made, node.place)
    made_bytes = total_bytes(made, node.place)
    group, ranks = _group(values[at - 2], values[at + 3 :])
    return CommOp(
        role=meaning.role,
        collective=meaning.collective,
        label=label,
        size_bytes=size_bytes,
        output_bytes=made_bytes,
        splits=_splits(values[at + 1 : at + 2], size_bytes, given, meaning, node.place),
        expected_splits=_splits(
            values[at + 2 : at + 3], made_bytes, made, meaning, node.place, CollectiveKind.ALL_GATHER
        )
        if made
        else (),
        group=group,
        group_ranks=ranks,
        peer=as_int(values[at - 1], f"{node.place}.inputs") if isinstance(values[at - 1], int) else None,
        tag=ABSENT,
        sequence=_sequence(values[at - 3]),
        root=_root(meaning, values[at - 1 : at]),
        reads=tuple({tensor.storage for tensor in given}),
        writes=tuple({tensor.storage for tensor in made}),
    )


def _root(meaning: Meaning, numbers: Sequence[object]) -> int | None:
    """Where a rooted collective has its root: the rank field of a record, the first number among the arguments of a call."""
    first = numbers[0] if numbers else None
    return first if meaning.collective in ROOTED and type(first) is int and 0 <= first < 1 << 31 else None


def _group(value: object, rest: list[Any]) -> tuple[str | int | None, tuple[int, ...]]:
    """Group of a record: its name, and its ranks where they are given as start, stride and size."""
    name: object = value[0] if isinstance(value, list) and value else value
    if isinstance(name, bool) or not isinstance(name, str | int) or name in ("", 0):
        return None, ()
    start, stride, size = rest if len(rest) == 3 else [-1, -1, *rest[:1], -1][:3]
    if not all(type(one) is int for one in (start, stride, size)) or not 0 < size <= 1 << 20:
        return name, ()
    if start < 0 or start > 1 << 20 or not (0 < stride <= 1 << 20 or size == 1):
        return name, ()
    return name, tuple(start + index * stride for index in range(size))


def _sequence(value: object) -> int | None:
    """Number of the operation, alone or with a mark for point to point; a wait has that of what it waits for."""
    first = value[0] if isinstance(value, list) and value else value
    return first if type(first) is int else None


def _c10d(node: HostNode, values: list[Any]) -> CommOp | None:
    label = node.name.removeprefix(C10D)
    meaning = meaning_of(label)
    if meaning is None or meaning.role in (Role.WAIT, Role.NOTHING):
        return None
    short = "".join(c for c in label.lower() if c.isalnum())
    barrier = meaning.collective is CollectiveKind.BARRIER
    at = _C10D_INPUT.get(short, 1)
    given = [] if barrier else list(tensors(values[at : at + 1]))
    made = [] if barrier or meaning.role is Role.SEND else list(tensors(values[:1]))
    peer, tag = None, ABSENT
    numbers = [one for one in values[1:] if type(one) is int]
    if short in ("send", "recv") and len(numbers) >= 2:
        peer, tag = numbers[0], as_int(numbers[1], node.place)
    size_bytes, made_bytes = total_bytes(given, node.place), total_bytes(made, node.place)
    uneven = short == "alltoallbase"
    expected, row = (values[3:4], values[4:5]) if uneven else ([], [])
    return CommOp(
        role=meaning.role,
        collective=meaning.collective,
        label=label,
        size_bytes=size_bytes,
        output_bytes=made_bytes,
        splits=_splits(row, size_bytes, given, meaning, node.place),
        expected_splits=_splits(expected, made_bytes, made, meaning, node.place, CollectiveKind.ALL_GATHER),
        group=UNKNOWN_GROUP,
        group_ranks=(),
        peer=peer,
        tag=tag,
        sequence=None,
        root=_root(meaning, numbers),
        reads=tuple({tensor.storage for tensor in given}),
        writes=tuple({tensor.storage for tensor in made}),
    )


def total_bytes(some: Sequence[Tensor], place: str) -> int:
    """Bytes of tensors together."""
    return as_int(sum(tensor.size_bytes for tensor in some), f"{place}.inputs", 0)


def _splits(
    row: Sequence[object],
    size_bytes: int,
    given: list[Tensor],
    meaning: Meaning,
    place: str,
    part_of: CollectiveKind = CollectiveKind.REDUCE_SCATTER,
) -> tuple[int, ...]:
    if meaning.collective is not CollectiveKind.ALL_TO_ALL:
        return _parts(given, meaning, part_of)
    counts = [as_int(one, f"{place}.splits", 0) for one in as_list(row[0], f"{place}.splits")] if row else []
    if not counts and len(given) > 1:
        return tuple(tensor.size_bytes for tensor in given)
    return split_bytes(counts, size_bytes, place)


def _parts(some: list[Tensor], meaning: Meaning, part_of: CollectiveKind) -> tuple[int, ...]:
    """Sizes of the tensors of a list that a reduce-scatter puts in, or an all-gather makes, one a member, if they differ."""
    sizes = tuple(tensor.size_bytes for tensor in some)
    is_list = meaning.collective is part_of and not meaning.coalesced
    return sizes if is_list and len(set(sizes)) > 1 else ()


def split_bytes(counts: Sequence[int], size_bytes: int, place: str) -> tuple[int, ...]:
    """Split sizes in bytes. They count rows, of one element or many, that make up the whole buffer together."""
    rows = sum(counts)
    if not counts or (not rows and not size_bytes):
        return tuple(counts)
    if not rows or size_bytes % rows:
        raise JsonFault(
            place, f"has split sizes of {rows} rows together, which do not divide its {size_bytes} bytes"
        )
    return tuple(count * (size_bytes // rows) for count in counts)
