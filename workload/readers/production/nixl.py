"""Reads traffic matrices of NIXL's kvbench, and sequences of them.

A matrix has one line per source rank; cell [i][j] is the bytes that rank i writes to rank j, with the suffixes B, K, M
and G (powers of 1024), decimals truncated. A sequence (YAML) lists matrices: the senders of one meet at a barrier, sleep,
write and sleep. A rank that sends nothing in a matrix goes on to its next one at once, so matrices of different senders
run at the same time. kvbench posts WRITE for READ too, so data always flows from row to column.

Format: ai-dynamo/nixl:benchmark/kvbench (test/custom_traffic_perftest.py, runtime/… matrix files).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import MAX_RANKS, JobRows, empty_job, trace_of
from etloop.workload.readers.production.text_files import (
    FileFault,
    Note,
    head_lines,
    lines_of,
    quote,
)
from etloop.workload.readers.production.yaml_files import (
    list_of,
    map_of,
    seconds_ns,
    string_of,
    whole_of,
    yaml_document,
)
from etloop.workload.trace.trace import Trace

_CELL: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,2})?)([BKMG]?)B?", re.IGNORECASE)
_UNITS: Final = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_PATTERNS: Final = 10_000
_KEYS: Final = frozenset(
    "matrix_file shards mem_type xfer_op sleep_before_launch_sec sleep_after_launch_sec metadata".split()
)
_TOP_KEYS: Final = frozenset(("traffic_patterns", "traffic_pattern", "iters", "warmup_iters"))


@dataclass(frozen=True, slots=True)
class Matrix:
    """Bytes between ranks, without zeros."""

    ranks: int
    cells: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class _Pattern:
    name: str
    matrix: Matrix
    before_ns: int
    after_ns: int


def begins_matrix(head: bytes) -> bool:
    """Decide whether a file begins like a matrix: a line of two cells or more, and another line that begins with one."""
    rows = [line.split() for line in head_lines(head)[:2]]
    return (
        len(rows) == 2 and len(rows[0]) > 1 and all(_CELL.fullmatch(cell) for cell in (*rows[0], rows[1][0]))
    )


def begins_sequence(head: bytes) -> bool:
    """Decide whether a YAML file has the keys of kvbench at its top."""
    return any(re.match(r"traffic_patterns?\s*:", line) for line in head_lines(head))


def read_matrix(path: Path) -> Matrix:
    """Parse one matrix file. Raises `FileFault`."""
    cells: dict[tuple[int, int], int] = {}
    columns = rows = 0
    for number, line in lines_of(path):
        row = line.split()
        if not row:
            continue
        columns = columns or len(row)
        if len(row) != columns or rows >= columns:
            problem = f"line {rows + 1} has {len(row)} cells in a matrix of {columns} columns"
            raise FileFault(number, problem, "write one line with one cell per rank for each rank")
        for column, text in enumerate(row):
            if size := _bytes_of(text, number):
                cells[rows, column] = size
        rows += 1
    if not rows or rows != columns:
        raise FileFault(0, f"has {rows} lines of {columns} cells", "write one line per rank")
    if rows > MAX_RANKS:
        raise FileFault(0, f"has {rows} ranks, expected at most {MAX_RANKS}", "give a smaller matrix")
    return Matrix(rows, cells)


def read_nixl_matrix(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of a single matrix. Raises `FileFault`."""
    return _trace(source, (_Pattern(source.name, read_matrix(source), 0, 0),), [])


