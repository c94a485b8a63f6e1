"""How far the reading of a trace is, on standard error, for a person who waits: only on a terminal, only for many files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etloop.workload.readers.files import Progress

FEWEST_FILES: Final = 16
"""Files from which a bar is worth its place."""

_WIDTH: Final = 32
_ERASE_LINE: Final = "\r\x1b[2K"


@contextmanager
def reading_bar() -> Iterator[Progress | None]:
    """What `read_trace` tells its progress to; None where nobody looks. The line is gone afterwards."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield _show
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()


def _show(done: int, total: int) -> None:
    # A step of a hundredth is all that can be seen; terminals are slow.
    if total < FEWEST_FILES or (done * 100 // total == (done - 1) * 100 // total and done < total):
        return
    sys.stderr.write(_ERASE_LINE + ("" if done == total else bar_text(done, total)))
    sys.stderr.flush()


def bar_text(done: int, total: int) -> str:
    """The line as it stands after `done` of `total` files."""
    filled = _WIDTH * done // total
    return f"reading [{'#' * filled}{'.' * (_WIDTH - filled)}] {done} of {total} files"
