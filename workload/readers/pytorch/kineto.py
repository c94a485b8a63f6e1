"""Reads Kineto traces (PyTorch profiler, Chrome trace events) into GPU operations and times of host calls.

Decides which events are kept: kernels, copies and fills with their stream; NCCL kernels with the arguments that the
profiler recorded; host calls by the ids that join them to a host trace, and communicating ones with their arguments.
Omitted events are counted. Leaves the content of kernels to device_comms and the join to kineto_join. Pure.

Format: Chrome "Trace Event Format"; pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from functools import partial
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload import _et
from etloop.workload.readers.json_stream import (
    JsonFault,
    as_int,
    as_list,
    as_ns,
    as_text,
    check_node_count,
    members,
)
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.readers.pytorch.comms import meaning_of
from etloop.workload.readers.pytorch.kernel_table import KernelTable, shipped_table
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel
from etloop.workload.readers.pytorch.process_groups import MAX_RANK, GroupRecord, parse_config
from etloop.workload.readers.pytorch.rank import CallTimes
from etloop.workload.trace.trace import NodeKind

EVENTS_KEY: Final = "traceEvents"

_DEVICE_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCH_CATEGORIES: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"})
_HOST_CATEGORIES: Final = frozenset({"cpu_op", "user_annotation"})
_COUNTED: Final = (
    "In msg nelems",
    "Out msg nelems",
    "In split size",
    "Out split size",
    "Group size",
    "dtype",
)
_PLACED: Final = ("Process Group Name", "Process Group Ranks", "Src Rank", "Dst Rank")
_ROOT: Final = "Rank"
"""Argument of record_param_comms: the root of a rooted collective, else the rank itself."""
_ARGUMENTS: Final = frozenset(("Collective name", *_COUNTED, *_PLACED))
_BACKEND_CALL: Final = re.compile(r"(?P<backend>[a-z][a-z0-9]*):(?P<call>[A-Za-z_]+)")
_COMMUNICATING_CALL: Final = re.compile(
    r"record_param_comms|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast", re.IGNORECASE
)
_PARSER: Final = json.JSONDecoder(strict=False)
_MOST_TENSORS: Final = 256
"""Limit of arguments kept per call."""


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """One operation of a GPU."""

    name: str
    start_ns: int
    duration_ns: int
    stream: int
    external: int | None
    """External id: the host call that launched it, if the profiler correlates by it."""
    correlation: int | None
    """Correlation id shared with its launch."""
    arguments: dict[str, Any]
    """Arguments that describe a collective."""
    offset: int
    place: str

    @property
    def communicates(self) -> bool:
        """Decide whether it is an NCCL kernel or has the arguments of a collective."""
        return is_nccl_kernel(self.name) or "Collective name" in self.arguments


@dataclass(frozen=True, slots=True)
class Launcher:
    """A communicating call of the host, with the arguments that the profiler recorded."""

    name: str
    dims: list[Any]
    """Shape of each argument; [] for one that is not a tensor."""
    types: list[Any]
    arguments: dict[str, Any]
    """Arguments that describe a collective."""


@dataclass(slots=True)
class KinetoTrace:
    """One rank's Kineto trace."""

    rank: int | None = None
    world_size: int | None = None
    groups: list[GroupRecord] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)
    """Operations of the GPU by start time."""
    calls: dict[int, CallTimes] = field(default_factory=dict)
    """Times of a host call, by its record function id."""
    record_of: dict[int, int] = field(default_factory=dict)
    """Record function id of a host call, by its external id."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of events in each category ("None": without one)."""
    host_names: Counter[str] = field(default_factory=Counter)
    """Number of occurrences of each communicating host call."""
    launches: array[int] = field(default_factory=partial(array, "q"))
    """Correlation ids of all recorded launches."""
    launchers: dict[int, Launcher] = field(default_factory=dict)
    """Communicating host call, by its external id."""
    begun_before: int = 0
    """Number of communicating kernels launched before recording began; they are left out."""

    @property
    def kernels(self) -> list[DeviceEvent]:
        """Return the communicating operations by start time."""
        return [event for event in self.device if event.communicates]


