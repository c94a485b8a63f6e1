"""Reads a workload file of AICB or SimAI into the ranks of a job. The form is recognised by the first lines, never by
the name.

All ranks, or those of a pipeline stage, run the same nodes, so they share their columns and differ only in number and
groups, and in the peers of transfers between pipeline stages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from etloop.contract.base.errors import Problem, TraceError
from etloop.workload.readers.aicb.csv_log import header_index, read_aicb_csv
from etloop.workload.readers.aicb.parallel_groups import PARALLELISM, Degrees
from etloop.workload.readers.aicb.simai_text import MICRO, TRANSFORMERS, read_simai_text
from etloop.workload.readers.aicb.workload_rows import Note, Toward, Workload, WorkloadFault
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.node_rows import rank_trace
from etloop.workload.readers.stores import COPY_AGAIN, file_pieces, first_bytes, unreadable
from etloop.workload.trace.trace import LeftOut, NodeKind, RankTrace, Trace
from etloop.workload.trace.trace_names import printable_name

MAX_FILE_BYTES: Final = 256 << 20
_HEAD_BYTES: Final = 1 << 16
_REMEDY: Final = "write the workload with AICB again"


def is_workload_file(source: Path) -> bool:
    """Decide whether a file begins like a workload of SimAI or AICB. A file that cannot be read does not."""
    if not source.is_file():
        return False
    try:
        with closing(file_pieces(source)) as pieces:
            head = first_bytes(decompress(pieces), _HEAD_BYTES)
    except (OSError, CompressionFault):
        return False
    return _begins_like_workload(head.decode(errors="replace").splitlines())


def read_workload_file(source: Path, groups: Path | None = None) -> Trace:
    """Return the job of a workload file. Raises `TraceError`."""
    where = printable_name(str(source))
    if groups is not None:
        problem = "derives its groups from its degrees of parallelism"
        raise TraceError(Problem(where, problem, "remove workload.groups (--groups)"))
    try:
        with closing(file_pieces(source)) as pieces:
            content = first_bytes(decompress(pieces), MAX_FILE_BYTES + 1)
    except (OSError, CompressionFault) as error:
        raise TraceError(unreadable(str(source), error)) from None
    if len(content) > MAX_FILE_BYTES:
        raise TraceError(Problem(where, f"is larger than {MAX_FILE_BYTES} bytes", "give a smaller workload"))
    try:
        workload = read_workload(content)
    except WorkloadFault as fault:
        place = f"{where}: line {fault.line}" if fault.line else where
        raise TraceError(Problem(place, fault.what, fault.remedy or _REMEDY)) from None
    left_out = tuple(
        LeftOut(_problem(where, note), note.left_out) for note in workload.notes if note.left_out
    )
    remarks = tuple(_problem(where, note) for note in workload.notes if not note.left_out)
    return Trace(str(source), ranks_of(workload, where), None, remarks, left_out, dict(PARALLELISM))


def read_workload(content: bytes) -> Workload:
    """Return the workload in a file's bytes. Raises `WorkloadFault`."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 from byte {error.start} on"
        raise WorkloadFault(0, problem, COPY_AGAIN) from None
    lines = text.split("\n")
    if not _begins_like_workload(lines):
        raise WorkloadFault(1, "does not start a SimAI or AICB workload")
    return read_aicb_csv(lines) if header_index(lines) is not None else read_simai_text(lines)


def ranks_of(workload: Workload, where: str) -> tuple[RankTrace, ...]:
    """Return the ranks of a workload; a single one if the workload does not state their number."""
    degrees = workload.degrees
    programs = workload.stages or (workload.rows,)
    templates = [rank_trace(rows, 0, where, workload.schema, None) for rows in programs]
    if degrees is None:
        return (templates[0],)
    stages = [_stages(template, degrees) for template in templates]
    stage_ranks = degrees.tensor * degrees.data
    return tuple(
        replace(stages[rank // stage_ranks % len(stages)](rank), rank=rank, groups=groups or None)
        for rank, groups in enumerate(degrees.groups(workload.roles))
    )


def _stages(template: RankTrace, degrees: Degrees) -> Callable[[int], RankTrace]:
    """Return a function that gives a rank the peers of its transfers between stages. Transfers beyond the
    first or last stage, except in the ring, become nodes without effect.

    Peers are at the same distance for all ranks of the first stage, of the last and of those between, which share columns.
    """
    is_send, is_recv = template.kind == NodeKind.COMM_SEND, template.kind == NodeKind.COMM_RECV
    if not (is_send | is_recv).any():
        return lambda rank: template
    stage_ranks = degrees.tensor * degrees.data
    toward = np.where(is_send, template.comm.dst, np.where(is_recv, template.comm.src, 0))

    @cache
    def of_place(is_first: bool, is_last: bool) -> RankTrace:
        drops = ((toward == Toward.PREVIOUS) & is_first) | ((toward == Toward.NEXT) & is_last)
        stage = np.sign(toward)
        stage[(stage < 0) & is_first] += degrees.pipeline
        stage[(stage > 0) & is_last] -= degrees.pipeline
        distance = stage * stage_ranks
        kind = np.where(drops, NodeKind.METADATA, template.kind).astype(np.uint8)
        src = np.where(is_recv, distance, np.where(is_send, 0, template.comm.src))
        dst = np.where(is_send, distance, np.where(is_recv, 0, template.comm.dst))
        for column in (kind, src, dst):
            column.flags.writeable = False
        return replace(template, kind=kind, comm=replace(template.comm, stated_src=src, stated_dst=dst))

    def of_rank(rank: int) -> RankTrace:
        stage = rank // stage_ranks
        placed = of_place(stage == 0, stage == degrees.pipeline - 1)
        return replace(placed, comm=replace(placed.comm, ends_from=rank))

    return of_rank


def _begins_like_workload(lines: list[str]) -> bool:
    words = lines[0].split(maxsplit=1) if lines else []
    return bool(words and words[0] in (*TRANSFORMERS, MICRO)) or header_index(lines) is not None


def _problem(where: str, note: Note) -> Problem:
    return Problem(where, note.text, note.remedy)
