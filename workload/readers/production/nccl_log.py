"""Reads the debug log of NCCL and RCCL: the calls that `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL` prints.

A log has no times: the calls of a rank run one after another, sends and receives of one group (equal `opCount`) at once.
Lines of communicator set-up (INIT) join the processes, and distinguish the ranks of a process with several GPUs; without
them the communicators of different processes are joined by their order. The log of one process of a job that has only
collectives of all ranks represents all of them.

Format: NVIDIA/nccl:src/enqueue.cc (opCount lines), src/init.cc (Init COMPLETE). RCCL adds the rank in the communicator.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.communicator_calls import (
    RECV,
    SEND,
    Call,
    CallLog,
    Process,
    collective_of,
    job_of_calls,
)
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import MAX_RANKS
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, lines_of, quote
from etloop.workload.trace.trace import Trace

_PREFIX: Final = re.compile(
    r"(?P<host>[^\s:]{1,255}):(?P<pid>[0-9]{1,10}):[0-9]{1,10} \[[0-9]{1,4}\](?: [^ ]{1,40})? NCCL [A-Z]{4,5}\s+(?P<text>.*)"
)
_CALL: Final = re.compile(
    r"(?P<function>[A-Za-z]{3,24}): opCount (?P<op>[0-9a-f]{1,16}) .*?count (?P<count>[0-9]{1,18}) datatype (?P<type>[0-9]{1,3})"
    r".*? root (?P<root>-?[0-9]{1,9}) comm (?P<comm>0x[0-9a-f]{1,16}) \[nranks=(?P<ranks>[0-9]{1,8})\]"
)
_SET_UP: Final = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>[0-9]{1,8}) n[rR]anks (?P<ranks>[0-9]{1,8}) "
    r"(?:cudaDev (?P<device>[0-9]{1,4}))?.*?(?:commId (?P<id>0x[0-9a-f]{1,16}) )?- Init (?:COMPLETE|START)"
)
_RCCL_RANK: Final = re.compile(r" globalrank ([0-9]{1,8})\b")
_ITEM_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element by `ncclDataType_t`: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,
float8 e4m3 and e5m2 (NVIDIA/nccl:src/nccl.h.in)."""


@dataclass(frozen=True, slots=True)
class _SetUp:
    """A communicator as a process logs its set-up."""

    id: str
    """Name that all members log; "" if they log none."""
    rank: int
    device: int


@dataclass(frozen=True, slots=True)
class _Logged:
    """A call, with the communicator's address and set-up in its process."""

    comm: str
    set_up: _SetUp | None
    rank: int
    """Rank in the communicator, if the call states it; else -1."""
    call: Call

    @property
    def content(self) -> tuple[object, ...]:
        """Return what calls of all members of a communicator have in common."""
        call = self.call
        return call.function, call.size_bytes, call.root, call.number


@dataclass(slots=True)
class _Lines:
    """The lines of all files that matter."""

    set_up: dict[tuple[Process, str], _SetUp] = field(default_factory=dict)
    calls: dict[Process, list[_Logged]] = field(default_factory=lambda: defaultdict(list))
    others: Counter[str] = field(default_factory=Counter)
    """Calls of functions that are not replayed, by name."""


def begins(head: bytes) -> bool:
    """Decide whether a file begins like a debug log of NCCL."""
    return any(_PREFIX.search(line) for line in head_lines(head)[:200])


