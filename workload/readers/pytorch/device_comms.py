"""What the kernels of a Kineto trace carry: by their own arguments, by the call that launched them, or by a table of names.

Decides which kernels beside NCCL's communicate, where their bytes and their group come from, and what has to be said where
nothing tells: communication that cannot be replayed is counted by name, and stays the compute that it was recorded as. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import INT64_MAX, JsonFault, as_int, as_text
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.readers.pytorch.comms import ROOTED, Role, meaning_of, split_bytes
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.kernel_table import (
    KernelTable,
    TableEntry,
    function_name,
    looks_communicating,
)
from etloop.workload.readers.pytorch.kineto import (
    DeviceEvent,
    KinetoTrace,
    Launcher,
    backend_of,
    device_row,
)
from etloop.workload.readers.pytorch.nccl_kernels import kernel_collective
from etloop.workload.readers.pytorch.process_groups import (
    MAX_RANK,
    SHORTENED,
    parse_rank_text,
    parse_split_text,
)
from etloop.workload.readers.pytorch.rank import BESIDE, RankRead, Remark
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind
from etloop.workload.trace.trace_names import shown

ITEM_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "unsignedchar", "signedchar", "int8", "uint8"), 1),
    **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "float8e8m0fnu"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "float16", "int16", "cuint16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "float32", "int32", "uint32", "cint"), 4),
    **dict.fromkeys(("long", "longint", "double", "float64", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}
"""Bytes of an element by the name that the profiler gives its type, in small letters and digits."""

_NAMES_TOLD: Final = 6
_STATE_THEM: Final = "state them in a file of kernels (--kernels, in a scenario workload.kernels)"


class _Filled(Enum):
    """How much the arguments of an NCCL kernel tell."""

    ALL = "all"
    SPLITS_CUT = "all but the splits"
    NOTHING = "nothing"


class _Lost(Enum):
    """Why communication cannot be replayed, as a finding says it."""

    SIZE = "communicate, and nothing tells what they carry"
    GROUP = "communicate, and nothing tells among which ranks"
    NAME = "look by their names as if they communicate, and are in no table of kernels"


_REMEDIES: Final = {
    _Lost.SIZE: f"record shapes (record_shapes=True) without CUDA graphs, or {_STATE_THEM} with their bytes",
    _Lost.GROUP: f"{_STATE_THEM} with their group",
    _Lost.NAME: f"{_STATE_THEM}, with collective none where they do not communicate",
}


@dataclass(frozen=True, slots=True)
class OtherKernels:
    """What a Kineto trace shows of communication that is not NCCL's."""

    rows: dict[str, NodeRow]
    """Place of a kernel -> its operation."""
    remarks: tuple[Remark, ...]
    """What is left out."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    event: DeviceEvent
    entry: TableEntry
    launcher: Launcher | None


def read_device(kineto: KinetoTrace, book: GroupBook, table: KernelTable) -> RankRead:
    """A Kineto trace alone: what its kernels tell by their arguments or by the calls that launched them.

    Raises `JsonFault`.
    """
    book.add(kineto.groups, "distributedInfo.pg_config")
    others = other_kernels(kineto, book, table)
    told = _told_by_launchers(kineto)
    rows = []
    outcomes: Counter[_Filled] = Counter()
    for node_id, event in enumerate(kineto.device):
        row = device_row(node_id, event)
        if event.communicates:
            outcomes[_fill_by_arguments(row, told.get(event.place, event), book)] += 1
            row.root = _root(row, event, kineto)
        elif event.place in others.rows:
            row = replace(others.rows[event.place], node_id=node_id)
        rows.append(row)
    remarks = []
    if bare := outcomes[_Filled.NOTHING]:
        what = f"{bare} NCCL kernels carry no collective arguments (profilers before 2024): sizes and groups are not known"
        remarks.append(Remark(what, BESIDE.format("host")))
    if cut := outcomes[_Filled.SPLITS_CUT]:
        what = (
            f"{cut} all-to-alls have split sizes that the profiler shortened: their buffers are split evenly"
        )
        remarks.append(Remark(what, BESIDE.format("host")))
    return RankRead(
        tuple(rows), "kineto", book.members, (*remarks, *others.remarks, *_calls_alone(kineto, others))
    )


def other_kernels(kineto: KinetoTrace, book: GroupBook, table: KernelTable) -> OtherKernels:
    """The operations of kernels that are not NCCL's, and what cannot be replayed of them. `book` has the rank's groups."""
    lost: dict[_Lost, Counter[str]] = defaultdict(Counter)
    rows = {}
    for one in _candidates(kineto, table, lost):
        collective = one.entry.collective
        assert collective is not None
        size_bytes = _size_bytes(one, table)
        group = _group_of(one, book, table)
        if size_bytes is None or group is None:
            why = _Lost.SIZE if size_bytes is None else _Lost.GROUP
            lost[why][function_name(one.event.name)] += 1
            continue
        row = device_row(0, one.event)
        row.kind, row.comm_type, row.comm_size = NodeKind.COMM_COLL, int(collective), size_bytes
        row.pg_name = group
        rows[one.event.place] = row
    return OtherKernels(
        rows, tuple(_left_out(lost[why], why.value, _REMEDIES[why]) for why in _Lost if lost[why])
    )


def _candidates(kineto: KinetoTrace, table: KernelTable, lost: dict[_Lost, Counter[str]]) -> list[_Candidate]:
    """Kernels that communicate by their own name, or that are the longest of a call which does. One of each call: the others
    prepare it or follow on it."""
    alone: list[_Candidate] = []
    of_call: dict[int, list[_Candidate]] = defaultdict(list)
    by_name: set[int] = set()
    for event in kineto.device:
        if event.communicates or event.name.startswith(("Memcpy", "Memset")):
            continue
        launcher = kineto.launchers.get(event.external) if event.external is not None else None
        entry = table.kernel(event.name)
        if entry is not None and entry.collective is None:
            continue
        called = table.operation(launcher.name) if launcher else None
        if entry is None and called is not None and called.collective is not None:
            of_call[event.external or 0].append(_Candidate(event, called, launcher))
        elif entry is not None and (launcher is None or entry.size_bytes is not None):
            alone.append(_Candidate(event, entry, launcher))
        elif entry is not None:
            by_name.add(event.external or 0)
            of_call[event.external or 0].insert(0, _Candidate(event, entry, launcher))
        elif called is None and looks_communicating(event.name):
            lost[_Lost.NAME][function_name(event.name)] += 1
    for external, several in of_call.items():
        named = [one for one in several if table.kernel(one.event.name)] if external in by_name else several
        alone.append(max(named, key=lambda one: one.event.duration_ns))
    return alone


def _group_of(one: _Candidate, book: GroupBook, table: KernelTable) -> str | None:
    """Key of the group that the table states, else that of the call's own arguments, else the only one; None if open."""
    stated = one.entry.group or (_operation(one, table) or one.entry).group
    if stated is None and one.launcher is not None and "Process Group Name" in one.launcher.arguments:
        return _group(replace(one.event, arguments=one.launcher.arguments), book)
    return _only_group(book) if stated is None else stated