def read_kineto(
    pieces: Iterable[bytes], table: KernelTable | None = None, *, glances: bool = True
) -> KinetoTrace:
    """Parse one rank's Kineto trace. `table` names communicating operations in addition to NCCL's; None uses the
    shipped table. Raises `JsonFault`.

    Without `glances` every event is parsed in Python, with the same result.
    """
    table = table or shipped_table()
    trace = KinetoTrace()
    has_events = False
    glance = _Events(trace, table)
    for item in members(pieces, frozenset({EVENTS_KEY}), bare=EVENTS_KEY, glance=glance if glances else None):
        if item.key == "distributedInfo" and isinstance(item.value, dict):
            _read_distributed(item.value, trace)
        elif item.key == EVENTS_KEY:
            has_events = True
            if item.index < 0:
                as_list(item.value, item.place)
            elif isinstance(item.value, dict):
                _event(item.value, item.place, item.offset, trace, table)
    if not has_events and not glance.seen:
        raise JsonFault(EVENTS_KEY, "is missing")
    _drop_unlaunched(trace)
    trace.device.sort(key=lambda event: event.start_ns)
    return trace


class _Events:
    """Consumes events that need no full parse (`json_stream.Glance`) and passes the rest to the parser."""

    def __init__(self, trace: KinetoTrace, table: KernelTable) -> None:
        self._trace, self._table = trace, table
        self._scanner = _et.KinetoScanner(partial(_needs_parse, table))
        self.seen = False

    def scan(self, text: str, at: int, index: int) -> tuple[int, int, bool]:
        """Scan elements as `Glance.scan` describes."""
        progress = self._scanner.scan(text, at, index)
        self.seen = self.seen or progress[1] > index
        return progress

    def process(self, text: str, offset: int) -> None:
        """Process consumed elements as `Glance.passed` describes. Raises `JsonFault` over the limit of kept events."""
        trace = self._trace
        events, launches, counts = self._scanner.take()
        trace.launches.frombytes(launches)
        trace.counts.update(counts)
        for (
            kind,
            index,
            begin,
            end,
            name,
            start_ns,
            duration_ns,
            stream,
            external,
            correlation,
            record,
        ) in events:
            if kind == _et.EVENT_DEVICE:
                trace.device.append(
                    DeviceEvent(
                        name,
                        start_ns,
                        duration_ns,
                        stream,
                        None if external < 0 else external,
                        None if correlation < 0 else correlation,
                        {},
                        offset + begin,
                        f"{EVENTS_KEY}[{index}]",
                    )
                )
            elif kind == _et.EVENT_CALL:
                trace.calls.setdefault(record, CallTimes(start_ns, duration_ns))
                if external >= 0:
                    trace.record_of.setdefault(external, record)
            else:
                place = f"{EVENTS_KEY}[{index}]"
                _event(_PARSER.decode(text[begin:end]), place, offset + begin, trace, self._table)
        _refuse_many(trace, f"{EVENTS_KEY}[{events[-1][1]}]" if events else EVENTS_KEY)


def _needs_parse(table: KernelTable, name: str) -> bool:
    """Decide whether a call of this name communicates, or is counted by its name."""
    return (
        name == "record_param_comms"
        or name.startswith("c10d::")
        or bool(backend_of(name))
        or bool(_COMMUNICATING_CALL.search(name))
        or bool(table.operation(name))
    )


def _refuse_many(trace: KinetoTrace, place: str) -> None:
    check_node_count(
        len(trace.device) + len(trace.calls) + len(trace.launchers) + len(trace.launches) // 8, place
    )


def _drop_unlaunched(trace: KinetoTrace) -> None:
    """Remove communicating kernels that have no arguments and no launch, from a trace that records launches.

    They were running or waiting when recording began, so their content is unknown.
    """
    if not trace.launches:
        return
    launched = set(trace.launches) if any(map(_may_predate_recording, trace.device)) else set()
    unlaunched = [
        event for event in trace.device if _may_predate_recording(event) and event.correlation not in launched
    ]
    trace.begun_before = len(unlaunched)
    if unlaunched:
        places = {event.place for event in unlaunched}
        trace.device = [event for event in trace.device if event.place not in places]


def _may_predate_recording(event: DeviceEvent) -> bool:
    is_bare = "Collective name" not in event.arguments
    return is_bare and event.communicates and event.external is None and event.correlation is not None


