"""What the readers of both forms share: nodes of a rank as they are found, numbers in text, faults with their line. Pure."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.aicb.parallel_groups import Degrees, GroupRole
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.trace.trace import CollectiveKind, NodeKind
from etloop.workload.trace.trace_names import shown

MAX_ROWS: Final = 1 << 20
MAX_BYTES: Final = 1 << 50
"""Of one collective."""
MAX_NS: Final = 1 << 52
"""Of one computation: weeks."""

_WHOLE: Final = re.compile(r"([0-9]{1,18})(?:\.0{1,9})?")
_SHOWN: Final = 48


class WorkloadFault(Exception):
    """What is wrong with a workload, and in which line of the file (from 1; 0: the whole file)."""

    def __init__(self, line: int, what: str, remedy: str = "") -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Note:
    """What a reader assumed, or what the file leaves out; `left_out` counts the communication that is not replayed."""

    what: str
    remedy: str
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """What one file says: the nodes that every rank runs, and how the job is divided."""

    rows: tuple[NodeRow, ...]
    roles: frozenset[GroupRole]
    degrees: Degrees | None
    """None where the file does not say how many ranks there are."""
    schema: str
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class RowWriter:
    """Builds the nodes of a rank one behind the other."""

    degrees: Degrees | None
    world_remedy: str
    """How a file of this form says its number of ranks."""
    rows: list[NodeRow] = field(default_factory=list)
    roles: set[GroupRole] = field(default_factory=set)

    def compute(self, name: str, after: int | None, duration_ns: int, offset: int) -> int | None:
        """Add a computation, and return what the next node waits for; nothing is added that takes no time."""
        if not duration_ns:
            return after
        row = self._add(name, NodeKind.COMP, after, offset)
        row.duration_ns, row.duration_us = duration_ns, (duration_ns + 500) // 1000
        return row.node_id

    def products(self, name: str, after: int | None, num_ops: int, tensor_bytes: int, offset: int) -> int:
        """Add a computation that is known by its operations alone."""
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
        """Add a collective of `size_bytes` as AICB counts them: of an all-gather what each rank has in the end."""
        row = self._add(name, NodeKind.COMM_COLL, after, offset)
        row.comm_type, row.comm_size = int(kind), size_bytes
        if role is not None and self.degrees is not None:
            row.pg_name = role.value
            self.roles.add(role)
        if kind is CollectiveKind.ALL_GATHER:
            row.comm_size = -(-size_bytes // self._members(role, offset))
        return row

    def _members(self, role: GroupRole | None, line: int) -> int:
        if self.degrees is None:
            what = (
                "is an all-gather of what each rank has in the end, and nothing says how many ranks share it"
            )
            raise WorkloadFault(line, what, self.world_remedy)
        return self.degrees.world_size if role is None else self.degrees.group_size(role)

    def _add(self, name: str, kind: NodeKind, after: int | None, offset: int) -> NodeRow:
        if len(self.rows) >= 4 * MAX_ROWS:
            raise WorkloadFault(0, f"has more than {4 * MAX_ROWS} operations")
        deps = () if after is None else (after,)
        self.rows.append(NodeRow(len(self.rows) + 1, name, kind, deps, offset=offset, is_cpu_op=0))
        return self.rows[-1]


def whole_number(text: str, line: int, what: str, most: int, least: int = 0) -> int:
    """Return a whole number that a field states, also as `8.0`. Raises `WorkloadFault`."""
    found = _WHOLE.fullmatch(text)
    if found is None or not least <= int(found[1]) <= most:
        raise WorkloadFault(
            line, f"{what} is {quoted(text)}: a whole number of {least} to {most} was expected"
        )
    return int(found[1])


def quoted(text: str) -> str:
    """Return a field as a message shows it."""
    return f'"{shown(text[:_SHOWN])}"'
