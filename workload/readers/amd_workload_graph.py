"""Reads AMD's `workload_graph` JSON into nodes: `{"workload_graph": [{"Id", "Name", "NodeType", "data_deps", ...}]}`.

This is the form that Chakra's feeder reads as `json_node`. Node types are the current numbers, runtime is in
microseconds. Published files have every "id" replaced by "Id", even inside names, so keys are matched in any case.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from etloop.workload.readers.json_stream import (
    JsonFault,
    as_int,
    as_list,
    as_object,
    as_text,
    check_node_count,
    members,
    spell,
)
from etloop.workload.readers.node_rows import MAX_NODE_ID, NodeRow, dimension_flags
from etloop.workload.trace.settings import MOST_DIMENSIONS
from etloop.workload.trace.trace import CollectiveKind, NodeKind

GRAPH_KEY: Final = "workload_graph"

MAX_US: Final = 1 << 53

_INTEGERS: Final = ("comm_size", "comm_src", "comm_dst", "comm_tag", "num_ops", "tensor_size")


def read_workload_graph(pieces: Iterable[bytes]) -> list[NodeRow]:
    """Return the nodes of one rank in file order. Raises `JsonFault`."""
    rows = []
    has_graph = False
    for item in members(pieces, frozenset({GRAPH_KEY})):
        if item.key != GRAPH_KEY:
            continue
        has_graph = True
        if item.index < 0:
            as_list(item.value, item.place)
        else:
            check_node_count(item.index + 1, item.place)
            rows.append(_row(as_object(item.value, item.place), item.place, item.offset))
    if not has_graph:
        raise JsonFault(GRAPH_KEY, "is missing")
    return rows


def _row(node: dict[str, Any], place: str, offset: int) -> NodeRow:
    fields = {key.lower(): value for key, value in node.items()}
    if "id" not in fields or "nodetype" not in fields:
        raise JsonFault(place, "needs Id and NodeType")
    runtime = fields.get("runtime", fields.get("duration_micros", 0))
    row = NodeRow(
        node_id=as_int(fields["id"], f"{place}.Id", 0, MAX_NODE_ID),
        name=as_text(fields.get("name", ""), f"{place}.Name"),
        kind=_kind(fields["nodetype"], f"{place}.NodeType"),
        data_deps=_ids(fields.get("data_deps", fields.get("datadeps", [])), f"{place}.data_deps"),
        ctrl_deps=_ids(fields.get("ctrldeps", fields.get("ctrl_deps", [])), f"{place}.ctrlDeps"),
        offset=offset,
        duration_us=as_int(runtime, f"{place}.runtime", 0, MAX_US),
    )
    if "is_cpu_op" in fields:
        value = fields["is_cpu_op"]
        row.is_cpu_op = int(value) if isinstance(value, bool) else as_int(value, f"{place}.is_cpu_op", 0, 1)
    fill_integers(row, fields, place)
    if "involved_dim" in fields:
        row.involved_dims = as_dimensions(fields["involved_dim"], f"{place}.involved_dim")
    for name in ("pg_name", "comm_group"):
        if name in fields:
            value = fields[name]
            row.pg_name = value if isinstance(value, str) else str(as_int(value, f"{place}.{name}"))
    return row


def _kind(value: object, place: str) -> NodeKind:
    return NodeKind(as_int(value, place, 0, max(NodeKind)))


def _ids(value: object, place: str) -> list[int]:
    """Parse a list of node ids. Most nodes have many, so the place of an id is computed only for an invalid one."""
    ids = as_list(value, place)
    if all(type(node_id) is int and 0 <= node_id <= MAX_NODE_ID for node_id in ids):
        return ids
    return [as_int(node_id, f"{place}[{index}]", 0, MAX_NODE_ID) for index, node_id in enumerate(ids)]


def as_dimensions(value: object, place: str) -> int:
    """Return `NodeRow.involved_dims` from a flag or a list of flags. Raises `JsonFault`."""
    flags = [value] if isinstance(value, bool) else as_list(value, place)
    if len(flags) > MOST_DIMENSIONS:
        raise JsonFault(place, f"has {len(flags)} dimensions, the limit is {MOST_DIMENSIONS}")
    for index, flag in enumerate(flags):
        if not isinstance(flag, bool):
            raise JsonFault(f"{place}[{index}]", f"expected true or false, found {spell(flag)}")
    return dimension_flags(flags)


def fill_integers(row: NodeRow, stated: Mapping[str, Any], place: str) -> None:
    """Copy the integer attributes of a node, and its collective, into `row`. Raises `JsonFault`."""
    for name in _INTEGERS:
        if name in stated:
            setattr(row, name, as_int(stated[name], f"{place}.{name}"))
    if "comm_type" in stated:
        row.comm_type = _collective_number(stated["comm_type"], f"{place}.comm_type")


def _collective_number(value: object, place: str) -> int:
    """Parse a collective given by its number or by its name in the schema."""
    if isinstance(value, str) and value.upper() in CollectiveKind.__members__:
        return int(CollectiveKind[value.upper()])
    return as_int(value, place)
