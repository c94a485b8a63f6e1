"""Kineto traces (PyTorch profiler, Chrome trace events) to GPU operations and the times of host calls.

Decides which events count: kernels, copies and fills with their stream; NCCL kernels with whatever arguments the profiler
gave them; host calls only by what joins them to a host trace. What was left out is counted. The join is kineto_join's. Pure.
Format: Chrome "Trace Event Format"; pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

from etloop.workload.readers.json_stream import JsonFault, as_int, as_list, as_ns, as_text, kept, members
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.readers.pytorch.comms import Role, meaning_of, split_bytes
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel, kernel_collective
from etloop.workload.readers.pytorch.process_groups import (
    MAX_RANK,
    SHORTENED,
    GroupRecord,
    parse_config,
    parse_rank_text,
    parse_split_text,
)
from etloop.workload.readers.pytorch.rank import BESIDE, CallTimes, RankRead, Remark
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

EVENTS_KEY: Final = "traceEvents"

ITEM_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "unsignedchar", "signedchar", "int8", "uint8"), 1),
    **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "float8e8m0fnu"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "float16", "int16", "cuint16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "float32", "int32", "uint32", "cint"), 4),
    **dict.fromkeys(("long", "longint", "double", "float64", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}
"""Bytes of an element by the name that the profiler gives its type, in small letters and digits."""

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
_ARGUMENTS: Final = frozenset(("Collective name", *_COUNTED, *_PLACED))


class _Filled(Enum):
    """How much the arguments of an NCCL kernel tell."""

    ALL = "all"
    SPLITS_CUT = "all but the splits"
    NOTHING = "nothing"


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
    begun_before: int = 0
    """Kernels that communicate and were launched before recording began; they are left out."""

    @property
    def kernels(self) -> list[DeviceEvent]:
        """Those that communicate, in order of their begin."""
        return [event for event in self.device if event.communicates]


def read_kineto(pieces: Iterable[bytes]) -> KinetoTrace:
    """Reads one rank. Raises `JsonFault`."""
    trace = KinetoTrace()
    found = False
    for item in members(pieces, frozenset({EVENTS_KEY}), bare=EVENTS_KEY):
        if item.key == "distributedInfo" and isinstance(item.value, dict):
            _distributed(item.value, trace)
        elif item.key == EVENTS_KEY:
            found = True
            if item.index < 0:
                as_list(item.value, item.place)
            elif isinstance(item.value, dict):
                _event(item.value, item.place, item.offset, trace)
    if not found:
        raise JsonFault(EVENTS_KEY, "is missing")
    _leave_out_begun(trace)
    trace.device.sort(key=lambda event: event.start_ns)
    return trace


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


def _event(event: dict[str, Any], place: str, offset: int, trace: KinetoTrace) -> None:
    category = event.get("cat")
    trace.counts[category if isinstance(category, str) else "None"] += 1
    if event.get("ph") != "X" or not isinstance(category, str):
        return
    category = category.lower()
    given = event.get("args")
    arguments = given if isinstance(given, dict) else {}
    kept(len(trace.device) + len(trace.calls) + len(trace.launches) // 8, place)
    if category in _LAUNCH_CATEGORIES:
        correlation = arguments.get("correlation")
        if type(correlation) is int and 0 <= correlation < 1 << 63:
            trace.launches.append(correlation)
    elif category in _DEVICE_CATEGORIES:
        trace.device.append(_device_event(event, arguments, place, offset))
    elif category in _HOST_CATEGORIES:
        name = as_text(event.get("name"), f"{place}.name")
        if name == "record_param_comms" or name.startswith(("c10d::", "nccl:", "gloo:")):
            trace.host_names[name] += 1
        record = arguments.get("Record function id")
        # 0 is what the profiler writes for what is no call of the host trace.
        if type(record) is int and record:
            start_ns, duration_ns = _span(event, place)
            trace.calls.setdefault(record, CallTimes(start_ns, duration_ns))
            external = arguments.get("External id")
            if type(external) is int:
                trace.record_of.setdefault(external, record)


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


def read_device(kineto: KinetoTrace, book: GroupBook) -> RankRead:
    """A Kineto trace alone: what its NCCL kernels tell by their arguments. Raises `JsonFault`."""
    book.add(kineto.groups, "distributedInfo.pg_config")
    rows = []
    outcomes: Counter[_Filled] = Counter()
    for node_id, event in enumerate(kineto.device):
        row = device_row(node_id, event)
        if event.communicates:
            outcomes[_fill_by_arguments(row, event, book)] += 1
        rows.append(row)
    remarks = []
    if bare := outcomes[_Filled.NOTHING]:
        what = f"{bare} NCCL kernels carry no collective arguments (profilers before 2024): sizes and groups are not known"
        remarks.append(Remark(what, BESIDE.format("host")))
    elif not kineto.begun_before and not any(event.communicates for event in kineto.device):
        what = "has no NCCL kernel: with a CPU backend only the host traces tell the operations"
        remarks.append(Remark(what, BESIDE.format("host")))
    if cut := outcomes[_Filled.SPLITS_CUT]:
        what = (
            f"{cut} all-to-alls have split sizes that the profiler shortened: their buffers are split evenly"
        )
        remarks.append(Remark(what, BESIDE.format("host")))
    return RankRead(tuple(rows), "kineto", book.members, tuple(remarks))


def _fill_by_arguments(row: NodeRow, event: DeviceEvent, book: GroupBook) -> _Filled:
    """Makes a row the network operation of its kernel; how much the kernel tells of it."""
    arguments, place = event.arguments, event.place
    row.kind = NodeKind.COMM_COLL
    row.comm_type = kernel_collective(event.name)
    label = arguments.get("Collective name")
    meaning = meaning_of(label) if isinstance(label, str) else None
    if meaning is None or meaning.role not in (Role.COLLECTIVE, Role.SEND, Role.RECV):
        return _Filled.NOTHING
    nelems = as_int(arguments.get("In msg nelems", 0), f"{place}.In msg nelems", 0)
    if not nelems and meaning.role is Role.RECV:
        nelems = as_int(arguments.get("Out msg nelems", 0), f"{place}.Out msg nelems", 0)
    dtype = as_text(arguments.get("dtype", ""), f"{place}.dtype")
    item_bytes = ITEM_BYTES.get("".join(c for c in dtype.lower() if c.isalnum()))
    if item_bytes is None and nelems:
        raise JsonFault(f"{place}.dtype", f"is {dtype[:24]!a}, whose size is not known")
    row.comm_size = as_int(nelems * (item_bytes or 0), place, 0)
    if meaning.role is Role.COLLECTIVE:
        row.comm_type = ABSENT if meaning.collective is None else int(meaning.collective)
        row.pg_name = _group(event, book)
        return _Filled.SPLITS_CUT if _fill_splits(row, event, item_bytes or 0) else _Filled.ALL
    sends = meaning.role is Role.SEND
    row.kind, row.comm_type = (NodeKind.COMM_SEND if sends else NodeKind.COMM_RECV), ABSENT
    peer = arguments.get("Dst Rank" if sends else "Src Rank")
    if peer is not None:
        setattr(row, "comm_dst" if sends else "comm_src", as_int(peer, f"{place}.peer", 0, MAX_RANK))
    return _Filled.ALL


def _fill_splits(row: NodeRow, event: DeviceEvent, item_bytes: int) -> bool:
    """Takes the split sizes of an all-to-all; whether the profiler shortened their list, as it does for many ranks."""
    if row.comm_type != CollectiveKind.ALL_TO_ALL:
        return False
    sent, expected = (str(event.arguments.get(f"{side} split size", "")) for side in ("In", "Out"))
    row.splits = split_bytes(parse_split_text(sent, event.place), row.comm_size, event.place)
    made = as_int(event.arguments.get("Out msg nelems", 0), f"{event.place}.Out msg nelems", 0) * item_bytes
    row.expected_splits = split_bytes(parse_split_text(expected, event.place), made, event.place)
    return SHORTENED in sent


def _group(event: DeviceEvent, book: GroupBook) -> str | None:
    name = event.arguments.get("Process Group Name")
    if not isinstance(name, str) or not name:
        return None
    spelled = event.arguments.get("Process Group Ranks")
    if isinstance(spelled, str) and name not in book.members:
        ranks = parse_rank_text(spelled, f"{event.place}.Process Group Ranks")
        if ranks:
            book.members[name] = ranks
    return name
