"""Provides text files of production tools as bounded lines, and the faults and notes of their readers."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.stores import COPY_AGAIN, file_pieces, first_bytes, unreadable
from etloop.workload.trace.trace_names import printable_name

MAX_LINE: Final = 1 << 20
"""Limit of characters in one line."""
MAX_TEXT: Final = 1 << 30
"""Limit of decompressed bytes in one file."""
MAX_FILES: Final = 16_384
"""Limit of files of one job."""
HEAD_BYTES: Final = 1 << 16
"""Bytes that a format is recognised by."""


class FileFault(Exception):
    """A defect of a file, with its line (from 1; 0: the whole file). The caller knows the file."""

    def __init__(self, line: int, problem: str, remedy: str = "") -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.what = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Note:
    """An assumption of a reader, or content that a file lacks. `left_out` counts communication that is not replayed."""

    text: str
    remedy: str
    left_out: int = 0


def head_of(path: Path) -> bytes:
    """Return the first decompressed bytes of a regular file; b"" for one that cannot be decompressed. Raises `OSError`."""
    if not path.is_file():
        return b""
    try:
        with closing(file_pieces(path)) as pieces:
            return first_bytes(decompress(pieces), HEAD_BYTES)
    except CompressionFault:
        return b""


def head_lines(head: bytes) -> list[str]:
    """Return the complete lines of a head that are not blank, without line ends."""
    text = head.decode(errors="replace")
    lines = text.splitlines()
    complete = lines if len(head) < HEAD_BYTES or text.endswith("\n") else lines[:-1]
    return [line for line in complete if line.strip()]


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line. Raises `FileFault` for text that is not UTF-8 or over a limit, and `TraceError`
    for a file that cannot be read."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    number, rest, size = 0, "", 0
    try:
        with closing(file_pieces(path)) as pieces:
            for piece in decompress(pieces):
                size += len(piece)
                if size > MAX_TEXT:
                    raise FileFault(0, f"is larger than {MAX_TEXT} bytes", "give a part of it")
                *complete, rest = (rest + decoder.decode(piece)).split("\n")
                for line in complete:
                    number += 1
                    yield number, _bounded_line(line, number)
                _bounded_line(rest, number + 1)
            rest += decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise FileFault(number + 1, "is not UTF-8", COPY_AGAIN) from None
    except (OSError, CompressionFault) as error:
        raise TraceError(unreadable(str(path), error)) from None
    if rest:
        yield number + 1, _bounded_line(rest, number + 1)


def text_of(path: Path, limit_bytes: int) -> bytes:
    """Return the decompressed content. Raises `FileFault` over the limit and `TraceError` for a file that cannot be
    read."""
    try:
        with closing(file_pieces(path)) as pieces:
            content = first_bytes(decompress(pieces), limit_bytes + 1)
    except (OSError, CompressionFault) as error:
        raise TraceError(unreadable(str(path), error)) from None
    if len(content) > limit_bytes:
        raise FileFault(0, f"is larger than {limit_bytes} bytes", "give a smaller file")
    return content


def fault_error(path: Path, fault: FileFault) -> TraceError:
    """Return a fault of a file as the error of the trace."""
    place = printable_name(str(path)) + (f": line {fault.line}" if fault.line else "")
    return TraceError(Problem(place, fault.what, fault.remedy or COPY_AGAIN))


def quote(text: str) -> str:
    """Return a field quote and shortened for a message."""
    return f'"{printable_name(text[:48])}"'


def _bounded_line(line: str, number: int) -> str:
    if len(line) > MAX_LINE:
        raise FileFault(number, f"is longer than {MAX_LINE} characters")
    return line.removesuffix("\r")
