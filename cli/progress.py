"""What a command says beside its answer, on standard error: lines as it goes, how far reading is, and how far a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes

if TYPE_CHECKING:
    from etloop.controller.run.pipeline import Step
    from etloop.controller.session.actions import RunProgress
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


class StatusWatcher:
    """Prints what is reported of a run. A `controller.run.pipeline.RunWatcher`."""

    def report(self, line: str) -> None:
        """Print at once."""
        print_status(line)

    def enter(self, step: Step) -> None:
        """Say nothing."""

    def progress(self, progress: RunProgress) -> None:
        """Show nothing."""

    def stored(self, ops: int) -> None:
        """Show nothing."""


class BarWatcher(StatusWatcher):
    """Shows a bar as well, while a session runs."""

    def __init__(self) -> None:
        # Here, because only this needs it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.fields[state]:>8}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:.0f}/{task.total:.0f} ops"),
            TextColumn("{task.fields[moved]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("run", total=1, state="", moved="")

    def enter(self, step: Step) -> None:
        """Take the bar away: the session is over."""
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def progress(self, progress: RunProgress) -> None:
        """Draw the bar."""
        self._bar.start()
        self._bar.update(
            self._task,
            completed=progress.ops_done,
            total=max(progress.ops_total, 1),
            state=progress.state.name,
            moved=approximate_bytes(progress.wire_tx_bytes),
        )


@contextmanager
def run_watcher(*, bar: bool) -> Iterator[StatusWatcher]:
    """Open what shows a run, with a `bar` where standard error is a terminal; it is gone afterwards."""
    if not bar or not sys.stderr.isatty():
        yield StatusWatcher()
        return
    watcher = BarWatcher()
    try:
        yield watcher
    finally:
        watcher.close()


def print_status(line: str) -> None:
    """At once, whatever is buffered."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
