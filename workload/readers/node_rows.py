"""Converts nodes, one by one, to the columns of a `RankTrace`, for readers of sources other than `.et`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from etloop.workload.trace.shared_columns import offsets_of
from etloop.workload.trace.trace import ABSENT, DIMENSION_COUNT_SHIFT, CommColumns, NodeKind, RankTrace, Rows

MAX_NODE_ID: Final = (1 << 64) - 1


@dataclass(slots=True)
class NodeRow:
    """One node; the fields are those of `RankTrace`, in its units."""

    node_id: int
    name: str
    kind: NodeKind
    data_deps: Sequence[int] = ()
    ctrl_deps: Sequence[int] = ()
    offset: int = 0
    start_us: int = 0
    duration_us: int = 0
    comm_type: int = ABSENT
    comm_size: int = ABSENT
    comm_src: int = ABSENT
    comm_dst: int = ABSENT
    comm_tag: int = ABSENT
    is_cpu_op: int = ABSENT
    num_ops: int = ABSENT
    tensor_size: int = ABSENT
    pg_name: str | None = None
    stream: int = ABSENT
    start_ns: int = ABSENT
    duration_ns: int = ABSENT
    splits: Sequence[int] = ()
    expected_splits: Sequence[int] = ()
    root: int = ABSENT
    involved_dims: int = ABSENT
    """Encoded as in `CommColumns.dims`; `dimension_flags` returns such a value."""
    moved_bytes: int = ABSENT

    def time(self, start_ns: int, duration_ns: int) -> None:
        """Set start and duration in both nanoseconds and microseconds."""
        self.start_us, self.duration_us = max(start_ns, 0) // 1000, (duration_ns + 500) // 1000
        self.start_ns, self.duration_ns = start_ns, duration_ns


def rank_trace(
    rows: Sequence[NodeRow], rank: int, path: str, schema: str, groups: dict[str, tuple[int, ...]] | None
) -> RankTrace:
    """Convert rows to the columns of a `RankTrace`, in their order. A column that no row has is None if `RankTrace`
    allows it."""
    # A name may contain half of a surrogate pair, which JSON can express and UTF-8 cannot.
    names = [row.name.encode(errors="replace") for row in rows]
    pg_names = tuple(dict.fromkeys(row.pg_name for row in rows if row.pg_name is not None))
    pg_index = {name: index for index, name in enumerate(pg_names)}
    sends = _pack_rows([row.splits for row in rows], np.int64)
    receives = _pack_rows([row.expected_splits for row in rows], np.int64)
    stream = _column([row.stream for row in rows])
    start_ns = _column([row.start_ns for row in rows])
    duration_ns = _column([row.duration_ns for row in rows])
    return RankTrace(
        rank=rank,
        path=path,
        schema=schema,
        node_id=_column([row.node_id for row in rows], np.uint64),
        kind=_column([int(row.kind) for row in rows], np.uint8),
        byte_offset=_column([row.offset for row in rows], np.uint64),
        name_offsets=_read_only(offsets_of([len(name) for name in names]).astype(np.uint64)),
        name_bytes=b"".join(names),
        data_deps=_pack_rows([row.data_deps for row in rows], np.uint64),
        ctrl_deps=_pack_rows([row.ctrl_deps for row in rows], np.uint64),
        start_us=_column([row.start_us for row in rows], np.uint64),
        duration_us=_column([row.duration_us for row in rows], np.uint64),
        comm=CommColumns(
            type=_column([row.comm_type for row in rows]),
            size=_column([row.comm_size for row in rows]),
            stated_src=_column([row.comm_src for row in rows]),
            stated_dst=_column([row.comm_dst for row in rows]),
            tag=_column([row.comm_tag for row in rows]),
            dims=_unless_absent(_column([row.involved_dims for row in rows])),
            root=_unless_absent(_column([row.root for row in rows])),
        ),
        is_cpu_op=_column([row.is_cpu_op for row in rows]),
        num_ops=_column([row.num_ops for row in rows]),
        tensor_size=_column([row.tensor_size for row in rows]),
        pg_name=_column([-1 if row.pg_name is None else pg_index[row.pg_name] for row in rows], np.int32),
        pg_names=pg_names,
        stream=_unless_absent(stream),
        start_ns=_unless_absent(start_ns),
        duration_ns=_unless_absent(duration_ns),
        send_splits=sends if len(sends.values) else None,
        recv_splits=receives if len(receives.values) else None,
        moved_bytes=_unless_absent(_column([row.moved_bytes for row in rows])),
        groups=groups or None,
    )


def dimension_flags(flags: Sequence[bool]) -> int:
    """Return the `involved_dims` value of up to 32 flags; `ABSENT` for an empty list."""
    number = sum(1 << dim for dim, flag in enumerate(flags) if flag)
    return len(flags) << DIMENSION_COUNT_SHIFT | number if flags else ABSENT


def _read_only(column: Any) -> Any:
    column.flags.writeable = False
    return column


def _column(values: list[int], dtype: Any = np.int64) -> Any:
    return _read_only(np.array(values, dtype=dtype))


def _unless_absent(column: Any) -> Any:
    return column if bool((column != ABSENT).any()) else None


def _pack_rows(lists: list[Sequence[int]], dtype: Any) -> Rows[Any]:
    offsets = _read_only(offsets_of([len(row) for row in lists]))
    return Rows(offsets, _column([value for row in lists for value in row], dtype))
