"""Finds the communication of kernels in a Kineto trace: by their own arguments, by the call that launched them, or by a
table of names.

Decides which kernels other than NCCL's communicate, and where their bytes and group come from. Communication that
cannot be replayed, because no source describes it, is counted by name and stays the compute that it was recorded as.
Pure.
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
    STATE_THEM,
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
from etloop.workload.trace.trace_names import printable_name

ITEM_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "unsignedchar", "signedchar", "int8", "uint8"), 1),
    **dict.fromkeys(("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz", "float8e8m0fnu"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "float16", "int16", "cuint16", "uint16"), 2),
    **dict.fromkeys(("int", "float", "float32", "int32", "uint32", "cint"), 4),
    **dict.fromkeys(("long", "longint", "double", "float64", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}
"""Bytes of an element by the profiler's name of its type, in lower-case letters and digits only."""

_NAMES_TOLD: Final = 6
_ONECCL_CATEGORY: Final = "collective_comm"
_CATEGORIES: Final = frozenset(
    "kernel gpu_memcpy gpu_memset cuda_runtime cuda_driver hip_runtime hip_driver xpu_runtime xpu_driver cpu_op "
    "user_annotation gpu_user_annotation python_function ac2g async_cpu_to_gpu async_gpu fwdbwd trace overhead "
    "cpu_instant_event external_correlation cuda_sync cuda_event xpu_sync cuda_profiler_range mtia_runtime hpu_op "
    "privateuse1_runtime privateuse1_driver collective_comm none".split()
)
"""Categories of libkineto (pytorch/kineto:libkineto/include/ActivityType.h) that are read, or have no GPU work."""


class _Completeness(Enum):
    """Completeness of the arguments of an NCCL kernel."""

    ALL = "all"
    SPLITS_CUT = "all but the splits"
    NOTHING = "nothing"


class _LossReason(Enum):
    """Reasons why communication cannot be replayed, as worded in a finding."""

    SIZE = "communicate, but their bytes are not recorded"
    GROUP = "communicate, but their group of ranks is not recorded"
    NAME = "have names of communication kernels, but are not in the kernel table"


_REMEDIES: Final = {
    _LossReason.SIZE: f"record shapes (record_shapes=True) without CUDA graphs, or {STATE_THEM} with their bytes",
    _LossReason.GROUP: f"{STATE_THEM} with their group",
    _LossReason.NAME: f"{STATE_THEM}, with collective none where they do not communicate",
}


