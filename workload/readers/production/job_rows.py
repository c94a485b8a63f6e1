"""Builds the ranks of a job node by node, for readers of files that describe all ranks together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.node_rows import NodeRow, rank_trace
from etloop.workload.readers.production.text_files import FileFault, Note
from etloop.workload.trace.trace import CollectiveKind, LeftOut, NodeKind, Trace
from etloop.workload.trace.trace_names import printable_name

MAX_NODES: Final = 1 << 22
"""Limit of nodes of a job that is built here."""
MAX_RANKS: Final = 16_384
MAX_DURATION_NS: Final = 1 << 52
"""Limit of one computation: weeks."""


@dataclass(frozen=True, slots=True)
class CollectivePart:
    """Part of a rank in a collective of a group of `JobRows.groups`."""

    kind: CollectiveKind
    input_bytes: int
    """Bytes that this rank puts in."""
    group: str
    root: int | None = None
    """Position of the root in the group; None: unknown, or none."""


@dataclass(slots=True)
class JobRows:
    """The nodes of all ranks. Node ids count from 1 on each rank; `after` are ids of the same rank."""

    ranks: list[list[NodeRow]]
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0
    _tags: dict[tuple[int, int], int] = field(default_factory=dict)
    _barriers: dict[tuple[int, ...], str] = field(default_factory=dict)

    def compute(
        self, rank: int, name: str, duration_ns: int, after: Iterable[int] = (), offset: int = 0
    ) -> int:
        """Add a computation and return its id."""
        if not 0 <= duration_ns <= MAX_DURATION_NS:
            problem = f"{name} takes {duration_ns} ns, expected 0 to {MAX_DURATION_NS}"
            raise FileFault(offset, problem, "correct the time")
        row = self._add(rank, name, NodeKind.COMP if duration_ns else NodeKind.METADATA, after, offset)
        row.duration_ns, row.duration_us = duration_ns, (duration_ns + 500) // 1000
        return row.node_id

    def collective(
        self, rank: int, name: str, part: CollectivePart, after: Iterable[int] = (), offset: int = 0
    ) -> int:
        """Add a rank's part of a collective and return its id."""
        row = self._add(rank, name, NodeKind.COMM_COLL, after, offset)
        row.comm_type, row.comm_size, row.pg_name = int(part.kind), part.input_bytes, part.group
        if part.root is not None:
            row.root = part.root
        return row.node_id

    def send(
        self,
        rank: int,
        peer: int,
        name: str,
        size_bytes: int,
        tag: int,
        after: Iterable[int] = (),
        offset: int = 0,
    ) -> int:
        """Add a send and return its id. The receive of the same tag on the peer is its partner."""
        row = self._add(rank, name, NodeKind.COMM_SEND, after, offset)
        row.comm_src, row.comm_dst, row.comm_size, row.comm_tag = rank, peer, size_bytes, tag
        return row.node_id

    def recv(
        self,
        rank: int,
        peer: int,
        name: str,
        size_bytes: int,
        tag: int,
        after: Iterable[int] = (),
        offset: int = 0,
    ) -> int:
        """Add a receive from `peer` and return its id."""
        row = self._add(rank, name, NodeKind.COMM_RECV, after, offset)
        row.comm_src, row.comm_dst, row.comm_size, row.comm_tag = peer, rank, size_bytes, tag
        return row.node_id

    def transfer(
        self,
        src: int,
        dst: int,
        name: str,
        size_bytes: int,
        *,
        src_after: Iterable[int] = (),
        dst_after: Iterable[int] = (),
        offset: int = 0,
    ) -> tuple[int, int]:
        """Add a send and its receive, and return their ids."""
        tag = self.next_tag(src, dst)
        return (
            self.send(src, dst, name, size_bytes, tag, src_after, offset),
            self.recv(dst, src, name, size_bytes, tag, dst_after, offset),
        )

    def next_tag(self, src: int, dst: int) -> int:
        """Return the next unused tag of a pair of ranks."""
        tag = self._tags.get((src, dst), 0)
        self._tags[src, dst] = tag + 1
        return tag

    def barrier(self, name: str, after: Mapping[int, Iterable[int]], offset: int = 0) -> dict[int, int]:
        """Add a barrier of the ranks that `after` names; return its id on each."""
        members = tuple(sorted(after))
        group = self._barriers.setdefault(members, f"barrier {len(self._barriers)} of {len(members)}")
        self.groups[group] = members
        part = CollectivePart(CollectiveKind.BARRIER, 0, group)
        return {rank: self.collective(rank, name, part, after[rank], offset) for rank in members}

    def _add(self, rank: int, name: str, kind: NodeKind, after: Iterable[int], offset: int) -> NodeRow:
        self.count += 1
        if self.count > MAX_NODES:
            raise FileFault(offset, f"describes more than {MAX_NODES} operations", "give a part of it")
        rows = self.ranks[rank]
        deps = tuple(dict.fromkeys(after))
        rows.append(NodeRow(len(rows) + 1, name, kind, deps, offset=offset, is_cpu_op=0))
        return rows[-1]


def empty_job(rank_count: int, line: int = 0) -> JobRows:
    """Return a job without nodes. Raises `FileFault` over the limit of ranks."""
    if not 1 <= rank_count <= MAX_RANKS:
        raise FileFault(line, f"has {rank_count} ranks, expected 1 to {MAX_RANKS}", "give a smaller job")
    return JobRows([[] for _ in range(rank_count)])


def trace_of(job: JobRows, source: Path, schema: str, notes: Sequence[Note] = ()) -> Trace:
    """Return the job as a trace; notes become its remarks, or communication that is left out."""
    where = printable_name(str(source))
    problems = [(Problem(where, note.text, note.remedy), note.left_out) for note in notes]
    return Trace(
        str(source),
        tuple(rank_trace(rows, rank, where, schema, None) for rank, rows in enumerate(job.ranks)),
        job.groups or None,
        tuple(problem for problem, left_out in problems if not left_out),
        tuple(LeftOut(problem, left_out) for problem, left_out in problems if left_out),
    )
