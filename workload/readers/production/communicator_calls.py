"""Turns the calls that processes made on their communicators into a job: for logs that record calls, not a program.

Decides global ranks (those of a communicator that all processes share, else host and process id), the groups, the
bytes that a rank puts in from the size that NCCL reports, and the order of calls. Collectives of one communicator, and
messages of one direction to one peer, follow their numbers. Across communicators times decide; without times calls run
one after another, and the sends and receives of one group at once. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.job_rows import CollectivePart, JobRows, empty_job, trace_of
from etloop.workload.readers.production.text_files import FileFault, Note
from etloop.workload.trace.trace import CollectiveKind, Trace

_KINDS: Final = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "broadcast": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "all2all": CollectiveKind.ALL_TO_ALL,
    "gather": CollectiveKind.GATHER,
    "scatter": CollectiveKind.SCATTER,
}
_TIMES_MEMBERS: Final = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL, CollectiveKind.SCATTER)
"""Collectives whose call states one member's part; a rank (the root of a scatter) puts in a part for each."""
SEND: Final = "send"
RECV: Final = "recv"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the job, or one GPU of it: a rank."""

    host: str
    pid: int
    device: int = 0
    """GPU, for a process that has several, which are ranks each."""


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
    group: int = -1
    """Number of the group (ncclGroupStart) of a send or receive on its communicator; -1: unknown."""
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
    own = 0
    for rank, process in enumerate(order):
        program = _Program(job, rank, groups, gaps_us)
        for call in _program(log.calls[process]):
            if call.peer == call.rank and call.is_p2p:
                own += 1
            else:
                program.add(call)
    if own:
        problem = f"{own} sends and receives are of a rank with itself"
        log.notes.append(Note(problem, "they cross no network, and are left out"))
    return trace_of(job, source, schema, log.notes)


@dataclass(slots=True)
class _Program:
    """The nodes of one rank while they are made."""

    job: JobRows
    rank: int
    groups: dict[str, tuple[int, ...]]
    gaps_us: dict[tuple[str, bool, int], int]
    last_of: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The last collective of a communicator, or message of one direction to one peer."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """End in us and node of the last calls with times."""
    frontier: list[int] = field(default_factory=list)
    """Nodes that the next call without time waits for."""
    before_group: list[int] = field(default_factory=list)
    """Nodes that the calls of the current group of sends and receives wait for."""
    group: tuple[str, int] | None = None

    def add(self, call: Call) -> None:
        """Add a call."""
        key = (call.communicator, call.function, call.peer) if call.is_p2p else (call.communicator, "", -1)
        after = [self.last_of[key]] if key in self.last_of else []
        if call.start_us is None:
            after += self._after_untimed(call)
            node = self._node(call, after)
            self.frontier.append(node)
        else:
            ended = [(end, node) for end, node in self.ends if end <= call.start_us]
            if ended:
                before = max(ended)[1]
                gap_us = self.gaps_us.get(_key(call), 0)
                after.append(
                    self.job.compute(self.rank, "gap", gap_us * 1000, (before,)) if gap_us else before
                )
            node = self._node(call, after)
            self.ends = [*self.ends[-63:], (call.start_us + call.duration_us, node)]
        self.last_of[key] = node

    def _after_untimed(self, call: Call) -> list[int]:
        """Return what a call without time waits for: the calls before it, but not those of its own group."""
        group = (call.communicator, call.group) if call.is_p2p else None
        if group is None or group != self.group:
            self.before_group, self.frontier, self.group = self.frontier, [], group
        return self.before_group

    def _node(self, call: Call, after: Sequence[int]) -> int:
        name = f"{call.function} {call.communicator} {call.number}"
        if call.is_p2p:
            peer = self.groups[call.communicator][call.peer]
            add = self.job.send if call.function == SEND else self.job.recv
            return add(self.rank, peer, name, call.size_bytes, 0, after, call.line)
        kind = collective_of(call.function)
        assert kind is not None
        factor = call.members if kind in _TIMES_MEMBERS else 1
        part = CollectivePart(kind, call.size_bytes * factor, call.communicator, call.root)
        return self.job.collective(self.rank, name, part, after, call.line)


def _global_order(log: CallLog) -> list[Process]:
    """Return the processes by global rank."""
    processes = sorted(log.calls, key=lambda process: (process.host, process.pid, process.device))
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
