"""Reads PyTorch host execution traces (JSON of ExecutionTraceObserver) into host nodes, schemas 1.0.1 to 1.1.1.

Decides the layout of each node: flat (1.0.1: `parent`, `inputs`, ...) or nested (1.0.2 on: `inputs.values`, `attrs`,
the caller in `ctrl_deps`). The node itself determines it, because some files state the wrong schema. Also reads the
fields that chakra_trace_link adds ("ET+"). Leaves the meaning of operations to comms.py, and order to rank.py. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import (
    JsonFault,
    as_int,
    as_list,
    as_ns,
    as_object,
    as_text,
    check_node_count,
    members,
)
from etloop.workload.readers.node_rows import MAX_NODE_ID
from etloop.workload.readers.pytorch.kernel_table import KernelTable, TableEntry, shipped_table
from etloop.workload.readers.pytorch.process_groups import INIT_NAME, GroupRecord, parse_init

NODES_KEY: Final = "nodes"
PARAM_COMMS: Final = "record_param_comms"
C10D: Final = "c10d::"

_MAX_TENSOR_DEPTH: Final = 6


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument: `[tensor, storage, offset, numel, itemsize, device]`."""

    storage: int
    numel: int
    item_bytes: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the tensor in bytes."""
        return self.numel * self.item_bytes


@dataclass(frozen=True, slots=True)
class CommArguments:
    """Arguments that are kept only for a communicating node."""

    inputs: list[Any]
    outputs: list[Any]
    collective_name: Any
    """Name of the operation as the node gives it; None if it gives none."""
    listed: TableEntry | None = None
    """Table entry of an operation that does not belong to a process group."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Fields that the linker adds to a node. CPU nodes have no stream."""

    start_ns: int
    inclusive_ns: int
    exclusive_ns: int
    stream: int | None
    category: str
    awaited: tuple[int, ...]
    """Nodes of other threads or streams that it waits for (inter_thread_dep, sync_dep)."""


@dataclass(frozen=True, slots=True)
class HostNode:
    """One call as recorded on the host."""

    node_id: int
    name: str
    parent: int
    thread: int
    record: int
    """Record function id, which Kineto has too; -1 if the file has none."""
    reads: tuple[int, ...]
    """Storages of its input tensors."""
    writes: tuple[int, ...]
    """Storages of its output tensors."""
    comm: CommArguments | None
    times: DeviceTimes | None
    offset: int
    place: str

    @property
    def times_stream(self) -> int | None:
        """Return the GPU stream that it ran on, None for a call of the host."""
        return self.times.stream if self.times else None


@dataclass(slots=True)
class HostTrace:
    """One rank's host trace; nodes in file order (a call ends before its caller)."""

    schema: str = ""
    nodes: list[HostNode] = field(default_factory=list)
    groups: list[GroupRecord] = field(default_factory=list)

    @property
    def is_linked(self) -> bool:
        """Decide whether device operations were linked in, with times."""
        return any(node.times is not None for node in self.nodes)


