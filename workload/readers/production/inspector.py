"""Reads the JSON lines of the NCCL Inspector and RCCL's port of it: one object per call, one file per process.

Sizes are count * type size of the call. The files have no roots, tags, algorithms or overlap. Verbose records state when
the kernel of each channel began. The dump time of a record is the end of its call only where the calls of every
communicator fit between the dump times of their predecessors: otherwise records were dumped together, and have no times.

Format: NVIDIA/nccl:plugins/profiler/inspector, output v4.0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from etloop.workload.readers.production.communicator_calls import (
    RECV,
    SEND,
    Call,
    CallLog,
    Process,
    collective_of,
    job_of_calls,
)
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.readers.production.text_files import FileFault, Note, head_lines, lines_of, quote
from etloop.workload.trace.trace import Trace

_VERSIONS: Final = ("v4.0", "v5.1")
_MAX_BYTES: Final = 1 << 44
_MAX_US: Final = 1 << 61


def begins(head: bytes) -> bool:
    """Decide whether a file begins like an Inspector's."""
    first = next(iter(head_lines(head)), "")
    return first.lstrip().startswith('{"header"') and ("coll_perf" in first or "p2p_perf" in first)


def read_inspector(source: Path, files: Sequence[Path], facts: FileFacts) -> Trace:
    """Return the job of the files of all processes. Raises `FileFault`."""
    log = CallLog()
    unsupported = 0
    for path in files:
        try:
            unsupported += _read_file(path, log)
        except FileFault as fault:
            raise FileFault(fault.line, f"{path.name}: {fault.what}", fault.remedy) from None
    if not log.calls:
        raise FileFault(0, "has no record of a call", "run with NCCL_INSPECTOR_ENABLE=1 until the job ends")
    if unsupported:
        problem = f"{unsupported} calls of other functions than collectives, send and receive"
        log.notes.append(Note(problem, "they are left out", left_out=unsupported))
    missing = sum(map(_missing_numbers, log.calls.values()))
    if missing:
        problem = (
            f"{missing} calls are missing: their serial numbers are in no record, as for calls below "
            "NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES or beyond the ring of records"
        )
        remedy = "record with NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 and a dump interval"
        log.notes.append(Note(problem, remedy, left_out=missing))
    if any(call.start_us is None for calls in log.calls.values() for call in calls):
        problem = "the records have no start times: calls of a process run one after another, without compute"
        log.notes.append(Note(problem, "record with NCCL_INSPECTOR_DUMP_VERBOSE=1"))
        for process, calls in log.calls.items():
            log.calls[process] = [replace(call, start_us=None) for call in calls]
    return job_of_calls(log, source, "NCCL Inspector")


def _missing_numbers(calls: Sequence[Call]) -> int:
    """Return how many serial numbers are absent between the first and the last of each communicator. Numbers begin
    with 1."""
    numbers: dict[tuple[str, bool], set[int]] = {}
    for call in calls:
        numbers.setdefault((call.communicator, call.is_p2p), set()).add(call.number)
    return sum(max(seen) - min(*seen, 1) + 1 - len(seen) for seen in numbers.values())


def _read_file(path: Path, log: CallLog) -> int:
    """Add the records of a file to the log; return the number of calls that cannot be replayed."""
    unsupported = 0
    own: list[tuple[Process, Call, int | None, int]] = []
    for number, line in lines_of(path):
        if not line.strip():
            continue
        process, call, start_us, dumped_us = _record(line, number)
        if call is None:
            unsupported += 1
        else:
            own.append((process, call, start_us, dumped_us))
    is_stamped = _are_ends([(call, dumped_us) for _, call, _, dumped_us in own])
    for process, call, stated_us, dumped_us in own:
        derived_us = dumped_us - call.duration_us if is_stamped else None
        log.calls[process].append(replace(call, start_us=derived_us if stated_us is None else stated_us))
    return unsupported


