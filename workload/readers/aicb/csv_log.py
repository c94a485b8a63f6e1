"""AICB's CSV of one rank's operations: workloads that it makes, and logs of its runs.

The file is what one rank of one pipeline stage does; every rank of the job is taken to do the same. What its stage exchanges with
its neighbours is left out: the file says neither when they do nor what. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.aicb.parallel_groups import Degrees, GroupRole
from etloop.workload.readers.aicb.workload_rows import (
    MAX_BYTES,
    MAX_NS,
    MAX_ROWS,
    Note,
    RowWriter,
    Workload,
    WorkloadFault,
    quoted,
    whole_number,
)
from etloop.workload.trace.settings import MAX_REPLICAS
from etloop.workload.trace.trace import CollectiveKind

COLUMNS: Final = ("comm_type", "comm_group", "msg_size")
"""Those that a file must have."""

_MOST_COLUMNS: Final = 64
_KINDS: Final = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "reduce": CollectiveKind.REDUCE,
    "barrier": CollectiveKind.BARRIER,
}
_TRANSFERS: Final = ("isend", "irecv")
_COMPUTATION: Final = "computation"
_EPOCH_END: Final = "epoch_end"
_ROLES: Final = {
    "tp_group": GroupRole.TENSOR,
    "dp_group": GroupRole.DATA,
    "pp_group": GroupRole.PIPELINE,
    "ep_group": GroupRole.EXPERT,
    "ep_dp_group": GroupRole.DATA_EXPERT,
    "ep_tp_group": GroupRole.TENSOR_EXPERT,
}
_WORLD: Final = ("all", "None", "")
_UNKNOWN: Final = ("None", "")
_STAGE: Final = re.compile(r"pp_stage[0-9]+\s*:\s*\[([^]]*)\]")
_EVERYONE: Final = re.compile(r"\[\s*rank0\s*~\s*rank([0-9]{1,7})\s*\]")
_SHAPES: Final = re.compile(r"\(\(([0-9, ]{1,200})\), ?\(([0-9, ]{1,200})\)\)")
_SHAPE_ELEMENT_BYTES: Final = 2
"""AICB's tensors are bf16."""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    kind: str
    group: str
    fields: Mapping[str, str]

    def field(self, name: str) -> str:
        return self.fields.get(name, "None")

    @property
    def name(self) -> str:
        stage = self.field("stage")
        return self.kind if stage in _UNKNOWN else f"{stage}.{self.kind}"


def header_index(lines: Sequence[str]) -> int | None:
    """Return the line that names the columns: the first, or the one after AICB's list of stages; None if there is none."""
    for index, line in enumerate(lines[:2]):
        if set(COLUMNS) <= {cell.strip() for cell in line[:4096].split(",")}:
            return index
        if not line.lstrip().startswith("["):
            return None
    return None


def read_aicb_csv(lines: Sequence[str]) -> Workload:
    """Return what a file's lines say. Raises `WorkloadFault`."""
    at = header_index(lines)
    assert at is not None
    names = [cell.strip() for cell in lines[at].split(",")]
    if len(names) > _MOST_COLUMNS or len(set(names)) < len(names):
        what = f"names {len(names)} columns: at most {_MOST_COLUMNS}, each once, were expected"
        raise WorkloadFault(at + 1, what)
    numbered = [(number, line) for number, line in enumerate(lines[at + 1 :], at + 2) if line.strip()]
    if len(numbered) > MAX_ROWS:
        raise WorkloadFault(0, f"has {len(numbered)} rows, the limit is {MAX_ROWS}")
    if other := next((number for number, line in numbered if line.lstrip().startswith("[")), 0):
        what = "begins another pipeline stage, whose ranks do other things: a file of one stage was expected"
        raise WorkloadFault(
            other, what, "leave the lines of one stage in the file; all ranks then do what it does"
        )
    rows = [_row(line, names, number) for number, line in numbered]
    kept, notes = _steady(rows)
    degrees, said = _degrees(rows, kept, lines[0] if at else "")
    notes += said
    remedy = "give a file with the column comm_group_size, which current versions of AICB write"
    writer = RowWriter(degrees, remedy)
    left_out = _write(writer, kept)
    if left_out:
        what = f"{left_out} sends and receives between pipeline stages are rows of one stage alone"
        help_them = "they are left out: use traces of every rank where they matter"
        notes.append(Note(what, help_them, left_out))
    return Workload(tuple(writer.rows), frozenset(writer.roles), degrees, "AICB CSV", tuple(notes))


