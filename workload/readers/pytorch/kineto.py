"""Kineto traces (PyTorch profiler, Chrome trace events) to GPU operations and the times of host calls.

Decides which events count: kernels, copies and fills with their stream; NCCL kernels with whatever arguments the profiler
gave them; host calls by what joins them to a host trace, and those that communicate with their arguments. What was left out
is counted. What kernels carry is device_comms', the join kineto_join's. Pure.
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
from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, as_ns, as_text, kept, members
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
"""Of record_param_comms: the root of what has one, else the rank itself."""
_ARGUMENTS: Final = frozenset(("Collective name", *_COUNTED, *_PLACED))
_BACKEND_CALL: Final = re.compile(r"(?P<backend>[a-z][a-z0-9]*):(?P<call>[A-Za-z_]+)")
_COMMUNICATING_CALL: Final = re.compile(
    r"record_param_comms|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast", re.IGNORECASE
)
_PARSER: Final = json.JSONDecoder(strict=False)
_MOST_TENSORS: Final = 256
"""Of the arguments of one call."""


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """One operation of a GPU."""

    name: str
    start_ns: int
    duration_ns: int
    stream: int
    external: int | None
    """External id: the host call that launched it, where the profiler correlates by it."""
    correlation: int | None
    """What its launch has, too."""
    arguments: dict[str, Any]
    """Those that tell a collective."""
    offset: int
    place: str

    @property
    def communicates(self) -> bool:
        return is_nccl_kernel(self.name) or "Collective name" in self.arguments


@dataclass(frozen=True, slots=True)
class Launcher:
    """A call of the host that communicates, with what the profiler says of its arguments."""

    name: str
    dims: list[Any]
    """Shape of each argument, [] of one that is no tensor."""
    types: list[Any]
    arguments: dict[str, Any]
    """Those that tell a collective."""


@dataclass(slots=True)
class KinetoTrace:
    """One rank's Kineto trace."""

    rank: int | None = None
    world_size: int | None = None
    groups: list[GroupRecord] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)
    """In order of their begin."""
    calls: dict[int, CallTimes] = field(default_factory=dict)
    """Record function id -> times of a host call."""
    record_of: dict[int, int] = field(default_factory=dict)
    """External id of a host call -> its record function id."""
    counts: Counter[str] = field(default_factory=Counter)
    """Events of each category ("None": without one)."""
    host_names: Counter[str] = field(default_factory=Counter)
    """How often each communicating host call is there."""
    launches: array[int] = field(default_factory=partial(array, "q"))
    """Correlation of every launch that was recorded."""
    launchers: dict[int, Launcher] = field(default_factory=dict)
    """External id -> the call of the host that communicates."""
    begun_before: int = 0
    """Kernels that communicate and were launched before recording began; they are left out."""

    @property
    def kernels(self) -> list[DeviceEvent]:
        """Those that communicate, in order of their begin."""
        return [event for event in self.device if event.communicates]


def read_kineto(
    pieces: Iterable[bytes], table: KernelTable | None = None, *, glances: bool = True
) -> KinetoTrace:
    """Reads one rank. `table`: what communicates beside NCCL, by default the project's. Raises `JsonFault`.

    Without `glances` every event is read whole, to the same end.
    """
    table = table or shipped_table()
    trace = KinetoTrace()
    found = False
    glance = _Events(trace, table)
    for item in members(pieces, frozenset({EVENTS_KEY}), bare=EVENTS_KEY, glance=glance if glances else None):
        if item.key == "distributedInfo" and isinstance(item.value, dict):
            _distributed(item.value, trace)
        elif item.key == EVENTS_KEY:
            found = True
            if item.index < 0:
                as_list(item.value, item.place)
            elif isinstance(item.value, dict):
                _event(item.value, item.place, item.offset, trace, table)
    if not found and not glance.seen:
        raise JsonFault(EVENTS_KEY, "is missing")
    _leave_out_begun(trace)
    trace.device.sort(key=lambda event: event.start_ns)
    return trace


class _Events:
    """Takes events that need not be read whole (`json_stream.Glance`), and has the others read."""

    def __init__(self, trace: KinetoTrace, table: KernelTable) -> None:
        self._trace, self._table = trace, table
        self._scanner = _et.KinetoScanner(partial(_is_asked_for, table))
        self.seen = False

    def scan(self, text: str, at: int, index: int) -> tuple[int, int, bool]:
        """See `Glance`."""
        found = self._scanner.scan(text, at, index)
        self.seen = self.seen or found[1] > index
        return found

    def passed(self, text: str, offset: int) -> None:
        """See `Glance`."""
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
            lasted_ns,
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
                        lasted_ns,
                        stream,
                        None if external < 0 else external,
                        None if correlation < 0 else correlation,
                        {},
                        offset + begin,
                        f"{EVENTS_KEY}[{index}]",
                    )
                )
            elif kind == _et.EVENT_CALL:
                trace.calls.setdefault(record, CallTimes(start_ns, lasted_ns))
                if external >= 0:
                    trace.record_of.setdefault(external, record)
            else:
                place = f"{EVENTS_KEY}[{index}]"
                _event(_PARSER.decode(text[begin:end]), place, offset + begin, trace, self._table)
        _refuse_many(trace, f"{EVENTS_KEY}[{events[-1][1]}]" if events else EVENTS_KEY)