def read_nccl_log(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of the log files. Raises `FileFault`."""
    lines = _Lines()
    for path in files:
        try:
            _read_file(path, lines)
        except FileFault as fault:
            raise FileFault(fault.line, f"{path.name}: {fault.what}", fault.remedy) from None
    if not lines.calls:
        problem = "has no call of a collective"
        raise FileFault(0, problem, "log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL")
    log = CallLog()
    if others := lines.others:
        names = ", ".join(f"{count} {name}" for name, count in others.most_common(6))
        problem = f"{others.total()} calls of other functions than collectives, sends and receives: {names}"
        log.notes.append(Note(problem, "they are left out", left_out=others.total()))
    problem = "a debug log has no times: calls run one after another without compute"
    log.notes.append(Note(problem, "a profiler records times"))
    _join(_by_rank(lines.calls, log), log)
    return job_of_calls(log, source, "NCCL debug log")


def _read_file(path: Path, lines: _Lines) -> None:
    for number, line in lines_of(path):
        prefix = _PREFIX.search(line)
        if prefix is None:
            continue
        process, text = Process(prefix["host"], int(prefix["pid"])), prefix["text"]
        if match := _SET_UP.search(text):
            device = int(match["device"] or 0)
            lines.set_up[process, match["comm"]] = _SetUp(match["id"] or "", int(match["rank"]), device)
        elif match := _CALL.search(text):
            call = _call(match, number)
            if call is None:
                lines.others[match["function"]] += 1
                continue
            stated = _RCCL_RANK.search(text)
            set_up = lines.set_up.get((process, match["comm"]))
            lines.calls[process].append(
                _Logged(match["comm"], set_up, int(stated[1]) if stated else -1, call)
            )
        elif ": opCount " in text:
            problem = f"{quote(text)} is not a call as NCCL prints it"
            raise FileFault(number, problem, "copy the log whole; each call is one line")


def _call(match: re.Match[str], line: int) -> Call | None:
    function = match["function"].lower().removeprefix("nccl")
    if function not in (SEND, RECV) and collective_of(function) is None:
        return None
    kind, members, root = int(match["type"]), int(match["ranks"]), int(match["root"])
    if kind >= len(_ITEM_BYTES):
        problem = f"datatype is {kind}, expected 0 to {len(_ITEM_BYTES) - 1}"
        raise FileFault(line, problem, "a new type of NCCL: report it")
    if not 1 <= members <= MAX_RANKS or not -1 <= root < members:
        raise FileFault(line, f"nranks is {members} and root {root}, expected 1 to {MAX_RANKS} and a rank")
    is_p2p = function in (SEND, RECV)
    is_rooted = function in ("broadcast", "reduce", "gather", "scatter")
    return Call(
        communicator="",
        rank=0,
        members=members,
        function=function,
        size_bytes=int(match["count"]) * _ITEM_BYTES[kind],
        number=int(match["op"], 16),
        peer=root if is_p2p else -1,
        root=root if is_rooted else None,
        group=int(match["op"], 16) if is_p2p else -1,
        line=line,
    )


def _by_rank(calls: dict[Process, list[_Logged]], log: CallLog) -> dict[Process, list[_Logged]]:
    """Return the calls by rank: a process that has several GPUs, and so several members of one communicator, is as many
    ranks."""
    split: dict[Process, list[_Logged]] = defaultdict(list)
    are_devices = _are_devices(calls)
    if are_devices:
        problem = "no set-up of communicators is logged: those of one process have the same calls, and are taken to be its GPUs"
        log.notes.append(Note(problem, "log with NCCL_DEBUG_SUBSYS=INIT,COLL"))
    for process, own in calls.items():
        ranks: dict[str, set[int]] = defaultdict(set)
        for logged in own:
            if logged.set_up is not None and logged.set_up.id:
                ranks[logged.set_up.id].add(logged.set_up.rank)
        has_devices = any(len(members) > 1 for members in ranks.values())
        addresses = list(dict.fromkeys(logged.comm for logged in own))
        for logged in own:
            device = 0
            if are_devices:
                device = addresses.index(logged.comm)
            elif has_devices and logged.set_up is not None:
                device = logged.set_up.device
            split[Process(process.host, process.pid, device)].append(logged)
    return split


def _are_devices(calls: dict[Process, list[_Logged]]) -> bool:
    """Decide, without set-up lines, whether every communicator of a process is one of its GPUs: all processes together
    have as many as the communicator has ranks, and the calls are the same on each."""
    contents: set[tuple[tuple[object, ...], ...]] = set()
    count = 0
    for own in calls.values():
        by_address: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for logged in own:
            if logged.set_up is not None or logged.rank >= 0 or logged.call.is_p2p:
                return False
            by_address[logged.comm].append((logged.call.members, *logged.content))
        contents.update(tuple(row) for row in by_address.values())
        count += len(by_address)
    members = {logged.call.members for own in calls.values() for logged in own}
    return len(contents) == 1 and count > len(calls) and members == {count}


def _join(calls: dict[Process, list[_Logged]], log: CallLog) -> None:
    """Add the calls of all ranks to the log with the communicators that they share."""
    members = {logged.call.members for own in calls.values() for logged in own}
    if len(calls) == 1 and members != {1}:
        ((process, own),) = calls.items()
        _replicate(process, own, members, log)
        return
    unnamed = sum(any(logged.set_up is None for logged in own) for own in calls.values())
    if unnamed:
        problem = f"{unnamed} processes log no set-up of their communicators: these are joined in order of first use"
        log.notes.append(Note(problem, "log with NCCL_DEBUG_SUBSYS=INIT,COLL"))
    next_rank: dict[str, int] = defaultdict(int)
    for process in sorted(calls, key=lambda user: (user.host, user.pid, user.device)):
        places: dict[tuple[str, _SetUp | None], tuple[str, int]] = {}
        order: dict[int, int] = defaultdict(int)
        counts: dict[tuple[str, bool], int] = defaultdict(int)
        for logged in calls[process]:
            key, call = (logged.comm, logged.set_up), logged.call
            if key not in places:
                name = logged.set_up.id if logged.set_up else ""
                if not name:
                    name = f"{call.members} ranks, {order[call.members]}"
                    order[call.members] += 1
                rank = logged.set_up.rank if logged.set_up else logged.rank
                if rank < 0:
                    rank = next_rank[name]
                    next_rank[name] += 1
                places[key] = name, rank
            name, rank = places[key]
            # `opCount` counts collectives alone, and groups once.
            number = counts[name, call.is_p2p]
            counts[name, call.is_p2p] += 1
            log.calls[process].append(replace(call, communicator=name, rank=rank, number=number))


def _replicate(process: Process, calls: Sequence[_Logged], members: set[int], log: CallLog) -> None:
    """Add the calls of one process for every rank of its communicator."""
    has_p2p = any(logged.call.is_p2p for logged in calls)
    if len(members) > 1 or has_p2p:
        problem = f"is the log of one process of several, whose communicators have {', '.join(map(str, sorted(members)))} ranks"
        if has_p2p:
            problem = "is the log of one process of several, with sends or receives"
        raise FileFault(0, problem, "give the logs of all processes (NCCL_DEBUG_FILE=nccl.%h.%p.log)")
    (size,) = members
    addresses = list(dict.fromkeys(logged.comm for logged in calls))
    counts: dict[str, int] = defaultdict(int)
    for logged in calls:
        name = f"{size} ranks, {addresses.index(logged.comm)}"
        for rank in range(size):
            call = replace(logged.call, communicator=name, rank=rank, number=counts[logged.comm])
            log.calls[Process(process.host, rank)].append(call)
        counts[logged.comm] += 1
    problem = f"is the log of one of {size} ranks"
    if len(addresses) > 1:
        problem += f", which has {len(addresses)} communicators: all are taken to have the same ranks"
    log.notes.append(
        Note(problem, f"all {size} ranks are taken to make the same calls: give the logs of all")
    )
