"""Reads `trace_view.json` of the Ascend PyTorch profiler: device operations and HCCL collectives of one rank per file.

Rows have no categories: their process says what they are. Operations of "Ascend Hardware" are compute, `hcom_*` and
`Hccl*` rows of "Communication" or "HCCL" are collectives with count and type; the tasks of their planes are parts of
them. One communicator per rank is taken to have all ranks; several are named by the number in the operations' names.

Format: Ascend/mstt:profiler; row names hcom_OP__GROUP_NUMBER_PART.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.json_stream import INT64_MAX, JsonFault, members
from etloop.workload.readers.node_rows import NodeRow, rank_trace
from etloop.workload.readers.production.communicator_calls import collective_of
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.text_files import FileFault, quote
from etloop.workload.readers.stores import file_pieces, unreadable
from etloop.workload.trace.trace import CollectiveKind, LeftOut, NodeKind, RankTrace, Trace
from etloop.workload.trace.trace_names import printable_name

_MARKS: Final = re.compile(
    rb'"ts"\s*:\s*"[0-9]|"Ascend Hardware"|"AscendCL@|enqueue_to_dequeue|"CANN"|"hcom_|Notify_Wait|"async_npu"'
)
"""Kineto writes no times as text."""
_BARE: Final = "traceEvents"
_COLLECTIVE: Final = re.compile(
    r"(?:hcom_|Hccl)(?P<operation>[A-Za-z]+?)(?:V|v)?(?:_?AicpuKernel|AivKernel)?_{0,2}(?P<group>[0-9]{1,20})?(?:_[0-9]+)*_?"
)
_WAITS: Final = re.compile(r"Notify_?Wait|EVENT_WAIT|Event_?Wait|Notify_?Record|EVENT_RECORD", re.IGNORECASE)
_ITEM_BYTES: Final = {
    **dict.fromkeys(("int8", "uint8", "hif8", "fp8e4m3", "fp8e5m2", "fp8e8m0", "bool"), 1),
    **dict.fromkeys(("int16", "uint16", "fp16", "float16", "bfp16", "bf16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "fp32", "float32", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "fp64", "float64", "double"), 8),
    "int128": 16,
}
_MOST_EVENTS: Final = 1 << 22
_LOST: Final = (
    (
        "operations of HCCL state no bytes or peers",
        "record with profiler_level Level1 or higher; sends and receives state no peer",
    ),
    (
        "operations communicate inside a kernel of the device, and their bytes are not recorded",
        "they take their recorded time; run the job without fused communication to record it apart",
    ),
)
"""The loss and its remedy, in the order of `_read_rank`."""


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    process: object
    thread: object
    start_ns: int
    duration_ns: int
    arguments: dict[str, Any]
    offset: int


def begins(head: bytes) -> bool:
    """Decide whether a file begins like a trace view of Ascend's profiler."""
    return head.lstrip()[:1] in (b"[", b"{") and b'"ph"' in head and _MARKS.search(head) is not None


