"""Public traces of requests -> `RequestSet`: Mooncake, Qwen-Bailian, Azure and BurstGPT. Every refusal names its line.

The format follows from the first line. Times must not go back. Sources: kvcache-ai/Mooncake:FAST25-release/traces,
alibaba-edu/qwen-bailian-usagetraces-anon, Azure/AzurePublicDataset:data, HPMLL/BurstGPT.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Any, Final, NoReturn

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.workload.serving.requests import (
    LATEST_NS,
    MOST_BLOCKS,
    MOST_REQUESTS,
    MOST_TOKENS,
    Request,
    RequestSet,
)

MOST_FILE_BYTES: Final = 1 << 30
_MOST_LINE_BYTES: Final = 16 << 20
_MOST_ID: Final = 1 << 62
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_GZIP: Final = b"\x1f\x8b"
_AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURSTGPT: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
_BURSTGPT_3: Final = (_BURSTGPT[0], "Session ID", "Elapsed time", *_BURSTGPT[1:])
_JSON_KEYS: Final = ("timestamp", "input_length", "output_length", "hash_ids")
_BAILIAN_KEYS: Final = ("chat_id", "parent_chat_id", "type", "turn")


@dataclass(frozen=True, slots=True)
class _Record:
    """A line of a trace; its time is on the clock of the file."""

    at_ns: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    block_tokens: int
    records: Iterator[tuple[str, _Record]]
    fails_without_answer: bool = False


def read_requests(path: Path, where: str) -> RequestSet:
    """Return the requests of a trace file.

    Raises `ConfigError` with the line that cannot be used, or naming `where` for a file that cannot be read.
    """
    content = _content(path, where)
    first = content.split(b"\n", 1)[0].strip()
    trace = _json_format(content, path) if first.startswith(b"{") else _csv_format(content, path)
    requests: list[Request] = []
    failed = last_ns = first_ns = 0
    for number, (at, record) in enumerate(trace.records):
        if number == 0:
            first_ns = last_ns = record.at_ns
        if record.at_ns < last_ns:
            _refuse(
                at,
                f"arrives {(last_ns - record.at_ns) / 1e9:g} s before the line before it",
                "sort the lines by time",
            )
        if record.at_ns - first_ns > LATEST_NS:
            _refuse(at, "arrives more than a year after the first", "cut the file")
        last_ns = record.at_ns
        if trace.fails_without_answer and not record.output_tokens:
            failed += 1
            continue
        if record.output_tokens < 1 or record.input_tokens < 1:
            _refuse(at, "a request without tokens", "write at least 1 for both lengths")
        most_blocks = -(-record.input_tokens // trace.block_tokens) if trace.block_tokens else 0
        if len(record.blocks) > most_blocks:
            problem = f"{len(record.blocks)} block ids for {record.input_tokens} tokens"
            _refuse(at, problem, f"write at most {most_blocks}: one for {trace.block_tokens} tokens")
        if len(requests) >= MOST_REQUESTS:
            _refuse(at, f"more than {MOST_REQUESTS} requests", "cut the file, or set limit after cutting it")
        requests.append(
            Request(number, record.at_ns - first_ns, record.input_tokens, record.output_tokens, record.blocks)
        )
    if not requests:
        _refuse(str(path), "has no request", "name a trace with a line for each request")
    notes = (f"{failed} requests without an answer are left out",) if failed else ()
    return RequestSet(
        tuple(requests), max(trace.block_tokens, 1), f"{path.name} ({trace.name})", failed, notes
    )


def _refuse(where: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigError(Problem(where, problem, remedy))


def _content(path: Path, where: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        _refuse(where, f"{path}: {error.strerror}", "name a trace of requests")
    if len(content) > MOST_FILE_BYTES:
        _refuse(str(path), f"has more than {MOST_FILE_BYTES} bytes", "cut it")
    if content.startswith((_ZSTD, _GZIP)):
        _refuse(str(path), "is compressed", "unpack it: zstd -d, or gunzip")
    return content


def _lines(content: bytes, path: Path) -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(content.split(b"\n"), 1):
        at = f"{path}:{number}"
        if len(raw) > _MOST_LINE_BYTES:
            _refuse(at, f"a line of {len(raw)} bytes", f"keep lines within {_MOST_LINE_BYTES}")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            _refuse(at, "is not UTF-8", "save the file as UTF-8 text")
        if line:
            yield at, line


# ---- JSON lines


def _json_format(content: bytes, path: Path) -> _Format:
    at, line = next(_lines(content, path))
    keys = _json_object(at, line).keys()
    if "chat_id" in keys:
        allowed = {*_JSON_KEYS, *_BAILIAN_KEYS}
        return _Format("Qwen-Bailian", 16, _json_records(content, path, allowed, _seconds))
    return _Format("Mooncake", 512, _json_records(content, path, set(_JSON_KEYS), _milliseconds))


def _json_object(at: str, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        _refuse(at, f"is not JSON: {str(error)[:80]}", "write one object a line")
    if not isinstance(values, dict):
        _refuse(at, "is not an object", "write one object a line")
    return values


def _json_records(
    content: bytes, path: Path, allowed: set[str], time_of: Callable[[str, Any], int]
) -> Iterator[tuple[str, _Record]]:
    for at, line in _lines(content, path):
        values = _json_object(at, line)
        if unknown := sorted(values.keys() - allowed):
            _refuse(
                at, f'"{unknown[0][:64]}" is not a key of this format', f"keep {', '.join(sorted(allowed))}"
            )
        if missing := [key for key in _JSON_KEYS[:3] if key not in values]:
            _refuse(at, f"{missing[0]} is missing", "write it")
        ids = values.get("hash_ids", [])
        if not isinstance(ids, list) or len(ids) > MOST_BLOCKS:
            _refuse(at, "hash_ids is not a list of at most 2^20 ids", "write whole numbers")
        if not all(type(block) is int and 0 <= block < _MOST_ID for block in ids):
            _refuse(at, "hash_ids has something else than whole numbers from 0", "write the ids of blocks")
        yield (
            at,
            _Record(
                time_of(at, values["timestamp"]),
                _tokens(at, "input_length", values["input_length"]),
                _tokens(at, "output_length", values["output_length"]),
                tuple(ids),
            ),
        )


def _tokens(at: str, key: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        _refuse(at, f"{key} is {str(value)[:40]}", f"write a whole number from 0 to {MOST_TOKENS}")
    return value


def _milliseconds(at: str, value: object) -> int:
    return _time_ns(at, value, 1_000_000)


def _seconds(at: str, value: object) -> int:
    return _time_ns(at, value, NS_PER_S)


def _time_ns(at: str, value: object, unit_ns: int) -> int:
    if type(value) is not int and not isinstance(value, Decimal):
        _refuse(at, f"the time is {str(value)[:40]}", "write a number")
    number = Decimal(value)
    # The product of a number out of range may be out of Decimal's range, too.
    if not number.is_finite() or not 0 <= number <= LATEST_NS or number * unit_ns > 2 * LATEST_NS:
        _refuse(at, f"the time is {str(value)[:40]}", "write a number from 0")
    return int(number * unit_ns)


# ---- CSV


def _csv_format(content: bytes, path: Path) -> _Format:
    lines = _lines(content, path)
    at, header = next(lines, (str(path), ""))
    names = tuple(name.strip() for name in header.split(","))
    if names == _AZURE:
        return _Format("Azure", 0, _csv_records(lines, names, _azure))
    if names in {_BURSTGPT, _BURSTGPT_3}:
        return _Format("BurstGPT", 0, _csv_records(lines, names, _burstgpt), fails_without_answer=True)
    known = f"{','.join(_AZURE)} (Azure), or {','.join(_BURSTGPT)} (BurstGPT), or JSON lines (Mooncake, Qwen-Bailian)"
    _refuse(at, f'"{header[:80]}" is not a header of a request trace', f"known are {known}")


def _csv_records(
    lines: Iterator[tuple[str, str]], names: tuple[str, ...], read: Callable[[str, dict[str, str]], _Record]
) -> Iterator[tuple[str, _Record]]:
    for at, line in lines:
        try:
            fields: Sequence[str] = next(csv.reader([line]))
        except csv.Error as error:
            _refuse(at, f"is not CSV: {error}", "write one row a line")
        if len(fields) != len(names):
            _refuse(at, f"{len(fields)} values for {len(names)} columns", "write one for each column")
        yield at, read(at, dict(zip(names, fields, strict=True)))


def _azure(at: str, fields: dict[str, str]) -> _Record:
    stamp = fields["TIMESTAMP"].strip()
    whole, _, fraction = stamp.partition(".")
    try:
        seconds = int((datetime.fromisoformat(whole) - datetime(2000, 1, 1)).total_seconds())  # noqa: DTZ001
    except (ValueError, TypeError):
        _refuse(at, f'"{stamp[:40]}" is not a time', "write it as 2023-11-16 18:17:03.9799600")
    if fraction and not (fraction.isascii() and fraction.isdigit() and len(fraction) <= 9):
        _refuse(at, f'"{stamp[:40]}" is not a time', "write at most 9 decimals of the second")
    at_ns = seconds * NS_PER_S + int(fraction.ljust(9, "0") or "0")
    return _Record(at_ns, _count(at, fields, "ContextTokens"), _count(at, fields, "GeneratedTokens"))


def _burstgpt(at: str, fields: dict[str, str]) -> _Record:
    try:
        seconds = Decimal(fields["Timestamp"])
    except DecimalException:
        _refuse(at, f'"{fields["Timestamp"][:40]}" is not a time in seconds', "write a number")
    at_ns = _seconds(at, seconds)
    return _Record(at_ns, _count(at, fields, "Request tokens"), _count(at, fields, "Response tokens"))


def _count(at: str, fields: dict[str, str], name: str) -> int:
    text = fields[name].strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        _refuse(at, f'{name} is "{text[:40]}"', f"write a whole number from 0 to {MOST_TOKENS}")
    return _tokens(at, name, int(text))
