"""Traces written node by node, for tests that need exactly this mistake and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from etloop.workload.trace.trace import ABSENT, CollectiveKind, CommColumns, NodeKind, RankTrace, Rows, Trace


@dataclass(frozen=True, slots=True)
class HandNode:
    """One node; what is left out is absent."""

    node_id: int
    kind: int
    name: str = ""
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: dict[str, int] = field(default_factory=dict)
    pg_name: str | None = None
    stream: int | None = None
    recorded: tuple[int, int] | None = None
    """Begin and duration in ns."""

    def after(self, *node_ids: int) -> HandNode:
        return replace(self, data_deps=(*self.data_deps, *node_ids))

    def ctrl_after(self, *node_ids: int) -> HandNode:
        return replace(self, ctrl_deps=(*self.ctrl_deps, *node_ids))

    def on_stream(self, stream: int) -> HandNode:
        return replace(self, stream=stream)

    def seen(self, start_ns: int, end_ns: int) -> HandNode:
        """Recorded from `start_ns` to `end_ns`."""
        return replace(self, recorded=(start_ns, end_ns - start_ns))

    def without(self, attribute: str) -> HandNode:
        return replace(
            self, attributes={key: one for key, one in self.attributes.items() if key != attribute}
        )

    def having(self, **attributes: int) -> HandNode:
        return replace(self, attributes={**self.attributes, **attributes})


def compute(node_id: int, duration_us: int = 1, **attributes: int) -> HandNode:
    return HandNode(node_id, NodeKind.COMP, f"comp{node_id}", duration_us=duration_us, attributes=attributes)


def collective(
    node_id: int, kind: CollectiveKind, size: int, group: str | None = None, **attributes: int
) -> HandNode:
    return HandNode(
        node_id,
        NodeKind.COMM_COLL,
        f"{kind.name.lower()}{node_id}",
        attributes={"comm_type": kind, "comm_size": size, **attributes},
        pg_name=group,
    )


def all_reduce(node_id: int, size: int = 4096, group: str | None = None) -> HandNode:
    return collective(node_id, CollectiveKind.ALL_REDUCE, size, group)


def send(node_id: int, dst: int, size: int = 4096, tag: int = 0) -> HandNode:
    attributes = {"comm_dst": dst, "comm_size": size, "comm_tag": tag}
    return HandNode(node_id, NodeKind.COMM_SEND, f"send{node_id}", attributes=attributes)


def recv(node_id: int, src: int, size: int = 4096, tag: int = 0) -> HandNode:
    attributes = {"comm_src": src, "comm_size": size, "comm_tag": tag}
    return HandNode(node_id, NodeKind.COMM_RECV, f"recv{node_id}", attributes=attributes)


def trace_of(
    *ranks: list[HandNode], groups: dict[str, tuple[int, ...]] | None = None, schema: str = "0.0.4"
) -> Trace:
    """A trace of the given ranks, as if read from "hand/w.<rank>.et"."""
    return Trace("hand", tuple(_rank(number, nodes, schema) for number, nodes in enumerate(ranks)), groups)


def _rank(number: int, nodes: list[HandNode], schema: str) -> RankTrace:
    names = [node.name.encode() for node in nodes]
    pg_names = tuple(dict.fromkeys(node.pg_name for node in nodes if node.pg_name is not None))

    def attribute(name: str) -> np.ndarray:
        return np.array([node.attributes.get(name, ABSENT) for node in nodes], dtype=np.int64)

    return RankTrace(
        rank=number,
        path=f"hand/w.{number}.et",
        schema=schema,
        node_id=np.array([node.node_id for node in nodes], dtype=np.uint64),
        kind=np.array([node.kind for node in nodes], dtype=np.uint8),
        byte_offset=np.arange(len(nodes), dtype=np.uint64),
        name_offsets=np.cumsum([0, *map(len, names)]).astype(np.uint64),
        name_bytes=b"".join(names),
        data_deps=_rows([node.data_deps for node in nodes]),
        ctrl_deps=_rows([node.ctrl_deps for node in nodes]),
        start_us=np.zeros(len(nodes), dtype=np.uint64),
        duration_us=np.array([node.duration_us for node in nodes], dtype=np.uint64),
        comm=CommColumns(
            type=attribute("comm_type"),
            size=attribute("comm_size"),
            stated_src=attribute("comm_src"),
            stated_dst=attribute("comm_dst"),
            tag=attribute("comm_tag"),
            dims=_optional([node.attributes.get("involved_dims") for node in nodes]),
            root=_optional([node.attributes.get("root") for node in nodes]),
        ),
        is_cpu_op=attribute("is_cpu_op"),
        num_ops=attribute("num_ops"),
        tensor_size=attribute("tensor_size"),
        pg_name=np.array(
            [-1 if node.pg_name is None else pg_names.index(node.pg_name) for node in nodes], dtype=np.int32
        ),
        pg_names=pg_names,
        stream=_optional([node.stream for node in nodes]),
        start_ns=_optional([node.recorded and node.recorded[0] for node in nodes]),
        duration_ns=_optional([node.recorded and node.recorded[1] for node in nodes]),
        moved_bytes=_optional([node.attributes.get("moved_bytes") for node in nodes]),
    )


def _rows(of_node: Sequence[Sequence[int]]) -> Rows[np.uint64]:
    offsets = np.cumsum([0, *map(len, of_node)]).astype(np.int64)
    return Rows(offsets, np.array([one for row in of_node for one in row], dtype=np.uint64))


def _optional(values: Sequence[int | None]) -> np.ndarray | None:
    """A column that a trace need not have."""
    if all(one is None for one in values):
        return None
    return np.array([ABSENT if one is None else one for one in values], dtype=np.int64)
