"""Reads AICB's CSV of the operations of a rank: generated workloads, and logs of runs.

A section describes one rank of one pipeline stage; every rank of the stage is assumed to do the same. A file with a
section for each stage is replayed with the transfers between stages. In a file of one of several stages they are left
out, because the other ends are unknown. Pure.
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
    Toward,
    Workload,
    WorkloadFault,
    quote,
    whole_number,
)
from etloop.workload.trace.settings import MAX_REPLICAS
from etloop.workload.trace.trace import CollectiveKind

COLUMNS: Final = ("comm_type", "comm_group", "msg_size")
"""Columns that a file must have."""

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
_DIRECTIONS: Final = {
    ("isend", "send_next"): Toward.NEXT,
    ("isend", "send_prev"): Toward.PREVIOUS,
    ("irecv", "recv_next"): Toward.NEXT,
    ("irecv", "recv_prev"): Toward.PREVIOUS,
}
"""Stage that a transfer leads to or comes from."""
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
_STAGE: Final = re.compile(r"pp_stage([0-9]{1,6})\s*:\s*\[([^]]*)\]")
_EVERYONE: Final = re.compile(r"\[\s*rank0\s*~\s*rank([0-9]{1,7})\s*\]")
_SHAPES: Final = re.compile(r"\(\(([0-9, ]{1,200})\), ?\(([0-9, ]{1,200})\)\)")
_SHAPE_ELEMENT_BYTES: Final = 2
"""Bytes of a tensor element: AICB's tensors are bf16."""


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
    """Return the index of the line that names the columns, either the first or the one after AICB's list of stages;
    None if there is none."""
    for index, line in enumerate(lines[:2]):
        if set(COLUMNS) <= {cell.strip() for cell in line[:4096].split(",")}:
            return index
        if not line.lstrip().startswith("["):
            return None
    return None