def read_ascend(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of one trace view per rank, in rank order. Raises `FileFault`."""
    ranks: list[RankTrace] = []
    left_out: list[LeftOut] = []
    for rank, path in enumerate(files):
        try:
            rank_read, lost = _read_rank(path, rank, len(files))
        except FileFault as fault:
            raise FileFault(fault.line, f"{path}: {fault.what}", fault.remedy) from None
        except JsonFault as fault:
            raise FileFault(0, f"{path.name}: {fault.place}: {fault.what}") from None
        ranks.append(rank_read)
        left_out += [
            _left_out(path, names, problem, remedy)
            for names, (problem, remedy) in zip(lost, _LOST, strict=True)
            if names
        ]
    # Imported here: the table of kernels needs the YAML reader, which other formats do not.
    from etloop.workload.readers.pytorch.kernel_table import shipped_table
    from etloop.workload.readers.waiting_kernels import cut_waits

    complete_ranks, waits = cut_waits(ranks, shipped_table())
    return Trace(str(source), complete_ranks, None, _remarks(source, ranks), (*left_out, *waits))


def _remarks(source: Path, ranks: Sequence[RankTrace]) -> tuple[Problem, ...]:
    """Return a remark on the all-to-alls whose splits are not recorded."""
    uneven = sum(
        "alltoallv" in rank.name(node).lower()
        for rank in ranks
        for node in (rank.comm.type == CollectiveKind.ALL_TO_ALL).nonzero()[0].tolist()
    )
    if not uneven:
        return ()
    problem = f"{uneven} all-to-alls (alltoallv) state no split sizes: their buffers are split evenly"
    remedy = "draw splits where they matter: a schedule file of the scenario (docs/schedules.md)"
    return (Problem(printable_name(str(source)), problem, remedy),)


def _left_out(path: Path, names: Counter[str], problem: str, remedy: str) -> LeftOut:
    listed_names = ", ".join(f"{count} {printable_name(name[:48])}" for name, count in names.most_common(6))
    return LeftOut(
        Problem(printable_name(str(path)), f"{names.total()} {problem}: {listed_names}", remedy),
        names.total(),
    )


def _read_rank(path: Path, rank: int, rank_count: int) -> tuple[RankTrace, tuple[Counter[str], Counter[str]]]:
    """Return a rank and its lost operations by name: of HCCL, and fused ones."""
    from etloop.workload.readers.pytorch.kernel_table import looks_communicating  # see above

    processes: dict[object, str] = {}
    events: list[_Event] = []
    for values, offset in _items(path):
        if values.get("ph") == "M" and values.get("name") == "process_name":
            arguments = values.get("args")
            name = arguments.get("name") if isinstance(arguments, dict) else None
            if isinstance(name, str):
                processes[_key(values.get("pid"))] = name
        elif values.get("ph") == "X" and "cat" not in values:
            events.append(_event(values, offset))
            if len(events) > _MOST_EVENTS:
                raise FileFault(0, f"has more than {_MOST_EVENTS} events", "record fewer steps")
    lost: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    rows: list[NodeRow] = []
    groups = {
        match["group"] or ""
        for event in events
        if _is_communication(processes.get(event.process, ""))
        and (match := _COLLECTIVE.fullmatch(event.name))
    }
    for event in sorted(events, key=lambda device_event: device_event.start_ns):
        process = processes.get(event.process, "")
        if _is_communication(process) and (match := _COLLECTIVE.fullmatch(event.name)):
            row = _collective(event, match, rank_count, len(groups) > 1)
            if row is None:
                lost[0][event.name] += 1
                row = NodeRow(0, event.name, NodeKind.COMP)
        elif process.startswith("Ascend Hardware") and not _is_part(event.name):
            row = NodeRow(0, event.name, NodeKind.COMP)
            if looks_communicating(event.name):
                lost[1][event.name] += 1
        else:
            continue
        row.node_id, row.offset, row.is_cpu_op = len(rows), event.offset, 0
        row.stream = _stream(event)
        row.time(event.start_ns, event.duration_ns)
        rows.append(row)
    return rank_trace(rows, rank, printable_name(str(path)), "Ascend trace_view", None), lost


def _is_communication(process: str) -> bool:
    return process.startswith(("Communication", "HCCL"))


def _is_part(name: str) -> bool:
    """Decide whether a device operation is a part of a collective or a wait, which the collectives' own rows cover."""
    return name.startswith(("hcom_", "Hccl", "RDMASend", "Reduce_Inline")) or _WAITS.search(name) is not None


def _collective(event: _Event, match: re.Match[str], rank_count: int, named: bool) -> NodeRow | None:
    """Return the operation of an event; None if it states no bytes or is point to point."""
    operation = match["operation"].lower()
    if operation.endswith("v") and collective_of(operation) is None:
        operation = operation[:-1]
    kind = collective_of(operation)
    if operation == "barrier":
        kind = CollectiveKind.BARRIER
    if kind is None:
        return None
    count, item_bytes = _count(event.arguments.get("count")), _item_bytes(event.arguments.get("data_type"))
    if kind is CollectiveKind.BARRIER:
        count = item_bytes = 0
    if count is None or item_bytes is None:
        return None
    if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
        if rank_count == 1:
            problem = f"{quote(event.name)} states one rank's part, and the number of ranks is unknown"
            raise FileFault(0, problem, "give the traces of all ranks")
        count *= rank_count
    row = NodeRow(0, event.name, NodeKind.COMM_COLL)
    row.comm_type, row.comm_size = int(kind), count * item_bytes
    if named:
        row.pg_name = match["group"] or "0"
    return row


def _count(value: object) -> int | None:
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _item_bytes(value: object) -> int | None:
    return _ITEM_BYTES.get(str(value).lower().replace("_", "")) if isinstance(value, str) else None


def _stream(event: _Event) -> int:
    stream = event.arguments.get("Stream Id", event.thread)
    return stream if type(stream) is int and 0 <= stream < 1 << 31 else 0


def _items(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    try:
        with closing(file_pieces(path)) as pieces:
            for item in members(decompress(pieces), frozenset({_BARE}), bare=_BARE):
                if item.key == _BARE and isinstance(item.value, dict):
                    yield item.value, item.offset
    except (OSError, CompressionFault) as error:
        raise TraceError(unreadable(str(path), error)) from None


def _event(event: dict[str, Any], offset: int) -> _Event:
    name, arguments = event.get("name"), event.get("args")
    return _Event(
        name if isinstance(name, str) else "",
        _key(event.get("pid")),
        event.get("tid"),
        _nanoseconds(event.get("ts"), offset),
        _nanoseconds(event.get("dur", 0), offset),
        arguments if isinstance(arguments, dict) else {},
        offset,
    )


def _key(value: object) -> object:
    return value if isinstance(value, int | str) else None


def _nanoseconds(value: object, offset: int) -> int:
    """Return a time in us, a number or its text, in ns."""
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(
        r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,2})?", text
    ):
        raise JsonFault(f"character {offset}", f"has the time {quote(text)}, expected microseconds")
    time_ns = int(Fraction(text) * 1000)
    if time_ns > INT64_MAX >> 1:
        raise JsonFault(f"character {offset}", f"has the time {quote(text)}, which is out of range")
    return time_ns