@dataclass(frozen=True, slots=True)
class OtherKernels:
    """Communication in a Kineto trace by kernels other than NCCL's."""

    rows: dict[str, NodeRow]
    """Operation of a kernel, by the place of the kernel."""
    remarks: tuple[Remark, ...]
    """Communication that is left out."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    event: DeviceEvent
    entry: TableEntry
    launcher: Launcher | None


def read_device(kineto: KinetoTrace, book: GroupBook, table: KernelTable) -> RankRead:
    """Return a rank from a Kineto trace alone: operations described by kernel arguments or by the calls that launched
    the kernels.

    Raises `JsonFault`.
    """
    book.add(kineto.groups, "distributedInfo.pg_config")
    other_ops = other_kernels(kineto, book, table)
    described = _described_by_calls(kineto, other_ops)
    with_arguments = _with_launcher_arguments(kineto) | described
    rows = []
    outcomes: Counter[_Completeness] = Counter()
    for node_id, event in enumerate(kineto.device):
        row = device_row(node_id, event)
        if event.communicates or event.place in described:
            outcomes[_fill_by_arguments(row, with_arguments.get(event.place, event), book)] += 1
            row.root = _root(row, event, kineto)
        elif event.place in other_ops.rows:
            row = replace(other_ops.rows[event.place], node_id=node_id)
        rows.append(row)
    remarks = []
    if kernels_without_arguments := outcomes[_Completeness.NOTHING]:
        problem = (
            f"{kernels_without_arguments} NCCL kernels carry no collective arguments (profilers before 2024): "
            "sizes and groups are unknown"
        )
        remarks.append(Remark(problem, BESIDE.format("host")))
    if operations_with_cut_splits := outcomes[_Completeness.SPLITS_CUT]:
        problem = (
            f"{operations_with_cut_splits} all-to-alls have split sizes that the profiler shortened: "
            "their buffers are split evenly"
        )
        remarks.append(Remark(problem, BESIDE.format("host")))
    return RankRead(
        tuple(rows),
        "kineto",
        book.members,
        (
            *remarks,
            *_unknown_categories(kineto),
            *other_ops.remarks,
            *(() if described else _calls_alone(kineto, other_ops)),
        ),
    )


def other_kernels(kineto: KinetoTrace, book: GroupBook, table: KernelTable) -> OtherKernels:
    """Return the operations of kernels other than NCCL's, and remarks on those that cannot be replayed. `book` has the
    rank's groups."""
    lost_names: dict[_LossReason, Counter[str]] = defaultdict(Counter)
    rows = {}
    for candidate in _candidates(kineto, table, lost_names):
        collective = candidate.entry.collective
        assert collective is not None
        size_bytes = _size_bytes(candidate, table)
        group = _group_of(candidate, book, table)
        if size_bytes is None or group is None:
            reason = _LossReason.SIZE if size_bytes is None else _LossReason.GROUP
            lost_names[reason][function_name(candidate.event.name)] += 1
            continue
        row = device_row(0, candidate.event)
        row.kind, row.comm_type, row.comm_size = NodeKind.COMM_COLL, int(collective), size_bytes
        row.pg_name = group
        rows[candidate.event.place] = row
    return OtherKernels(
        rows,
        tuple(
            _left_out(lost_names[reason], reason.value, _REMEDIES[reason])
            for reason in _LossReason
            if lost_names[reason]
        ),
    )


def _candidates(
    kineto: KinetoTrace, table: KernelTable, lost: dict[_LossReason, Counter[str]]
) -> list[_Candidate]:
    """Return the kernels that communicate by their own name, and the longest kernel of each communicating call. All
    other kernels of a call prepare or complete the operation."""
    candidates: list[_Candidate] = []
    kernels_of_call: dict[int, list[_Candidate]] = defaultdict(list)
    calls_by_kernel_name: set[int] = set()
    for event in kineto.device:
        if event.communicates or event.name.startswith(("Memcpy", "Memset")):
            continue
        launcher = kineto.launchers.get(event.external) if event.external is not None else None
        entry = table.kernel(event.name)
        if entry is not None and entry.collective is None:
            continue
        call_entry = table.operation(launcher.name) if launcher else None
        if entry is None and call_entry is not None and call_entry.collective is not None:
            kernels_of_call[event.external or 0].append(_Candidate(event, call_entry, launcher))
        elif entry is not None and (launcher is None or entry.size_bytes is not None):
            candidates.append(_Candidate(event, entry, launcher))
        elif entry is not None:
            calls_by_kernel_name.add(event.external or 0)
            kernels_of_call[event.external or 0].insert(0, _Candidate(event, entry, launcher))
        elif (
            call_entry is None
            and looks_communicating(event.name)
            and not _is_of_collective_call(kineto, launcher)
        ):
            lost[_LossReason.NAME][function_name(event.name)] += 1
    for external, call_candidates in kernels_of_call.items():
        eligible = (
            [candidate for candidate in call_candidates if table.kernel(candidate.event.name)]
            if external in calls_by_kernel_name
            else call_candidates
        )
        candidates.append(max(eligible, key=lambda candidate: candidate.event.duration_ns))
    return candidates


def _is_of_collective_call(kineto: KinetoTrace, launcher: Launcher | None) -> bool:
    """Decide whether the launching call is the collective (`_described_by_calls`), so that its kernels' names do not
    count."""
    return launcher is not None and launcher.name == "record_param_comms" and not kineto.kernels


