"""Reads the debug log of NCCL and RCCL: the calls that `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL` prints.

A log has no times: the calls of a process run one after another. Lines of communicator set-up (INIT) join the
processes; without them the communicators of different processes are joined by their order. The log of one process
of a job that has only collectives of all ranks represents all of them.

Format: NVIDIA/nccl:src/enqueue.cc (opCount lines), src/init.cc (Init COMPLETE).
"""

from __future__ import annotations

import re
from collections import defaultdict
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
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>[0-9]{1,8}) n[rR]anks (?P<ranks>[0-9]{1,8}) .*?"
    r"(?:commId (?P<id>0x[0-9a-f]{1,16}) )?- Init (?:COMPLETE|START)"
)
_ITEM_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element by `ncclDataType_t`: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,
float8 e4m3 and e5m2 (NVIDIA/nccl:src/nccl.h.in)."""


@dataclass(slots=True)
class _Comm:
    """A communicator as one process names it."""

    id: str
    rank: int
    calls: list[Call] = field(default_factory=list)


def begins(head: bytes) -> bool:
    """Decide whether a file begins like a debug log of NCCL."""
    return any(_PREFIX.search(line) for line in head_lines(head)[:200])


def read_nccl_log(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of the log files. Raises `FileFault`."""
    set_up: dict[tuple[Process, str], tuple[str, int]] = {}
    calls: dict[Process, list[tuple[str, Call]]] = defaultdict(list)
    unsupported = 0
    for path in files:
        try:
            unsupported += _read_file(path, set_up, calls)
        except FileFault as fault:
            raise FileFault(fault.line, f"{path.name}: {fault.what}", fault.remedy) from None
    if not calls:
        problem = "has no call of a collective"
        raise FileFault(0, problem, "log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL")
    log = CallLog()
    if unsupported:
        problem = f"{unsupported} calls of other functions than collectives, send and receive"
        log.notes.append(Note(problem, "they are left out", left_out=unsupported))
    log.notes.append(
        Note(
            "a debug log has no times: calls run one after another without compute",
            "a profiler records times",
        )
    )
    _join(calls, set_up, log)
    return job_of_calls(log, source, "NCCL debug log")


def _read_file(
    path: Path,
    set_up: dict[tuple[Process, str], tuple[str, int]],
    calls: dict[Process, list[tuple[str, Call]]],
) -> int:
    unsupported = 0
    for number, line in lines_of(path):
        prefix = _PREFIX.search(line)
        if prefix is None:
            continue
        process = Process(prefix["host"], int(prefix["pid"]))
        if match := _SET_UP.search(prefix["text"]):
            set_up[process, match["comm"]] = (match["id"] or "", int(match["rank"]))
        elif match := _CALL.search(prefix["text"]):
            call = _call(match, number)
            if call is None:
                unsupported += 1
            else:
                calls[process].append((match["comm"], call))
        elif ": opCount " in prefix["text"]:
            problem = f"{quote(prefix['text'])} is not a call as NCCL prints it"
            raise FileFault(number, problem, "copy the log whole; each call is one line")
    return unsupported


def _call(match: re.Match[str], line: int) -> Call | None:
    function = match["function"].lower()
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
        line=line,
    )


def _join(
    calls: dict[Process, list[tuple[str, Call]]],
    set_up: dict[tuple[Process, str], tuple[str, int]],
    log: CallLog,
) -> None:
    """Add the calls of all processes to the log with the communicators that they share."""
    everyone = list(calls)
    members = {call.members for own in calls.values() for _, call in own}
    is_lone = len(everyone) == 1 and members != {1}
    if is_lone:
        _replicate(everyone[0], calls[everyone[0]], members, log)
        return
    unnamed = [
        process for process in everyone if any((process, comm) not in set_up for comm, _ in calls[process])
    ]
    if unnamed:
        problem = f"{len(unnamed)} processes log no set-up of their communicators: these are joined in order of first use"
        log.notes.append(Note(problem, "log with NCCL_DEBUG_SUBSYS=INIT,COLL"))
    next_rank: dict[str, int] = defaultdict(int)
    for process in sorted(everyone, key=lambda user: (user.host, user.pid)):
        comms: dict[str, _Comm] = {}
        order: dict[int, int] = defaultdict(int)
        for comm, call in calls[process]:
            if comm not in comms:
                name, rank = set_up.get((process, comm), ("", -1))
                if not name:
                    name = f"{call.members} ranks, {order[call.members]}"
                    order[call.members] += 1
                if rank < 0:
                    rank = next_rank[name]
                    next_rank[name] += 1
                comms[comm] = _Comm(name, rank)
            own = comms[comm]
            log.calls[process].append(
                replace(call, communicator=own.id, rank=own.rank, number=_number(own, call), line=call.line)
            )
            own.calls.append(call)


def _number(comm: _Comm, call: Call) -> int:
    """Return the position of a call among those of its kind. `opCount` counts collectives alone, and groups once."""
    return sum(before.is_p2p == call.is_p2p for before in comm.calls)


def _replicate(process: Process, calls: Sequence[tuple[str, Call]], members: set[int], log: CallLog) -> None:
    """Add the calls of one process for every rank of its communicator."""
    if len(members) > 1 or any(call.is_p2p for _, call in calls):
        problem = f"is the log of one process of several, whose communicators have {', '.join(map(str, sorted(members)))} ranks"
        if any(call.is_p2p for _, call in calls):
            problem = "is the log of one process of several, with sends or receives"
        raise FileFault(0, problem, "give the logs of all processes (NCCL_DEBUG_FILE=nccl.%h.%p.log)")
    (size,) = members
    comms = list(dict.fromkeys(comm for comm, _ in calls))
    counts: dict[str, int] = defaultdict(int)
    for comm, call in calls:
        name = f"{size} ranks, {comms.index(comm)}"
        for rank in range(size):
            log.calls[Process(process.host, rank)].append(
                replace(call, communicator=name, rank=rank, number=counts[comm])
            )
        counts[comm] += 1
    problem = f"is the log of one of {size} ranks"
    log.notes.append(
        Note(problem, f"all {size} ranks are taken to make the same calls: give the logs of all")
    )