def _is_asked_for(table: KernelTable, name: str) -> bool:
    """Whether a call of this name communicates, or is counted by its name."""
    return (
        name == "record_param_comms"
        or name.startswith("c10d::")
        or bool(backend_of(name))
        or bool(_COMMUNICATING_CALL.search(name))
        or bool(table.operation(name))
    )


def _refuse_many(trace: KinetoTrace, place: str) -> None:
    kept(len(trace.device) + len(trace.calls) + len(trace.launchers) + len(trace.launches) // 8, place)


def _leave_out_begun(trace: KinetoTrace) -> None:
    """Leave out kernels that communicate, tell nothing, and have no launch in a trace that records launches: they were running,
    or waiting, as recording began, and nobody can say what they carried."""
    if not trace.launches:
        return
    launched = set(trace.launches) if any(map(_may_be_begun, trace.device)) else set()
    begun = [event for event in trace.device if _may_be_begun(event) and event.correlation not in launched]
    trace.begun_before = len(begun)
    if begun:
        places = {event.place for event in begun}
        trace.device = [event for event in trace.device if event.place not in places]


def _may_be_begun(event: DeviceEvent) -> bool:
    is_bare = "Collective name" not in event.arguments
    return is_bare and event.communicates and event.external is None and event.correlation is not None


def _distributed(stated: dict[str, Any], trace: KinetoTrace) -> None:
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
    given = event.get("args")
    arguments = given if isinstance(given, dict) else {}
    _refuse_many(trace, place)
    if category in _LAUNCH_CATEGORIES:
        correlation = arguments.get("correlation")
        if type(correlation) is int and 0 <= correlation < 1 << 63:
            trace.launches.append(correlation)
    elif category in _DEVICE_CATEGORIES:
        trace.device.append(_device_event(event, arguments, place, offset))
    elif category in _HOST_CATEGORIES:
        name = as_text(event.get("name"), f"{place}.name")
        _note_call(name, category, arguments, trace, table)
        record = arguments.get("Record function id")
        # 0 is what the profiler writes for what is no call of the host trace.
        if type(record) is int and record:
            start_ns, duration_ns = _span(event, place)
            trace.calls.setdefault(record, CallTimes(start_ns, duration_ns))
            external = arguments.get("External id")
            if type(external) is int:
                trace.record_of.setdefault(external, record)


def _note_call(
    name: str, category: str, arguments: dict[str, Any], trace: KinetoTrace, table: KernelTable
) -> None:
    """Keep a call of the host that communicates."""
    if name == "record_param_comms" or name.startswith("c10d::") or backend_of(name):
        trace.host_names[name] += 1
    if category != "cpu_op" or not (_COMMUNICATING_CALL.search(name) or table.operation(name)):
        return
    external = arguments.get("External id")
    if type(external) is int:
        dims, types = arguments.get("Input Dims"), arguments.get("Input type")
        told = {key: arguments[key] for key in (_ARGUMENTS | {_ROOT}) & arguments.keys()}
        shapes = dims[:_MOST_TENSORS] if isinstance(dims, list) else []
        kinds = types[:_MOST_TENSORS] if isinstance(types, list) else []
        trace.launchers.setdefault(external, Launcher(name, shapes, kinds, told))


def backend_of(name: str) -> str:
    """The backend whose call a name is, such as "hccl" of "hccl:allgather"; "" for any other name."""
    found = _BACKEND_CALL.fullmatch(name)
    return found["backend"] if found and meaning_of(found["call"]) else ""


def _span(event: dict[str, Any], place: str) -> tuple[int, int]:
    start_ns = as_ns(event.get("ts"), f"{place}.ts")
    duration_ns = as_ns(event.get("dur", 0), f"{place}.dur")
    if start_ns < 0 or duration_ns < 0:
        raise JsonFault(place, "begins or lasts below 0")
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
    """A GPU operation as a compute node."""
    row = NodeRow(node_id, event.name, NodeKind.COMP, offset=event.offset, is_cpu_op=0, stream=event.stream)
    row.time(event.start_ns, event.duration_ns)
    return row