def _operation(one: _Candidate, table: KernelTable) -> TableEntry | None:
    return table.operation(one.launcher.name) if one.launcher else None


def _size_bytes(one: _Candidate, table: KernelTable) -> int | None:
    """What a rank puts in, None where nothing tells."""
    launcher = one.launcher
    if one.entry.size_bytes is not None or launcher is None:
        return one.entry.size_bytes
    if "Collective name" in launcher.arguments:
        dtype = launcher.arguments.get("dtype")
        count, each = launcher.arguments.get("In msg nelems"), _item_bytes(dtype)
        return count * each if type(count) is int and each and 0 <= count <= INT64_MAX // each else None
    entry = _operation(one, table)
    if entry is None and not _names(launcher.name, one.entry.collective):
        return None
    sizes = [_tensor_bytes(dims, kind) for dims, kind in zip(launcher.dims, launcher.types, strict=False)]
    if entry is not None and entry.argument is not None:
        return sizes[entry.argument] if entry.argument < len(sizes) else None
    return next((size for size in sizes if size is not None), None)


def _names(call: str, collective: CollectiveKind | None) -> bool:
    """Whether a call is named after the collective, such as vllm::all_reduce: its first tensor is then what a rank puts in."""
    plain = "".join(c for c in call.lower() if c.isalnum())
    return collective is not None and collective.name.lower().replace("_", "") in plain