def read_nixl_sequence(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of a sequence of matrices. Raises `FileFault`."""
    document = yaml_document(source)
    if unknown := sorted(document.keys() - _TOP_KEYS):
        raise FileFault(0, f"has the key {quote(unknown[0])}, which is not supported", "remove it")
    notes: list[Note] = []
    if "traffic_pattern" in document:
        entries: list[Any] = [document["traffic_pattern"]]
        if iterations := whole_of(document, "iters", 1):
            problem = (
                f"asks for {iterations} iterations and {whole_of(document, 'warmup_iters', 0)} for warm-up"
            )
            notes.append(Note(problem, "the trace is one iteration: state run.iterations in the scenario"))
    else:
        entries = list_of(document, "traffic_patterns", _MOST_PATTERNS)
    patterns = tuple(_pattern(source, entry, index, notes) for index, entry in enumerate(entries))
    if not patterns:
        raise FileFault(0, "has no traffic pattern", "list one or more under traffic_patterns")
    return _trace(source, patterns, notes)


def files_of_sequence(path: Path) -> tuple[str, ...]:
    """Return the names of the files that a sequence consists of, relative to its folder. Raises `FileFault`."""
    document = yaml_document(path)
    entries = (
        [document["traffic_pattern"]]
        if "traffic_pattern" in document
        else list_of(document, "traffic_patterns", _MOST_PATTERNS)
    )
    matrices = (_matrix_path(path, map_of(entry, f"pattern {index}")) for index, entry in enumerate(entries))
    folder = path.parent.resolve()
    return (path.name, *dict.fromkeys(matrix.resolve().relative_to(folder).as_posix() for matrix in matrices))


def _pattern(path: Path, entry: object, index: int, notes: list[Note]) -> _Pattern:
    where = f"pattern {index}"
    values = map_of(entry, where)
    if unknown := sorted(values.keys() - _KEYS):
        problem = f"{where} has the key {quote(unknown[0])}, which is not supported"
        raise FileFault(0, problem, "remove it; storage operations are DLIO workloads or a background load")
    operation = string_of(values, "xfer_op", "WRITE")
    if operation not in ("WRITE", "READ"):
        raise FileFault(0, f"{where}: xfer_op is {quote(operation)}", "write WRITE or READ")
    if operation == "READ":
        problem = f"{where} states READ; kvbench runs WRITE from row to column, as this reader does"
        notes.append(Note(problem, "the direction of the data is the same"))
    if (shards := whole_of(values, "shards", 1)) > 1:
        notes.append(
            Note(f"{where} states {shards} shards, which kvbench does not use", "cells are sent whole")
        )
    matrix_path = _matrix_path(path, values)
    try:
        matrix = read_matrix(matrix_path)
    except FileFault as fault:
        place = f"{matrix_path.name}: line {fault.line}" if fault.line else matrix_path.name
        raise FileFault(0, f"{place}: {fault.what}", fault.remedy) from None
    return _Pattern(
        matrix_path.name,
        matrix,
        seconds_ns(values, "sleep_before_launch_sec"),
        seconds_ns(values, "sleep_after_launch_sec"),
    )


def _matrix_path(path: Path, values: dict[str, Any]) -> Path:
    """Return the path of a matrix file, which must be below the folder of the sequence. The generator writes absolute
    paths: the file of that name next to the sequence is then used."""
    name = string_of(values, "matrix_file", "")
    if not name:
        raise FileFault(0, "a pattern names no matrix_file", "name the file of its matrix")
    folder = path.parent.resolve()
    candidate = folder / name
    if Path(name).is_absolute() and not candidate.resolve().is_relative_to(folder):
        candidate = folder / Path(name).name
    if not candidate.resolve().is_relative_to(folder):
        raise FileFault(
            0, f"{quote(name)} is outside the folder of the sequence", "copy the matrix next to it"
        )
    if not candidate.is_file():
        raise FileFault(0, f"{quote(name)} is missing", "copy the matrices next to the sequence")
    return candidate


def _bytes_of(text: str, line: int) -> int:
    match = _CELL.fullmatch(text)
    if match is None:
        problem = f"{quote(text)} is not a size"
        raise FileFault(line, problem, "write bytes, or a number with B, K, M or G, such as 46.88M")
    size = int(Decimal(match[1]) * _UNITS[match[2].upper()])
    if size >= 1 << 63:
        raise FileFault(line, f"{quote(text)} is more than 8 EiB", "write a smaller size")
    return size


def _trace(path: Path, patterns: tuple[_Pattern, ...], notes: list[Note]) -> Trace:
    ranks = max(pattern.matrix.ranks for pattern in patterns)
    job = empty_job(ranks)
    ends: list[list[int]] = [[] for _ in range(ranks)]
    own_bytes = 0
    for pattern in patterns:
        senders = sorted({src for src, dst in pattern.matrix.cells if src != dst})
        if len(senders) > 1 and any(ends[rank] for rank in senders):
            nodes = job.barrier(f"{pattern.name}: barrier", {rank: ends[rank] for rank in senders})
            ends = [[nodes[rank]] if rank in nodes else ends[rank] for rank in range(ranks)]
        _pause(job, f"{pattern.name}: sleep before", pattern.before_ns, ends, senders)
        sent_by: dict[int, list[int]] = {rank: [] for rank in senders}
        for (src, dst), size in pattern.matrix.cells.items():
            if src == dst:
                own_bytes += size
                continue
            name = f"{pattern.name}: {src} to {dst}"
            sent, _ = job.transfer(src, dst, name, size, src_after=ends[src])
            sent_by[src].append(sent)
        for rank, sent_nodes in sent_by.items():
            ends[rank] = sent_nodes
        _pause(job, f"{pattern.name}: sleep after", pattern.after_ns, ends, senders)
    if own_bytes:
        notes.append(Note(f"{own_bytes} bytes are from a rank to itself", "they cross no network: left out"))
    return trace_of(job, path, "NIXL kvbench", notes)


def _pause(job: JobRows, name: str, duration_ns: int, ends: list[list[int]], senders: Sequence[int]) -> None:
    """Let the senders of a pattern sleep."""
    for rank in senders if duration_ns else ():
        ends[rank] = [job.compute(rank, name, duration_ns, ends[rank])]
