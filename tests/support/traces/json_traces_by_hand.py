"""Small PyTorch and Kineto traces as their writers spell them, for tests of the readers."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def tensor(number: int, storage: int, numel: int, item_bytes: int = 4) -> list[Any]:
    """A tensor argument of a host trace."""
    return [number, storage, 0, numel, item_bytes, "cuda:0"]


def call(
    node_id: int,
    name: str,
    inputs: list[Any] | None = None,
    outputs: list[Any] | None = None,
    *,
    parent: int = 2,
    thread: int = 1,
    record: int | None = None,
    **attributes: Any,
) -> Json:
    """A node of the nested layout (schema 1.0.2 and later); unknown keywords become attributes."""
    attrs = {"rf_id": node_id if record is None else record, "tid": thread, **attributes}
    return {
        "id": node_id,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": inputs or [], "shapes": [], "types": []},
        "outputs": {"values": outputs or [], "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "int64", "value": value} for key, value in attrs.items()],
    }


def flat(node: Json) -> Json:
    """The same node in the layout of schema 1.0.1."""
    attributes = {entry["name"]: entry["value"] for entry in node["attrs"]}
    return {
        "id": node["id"],
        "name": node["name"],
        "parent": node["ctrl_deps"],
        "inputs": node["inputs"]["values"],
        "outputs": node["outputs"]["values"],
        **attributes,
    }


def comms(
    node_id: int,
    operation: str,
    given: list[Any],
    made: list[Any] | None = None,
    *,
    group: Any = ("0", "default_pg"),
    sequence: Any = 1,
    peer: int = 0,
    splits: tuple[int, ...] = (),
    where: tuple[int, ...] = (-1, -1, 1),
    **keywords: Any,
) -> Json:
    """A record_param_comms node. `where`: start, stride and size of the group."""
    group = list(group) if isinstance(group, tuple) else group
    values = [*given, sequence, group, peer, operation, list(splits), [], *where]
    return call(node_id, "record_param_comms", values, given if made is None else made, **keywords)


def wait(node_id: int, sequence: int, **keywords: Any) -> Json:
    """The record of a wait for the operation of that number."""
    values = [sequence, ["", ""], 0, "wait", [], [], -1, -1, 1]
    return call(node_id, "record_param_comms", values, **keywords)


def groups(node_id: int, *records: Json, spelled: str | None = None) -> Json:
    """The init node of a host trace."""
    return call(node_id, "## process_group:init ##", [spelled or json.dumps(records)])


def host(*nodes: Json, schema: str = "1.1.1-chakra.0.0.4") -> bytes:
    """A host trace with its two root nodes."""
    roots = [call(1, "process", parent=1, record=0, thread=0), call(2, "thread", parent=1, record=0)]
    if schema == "1.0.1":
        nodes = tuple(map(flat, nodes))
        roots = list(map(flat, roots))
    return json.dumps({"schema": schema, "pid": 1, "nodes": [*nodes, *roots]}).encode()


def kernel(name: str, start_us: Any, duration_us: float, stream: Any = 7, **arguments: Any) -> Json:
    """A GPU kernel event."""
    args = {"stream": stream, "device": 0, **{key.replace("_", " "): one for key, one in arguments.items()}}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start_us, "dur": duration_us, "args": args}


def cpu_op(name: str, start_us: float, duration_us: float, record: int, external: int = 0) -> Json:
    """An event of a host call."""
    args = {"Record function id": record, "External id": external}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": start_us, "dur": duration_us, "args": args}


def kineto(*events: Any, **top: Any) -> bytes:
    """A Kineto trace."""
    return json.dumps({"schemaVersion": 1, **top, "traceEvents": events}).encode()