def _group_of(candidate: _Candidate, book: GroupBook, table: KernelTable) -> str | None:
    """Return the group's key: from the table, else from the call's own arguments, else the only group; None if
    undetermined."""
    table_group = candidate.entry.group or (_operation(candidate, table) or candidate.entry).group
    if (
        table_group is None
        and candidate.launcher is not None
        and "Process Group Name" in candidate.launcher.arguments
    ):
        return _group(replace(candidate.event, arguments=candidate.launcher.arguments), book)
    return _only_group(book) if table_group is None else table_group


def _operation(candidate: _Candidate, table: KernelTable) -> TableEntry | None:
    return table.operation(candidate.launcher.name) if candidate.launcher else None


def _size_bytes(candidate: _Candidate, table: KernelTable) -> int | None:
    """Return the bytes that a rank puts in, None if no source gives them."""
    launcher = candidate.launcher
    if candidate.entry.size_bytes is not None or launcher is None:
        return candidate.entry.size_bytes
    if "Collective name" in launcher.arguments:
        dtype = launcher.arguments.get("dtype")
        count, item_bytes = launcher.arguments.get("In msg nelems"), _item_bytes(dtype)
        return (
            count * item_bytes
            if type(count) is int and item_bytes and 0 <= count <= INT64_MAX // item_bytes
            else None
        )
    entry = _operation(candidate, table)
    if entry is None and not _names(launcher.name, candidate.entry.collective):
        return None
    sizes = [_tensor_bytes(dims, kind) for dims, kind in zip(launcher.dims, launcher.types, strict=False)]
    if entry is not None and entry.argument is not None:
        return sizes[entry.argument] if entry.argument < len(sizes) else None
    return next((size for size in sizes if size is not None), None)


def _names(call: str, collective: CollectiveKind | None) -> bool:
    """Decide whether a call is named after the collective, such as vllm::all_reduce; its first tensor is then the
    input."""
    plain_name = "".join(c for c in call.lower() if c.isalnum())
    return collective is not None and collective.name.lower().replace("_", "") in plain_name


def _tensor_bytes(dims: object, kind: object) -> int | None:
    """Return the bytes of an argument by its shape and type; None for one that is not a tensor."""
    item_bytes = _item_bytes(kind)
    if (
        not item_bytes
        or not isinstance(dims, list)
        or not dims
        or not all(type(extent) is int and extent >= 0 for extent in dims)
    ):
        return None
    if len(dims) > 64 or any(extent > INT64_MAX for extent in dims):
        return None
    size = prod(dims) * item_bytes
    return size if size <= INT64_MAX else None


def _item_bytes(kind: object) -> int | None:
    if not isinstance(kind, str):
        return None
    return ITEM_BYTES.get("".join(c for c in kind.lower().removeprefix("c10::") if c.isalnum()))


def _only_group(book: GroupBook) -> str | None:
    """Return the key of the only group of several ranks that the rank recorded, under any name; None if there are
    different ones. Without such a group, return the group of all ranks."""
    larger_groups = {key: members for key, members in book.members.items() if len(members) > 1}
    if not larger_groups:
        # A job of one rank, or one that recorded no groups, only has the group of all ranks.
        return "" if len(book.members) <= 1 else next(iter(book.members))
    return next(iter(larger_groups)) if len(set(larger_groups.values())) == 1 else None


def _with_launcher_arguments(kineto: KinetoTrace) -> dict[str, DeviceEvent]:
    """Return, by place, the NCCL kernels without arguments, each with the arguments of its call. Only for calls that
    launched one kernel."""
    events_by_call: dict[int, list[DeviceEvent]] = defaultdict(list)
    for event in kineto.kernels:
        if event.external is not None:
            events_by_call[event.external].append(event)
    completed = {}
    for external, events in events_by_call.items():
        launcher = kineto.launchers.get(external)
        (event, *further_events) = events
        if (
            not further_events
            and launcher
            and "Collective name" in launcher.arguments
            and not event.arguments
        ):
            completed[event.place] = replace(event, arguments=launcher.arguments)
    return completed