def read_host_trace(pieces: Iterable[bytes], table: KernelTable | None = None) -> HostTrace:
    """Parse one rank's host trace. `table` names communicating operations outside process groups; None uses the shipped
    table. Raises `JsonFault`."""
    table = table or shipped_table()
    host = HostTrace()
    has_nodes = False
    for item in members(pieces, frozenset({NODES_KEY})):
        if item.key == "schema":
            host.schema = as_text(item.value, item.place)
        elif item.key == NODES_KEY:
            has_nodes = True
            if item.index < 0:
                as_list(item.value, item.place)
            else:
                check_node_count(item.index + 1, item.place)
                value = as_object(item.value, item.place)
                host.nodes.append(_node(value, item.place, item.offset, host, table))
    if not has_nodes:
        raise JsonFault(NODES_KEY, "is missing")
    return host


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors of an argument, including those in lists of tensors."""
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if not isinstance(item, list):
            continue
        if (
            len(item) in (6, 7)
            and isinstance(item[5], str)
            and all(type(part) is int for part in item[:5])
            and item[3] >= 0
            and 0 <= item[4] <= 64
        ):
            yield Tensor(item[1], item[3], item[4])
        elif depth < _MAX_TENSOR_DEPTH:
            pending.extend((part, depth + 1) for part in reversed(item))


def _storages(values: list[Any]) -> tuple[int, ...]:
    """Return the distinct storages of all tensors; an undefined tensor has none."""
    return tuple({tensor.storage for tensor in tensors(values) if tensor.storage})


def _node(node: dict[str, Any], place: str, offset: int, host: HostTrace, table: KernelTable) -> HostNode:
    if "parent" in node:
        inputs, outputs = node.get("inputs", []), node.get("outputs", [])
        attributes: dict[str, Any] = node
        caller: object = node["parent"]
    else:
        inputs = as_object(node.get("inputs", {}), f"{place}.inputs").get("values", [])
        outputs = as_object(node.get("outputs", {}), f"{place}.outputs").get("values", [])
        attributes = _attributes(node.get("attrs", []), f"{place}.attrs")
        caller = node.get("ctrl_deps", 0)
    inputs, outputs = as_list(inputs, f"{place}.inputs"), as_list(outputs, f"{place}.outputs")
    name = as_text(node.get("name"), f"{place}.name")
    if INIT_NAME in name and inputs:
        host.groups += parse_init(inputs[0], f"{place}.inputs")
    table_entry = table.operation(name)
    communicates = (
        name == PARAM_COMMS or name.startswith(C10D) or "nccl" in name.lower() or table_entry is not None
    )
    return HostNode(
        node_id=as_int(node.get("id"), f"{place}.id", 0, MAX_NODE_ID),
        name=name,
        parent=_caller(caller, place),
        thread=as_int(attributes.get("tid", 0), f"{place}.tid"),
        record=as_int(attributes.get("rf_id", -1), f"{place}.rf_id"),
        reads=_storages(inputs),
        writes=_storages(outputs),
        comm=CommArguments(inputs, outputs, attributes.get("collective_name"), table_entry)
        if communicates
        else None,
        times=_times(node, place) if "ts" in node else None,
        offset=offset,
        place=place,
    )


def _caller(value: object, place: str) -> int:
    if isinstance(value, list):
        value = value[0] if value else 0
    return as_int(value if value is not None else 0, f"{place}.ctrl_deps", 0, MAX_NODE_ID)


def _attributes(entries: object, place: str) -> dict[str, Any]:
    attributes = {}
    for index, entry in enumerate(as_list(entries, place)):
        attribute = as_object(entry, f"{place}[{index}]")
        attributes[as_text(attribute.get("name"), f"{place}[{index}].name")] = attribute.get("value")
    return attributes


def _times(node: dict[str, Any], place: str) -> DeviceTimes:
    inclusive = node.get("inclusive_dur", node.get("dur")) or 0
    exclusive = node.get("exclusive_dur")
    stream = node.get("stream")
    awaited = [node.get("inter_thread_dep"), *as_list(node.get("sync_dep") or [], f"{place}.sync_dep")]
    times = DeviceTimes(
        start_ns=as_ns(node["ts"], f"{place}.ts"),
        inclusive_ns=as_ns(inclusive, f"{place}.inclusive_dur"),
        exclusive_ns=as_ns(inclusive if exclusive is None else exclusive, f"{place}.exclusive_dur"),
        stream=None if stream is None else as_int(stream, f"{place}.stream"),
        category=as_text(node.get("cat") or "", f"{place}.cat"),
        awaited=tuple(
            as_int(node_id, f"{place}.sync_dep", 0, MAX_NODE_ID) for node_id in awaited if node_id is not None
        ),
    )
    if times.inclusive_ns < 0 or times.exclusive_ns < 0:
        raise JsonFault(place, "has a negative duration")
    return times