def _are_ends(records: Sequence[tuple[Call, int]]) -> bool:
    """Decide whether dump times are the ends of calls: at least two follow each other on a communicator, and no call of a
    communicator begins before the one before it has ended. Sends and receives count by peer."""
    ends: dict[tuple[str, str, int], int] = {}
    compared = 0
    for call, dumped_us in sorted(records, key=lambda record: record[0].number):
        key = call.communicator, call.function if call.is_p2p else "", call.peer
        if key in ends:
            compared += 1
            if dumped_us - call.duration_us < ends[key]:
                return False
        ends[key] = dumped_us
    return compared > 0


def _record(line: str, number: int) -> tuple[Process, Call | None, int | None, int]:
    """Parse one line; the call is None for an unsupported function."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFault(number, f"is not JSON: {quote(str(error))}") from None
    header, metadata = _object(record, "header", number), _object(record, "metadata", number)
    version = metadata.get("inspector_output_format_version")
    if version not in _VERSIONS:
        problem = f"has the output format {quote(str(version))}, expected {' or '.join(_VERSIONS)}"
        raise FileFault(number, problem, "record with NCCL 2.28 or later")
    prefix = "coll" if "coll_perf" in record else "p2p"
    performance = _object(record, f"{prefix}_perf", number)
    process = Process(_text(metadata, "hostname", number), _whole(metadata, "pid", number, 1 << 32))
    dumped_us = _whole(metadata, "dump_timestamp_us", number, _MAX_US)
    function = _text(performance, prefix, number).lower().replace("_", "")
    members = _whole(header, "n_ranks", number, 1 << 20, 1)
    rank = _whole(header, "rank", number, members - 1)
    if function not in (SEND, RECV) and collective_of(function) is None:
        return process, None, None, dumped_us
    start_us = _stated_start_us(performance, prefix, number)
    call = Call(
        communicator=_text(header, "id", number),
        rank=rank,
        members=members,
        function=function,
        size_bytes=_whole(performance, f"{prefix}_msg_size_bytes", number, _MAX_BYTES),
        number=_whole(performance, f"{prefix}_sn", number, 1 << 62),
        peer=_whole(performance, "p2p_peer", number, members - 1) if prefix == "p2p" else -1,
        duration_us=_whole(performance, f"{prefix}_exec_time_us", number, _MAX_US),
        line=number,
    )
    return process, call, start_us, dumped_us


def _stated_start_us(performance: dict[str, Any], prefix: str, line: int) -> int | None:
    """Return the time at which the first kernel of a verbose record began, else that of the call; None without stamps.
    Stamps of 0 were not taken."""
    if "event_trace_ts" not in performance:
        return None
    stamps = _object(performance, "event_trace_ts", line)
    kernels = stamps.get("kernel_events", [])
    if not isinstance(kernels, list):
        raise FileFault(line, "kernel_events is not a list")
    starts = [
        _whole(kernel, key, line, _MAX_US)
        for kernel in kernels
        if isinstance(kernel, dict)
        for key in ("kernel_start_ts", "kernel_start")
        if key in kernel
    ]
    starts = [start for start in starts if start]
    if starts:
        return min(starts)
    for key in (f"{prefix}_start_ts", f"{prefix}_start"):
        if stamps.get(key):
            return _whole(stamps, key, line, _MAX_US)
    return None


def _object(record: object, key: str, line: int) -> dict[str, Any]:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, dict):
        raise FileFault(line, f"has no object {key}")
    return value


def _text(record: dict[str, Any], key: str, line: int) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value or len(value) > 256:
        raise FileFault(line, f"{key} is {quote(str(value))}, expected text")
    return value


def _whole(record: dict[str, Any], key: str, line: int, most: int, least: int = 0) -> int:
    value = record.get(key)
    if type(value) is not int or not least <= value <= most:
        raise FileFault(line, f"{key} is {quote(str(value))}, expected a whole number from {least} to {most}")
    return value