def _described_by_calls(kineto: KinetoTrace, others: OtherKernels) -> dict[str, DeviceEvent]:
    """Return, by place, the longest kernel of each call that describes a collective, with the arguments of the call.

    Only in a recording without NCCL kernels: there a backend such as oneCCL names its kernels in its own way.
    """
    if kineto.kernels:
        return {}
    events_by_call: dict[int, list[DeviceEvent]] = defaultdict(list)
    for event in kineto.device:
        if event.external is not None and not event.name.startswith(("Memcpy", "Memset")):
            events_by_call[event.external].append(event)
    described = {}
    for external, events in events_by_call.items():
        launcher = kineto.launchers.get(external)
        label = launcher.arguments.get("Collective name") if launcher is not None else None
        meaning = meaning_of(label) if isinstance(label, str) else None
        if launcher is None or meaning is None or any(event.place in others.rows for event in events):
            continue
        if meaning.role in (Role.COLLECTIVE, Role.SEND, Role.RECV):
            longest = max(events, key=lambda event: event.duration_ns)
            described[longest.place] = replace(longest, arguments=launcher.arguments)
    return described


def _root(row: NodeRow, event: DeviceEvent, kineto: KinetoTrace) -> int:
    """Return the root of a rooted collective from the arguments of its call, because the kernel lacks it; else
    `ABSENT`."""
    launcher = kineto.launchers.get(event.external) if event.external is not None else None
    root = launcher.arguments.get("Rank") if launcher is not None else None
    return root if row.comm_type in ROOTED and type(root) is int and 0 <= root <= MAX_RANK else ABSENT


def _calls_alone(kineto: KinetoTrace, others: OtherKernels) -> list[Remark]:
    """Return remarks on host calls without a kernel: of backends that use no GPU, or in a recording without GPU
    activity."""
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
                f"communicate over {backends}, which runs no GPU kernel",
                BESIDE.format("host"),
                "calls",
            )
        )
    elif not kineto.begun_before and not kineto.kernels and not others.rows:
        if oneccl_count := kineto.counts[_ONECCL_CATEGORY]:
            problem = (
                "are oneCCL's records of collectives, which state no bytes, and no kernel describes them"
            )
            names = Counter({_ONECCL_CATEGORY: oneccl_count})
            remarks.append(_left_out(names, problem, BESIDE.format("host"), "events"))
        for prefix in ("record_param_comms", "c10d::", "nccl:"):
            matching_calls = Counter(
                {name: n for name, n in kineto.host_names.items() if name.startswith(prefix)}
            )
            if matching_calls:
                problem, remedy = _without_kernels(kineto)
                remarks.append(_left_out(matching_calls, problem, remedy, "calls"))
                break
    return remarks


def _unknown_categories(kineto: KinetoTrace) -> list[Remark]:
    """Return a remark on events that were not read: of categories that no profiler known here writes, or without one in
    a trace without GPU operations."""
    unknown = Counter(
        {name: count for name, count in kineto.counts.items() if name.lower() not in _CATEGORIES}
    )
    bare_count = kineto.counts["None"]
    if bare_count and not (kineto.device or kineto.host_names or kineto.calls):
        unknown["None"] = bare_count
    if not unknown:
        return []
    names = ", ".join(
        f"{count} {printable_name(name[:24])}" for name, count in unknown.most_common(_NAMES_TOLD)
    )
    problem = (
        f"{unknown.total()} events of unknown categories were not read (None: without a category): {names}"
    )
    return [
        Remark(
            problem, "their communication and time are missing from the replay; name the profiler in an issue"
        )
    ]


def _without_kernels(kineto: KinetoTrace) -> tuple[str, str]:
    """Return why no kernel of communicating calls is known, and the remedy."""
    names = sorted(
        {function_name(event.name) for event in kineto.device if event.external in kineto.launchers}
    )
    if names:
        problem = f"communicate by kernels of unknown meaning ({', '.join(map(printable_name, names[:_NAMES_TOLD]))})"
        return problem, STATE_THEM
    problem = "communicate, but the recording has no kernel of them"
    return problem, f"record GPU activity too, or {BESIDE.format('host')}"


