"""Reads the operation log of the KV-cache benchmark of MLPerf Storage 3.0: one CSV row per access of one rank.

Tier 0 is the GPU: its rows move nothing. The remote tiers (by default 1 and 2, see `FileFacts`) are one endpoint each,
after the ranks. A write goes from the rank to its tier, a read comes back after the write of its key. An eviction is a
pair of rows, a read from the upper tier and a write to the lower, and one transfer. Transfers begin when they were
logged, or when what they wait for has ended.

Format: mlcommons/storage:kv_cache_benchmark.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.job_rows import JobRows, empty_job, trace_of
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, lines_of, quote
from etloop.workload.trace.trace import Trace

_COLUMNS: Final = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
_STAMP: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_TIER: Final = re.compile(r"Tier-([0-9])")
_SIZE: Final = re.compile(r"[0-9]{1,15}")
_DEFAULT_REMOTE: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    time_ns: int
    is_read: bool
    size_bytes: int
    tier: int
    key: str
    phase: str


def begins(head: bytes) -> bool:
    """Decide whether a file begins like a KV-cache log."""
    first = next(iter(head_lines(head)), "")
    return tuple(name.strip() for name in first.split(",")) == _COLUMNS


def read_kv_log(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of the logs, one per rank. Raises `FileFault`."""
    remote = facts.remote_tiers or _DEFAULT_REMOTE
    rows_of = {path: list(_rows(path)) for path in files}
    late = sum(row.time_ns < before.time_ns for rows in rows_of.values() for before, row in pairwise(rows))
    for rows in rows_of.values():
        rows.sort(key=lambda row: row.time_ns)
    tiers = sorted({row.tier for rows in rows_of.values() for row in rows} & set(remote))
    endpoint = {tier: len(files) + index for index, tier in enumerate(tiers)}
    job = empty_job(len(files) + len(tiers))
    start_ns = min((row.time_ns for rows in rows_of.values() for row in rows), default=0)
    unpaired = 0
    for rank, rows in enumerate(rows_of.values()):
        unpaired += _add_rank(job, rank, rows, endpoint, start_ns)
    notes = []
    if not facts.remote_tiers:
        words = (
            ", ".join(f"Tier-{tier} is rank {endpoint[tier]}" for tier in tiers) or "no row has one of them"
        )
        problem = f"tiers 1 and 2 are taken to be remote: {words}"
        notes.append(Note(problem, "state workload.remote_tiers (--remote-tiers), such as [2]"))
    if late:
        notes.append(
            Note(f"{late} rows are earlier than the row before", "rows are taken in the order of Timestamp")
        )
    if unpaired:
        problem = (
            f"{unpaired} evictions have a read or a write alone: their bytes are not counted as a transfer"
        )
        notes.append(Note(problem, "record the benchmark until its end", left_out=unpaired))
    return trace_of(job, source, "KV-cache log", notes)


def _rows(path: Path) -> Iterator[_Row]:
    lines = lines_of(path)
    next(lines, None)
    for number, line in lines:
        if not line.strip():
            continue
        fields = next(csv.reader([line]))
        if len(fields) != len(_COLUMNS):
            raise FileFault(
                number, f"has {len(fields)} fields, expected {len(_COLUMNS)}: {', '.join(_COLUMNS)}"
            )
        stamp, operation, size, tier, key, phase = fields
        tier_match = _TIER.fullmatch(tier)
        if not _STAMP.fullmatch(stamp) or not _SIZE.fullmatch(size) or tier_match is None:
            problem = (
                f"has {quote(stamp)}, {quote(size)} and {quote(tier)}, expected seconds, bytes and Tier-N"
            )
            raise FileFault(number, problem)
        if operation not in ("Read", "Write"):
            raise FileFault(number, f"has the operation {quote(operation)}, expected Read or Write")
        time_ns = int(Decimal(stamp) * 10**9)
        yield _Row(number, time_ns, operation == "Read", int(size), int(tier_match[1]), key, phase)


def _add_rank(job: JobRows, rank: int, rows: Sequence[_Row], endpoint: dict[int, int], start_ns: int) -> int:
    """Add the transfers of one rank; return the number of evictions without their other row."""
    clock: dict[int, tuple[int, int]] = {}
    holder: dict[tuple[str, int], tuple[int, int]] = {}
    evicting: dict[str, _Row] = {}
    unpaired = 0

    def tick(place: int, time_ns: int) -> list[int]:
        """Return the node that a transfer of `place` at `time_ns` waits for: the log's clock on that rank."""
        node, now_ns = clock.get(place, (0, start_ns))
        if time_ns > now_ns:
            node = job.compute(place, "log time", time_ns - now_ns, (node,) if node else ())
            clock[place] = (node, time_ns)
        return [node] if node else []

    def move(row: _Row, src_tier: int, dst_tier: int) -> None:
        src, dst = endpoint.get(src_tier, rank), endpoint.get(dst_tier, rank)
        if src == dst:
            return
        driver = src if rank not in (src, dst) else rank
        after = tick(driver, row.time_ns)
        stored = holder.get((row.key, src_tier))
        waits: dict[int, list[int]] = {src: [], dst: []}
        waits[driver] += after
        if stored is not None and stored[0] in waits:
            waits[stored[0]].append(stored[1])
        name = f"{row.key} tier {src_tier} to {dst_tier}"
        _, received = job.transfer(
            src, dst, name, row.size_bytes, src_after=waits[src], dst_after=waits[dst], offset=row.line
        )
        holder[row.key, dst_tier] = (dst, received)

    for row in rows:
        if row.phase != "Evict":
            move(row, row.tier, 0) if row.is_read else move(row, 0, row.tier)
        elif row.is_read:
            unpaired += row.key in evicting
            evicting[row.key] = row
        elif row.key in evicting:
            move(row, evicting.pop(row.key).tier, row.tier)
        else:
            unpaired += 1
    return unpaired + len(evicting)