def read_aicb_csv(lines: Sequence[str]) -> Workload:
    """Return the workload in a file's lines. Raises `WorkloadFault`."""
    sections = _sections(lines)
    rows = [row for section in sections for row in section.rows]
    steady_rows, notes = [], []
    for section in sections:
        kept, section_notes = _without_start_up(section.rows)
        steady_rows.append(kept)
        notes += section_notes
    degrees, degree_notes = _degrees(rows, [row for kept in steady_rows for row in kept], sections)
    notes += degree_notes
    remedy = "give a file with the column comm_group_size, which current versions of AICB write"
    writers = [RowWriter(degrees, remedy) for _ in sections]
    left_out = sum(
        _write(writer, kept, has_stages=len(sections) > 1)
        for writer, kept in zip(writers, steady_rows, strict=True)
    )
    if left_out:
        fault = f"{left_out} sends and receives between pipeline stages are recorded for one stage only"
        remedy_left_out = (
            "they are left out: give a file with the sections of all stages, or traces of every rank"
        )
        notes.append(Note(fault, remedy_left_out, left_out))
    return Workload(
        tuple(writers[0].rows),
        frozenset(role for writer in writers for role in writer.roles),
        degrees,
        "AICB CSV",
        tuple(notes),
        tuple(tuple(writer.rows) for writer in writers) if len(writers) > 1 else (),
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """The operations of one pipeline stage."""

    label: str
    """The list of its ranks above the columns; "" without one."""
    line: int
    rows: tuple[_Row, ...]


def _sections(lines: Sequence[str]) -> list[_Section]:
    """Return the sections of a file, each with its own line of columns."""
    starts = [index for index, line in enumerate(lines) if line.lstrip().startswith("[")]
    if not starts or starts[0]:
        starts.insert(0, 0)
    if len(lines) > MAX_ROWS + 2 * len(starts):
        raise WorkloadFault(0, f"has {len(lines)} rows, the limit is {MAX_ROWS}")
    return [_section(lines, start, end) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def _section(lines: Sequence[str], start: int, end: int) -> _Section:
    header_line = header_index(lines[start:end])
    if header_line is None:
        problem = f"begins a pipeline stage without the columns {', '.join(COLUMNS)}"
        raise WorkloadFault(start + 1, problem, "copy or write the file again")
    header_line += start
    column_names = [cell.strip() for cell in lines[header_line].split(",")]
    if len(column_names) > _MOST_COLUMNS or len(set(column_names)) < len(column_names):
        fault = f"names {len(column_names)} columns, expected at most {_MOST_COLUMNS} distinct names"
        raise WorkloadFault(header_line + 1, fault)
    rows = tuple(
        _row(line, column_names, number)
        for number, line in enumerate(lines[header_line + 1 : end], header_line + 2)
        if line.strip()
    )
    return _Section(lines[start] if header_line > start else "", start + 1, rows)


def _row(line: str, names: Sequence[str], number: int) -> _Row:
    cells = _cells(line)
    if len(cells) != len(names):
        fault = f"has {len(cells)} fields, the header names {len(names)}"
        raise WorkloadFault(number, fault, "copy or write the file again")
    fields = dict(zip(names, cells, strict=True))
    kind = fields["comm_type"].removeprefix("CommType.")
    group = fields["comm_group"].removeprefix("CommGroup.")
    if kind not in (*_KINDS, *_TRANSFERS, _COMPUTATION, _EPOCH_END):
        known_kinds = ", ".join((*_KINDS, *_TRANSFERS, _COMPUTATION, _EPOCH_END))
        raise WorkloadFault(number, f"comm_type is {quote(kind)}, expected one of {known_kinds}")
    return _Row(number, kind, group, fields)


def _cells(line: str) -> list[str]:
    """Split a line into its fields. The shapes of a computation contain commas within brackets, without quotes."""
    cells, depth, first = [], 0, 0
    for index, character in enumerate(line):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth <= 0:
            cells.append(line[first:index].strip())
            first = index + 1
    return [*cells, line[first:].strip()]


def _without_start_up(rows: Sequence[_Row]) -> tuple[list[_Row], list[Note]]:
    """Return the rows after the first epoch_end, which ends AICB's start-up; all rows if none follows it."""
    end = next((index for index, row in enumerate(rows) if row.kind == _EPOCH_END), None)
    step_rows = [row for row in rows[end + 1 :] if row.kind != _EPOCH_END] if end is not None else []
    if end is None or not step_rows:
        return [row for row in rows if row.kind != _EPOCH_END], []
    if not end:
        return step_rows, []
    problem = f"{end} operations before the first epoch_end are start-up, not a training step"
    return step_rows, [Note(problem, "they are left out; later epochs are replayed one after another", end)]


def _degrees(
    rows: Sequence[_Row], kept: Sequence[_Row], sections: Sequence[_Section]
) -> tuple[Degrees | None, list[Note]]:
    """Return the degrees that all `rows` state, start-up included. The rows `kept` must state every group that they
    use."""
    for row in kept:
        if row.kind in _KINDS and row.group not in (*_ROLES, *_WORLD):
            groups = ", ".join((*_ROLES, "all"))
            raise WorkloadFault(row.line, f"comm_group is {quote(row.group)}, expected one of {groups}")
    sizes: dict[GroupRole, tuple[int, int]] = {}
    first_unsized: dict[GroupRole | None, int] = {}
    kept_lines = {row.line for row in kept}
    for row in rows:
        # A send or receive states a group of one rank.
        if row.kind not in _KINDS:
            continue
        role, text = _ROLES.get(row.group), row.field("comm_group_size")
        if role is None or text in _UNKNOWN:
            if row.line in kept_lines:
                first_unsized.setdefault(role, row.line)
            continue
        size = whole_number(text, row.line, "comm_group_size", MAX_REPLICAS, 1)
        first_size, first_line = sizes.setdefault(role, (size, row.line))
        if first_size != size:
            raise WorkloadFault(
                row.line, f"comm_group_size of {row.group} is {size}, in line {first_line} {first_size}"
            )
    missing = {role: line for role, line in first_unsized.items() if role is not None and role not in sizes}
    if not sizes:
        if len(first_unsized) > 1:
            names = ", ".join(sorted(map(_group_name, first_unsized)))
            problem = f"several groups are used ({names}), but no row states their sizes"
            raise WorkloadFault(0, problem, "give a file with the column comm_group_size")
        remedy = "state the number of ranks: workload.replicate_ranks (--replicate-ranks)"
        return None, [Note("does not state the number of ranks", remedy)]
    for role, line in missing.items():
        problem = f"no row states the size of {_group_name(role)}"
        raise WorkloadFault(line, problem, "write it in the column comm_group_size")
    if len(sections) > 1:
        sizes.setdefault(GroupRole.PIPELINE, (len(sections), sections[1].line))
    degrees = _degrees_of({role: size for role, (size, _) in sizes.items()})
    _check_sections(sections, degrees)
    return degrees, []


def _degrees_of(sizes: Mapping[GroupRole, int]) -> Degrees:
    tensor, expert = sizes.get(GroupRole.TENSOR, 1), sizes.get(GroupRole.EXPERT, 1)
    tensor_expert = sizes.get(GroupRole.TENSOR_EXPERT)
    if tensor_expert is not None and GroupRole.EXPERT not in sizes:
        expert = tensor_expert // tensor
    data = sizes.get(GroupRole.DATA, expert * sizes.get(GroupRole.DATA_EXPERT, 1))
    degrees = Degrees(tensor, data, sizes.get(GroupRole.PIPELINE, 1), expert)
    if problem := degrees.problem():
        raise WorkloadFault(0, problem)
    for role, size in sizes.items():
        if size != degrees.group_size(role):
            mismatch = (
                f"{_group_name(role)} has {size} ranks; the other groups imply {degrees.group_size(role)}"
            )
            raise WorkloadFault(0, mismatch, "correct the column comm_group_size")
    return degrees


def _check_sections(sections: Sequence[_Section], degrees: Degrees) -> None:
    """Raise `WorkloadFault` unless the sections and the ranks that they list fit the degrees."""
    stage_ranks = degrees.tensor * degrees.data
    if len(sections) > 1 and len(sections) != degrees.pipeline:
        problem = f"has {len(sections)} pipeline stages, the groups imply {degrees.pipeline}"
        raise WorkloadFault(sections[-1].line, problem, "keep the lines of one stage, or of all")
    for index, section in enumerate(sections):
        if match := _STAGE.search(section.label):
            if len(sections) > 1 and int(match[1]) != index:
                mismatch = f"begins stage {match[1]}, expected stage {index}"
                raise WorkloadFault(section.line, mismatch, "order the stages")
            if (listed_ranks := match[2].count("rank")) != stage_ranks:
                mismatch = f"lists {listed_ranks} ranks of a stage, tp_group and dp_group imply {stage_ranks}"
                raise WorkloadFault(section.line, mismatch, "correct the column comm_group_size")
        if (match := _EVERYONE.search(section.label)) and int(match[1]) + 1 != degrees.world_size:
            mismatch = f"lists {int(match[1]) + 1} ranks, the groups imply {degrees.world_size}"
            raise WorkloadFault(section.line, mismatch, "correct the column comm_group_size, or the list")


def _group_name(role: GroupRole | None) -> str:
    return next((name for name, named_role in _ROLES.items() if named_role is role), "all")


def _write(writer: RowWriter, rows: Sequence[_Row], *, has_stages: bool) -> int:
    """Add the rows one after another, as AICB runs them, and return the number of transfers left out: all, unless
    every stage has its rows."""
    is_log = any(row.field("_elapsed_time") not in _UNKNOWN for row in rows if row.kind in _KINDS)
    last_node: int | None = None
    left_out = 0
    for row in rows:
        if row.kind in _TRANSFERS and has_stages:
            last_node = _transfer(writer, row, last_node)
        elif row.kind in _TRANSFERS:
            left_out += 1
        elif row.kind == _COMPUTATION:
            last_node = _compute(writer, row, last_node, is_log)
        else:
            kind = _KINDS[row.kind]
            text = row.field("msg_size")
            size = (
                0 if kind is CollectiveKind.BARRIER else whole_number(text, row.line, "msg_size", MAX_BYTES)
            )
            role = None if kind is CollectiveKind.BARRIER else _ROLES.get(row.group)
            node = writer.collective(row.name, last_node, kind, size, role, row.line)
            if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
                node.root = _root(writer.degrees, row, role, kind)
            last_node = node.node_id
    return left_out


def _transfer(writer: RowWriter, row: _Row, at: int | None) -> int:
    direction = row.field("additional")
    toward = _DIRECTIONS.get((row.kind, direction))
    if toward is None:
        expected = ", ".join(name for kind, name in _DIRECTIONS if kind == row.kind)
        raise WorkloadFault(row.line, f"additional of {row.kind} is {quote(direction)}, expected {expected}")
    size = whole_number(row.field("msg_size"), row.line, "msg_size", MAX_BYTES)
    name = f"{row.field('stage')}.{direction}"
    return writer.transfer(name, at, toward, size, row.line, is_send=row.kind == "isend")


def _root(degrees: Degrees | None, row: _Row, role: GroupRole | None, kind: CollectiveKind) -> int:
    """Return the position of the root in its group. The ranks in the file are members of rank 0's groups."""
    name = "src" if kind is CollectiveKind.BROADCAST else "dst"
    text = row.field(name)
    if text in _UNKNOWN:
        return 0
    rank = whole_number(text, row.line, name, MAX_REPLICAS)
    if role is None or degrees is None:
        return rank
    members = degrees.members(role, 0)
    if rank not in members:
        problem = f"{name} is {rank}, which is not in rank 0's {row.group}"
        raise WorkloadFault(row.line, problem, "give the file of rank 0")
    return members.index(rank)


def _compute(writer: RowWriter, row: _Row, at: int | None, is_log: bool) -> int | None:
    """Add a computation and return the node that the next one waits for. Logs give milliseconds, workloads nanoseconds
    or only the shapes that are multiplied."""
    text = row.field("_elapsed_time")
    if text not in _UNKNOWN:
        return writer.compute(row.name, at, _elapsed_ns(text, row.line, is_log), row.line)
    shapes = _SHAPES.fullmatch(row.field("msg_size"))
    if shapes is None:
        problem = (
            f"a computation without a time has msg_size {quote(row.field('msg_size'))}, expected two shapes"
        )
        raise WorkloadFault(row.line, problem, "such as ((2048, 1, 4096), (4096, 11008))")
    first, second = (
        [
            whole_number(dimension, row.line, "a dimension", MAX_ROWS, 1)
            for dimension in shape.replace(" ", "").split(",")
            if dimension
        ]
        for shape in shapes.groups()
    )
    if not first or len(second) != 2 or first[-1] != second[0]:
        problem = f"shapes {quote(row.field('msg_size'))} cannot be multiplied"
        raise WorkloadFault(row.line, problem, "the last of the first must be the first of the second")
    num_ops = 2 * prod(first) * second[1]
    tensor_bytes = _SHAPE_ELEMENT_BYTES * (prod(first) + prod(second))
    if max(num_ops, tensor_bytes) > MAX_BYTES * 1024:
        raise WorkloadFault(row.line, "describes a matrix product with too many operations")
    return writer.products(row.name, at, num_ops, tensor_bytes, row.line)


def _elapsed_ns(text: str, line: int, is_log: bool) -> int:
    try:
        elapsed_ns = float(text) * (1e6 if is_log else 1)
    except ValueError:
        elapsed_ns = -1.0
    if not 0 <= elapsed_ns <= MAX_NS:
        raise WorkloadFault(line, f"_elapsed_time is {quote(text)}, expected a time")
    return round(elapsed_ns)