def _left_out(names: Counter[str], why: str, remedy: str, things: str = "kernels") -> Remark:
    count = names.total()
    name_counts = [
        f"{name_count} {printable_name(name[:64])}" for name, name_count in names.most_common(_NAMES_TOLD)
    ]
    suffix = f" and {len(names) - _NAMES_TOLD} other names" if len(names) > _NAMES_TOLD else ""
    return Remark(f"{count} {things} {why}: {', '.join(name_counts)}{suffix}", remedy, left_out=count)


def _fill_by_arguments(row: NodeRow, event: DeviceEvent, book: GroupBook) -> _Completeness:
    """Make a row the network operation of its kernel; return how complete the kernel's arguments are. Raises
    `JsonFault`."""
    arguments, place = event.arguments, event.place
    row.kind = NodeKind.COMM_COLL
    row.comm_type = kernel_collective(event.name)
    label = arguments.get("Collective name")
    meaning = meaning_of(label) if isinstance(label, str) else None
    if meaning is None or meaning.role not in (Role.COLLECTIVE, Role.SEND, Role.RECV):
        return _Completeness.NOTHING
    elements = as_int(arguments.get("In msg nelems", 0), f"{place}.In msg nelems", 0)
    if not elements and meaning.role is Role.RECV:
        elements = as_int(arguments.get("Out msg nelems", 0), f"{place}.Out msg nelems", 0)
    dtype = as_text(arguments.get("dtype", ""), f"{place}.dtype")
    item_bytes = _item_bytes(dtype)
    if item_bytes is None and elements:
        raise JsonFault(f"{place}.dtype", f"is {dtype[:24]!a}, whose size is unknown")
    row.comm_size = as_int(elements * (item_bytes or 0), place, 0)
    if meaning.role is Role.COLLECTIVE:
        row.comm_type = ABSENT if meaning.collective is None else int(meaning.collective)
        row.pg_name = _group(event, book)
        return _Completeness.SPLITS_CUT if _fill_splits(row, event, item_bytes or 0) else _Completeness.ALL
    is_send = meaning.role is Role.SEND
    row.kind, row.comm_type = (NodeKind.COMM_SEND if is_send else NodeKind.COMM_RECV), ABSENT
    peer = arguments.get("Dst Rank" if is_send else "Src Rank")
    if peer is not None:
        setattr(row, "comm_dst" if is_send else "comm_src", as_int(peer, f"{place}.peer", 0, MAX_RANK))
    return _Completeness.ALL


def _fill_splits(row: NodeRow, event: DeviceEvent, item_bytes: int) -> bool:
    """Set the split sizes of an all-to-all; return whether the profiler shortened their list, as it does for many
    ranks."""
    if row.comm_type != CollectiveKind.ALL_TO_ALL:
        return False
    send_text, recv_text = (str(event.arguments.get(f"{side} split size", "")) for side in ("In", "Out"))
    row.splits = split_bytes(parse_split_text(send_text, event.place), row.comm_size, event.place)
    output_bytes = (
        as_int(event.arguments.get("Out msg nelems", 0), f"{event.place}.Out msg nelems", 0) * item_bytes
    )
    row.expected_splits = split_bytes(parse_split_text(recv_text, event.place), output_bytes, event.place)
    return SHORTENED in send_text


def _group(event: DeviceEvent, book: GroupBook) -> str | None:
    name = event.arguments.get("Process Group Name")
    if not isinstance(name, str) or not name:
        return None
    ranks_text = event.arguments.get("Process Group Ranks")
    if isinstance(ranks_text, str) and name not in book.members:
        ranks = parse_rank_text(ranks_text, f"{event.place}.Process Group Ranks")
        if ranks:
            book.members[name] = ranks
    return name
