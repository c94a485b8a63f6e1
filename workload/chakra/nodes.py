"""Converts the columns of a rank back to Chakra nodes, so that any readable trace can be written as `.et`.

Decides which attribute, in which value case, represents which column: the cases that the PyTorch converter writes
and current feeders read. Attributes that no column holds (operator schemas, tensors) cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from etloop.workload.chakra.encoder import EtAttribute, EtNode, Scalar, ValueCase
from etloop.workload.trace.trace import ABSENT, DIMENSION_COUNT_SHIFT, NodeKind, RankTrace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPLIT_ATTRIBUTE: Final = "in_split_bytes"
"""ETLoop's own attribute (int64_list): bytes that an uneven all-to-all sends to each member of its communicator, in
member order. The schema has no attribute for it. Readers that do not know it see an even all-to-all of the same
comm_size."""

DIMENSIONS_ATTRIBUTE: Final = "involved_dim"
"""Attribute of old generators (bool_list): one flag per dimension of a logical topology."""

START_ATTRIBUTE: Final = "start_nanos"
DURATION_ATTRIBUTE: Final = "duration_nanos"
"""ETLoop's own attributes (int64): start and duration of a node in ns, written if they are not whole microseconds, the
unit of the schema. They take precedence over start_time_micros and duration_micros, which other readers use."""

_NS_PER_US: Final = 1000

_COLUMNS: Final = {
    "is_cpu_op": ValueCase.BOOL,
    "comm_type": ValueCase.INT64,
    "comm_size": ValueCase.INT64,
    "comm_src": ValueCase.INT32,
    "comm_dst": ValueCase.INT32,
    "comm_tag": ValueCase.INT32,
    "num_ops": ValueCase.INT64,
    "tensor_size": ValueCase.UINT64,
}
_CASES: Final = {
    **_COLUMNS,
    "pg_name": ValueCase.STRING,
    "stream": ValueCase.INT64,
    SPLIT_ATTRIBUTE: ValueCase.INT64,
    DIMENSIONS_ATTRIBUTE: ValueCase.BOOL,
    START_ATTRIBUTE: ValueCase.INT64,
    DURATION_ATTRIBUTE: ValueCase.INT64,
}
_INT32_MOST: Final = (1 << 31) - 1


def attributes_of(**values: Scalar | tuple[Scalar, ...]) -> tuple[EtAttribute, ...]:
    """Return attributes by name, each in its usual value case. Raises KeyError for a name without one."""
    return tuple(EtAttribute(name, _CASES[name], value) for name, value in values.items())


def et_nodes(rank: RankTrace) -> Iterator[EtNode]:
    """Yield the nodes of a rank in file order.

    Times that are not whole microseconds are written in both units. Durations in microseconds are rounded up, so
    that other readers see no node of zero length.
    """
    columns = [(name, case, _column(rank, name).tolist()) for name, case in _COLUMNS.items()]
    ids, kinds, groups = rank.node_id.tolist(), rank.kind.tolist(), rank.pg_name.tolist()
    data, data_offsets = rank.data_deps.values.tolist(), rank.data_deps.offsets.tolist()
    ctrl, ctrl_offsets = rank.ctrl_deps.values.tolist(), rank.ctrl_deps.offsets.tolist()
    names, name_offsets = rank.name_bytes, rank.name_offsets.tolist()
    starts, durations = _microseconds(rank)
    ns_attributes = [
        (START_ATTRIBUTE, _to_list(rank.start_ns)),
        (DURATION_ATTRIBUTE, _to_list(rank.duration_ns)),
    ]
    moved_bytes = _to_list(rank.moved_bytes)
    streams = None if rank.stream is None else rank.stream.tolist()
    for i, node_id in enumerate(ids):
        attributes = [_number(name, case, column[i]) for name, case, column in columns if column[i] != ABSENT]
        if groups[i] >= 0:
            attributes += attributes_of(pg_name=rank.pg_names[groups[i]])
        if streams is not None and streams[i] != ABSENT:
            attributes += attributes_of(stream=streams[i])
        attributes += [
            _number(name, _CASES[name], ns[i]) for name, ns in ns_attributes if ns and _needs_ns(ns[i])
        ]
        if splits := _splits(rank, i):
            attributes += attributes_of(**{SPLIT_ATTRIBUTE: splits})
        if flags := _flags(rank, i):
            attributes += attributes_of(**{DIMENSIONS_ATTRIBUTE: flags})
        yield EtNode(
            node_id,
            names[name_offsets[i] : name_offsets[i + 1]].decode(errors="replace"),
            _kind(kinds[i]),
            tuple(data[data_offsets[i] : data_offsets[i + 1]]),
            tuple(ctrl[ctrl_offsets[i] : ctrl_offsets[i + 1]]),
            starts[i],
            durations[i],
            tuple(attributes),
            moved_bytes[i] if moved_bytes and kinds[i] == NodeKind.STORAGE and moved_bytes[i] >= 0 else None,
        )


def _column(rank: RankTrace, name: str) -> NDArray[np.int64]:
    """Return the column that holds an attribute of the schema, int64 [nodes]."""
    column: NDArray[np.int64] = attrgetter(name.replace("comm_", "comm."))(rank)
    return column


def _kind(kind: int) -> NodeKind:
    """Return the node type to write: INVALID for a type that the schema does not have."""
    return NodeKind(kind) if kind <= max(NodeKind) else NodeKind.INVALID


def _number(name: str, case: ValueCase, value: int) -> EtAttribute:
    if case is ValueCase.BOOL:
        return EtAttribute(name, case, bool(value))
    needs_int64 = value < 0 if case is ValueCase.UINT64 else not -_INT32_MOST <= value <= _INT32_MOST
    # A value that the usual case cannot represent is written as int64.
    return EtAttribute(name, ValueCase.INT64 if needs_int64 else case, value)


def _splits(rank: RankTrace, index: int) -> tuple[int, ...]:
    return () if rank.send_splits is None else tuple(rank.send_splits[index].tolist())


def _flags(rank: RankTrace, index: int) -> tuple[bool, ...]:
    if rank.comm.dims is None or rank.comm.dims[index] == ABSENT:
        return ()
    value = int(rank.comm.dims[index])
    return tuple(bool(value >> bit & 1) for bit in range(value >> DIMENSION_COUNT_SHIFT))


def _to_list(column: NDArray[np.int64] | None) -> list[int]:
    return [] if column is None else column.tolist()


def _needs_ns(time_ns: int) -> bool:
    """Decide whether whole microseconds cannot express this time: they have no fraction, and 0 means unknown."""
    return time_ns != ABSENT and (time_ns <= 0 or time_ns % _NS_PER_US != 0)


def _microseconds(rank: RankTrace) -> tuple[list[int], list[int]]:
    """Return start and duration of every node in microseconds; 0 where unknown."""
    starts: list[int] = rank.start_us.tolist()
    durations: list[int] = rank.duration_us.tolist()
    if rank.start_ns is not None:
        starts = [
            us if ns == ABSENT or ns < 0 else ns // _NS_PER_US
            for us, ns in zip(starts, rank.start_ns.tolist(), strict=True)
        ]
    if rank.duration_ns is not None:
        durations = [
            us if ns == ABSENT or ns < 0 else -(-ns // _NS_PER_US)
            for us, ns in zip(durations, rank.duration_ns.tolist(), strict=True)
        ]
    return starts, durations