def _row(line: str, names: Sequence[str], number: int) -> _Row:
    cells = _cells(line)
    if len(cells) != len(names):
        what = f"has {len(cells)} fields, the head names {len(names)}"
        raise WorkloadFault(number, what, "copy or write the file again")
    fields = dict(zip(names, cells, strict=True))
    kind = fields["comm_type"].removeprefix("CommType.")
    group = fields["comm_group"].removeprefix("CommGroup.")
    if kind not in (*_KINDS, *_TRANSFERS, _COMPUTATION, _EPOCH_END):
        known = ", ".join((*_KINDS, *_TRANSFERS, _COMPUTATION, _EPOCH_END))
        raise WorkloadFault(number, f"comm_type is {quoted(kind)}: one of {known} was expected")
    return _Row(number, kind, group, fields)


def _cells(line: str) -> list[str]:
    """The fields of a line; the shapes of a computation hold commas between brackets, without quotes."""
    cells, depth, first = [], 0, 0
    for at, letter in enumerate(line):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth <= 0:
            cells.append(line[first:at].strip())
            first = at + 1
    return [*cells, line[first:].strip()]


def _steady(rows: Sequence[_Row]) -> tuple[list[_Row], list[Note]]:
    """The rows after the first epoch_end, which ends AICB's start-up; all where nothing follows it."""
    end = next((index for index, row in enumerate(rows) if row.kind == _EPOCH_END), None)
    after = [row for row in rows[end + 1 :] if row.kind != _EPOCH_END] if end is not None else []
    if end is None or not after:
        return [row for row in rows if row.kind != _EPOCH_END], []
    if not end:
        return after, []
    what = f"{end} operations before the first epoch_end are start-up, not a training step"
    return after, [Note(what, "they are left out; epochs after it are replayed one behind the other", end)]


def _degrees(rows: Sequence[_Row], kept: Sequence[_Row], stages: str) -> tuple[Degrees | None, list[Note]]:
    """The degrees that all `rows` state, start-up too, of which those `kept` must say enough."""
    for row in kept:
        if row.kind in _KINDS and row.group not in (*_ROLES, *_WORLD):
            groups = ", ".join((*_ROLES, "all"))
            raise WorkloadFault(row.line, f"comm_group is {quoted(row.group)}: one of {groups} was expected")
    sizes: dict[GroupRole, tuple[int, int]] = {}
    untold: dict[GroupRole | None, int] = {}
    used = {row.line for row in kept}
    for row in rows:
        # A send counts itself as a group of one.
        if row.kind not in _KINDS:
            continue
        role, text = _ROLES.get(row.group), row.field("comm_group_size")
        if role is None or text in _UNKNOWN:
            if row.line in used:
                untold.setdefault(role, row.line)
            continue
        size = whole_number(text, row.line, "comm_group_size", MAX_REPLICAS, 1)
        known, first = sizes.setdefault(role, (size, row.line))
        if known != size:
            raise WorkloadFault(
                row.line, f"comm_group_size of {row.group} is {size}, in line {first} {known}"
            )
    missing = {role: line for role, line in untold.items() if role is not None and role not in sizes}
    if not sizes:
        if len(untold) > 1:
            what = f"several groups are used ({', '.join(sorted(map(_group_name, untold)))}), and no row says their sizes"
            raise WorkloadFault(0, what, "give a file with the column comm_group_size")
        remedy = "state how many there are: workload.replicate_ranks (--replicate-ranks)"
        return None, [Note("does not say how many ranks there are", remedy)]
    for role, line in missing.items():
        what = f"the size of {_group_name(role)} is in no row"
        raise WorkloadFault(line, what, "write it in the column comm_group_size")
    return _joined({role: size for role, (size, _) in sizes.items()}, stages), []


