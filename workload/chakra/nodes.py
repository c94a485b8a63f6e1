"""The columns of a rank back to Chakra nodes, so that any trace that could be read can be written as `.et`.

Decides which attribute, in which value case, stands for which column: the cases that the PyTorch converter writes and
current feeders read. Attributes that no column holds (operator schemas, tensors) are not there to be written.
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
"""Ours: what an uneven all-to-all sends to each member of its communicator, in their order, in bytes (int64_list).
The schema has no attribute for it. Readers that do not know it see an even all-to-all of the same comm_size."""

DIMENSIONS_ATTRIBUTE: Final = "involved_dim"
"""Of old generators: a flag for each dimension of a logical topology (bool_list)."""

START_ATTRIBUTE: Final = "start_nanos"
DURATION_ATTRIBUTE: Final = "duration_nanos"
"""Ours: begin and duration of a node in ns (int64) where they are no whole microseconds, as the schema has them. They go
before start_time_micros and duration_micros, which readers that do not know them take."""

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
    """Return attributes by name, each in its usual value case."""
    return tuple(EtAttribute(name, _CASES[name], value) for name, value in values.items())


def et_nodes(rank: RankTrace) -> Iterator[EtNode]:
    """The nodes of a rank in file order. Times that are no whole microseconds are written in both units; microseconds are
    rounded up, so that no node vanishes for other readers."""
    columns = [(name, case, _column(rank, name).tolist()) for name, case in _COLUMNS.items()]
    ids, kinds, groups = rank.node_id.tolist(), rank.kind.tolist(), rank.pg_name.tolist()
    data, data_at = rank.data_deps.values.tolist(), rank.data_deps.offsets.tolist()
    ctrl, ctrl_at = rank.ctrl_deps.values.tolist(), rank.ctrl_deps.offsets.tolist()
    names, name_at = rank.name_bytes, rank.name_offsets.tolist()
    starts, durations = _microseconds(rank)
    fine = [(START_ATTRIBUTE, _listed(rank.start_ns)), (DURATION_ATTRIBUTE, _listed(rank.duration_ns))]
    moved = _listed(rank.moved_bytes)
    streams = None if rank.stream is None else rank.stream.tolist()
    for i, node_id in enumerate(ids):
        attributes = [_number(name, case, column[i]) for name, case, column in columns if column[i] != ABSENT]
        if groups[i] >= 0:
            attributes += attributes_of(pg_name=rank.pg_names[groups[i]])
        if streams is not None and streams[i] != ABSENT:
            attributes += attributes_of(stream=streams[i])
        attributes += [_number(name, _CASES[name], ns[i]) for name, ns in fine if ns and _needs_ns(ns[i])]
        if splits := _splits(rank, i):
            attributes += attributes_of(**{SPLIT_ATTRIBUTE: splits})
        if flags := _flags(rank, i):
            attributes += attributes_of(**{DIMENSIONS_ATTRIBUTE: flags})
        yield EtNode(
            node_id,
            names[name_at[i] : name_at[i + 1]].decode(errors="replace"),
            _kind(kinds[i]),
            tuple(data[data_at[i] : data_at[i + 1]]),
            tuple(ctrl[ctrl_at[i] : ctrl_at[i + 1]]),
            starts[i],
            durations[i],
            tuple(attributes),
            moved[i] if moved and kinds[i] == NodeKind.STORAGE and moved[i] >= 0 else None,
        )


def _column(rank: RankTrace, name: str) -> NDArray[np.int64]:
    """Return the column of an attribute of the schema."""
    found: NDArray[np.int64] = attrgetter(name.replace("comm_", "comm."))(rank)
    return found


def _kind(kind: int) -> NodeKind:
    """A type that the schema does not have is written as one that means nothing; as such it was read."""
    return NodeKind(kind) if kind <= max(NodeKind) else NodeKind.INVALID


def _number(name: str, case: ValueCase, value: int) -> EtAttribute:
    if case is ValueCase.BOOL:
        return EtAttribute(name, case, bool(value))
    wide = value < 0 if case is ValueCase.UINT64 else not -_INT32_MOST <= value <= _INT32_MOST
    # A value that the usual case cannot hold keeps its meaning in the widest one.
    return EtAttribute(name, ValueCase.INT64 if wide else case, value)


def _splits(rank: RankTrace, index: int) -> tuple[int, ...]:
    return () if rank.send_splits is None else tuple(rank.send_splits[index].tolist())


def _flags(rank: RankTrace, index: int) -> tuple[bool, ...]:
    if rank.comm.dims is None or rank.comm.dims[index] == ABSENT:
        return ()
    value = int(rank.comm.dims[index])
    return tuple(bool(value >> at & 1) for at in range(value >> DIMENSION_COUNT_SHIFT))


def _listed(column: NDArray[np.int64] | None) -> list[int]:
    return [] if column is None else column.tolist()


def _needs_ns(time_ns: int) -> bool:
    """Whether microseconds do not say it; of these 0 says nothing."""
    return time_ns != ABSENT and (time_ns <= 0 or time_ns % _NS_PER_US != 0)


def _microseconds(rank: RankTrace) -> tuple[list[int], list[int]]:
    """Begin and duration of every node; 0 where unknown."""
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
