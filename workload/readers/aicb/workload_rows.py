"""Provides parts shared by the readers of both AICB forms: a writer of node rows, numbers in text, faults with their
line. Pure."""

from __future__ import annotations

import re
from dataclasses import field
from enum import IntEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.aicb.parallel_groups import Degrees, GroupRole
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.trace.trace import CollectiveKind, NodeKind
from etloop.workload.trace.trace_names import printable_name

MAX_ROWS: Final = 1 << 20
MAX_BYTES: Final = 1 << 50
"""Limit of one collective."""
MAX_NS: Final = 1 << 52
"""Limit of one computation: weeks."""

_WHOLE: Final = re.compile(r"([0-9]{1,18})(?:\.0{1,9})?")
_SHOWN: Final = 48


class WorkloadFault(Exception):
    """A defect of a workload, with its line in the file (from 1; 0: the whole file)."""

    def __init__(self, line: int, problem: str, remedy: str = "") -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.what = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Note:
    """An assumption of the reader, or content that the file lacks. `left_out` counts the communication that is not
    replayed."""

    text: str
    remedy: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Content of one file: the nodes that every rank runs, and the degrees of parallelism."""

    rows: tuple[NodeRow, ...]
    roles: frozenset[GroupRole]
    degrees: Degrees | None
    """None if the file does not state the number of ranks."""
    schema: str
    notes: tuple[Note, ...] = ()
    stages: tuple[tuple[NodeRow, ...], ...] = ()
    """The nodes of each pipeline stage, if they differ; (): every rank runs `rows`."""


class Toward(IntEnum):
    """The other stage of a transfer. In the ring, the first stage follows the last."""

    NEXT = 1
    PREVIOUS = -1
    NEXT_IN_RING = 2
    PREVIOUS_IN_RING = -2


@dataclass(slots=True)
class RowWriter:
    """Builds the nodes of a rank; each waits for the node that the caller passes as `after`."""

    degrees: Degrees | None
    world_remedy: str
    """Advice on how a file of this form states its number of ranks."""
    rows: list[NodeRow] = field(default_factory=list)
    roles: set[GroupRole] = field(default_factory=set)

    def compute(self, name: str, after: int | None, duration_ns: int, offset: int) -> int | None:
        """Add a computation and return the node that the next one waits for. A computation of no duration is not added."""
        if not duration_ns:
            return after
        row = self._add(name, NodeKind.COMP, after, offset)
        row.duration_ns, row.duration_us = duration_ns, (duration_ns + 500) // 1000
        return row.node_id

    def products(self, name: str, after: int | None, num_ops: int, tensor_bytes: int, offset: int) -> int:
        """Add a computation given by its floating-point operations and tensor bytes, without a duration; return its
        node id."""
        row = self._add(name, NodeKind.COMP, after, offset)
        row.num_ops, row.tensor_size = num_ops, tensor_bytes
        return row.node_id

    def collective(
        self,
        name: str,
        after: int | None,
        kind: CollectiveKind,
        size_bytes: int,
        role: GroupRole | None,
        offset: int,
    ) -> NodeRow:
        """Add a collective of `size_bytes` as AICB counts them: for an all-gather, the size of its result on each rank."""
        row = self._add(name, NodeKind.COMM_COLL, after, offset)
        row.comm_type, row.comm_size = int(kind), size_bytes
        if role is not None and self.degrees is not None:
            row.pg_name = role.value
            self.roles.add(role)
        if kind is CollectiveKind.ALL_GATHER:
            row.comm_size = -(-size_bytes // self._members(role, offset))
        return row

    def transfer(
        self, name: str, after: int | None, toward: Toward, size_bytes: int, offset: int, *, is_send: bool
    ) -> int:
        """Add a send to another stage, or a receive from it; return its id.

        Its peer is the value of `toward`, until `text_job` puts in the rank of each stage.
        """
        kind = NodeKind.COMM_SEND if is_send else NodeKind.COMM_RECV
        row = self._add(name, kind, after, offset)
        row.comm_size, row.comm_tag = size_bytes, 0
        row.comm_src, row.comm_dst = (0, toward) if is_send else (toward, 0)
        return row.node_id

    def _members(self, role: GroupRole | None, line: int) -> int:
        if self.degrees is None:
            problem = "is an all-gather that states its output size, and the number of ranks is unknown"
            raise WorkloadFault(line, problem, self.world_remedy)
        return self.degrees.world_size if role is None else self.degrees.group_size(role)

    def _add(self, name: str, kind: NodeKind, after: int | None, offset: int) -> NodeRow:
        if len(self.rows) >= 4 * MAX_ROWS:
            raise WorkloadFault(0, f"has more than {4 * MAX_ROWS} operations")
        deps = () if after is None else (after,)
        self.rows.append(NodeRow(len(self.rows) + 1, name, kind, deps, offset=offset, is_cpu_op=0))
        return self.rows[-1]


def whole_number(text: str, line: int, subject: str, most: int, least: int = 0) -> int:
    """Parse a whole number, which may be written as `8.0`. Raises `WorkloadFault` unless it is in `least`..`most`."""
    match = _WHOLE.fullmatch(text)
    if match is None or not least <= int(match[1]) <= most:
        raise WorkloadFault(
            line, f"{subject} is {quote(text)}, expected a whole number from {least} to {most}"
        )
    return int(match[1])


def quote(text: str) -> str:
    """Return a field quoted and shortened for a message."""
    return f'"{printable_name(text[:_SHOWN])}"'