def _joined(sizes: Mapping[GroupRole, int], stages: str) -> Degrees:
    tensor, expert = sizes.get(GroupRole.TENSOR, 1), sizes.get(GroupRole.EXPERT, 1)
    both = sizes.get(GroupRole.TENSOR_EXPERT)
    if both is not None and GroupRole.EXPERT not in sizes:
        expert = both // tensor
    data = sizes.get(GroupRole.DATA, expert * sizes.get(GroupRole.DATA_EXPERT, 1))
    degrees = Degrees(tensor, data, sizes.get(GroupRole.PIPELINE, 1), expert)
    if problem := degrees.problem():
        raise WorkloadFault(0, problem)
    for role, size in sizes.items():
        if size != degrees.group_size(role):
            what = f"{_group_name(role)} has {size} ranks; the other groups make {degrees.group_size(role)} of it"
            raise WorkloadFault(0, what, "correct the column comm_group_size")
    if (found := _STAGE.search(stages)) and (listed := found[1].count("rank")) != tensor * data:
        what = f"lists {listed} ranks of a stage, tp_group and dp_group make {tensor * data}"
        raise WorkloadFault(1, what, "correct the column comm_group_size")
    if (found := _EVERYONE.search(stages)) and int(found[1]) + 1 != degrees.world_size:
        what = f"lists {int(found[1]) + 1} ranks, the groups make {degrees.world_size}"
        raise WorkloadFault(1, what, "correct the column comm_group_size, or the list")
    return degrees


def _group_name(role: GroupRole | None) -> str:
    return next((name for name, one in _ROLES.items() if one is role), "all")


def _write(writer: RowWriter, rows: Sequence[_Row]) -> int:
    """Add the rows one behind the other, as AICB runs them, and return how many transfers are left out."""
    is_log = any(row.field("_elapsed_time") not in _UNKNOWN for row in rows if row.kind in _KINDS)
    at: int | None = None
    left_out = 0
    for row in rows:
        if row.kind in _TRANSFERS:
            left_out += 1
        elif row.kind == _COMPUTATION:
            at = _compute(writer, row, at, is_log)
        else:
            kind = _KINDS[row.kind]
            text = row.field("msg_size")
            size = (
                0 if kind is CollectiveKind.BARRIER else whole_number(text, row.line, "msg_size", MAX_BYTES)
            )
            role = None if kind is CollectiveKind.BARRIER else _ROLES.get(row.group)
            node = writer.collective(row.name, at, kind, size, role, row.line)
            if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
                node.root = _root(writer.degrees, row, role, kind)
            at = node.node_id
    return left_out


def _root(degrees: Degrees | None, row: _Row, role: GroupRole | None, kind: CollectiveKind) -> int:
    """Position of the root in its group: the file's ranks are those of rank 0's."""
    name = "src" if kind is CollectiveKind.BROADCAST else "dst"
    text = row.field(name)
    if text in _UNKNOWN:
        return 0
    rank = whole_number(text, row.line, name, MAX_REPLICAS)
    if role is None or degrees is None:
        return rank
    members = degrees.members(role, 0)
    if rank not in members:
        what = f"{name} is {rank}, which is not in rank 0's {row.group}"
        raise WorkloadFault(row.line, what, "give the file of rank 0")
    return members.index(rank)


def _compute(writer: RowWriter, row: _Row, at: int | None, is_log: bool) -> int | None:
    """Logs of runs state milliseconds, workloads nanoseconds, or nothing but the shapes that are multiplied."""
    text = row.field("_elapsed_time")
    if text not in _UNKNOWN:
        return writer.compute(row.name, at, _elapsed_ns(text, row.line, is_log), row.line)
    shapes = _SHAPES.fullmatch(row.field("msg_size"))
    if shapes is None:
        what = f"a computation without a time has msg_size {quoted(row.field('msg_size'))}: two shapes were expected"
        raise WorkloadFault(row.line, what, "such as ((2048, 1, 4096), (4096, 11008))")
    first, second = (
        [
            whole_number(one, row.line, "a dimension", MAX_ROWS, 1)
            for one in shape.replace(" ", "").split(",")
            if one
        ]
        for shape in shapes.groups()
    )
    if not first or len(second) != 2 or first[-1] != second[0]:
        what = f"shapes {quoted(row.field('msg_size'))} cannot be multiplied"
        raise WorkloadFault(row.line, what, "the last of the first must be the first of the second")
    num_ops = 2 * prod(first) * second[1]
    tensor_bytes = _SHAPE_ELEMENT_BYTES * (prod(first) + prod(second))
    if max(num_ops, tensor_bytes) > MAX_BYTES * 1024:
        raise WorkloadFault(row.line, "multiplies more than any rank can")
    return writer.products(row.name, at, num_ops, tensor_bytes, row.line)


def _elapsed_ns(text: str, line: int, is_log: bool) -> int:
    try:
        elapsed_ns = float(text) * (1e6 if is_log else 1)
    except ValueError:
        elapsed_ns = -1.0
    if not 0 <= elapsed_ns <= MAX_NS:
        raise WorkloadFault(line, f"_elapsed_time is {quoted(text)}: a time was expected")
    return round(elapsed_ns)
