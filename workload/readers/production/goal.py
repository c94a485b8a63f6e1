"""Reads GOAL schedules (text) of LogGOPSim and ATLAHS: sends, receives and calculations of each rank with their
dependencies.

Receives match sends by source and tag in the order in which both are ready; -1 is any source or tag. Calculations of
one CPU of a rank run one after another. Both orders are those of an execution on a network of no delay, which is run
here. `irequires` waits for the start of an operation, which is the end of its own dependencies. A send leaves eagerly.

Format: spcl/atlahs:sim/LogGOPSim/txt2bin.re.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import (
    MAX_DURATION_NS,
    MAX_NODES,
    MAX_RANKS,
    empty_job,
    trace_of,
)
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, lines_of, quote
from etloop.workload.trace.trace import Trace

_HEAD: Final = re.compile(r"num_ranks\s+([0-9]{1,9})")
_RANK: Final = re.compile(r"rank\s+([0-9]{1,9})\s*\{")
_LABEL: Final = r"[A-Za-z][A-Za-z0-9_]{0,255}"
_WAIT: Final = re.compile(rf"(?P<label>{_LABEL})\s+(?P<verb>requires|irequires)\s+(?P<awaited>{_LABEL})")
_OPTIONS: Final = (
    r"(?:\s+tag\s+(?P<tag>-?[0-9]{1,10}))?(?:\s+cpu\s+(?P<cpu>[0-9]{1,3}))?(?:\s+nic\s+(?P<nic>[0-9]{1,3}))?"
)
_MESSAGE: Final = (
    r"(?P<verb>send|recv)\s+(?P<size>[0-9]{1,19})\s*b\s+(?:to|from)\s+(?P<peer>-?[0-9]{1,10})" + _OPTIONS
)
_CALC: Final = r"calc\s+(?P<time>[0-9]{1,19})(?:\s+cpu\s+(?P<calc_cpu>[0-9]{1,3}))?"
_OP: Final = re.compile(rf"(?:(?P<label>{_LABEL})\s*:\s*)?(?:{_MESSAGE}|{_CALC})")
_ANY: Final = -1
_STORED_ANY: Final = (1 << 32) - 1
"""The wildcard as LogGOPSim stores it."""


@dataclass(slots=True)
class _Op:
    """One operation; `index` is its place in the list of all operations."""

    index: int
    rank: int
    line: int
    label: str
    verb: str
    amount: int
    """Bytes of a message, ns of a calculation."""
    peer: int = 0
    tag: int = 0
    cpu: int = 0
    after: list[int] = field(default_factory=list)
    after_start: list[int] = field(default_factory=list)
    match: int | None = None
    """The send that a receive gets, or the receive of a send."""
    chain: int | None = None
    """The calculation that ran before on the same CPU."""


def begins(head: bytes) -> bool:
    """Decide whether a file begins like a GOAL schedule."""
    return any(_HEAD.match(line.strip()) for line in _plain_lines(head_lines(head)[:200]))


def read_goal(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of a schedule. Raises `FileFault`."""
    ranks, ops, nics = _parse(source)
    any_count = sum(op.verb == "recv" and _ANY in (op.peer, op.tag) for op in ops)
    _execute(ops)
    job = empty_job(ranks)
    node_of: dict[int, int] = {}
    tags: dict[tuple[int, int], int] = defaultdict(int)
    tag_of: dict[int, int] = {}
    for op in ops:
        if op.verb == "send":
            assert op.match is not None
            tag_of[op.index] = tag_of[op.match] = tags[op.rank, op.peer]
            tags[op.rank, op.peer] += 1
    counts = [0] * ranks
    for op in ops:
        counts[op.rank] += 1
        node_of[op.index] = counts[op.rank]
    for op in ops:
        waits = [*op.after, *(awaited for start in op.after_start for awaited in _start_waits(ops[start]))]
        if op.chain is not None:
            waits.append(op.chain)
        after = [node_of[awaited] for awaited in waits]
        name = op.label or f"{op.verb} of line {op.line}"
        if op.verb == "calc":
            job.compute(op.rank, name, op.amount, after, op.line)
        elif op.verb == "send":
            job.send(op.rank, op.peer, name, op.amount, tag_of[op.index], after, op.line)
        else:
            assert op.match is not None
            sent = ops[op.match]
            job.recv(op.rank, sent.rank, name, sent.amount, tag_of[op.index], after, op.line)
    return trace_of(job, source, "GOAL", _notes(ops, any_count, nics))


def _notes(ops: Sequence[_Op], any_count: int, nics: int) -> list[Note]:
    notes = []
    if any_count:
        problem = f"{any_count} receives take any source or tag"
        remedy = "they get the message that comes first on a network of no delay; other networks may differ"
        notes.append(Note(problem, remedy))
    if nics:
        notes.append(Note(f"{nics} operations name a NIC", "the mapping of the scenario decides the port"))
    if any(op.after_start for op in ops):
        notes.append(
            Note("irequires waits for a start", "it waits for the dependencies of the awaited operation")
        )
    return notes