def _tensor_bytes(dims: object, kind: object) -> int | None:
    """Bytes of an argument by its shape and type; None for one that is no tensor."""
    each = _item_bytes(kind)
    if (
        not each
        or not isinstance(dims, list)
        or not dims
        or not all(type(one) is int and one >= 0 for one in dims)
    ):
        return None
    if len(dims) > 64 or any(one > INT64_MAX for one in dims):
        return None
    size = prod(dims) * each
    return size if size <= INT64_MAX else None


def _item_bytes(kind: object) -> int | None:
    if not isinstance(kind, str):
        return None
    return ITEM_BYTES.get("".join(c for c in kind.lower().removeprefix("c10::") if c.isalnum()))


def _only_group(book: GroupBook) -> str | None:
    """Key of the only group of several ranks that the rank recorded, of whatever name; None where there are others."""
    several = {key: members for key, members in book.members.items() if len(members) > 1}
    if not several:
        # A job of one rank, or one that recorded no groups, has none but that of all.
        return "" if len(book.members) <= 1 else next(iter(book.members))
    return next(iter(several)) if len(set(several.values())) == 1 else None


def _told_by_launchers(kineto: KinetoTrace) -> dict[str, DeviceEvent]:
    """Place of an NCCL kernel without arguments -> the kernel with those of the call that launched it and no other."""
    bare: dict[int, list[DeviceEvent]] = defaultdict(list)
    for event in kineto.kernels:
        if event.external is not None:
            bare[event.external].append(event)
    found = {}
    for external, events in bare.items():
        launcher = kineto.launchers.get(external)
        (event, *others) = events
        if not others and launcher and "Collective name" in launcher.arguments and not event.arguments:
            found[event.place] = replace(event, arguments=launcher.arguments)
    return found


def _root(row: NodeRow, event: DeviceEvent, kineto: KinetoTrace) -> int:
    """Root of what has one, which the call knows and its kernel does not."""
    launcher = kineto.launchers.get(event.external) if event.external is not None else None
    root = launcher.arguments.get("Rank") if launcher is not None else None
    return root if row.comm_type in ROOTED and type(root) is int and 0 <= root <= MAX_RANK else ABSENT


def _calls_alone(kineto: KinetoTrace, others: OtherKernels) -> list[Remark]:
    """What the host called and no kernel stands for: backends that use no GPU, or a recording without GPU activity."""
    calls = Counter(
        {
            name: count
            for name, count in kineto.host_names.items()
            if backend_of(name) not in ("", "nccl", "rccl")
        }
    )
    remarks = []
    if calls:
        backends = ", ".join(sorted({backend_of(name) for name in calls}))
        remarks.append(
            _left_out(
                calls,
                f"communicate over {backends}, which leaves no kernel here",
                BESIDE.format("host"),
                "calls",
            )
        )
    elif not kineto.begun_before and not kineto.kernels and not others.rows:
        for some in ("record_param_comms", "c10d::", "nccl:"):
            named = Counter({name: n for name, n in kineto.host_names.items() if name.startswith(some)})
            if named:
                what = "communicate, and no kernel of theirs is here"
                remedy = f"record GPU activity too, or {BESIDE.format('host')}"
                remarks.append(_left_out(named, what, remedy, "calls"))
                break
    return remarks


def _left_out(names: Counter[str], why: str, remedy: str, things: str = "kernels") -> Remark:
    count = names.total()
    told = [f"{each} {shown(name[:64])}" for name, each in names.most_common(_NAMES_TOLD)]
    more = f" and {len(names) - _NAMES_TOLD} other names" if len(names) > _NAMES_TOLD else ""
    return Remark(f"{count} {things} {why}: {', '.join(told)}{more}", remedy, left_out=count)


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
    item_bytes = _item_bytes(dtype)
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