def rank_of_folder(path: Path) -> int | None:
    """Return the rank of a trace view from the `profiler_info_RANK.json` of its recording; None if there is none."""
    for folder in (path.parent, path.parent.parent):
        for name in sorted(entry.name for entry in folder.iterdir()):
            if match := re.fullmatch(r"profiler_info_([0-9]{1,7})\.json", name):
                return int(match[1])
    return None


def find_views(source: Path) -> tuple[Path, ...]:
    """Return the trace views below a directory in rank order; () if there are none. Raises `FileFault` unless their
    ranks are 0 to n-1."""
    views = sorted(
        {
            *source.glob("trace_view.json"),
            *source.glob("*/trace_view.json"),
            *source.glob("*/*/trace_view.json"),
        }
    )
    if len(views) < 2:
        return tuple(views)
    ranks = {view: rank_of_folder(view) for view in views}
    if any(rank is None for rank in ranks.values()):
        problem = f"has {len(views)} trace views, and not every recording has a profiler_info_RANK.json"
        raise FileFault(0, problem, "copy the *_ascend_pt folders whole")
    if sorted(rank for rank in ranks.values() if rank is not None) != list(range(len(views))):
        raise FileFault(
            0, f"has the ranks {sorted(filter(None, ranks.values()))}, expected 0 to {len(views) - 1}"
        )
    return tuple(sorted(views, key=lambda view: ranks[view] or 0))