def _start_waits(op: _Op) -> list[int]:
    return [*op.after, *([] if op.chain is None else [op.chain])]


def _plain_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines without comments; a comment may span lines."""
    in_comment = False
    for line in lines:
        plain, in_comment = _without_comments(line, in_comment)
        if plain.strip():
            yield plain


def _without_comments(line: str, in_comment: bool) -> tuple[str, bool]:
    plain = ""
    while line:
        if in_comment:
            _, mark, line = line.partition("*/")
            in_comment = not mark
            continue
        begin = re.search(r"/\*|//", line)
        if begin is None or begin[0] == "//":
            plain += line if begin is None else line[: begin.start()]
            break
        plain += line[: begin.start()] + " "
        line, in_comment = line[begin.end() :], True
    return plain, in_comment


def _parse(path: Path) -> tuple[int, list[_Op], int]:
    """Return the number of ranks, all operations, and the number of those that name a NIC."""
    ranks, rank, nics = 0, -1, 0
    ops: list[_Op] = []
    seen: set[int] = set()
    labels: dict[str, int] = {}
    waits: list[tuple[int, str, str, str]] = []
    in_comment = False
    for number, line in lines_of(path):
        plain, in_comment = _without_comments(line, in_comment)
        text = plain.strip()
        if not text:
            continue
        if not ranks:
            head = _HEAD.fullmatch(text)
            if head is None or not 1 <= int(head[1]) <= MAX_RANKS:
                raise FileFault(number, f"is {quote(text)}, expected num_ranks 1 to {MAX_RANKS}")
            ranks = int(head[1])
        elif rank < 0:
            begin = _RANK.fullmatch(text)
            if begin is None or int(begin[1]) >= ranks or int(begin[1]) in seen:
                raise FileFault(number, f"is {quote(text)}, expected rank N {{ of a new rank below {ranks}")
            rank, labels, waits = int(begin[1]), {}, []
            seen.add(rank)
        elif text == "}":
            _resolve(ops, labels, waits)
            rank = -1
        elif wait := _WAIT.fullmatch(text):
            waits.append((number, wait["label"], wait["verb"], wait["awaited"]))
        else:
            op, names_nic = _operation(text, number, rank, ranks, len(ops))
            nics += names_nic
            if op.label and labels.setdefault(op.label, op.index) != op.index:
                raise FileFault(number, f"label {quote(op.label)} is there twice", "name each operation once")
            ops.append(op)
            if len(ops) > MAX_NODES:
                raise FileFault(number, f"describes more than {MAX_NODES} operations", "give a part of it")
    if rank >= 0 or not ranks:
        raise FileFault(0, "ends inside a rank" if ranks else "has no num_ranks")
    if len(seen) < ranks:
        missing = next(number for number in range(ranks) if number not in seen)
        problem = f"ends after {len(seen)} of {ranks} ranks: rank {missing} is missing"
        raise FileFault(0, problem, "copy the file whole, or correct num_ranks")
    return ranks, ops, nics


def _operation(text: str, line: int, rank: int, ranks: int, index: int) -> tuple[_Op, bool]:
    match = _OP.fullmatch(text)
    if match is None:
        problem = f"is {quote(text)}, not a statement of GOAL"
        raise FileFault(line, problem, "write send Nb to R, recv Nb from R, calc N, or A requires B")
    label = match["label"] or ""
    if match["verb"] is None:
        time_ns = int(match["time"])
        if time_ns > MAX_DURATION_NS:
            raise FileFault(line, f"calculates {time_ns} ns, expected at most {MAX_DURATION_NS}")
        return _Op(index, rank, line, label, "calc", time_ns, cpu=int(match["calc_cpu"] or 0)), False
    peer, tag = int(match["peer"]), int(match["tag"] or 0)
    is_recv = match["verb"] == "recv"
    if is_recv and peer in (_ANY, _STORED_ANY):
        peer = _ANY
    elif not 0 <= peer < ranks:
        raise FileFault(line, f"names rank {peer}, expected 0 to {ranks - 1}")
    if is_recv and tag in (_ANY, _STORED_ANY):
        tag = _ANY
    elif tag < 0:
        raise FileFault(line, f"has tag {tag}, expected 0 or more")
    if peer == rank:
        raise FileFault(line, "is a message of a rank to itself", "remove it: it crosses no network")
    if (" to " in f" {text} ") == is_recv:
        raise FileFault(line, f"is {quote(text)}, expected send … to and recv … from")
    op = _Op(index, rank, line, label, match["verb"], int(match["size"]), peer, tag, int(match["cpu"] or 0))
    return op, bool(int(match["nic"] or 0))


def _resolve(ops: list[_Op], labels: dict[str, int], waits: Sequence[tuple[int, str, str, str]]) -> None:
    for line, label, verb, awaited in waits:
        for name in (label, awaited):
            if name not in labels:
                raise FileFault(line, f"label {quote(name)} is not defined on this rank")
        op = ops[labels[label]]
        (op.after if verb == "requires" else op.after_start).append(labels[awaited])


@dataclass(slots=True)
class _Execution:
    """A run of all operations on a network of no delay, which sets the match of each message and the order on each CPU."""

    ops: list[_Op]
    pending: list[int]
    """Number of operations that each one still waits for."""
    after_end: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    after_start: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    free_ns: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    on_cpu: dict[tuple[int, int], int] = field(default_factory=dict)
    arrived: dict[int, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    """Sends that wait for a receive of their destination, by destination."""
    posted: dict[int, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    """Receives that wait for a message, by rank."""
    events: list[tuple[int, int, int]] = field(default_factory=list)
    """Time, 0 for a start and 1 for an end, operation."""

    def run(self) -> int:
        """Run until no event is left; return the number of operations that ended."""
        ended = 0
        for op in self.ops:
            for awaited in set(op.after):
                self.after_end[awaited].append(op.index)
            for awaited in set(op.after_start):
                self.after_start[awaited].append(op.index)
        self.events = [(0, 0, index) for index, count in enumerate(self.pending) if not count]
        while self.events:
            now_ns, is_end, index = heapq.heappop(self.events)
            if is_end:
                ended += 1
                self._wake(self.after_end[index], now_ns)
            else:
                self._wake(self.after_start[index], now_ns)
                self._start(self.ops[index], now_ns)
        return ended

    def _wake(self, indices: Sequence[int], now_ns: int) -> None:
        for index in indices:
            self.pending[index] -= 1
            if not self.pending[index]:
                heapq.heappush(self.events, (now_ns, 0, index))

    def _end(self, index: int, now_ns: int) -> None:
        heapq.heappush(self.events, (now_ns, 1, index))

    def _start(self, op: _Op, now_ns: int) -> None:
        if op.verb == "calc":
            place = op.rank, op.cpu
            op.chain = self.on_cpu.get(place)
            self.on_cpu[place] = op.index
            self.free_ns[place] = max(self.free_ns[place], now_ns) + op.amount
            self._end(op.index, self.free_ns[place])
        elif op.verb == "send":
            self._end(op.index, now_ns)
            receives = self.posted[op.peer]
            taker = next((index for index in receives if _fits(self.ops[index], op)), None)
            if taker is None:
                self.arrived[op.peer].append(op.index)
                return
            receives.remove(taker)
            _pair(op, self.ops[taker])
            self._end(taker, now_ns)
        else:
            messages = self.arrived[op.rank]
            message = next((index for index in messages if _fits(op, self.ops[index])), None)
            if message is None:
                self.posted[op.rank].append(op.index)
                return
            messages.remove(message)
            _pair(self.ops[message], op)
            self._end(op.index, now_ns)


def _execute(ops: list[_Op]) -> None:
    """Set the match of each message and the order on each CPU. Raises `FileFault` if operations can never run."""
    execution = _Execution(ops, [len(set(op.after)) + len(set(op.after_start)) for op in ops])
    if execution.run() < len(ops):
        _report_stuck(ops, execution.pending)
    unmatched = next((op for op in ops if op.verb == "send" and op.match is None), None)
    if unmatched is not None:
        problem = f"sends {unmatched.amount} bytes to rank {unmatched.peer} with tag {unmatched.tag}, which it never receives"
        raise FileFault(unmatched.line, problem, "add the receive")


def _report_stuck(ops: Sequence[_Op], pending: Sequence[int]) -> None:
    for op in ops:
        if op.verb == "recv" and op.match is None and not pending[op.index]:
            source = "any rank" if op.peer == _ANY else f"rank {op.peer}"
            problem = f"receives from {source} with tag {op.tag}, and no such message is sent"
            raise FileFault(op.line, problem, "add the send, or correct source and tag")
    op = next(op for op in ops if pending[op.index])
    raise FileFault(op.line, "can never run: its dependencies form a cycle", "remove a requires")


def _fits(recv: _Op, send: _Op) -> bool:
    return recv.peer in (_ANY, send.rank) and recv.tag in (_ANY, send.tag)


def _pair(send: _Op, recv: _Op) -> None:
    if recv.amount < send.amount:
        problem = f"receives {recv.amount} bytes of the {send.amount} that line {send.line} sends"
        raise FileFault(recv.line, problem, "make the receive as large as the message")
    send.match, recv.match = recv.index, send.index
