"""Turns the calls that processes made on their communicators into a job: for logs that record calls, not a program.

Decides global ranks (those of a communicator that all processes share, else host and process id), the groups, the
bytes that a rank puts in from the size that NCCL reports, and the order of calls across communicators. Calls of one
communicator follow their numbers. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.job_rows import CollectivePart, empty_job, trace_of
from etloop.workload.readers.production.text_files import FileFault, Note
from etloop.workload.trace.trace import CollectiveKind, Trace

_KINDS: Final = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "broadcast": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "gather": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
}
_TIMES_MEMBERS: Final = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL, CollectiveKind.SCATTER)
"""Collectives whose call states one member's part; a rank (the root of a scatter) puts in a part for each."""
SEND: Final = "send"
RECV: Final = "recv"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one process on one communicator."""

    communicator: str
    rank: int
    """Rank of the process in the communicator."""
    members: int
    function: str
    """Name of the function in lower case without underscores, such as allreduce or send."""
    size_bytes: int
    """Count of the call times the size of its type."""
    number: int
    """Position among the calls of its kind (collectives, point to point) on the communicator."""
    peer: int = -1
    """Peer of a send or receive, as rank in the communicator."""
    root: int | None = None
    start_us: int | None = None
    duration_us: int = 0
    line: int = 0

    @property
    def is_p2p(self) -> bool:
        """Decide whether the call is a send or receive."""
        return self.function in (SEND, RECV)


@dataclass(slots=True)
class CallLog:
    """Calls of all processes."""

    calls: dict[Process, list[Call]] = field(default_factory=lambda: defaultdict(list))
    notes: list[Note] = field(default_factory=list)


def collective_of(function: str) -> CollectiveKind | None:
    """Return the collective of a function's name; None for an unknown one."""
    return _KINDS.get(function.lower().replace("_", "").removeprefix("nccl"))


def job_of_calls(log: CallLog, source: Path, schema: str) -> Trace:
    """Return the job of the calls. Raises `FileFault` if a communicator lacks a member."""
    order = _global_order(log)
    places: dict[str, dict[int, int]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    for rank, process in enumerate(order):
        for call in log.calls[process]:
            if sizes.setdefault(call.communicator, call.members) != call.members:
                problem = f"communicator {call.communicator} has {sizes[call.communicator]} and {call.members} ranks"
                raise FileFault(call.line, problem, "give the files of one job")
            if places[call.communicator].setdefault(call.rank, rank) != rank:
                problem = f"rank {call.rank} of communicator {call.communicator} is two processes"
                raise FileFault(call.line, problem, "give the files of one job")
    groups = {name: _members(name, places[name], sizes[name]) for name in sorted(places)}
    job = empty_job(len(order))
    job.groups = groups
    gaps_us = _gaps_us(log, order)
    for rank, process in enumerate(order):
        last_of: dict[str, int] = {}
        ends: list[tuple[int, int]] = []
        last = 0
        for call in _program(log.calls[process]):
            members = groups[call.communicator]
            after = [last_of[call.communicator]] if call.communicator in last_of else []
            if call.start_us is None:
                after = [last] if last else []
            else:
                ended = [(end, node) for end, node in ends if end <= call.start_us]
                if ended:
                    before = max(ended)[1]
                    gap_us = gaps_us.get(_key(call), 0)
                    after.append(job.compute(rank, "gap", gap_us * 1000, (before,)) if gap_us else before)
            name = f"{call.function} {call.communicator} {call.number}"
            if call.is_p2p:
                peer = members[call.peer]
                add = job.send if call.function == SEND else job.recv
                last = add(rank, peer, name, call.size_bytes, 0, after, call.line)
            else:
                kind = collective_of(call.function)
                assert kind is not None
                factor = call.members if kind in _TIMES_MEMBERS else 1
                part = CollectivePart(kind, call.size_bytes * factor, call.communicator, call.root)
                last = job.collective(rank, name, part, after, call.line)
            last_of[call.communicator] = last
            if call.start_us is not None:
                ends = [*ends[-63:], (call.start_us + call.duration_us, last)]
    return trace_of(job, source, schema, log.notes)


def _global_order(log: CallLog) -> list[Process]:
    """Return the processes by global rank."""
    processes = sorted(log.calls, key=lambda process: (process.host, process.pid))
    for process in processes:
        for call in log.calls[process]:
            if call.members == len(processes):
                rank_of = {
                    other: other_call.rank
                    for other in processes
                    for other_call in log.calls[other]
                    if other_call.communicator == call.communicator
                }
                if len(set(rank_of.values())) == len(processes) == len(rank_of):
                    return sorted(processes, key=lambda member: rank_of[member])
    if len(processes) > 1:
        problem = "no communicator has all processes, so their global ranks are unknown"
        log.notes.append(Note(problem, "ranks are numbered by host name and process id"))
    return processes


def _members(name: str, places: dict[int, int], size: int) -> tuple[int, ...]:
    missing = [rank for rank in range(size) if rank not in places]
    if missing or len(places) != size:
        problem = f"communicator {name} has {size} ranks, and the files have no calls of rank {missing[0] if missing else size}"
        raise FileFault(0, problem, "give the files of all processes of the job")
    return tuple(places[rank] for rank in range(size))


def _program(calls: Iterable[Call]) -> list[Call]:
    """Return the calls of a process in issue order: by start where all have one, else as recorded. Calls of one
    communicator keep the order of their numbers."""
    ordered = list(calls)
    if all(call.start_us is not None for call in ordered):
        ordered.sort(key=lambda call: call.start_us or 0)
    slots: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for index, call in enumerate(ordered):
        slots[call.communicator, call.is_p2p].append(index)
    result = list(ordered)
    for indices in slots.values():
        numbered = sorted((ordered[index] for index in indices), key=lambda call: call.number)
        for index, call in zip(indices, numbered, strict=True):
            result[index] = call
    return result


def _key(call: Call) -> tuple[str, bool, int]:
    return call.communicator, call.is_p2p, call.number


def _gaps_us(log: CallLog, order: Sequence[Process]) -> dict[tuple[str, bool, int], int]:
    """Return the compute before each call in us: the least time over ranks between the end of the call before and its
    start. A longer time on another rank is waiting."""
    least: dict[tuple[str, bool, int], int] = {}
    for process in order:
        ends: list[int] = []
        for call in _program(log.calls[process]):
            if call.start_us is None:
                break
            ended = [end for end in ends if end <= call.start_us]
            gap_us = call.start_us - max(ended) if ended else 0
            least[_key(call)] = min(gap_us, least.get(_key(call), gap_us))
            ends = [*ends[-63:], call.start_us + call.duration_us]
    return least