def _read_distributed(stated: dict[str, Any], trace: KinetoTrace) -> None:
    place = "distributedInfo"
    if "rank" in stated:
        trace.rank = as_int(stated["rank"], f"{place}.rank", 0, MAX_RANK)
    if "world_size" in stated:
        trace.world_size = as_int(stated["world_size"], f"{place}.world_size", 1, MAX_RANK + 1)
    if "pg_config" in stated:
        config = parse_config(stated["pg_config"], f"{place}.pg_config")
        trace.groups = [record for record in config if record.ranks or record.size]


def _event(event: dict[str, Any], place: str, offset: int, trace: KinetoTrace, table: KernelTable) -> None:
    category = event.get("cat")
    trace.counts[category if isinstance(category, str) else "None"] += 1
    if event.get("ph") != "X" or not isinstance(category, str):
        return
    category = category.lower()
    args_field = event.get("args")
    arguments = args_field if isinstance(args_field, dict) else {}
    _refuse_many(trace, place)
    if category in _LAUNCH_CATEGORIES:
        correlation = arguments.get("correlation")
        if type(correlation) is int and 0 <= correlation < 1 << 63:
            trace.launches.append(correlation)
    elif category in _DEVICE_CATEGORIES:
        trace.device.append(_device_event(event, arguments, place, offset))
    elif category in _HOST_CATEGORIES:
        name = as_text(event.get("name"), f"{place}.name")
        _record_call(name, category, arguments, trace, table)
        record = arguments.get("Record function id")
        # The profiler writes 0 for an event that is not a call of the host trace.
        if type(record) is int and record:
            start_ns, duration_ns = _span(event, place)
            trace.calls.setdefault(record, CallTimes(start_ns, duration_ns))
            external = arguments.get("External id")
            if type(external) is int:
                trace.record_of.setdefault(external, record)


def _record_call(
    name: str, category: str, arguments: dict[str, Any], trace: KinetoTrace, table: KernelTable
) -> None:
    """Record a communicating host call: its name, and its arguments by external id."""
    if name == "record_param_comms" or name.startswith("c10d::") or backend_of(name):
        trace.host_names[name] += 1
    if category != "cpu_op" or not (_COMMUNICATING_CALL.search(name) or table.operation(name)):
        return
    external = arguments.get("External id")
    if type(external) is int:
        dims, types = arguments.get("Input Dims"), arguments.get("Input type")
        collective_arguments = {key: arguments[key] for key in (_ARGUMENTS | {_ROOT}) & arguments.keys()}
        shapes = dims[:_MOST_TENSORS] if isinstance(dims, list) else []
        kinds = types[:_MOST_TENSORS] if isinstance(types, list) else []
        trace.launchers.setdefault(external, Launcher(name, shapes, kinds, collective_arguments))


def backend_of(name: str) -> str:
    """Return the backend of a call's name, such as "hccl" for "hccl:allgather"; "" for any other name."""
    match = _BACKEND_CALL.fullmatch(name)
    return match["backend"] if match and meaning_of(match["call"]) else ""


def _span(event: dict[str, Any], place: str) -> tuple[int, int]:
    start_ns = as_ns(event.get("ts"), f"{place}.ts")
    duration_ns = as_ns(event.get("dur", 0), f"{place}.dur")
    if start_ns < 0 or duration_ns < 0:
        raise JsonFault(place, "has a negative start or duration")
    return start_ns, duration_ns


def _device_event(event: dict[str, Any], arguments: dict[str, Any], place: str, offset: int) -> DeviceEvent:
    start_ns, duration_ns = _span(event, place)
    stream = arguments.get("stream", event.get("tid"))
    external = arguments.get("External id", arguments.get("external id"))
    correlation = arguments.get("correlation")
    return DeviceEvent(
        name=as_text(event.get("name"), f"{place}.name"),
        start_ns=start_ns,
        duration_ns=duration_ns,
        stream=as_int(stream, f"{place}.stream"),
        external=external if type(external) is int else None,
        correlation=correlation if type(correlation) is int else None,
        arguments={key: arguments[key] for key in _ARGUMENTS & arguments.keys()},
        offset=offset,
        place=place,
    )


def device_row(node_id: int, event: DeviceEvent) -> NodeRow:
    """Return a GPU operation as a compute node."""
    row = NodeRow(node_id, event.name, NodeKind.COMP, offset=event.offset, is_cpu_op=0, stream=event.stream)
    row.time(event.start_ns, event.duration_ns)
    return row
