"""Reads the output of `chakra_jsonizer` for an `.et` file into nodes: a sequence of protocol-buffer JSON objects.

Protocol buffers write field names in camel case, 64-bit integers as strings and enums by name, and omit zero values,
so a node without an id is node 0. The first object is the `GlobalMetadata`. Attributes are accepted in any value
case, as by the `.et` reader; among lists, only `involved_dim` is used. Pure.

Format: protobuf.dev, "ProtoJSON Format"; field names of mlcommons/chakra:schema/protobuf/et_def.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from etloop.workload.chakra.nodes import DURATION_ATTRIBUTE, START_ATTRIBUTE
from etloop.workload.readers.amd_workload_graph import MAX_US, as_dimensions, fill_integers
from etloop.workload.readers.json_stream import (
    JsonFault,
    as_int,
    as_list,
    as_object,
    as_text,
    check_node_count,
    documents,
    spell,
)
from etloop.workload.readers.node_rows import MAX_NODE_ID, NodeRow
from etloop.workload.trace.trace import ABSENT, NodeKind

NODE_KEYS: Final = frozenset({"id", "name", "type", "ctrlDeps", "dataDeps", "durationMicros", "attr"})
"""Keys of a printed `Node`."""

_METADATA_KEYS: Final = frozenset({"version", "attr"})
_STREAM: Final = "stream"
_STORAGE_SIZES: Final = (("fs", "sizeBytes", 1), ("page", "nrPages", 4096), ("block", "nrSectors", 512))
"""Kinds of operation in a StorageInfo: field of the operation, field of its amount, bytes per unit of the amount."""

MAX_MOVED_BYTES: Final = (1 << 63) - 1


def read_jsonizer(pieces: Iterable[bytes]) -> tuple[list[NodeRow], str]:
    """Return the nodes of one rank in file order, and the schema that the file states ("" for none). Raises
    `JsonFault`."""
    rows = []
    schema = ""
    for item in documents(pieces):
        value = as_object(item.value, item.place)
        if item.index == 0 and not value.keys() - _METADATA_KEYS:
            schema = _schema(value, item.place)
        else:
            check_node_count(item.index, item.place)
            rows.append(_row(value, f"node {item.index}", item.offset))
    return rows, schema


def _schema(metadata: dict[str, Any], place: str) -> str:
    version = as_text(metadata.get("version", ""), f"{place}.version")
    schema = _attributes(metadata, place).get("schema", "")
    return version or (schema if isinstance(schema, str) else "")


def _row(node: dict[str, Any], place: str, offset: int) -> NodeRow:
    attributes = _attributes(node, place)
    row = NodeRow(
        node_id=as_int(node.get("id", 0), f"{place}.id", 0, MAX_NODE_ID),
        name=as_text(node.get("name", ""), f"{place}.name"),
        kind=_kind(node.get("type", 0), f"{place}.type"),
        data_deps=_ids(node, "dataDeps", place),
        ctrl_deps=_ids(node, "ctrlDeps", place),
        offset=offset,
        start_us=as_int(node.get("startTimeMicros", 0), f"{place}.startTimeMicros", 0, MAX_US),
        duration_us=as_int(node.get("durationMicros", 0), f"{place}.durationMicros", 0, MAX_US),
    )
    fill_integers(row, attributes, place)
    if "is_cpu_op" in attributes:
        on_cpu = attributes["is_cpu_op"]
        row.is_cpu_op = int(on_cpu if isinstance(on_cpu, bool) else as_int(on_cpu, f"{place}.is_cpu_op") != 0)
    for name in ("pg_name", "comm_group"):
        if name in attributes:
            row.pg_name = str(attributes[name])
    if row.kind is NodeKind.STORAGE and "storage" in node:
        row.moved_bytes = _moved_bytes(as_object(node["storage"], f"{place}.storage"), f"{place}.storage")
    if START_ATTRIBUTE in attributes:
        row.start_ns = as_int(attributes[START_ATTRIBUTE], f"{place}.{START_ATTRIBUTE}")
    if DURATION_ATTRIBUTE in attributes:
        row.duration_ns = as_int(attributes[DURATION_ATTRIBUTE], f"{place}.{DURATION_ATTRIBUTE}")
    if "involved_dim" in attributes:
        row.involved_dims = as_dimensions(attributes["involved_dim"], f"{place}.involved_dim")
    if _STREAM in attributes and row.is_cpu_op != 1:
        row.stream = as_int(attributes[_STREAM], f"{place}.{_STREAM}")
    return row


def _moved_bytes(storage: dict[str, Any], place: str) -> int:
    """Return the bytes that the operation of a StorageInfo moves, `ABSENT` if it states none."""
    for operation_field, amount_field, unit_bytes in _STORAGE_SIZES:
        operation = as_object(storage.get(operation_field, {}), f"{place}.{operation_field}")
        if amount_field in operation:
            amount = as_int(
                operation[amount_field],
                f"{place}.{operation_field}.{amount_field}",
                0,
                MAX_MOVED_BYTES // unit_bytes,
            )
            return amount * unit_bytes
    return ABSENT


def _attributes(message: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the attributes that have a single value, by name."""
    attributes = {}
    for index, entry in enumerate(as_list(message.get("attr", []), f"{place}.attr")):
        entry_place = f"{place}.attr[{index}]"
        attribute = as_object(entry, entry_place)
        name = as_text(attribute.get("name", ""), f"{entry_place}.name")
        values = [value for key, value in attribute.items() if key.endswith("Val")]
        if isinstance(flags := attribute.get("boolList"), dict):
            values.append(as_list(flags.get("values", []), f"{entry_place}.boolList.values"))
        if len(values) > 1:
            raise JsonFault(entry_place, f"has {len(values)} values")
        if values and not isinstance(values[0], dict):
            attributes[name] = values[0]
    return attributes


def _kind(value: object, place: str) -> NodeKind:
    if isinstance(value, str):
        name = value.removesuffix("_NODE")
        if name in NodeKind.__members__:
            return NodeKind[name]
        raise JsonFault(place, f"expected a node type of the schema, found {spell(value)}")
    return NodeKind(as_int(value, place, 0, max(NodeKind)))


def _ids(node: dict[str, Any], key: str, place: str) -> list[int]:
    return [
        as_int(node_id, f"{place}.{key}[{index}]", 0, MAX_NODE_ID)
        for index, node_id in enumerate(as_list(node.get(key, []), f"{place}.{key}"))
    ]
