"""Reports on standard error while a command works: status lines, progress of reading, and progress of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.runtime.clock import monotonic_ns

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from etloop.cli.live_page import LivePage
    from etloop.cli.text.live import LiveRun
    from etloop.contract.model.counters import CounterBatch
    from etloop.controller.run.pipeline import Step
    from etloop.controller.session.actions import RunProgress
    from etloop.workload.readers.files import Progress

FEWEST_FILES: Final = 16
"""Fewest files for which a bar is shown."""

_WIDTH: Final = 32
_LINE_EVERY_NS: Final = 5 * NS_PER_S
_STYLES: Final = {"": "", "good": "green", "doubtful": "yellow", "bad": "bold red"}
_ERASE_LINE: Final = "\r\x1b[2K"


@contextmanager
def reading_bar() -> Iterator[Progress | None]:
    """Yield the progress callback of `read_trace`, or None if standard error is not a terminal; erase the line afterwards."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield _show
    finally:
        sys.stderr.write(_ERASE_LINE)
        sys.stderr.flush()


def _show(done: int, total: int) -> None:
    # Steps below one hundredth are invisible, and terminals are slow.
    if total < FEWEST_FILES or (done * 100 // total == (done - 1) * 100 // total and done < total):
        return
    sys.stderr.write(_ERASE_LINE + ("" if done == total else bar_text(done, total)))
    sys.stderr.flush()


def bar_text(done: int, total: int) -> str:
    """Return the line after `done` of `total` files."""
    filled = _WIDTH * done // total
    return f"reading [{'#' * filled}{'.' * (_WIDTH - filled)}] {done} of {total} files"


class StatusWatcher:
    """Prints the status lines of a run. A `controller.run.pipeline.RunWatcher`."""

    def report(self, line: str) -> None:
        """Print the line at once."""
        print_status(line)

    def enter(self, step: Step) -> None:
        """Ignore the step."""

    def progress(self, progress: RunProgress) -> None:
        """Ignore the progress."""

    def take_records(self, records: NDArray[np.void]) -> None:
        """Ignore the records."""

    def answer(self, text: str) -> None:
        """Print a part of the command's answer on standard output."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Ignore the reading of the device's counters."""

    def note_stored(self, ops: int) -> None:
        """Ignore the number of stored ops."""


class LineWatcher(StatusWatcher):
    """Prints a line every few seconds while a session runs, where there is no terminal."""

    def __init__(self, live: LiveRun, page: LivePage | None) -> None:
        self._live, self._page = live, page
        self._next_ns = monotonic_ns() + _LINE_EVERY_NS
        self._last_line = ""

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Record the reading for the page."""
        self._live.take_counters(source, batch)

    def progress(self, progress: RunProgress) -> None:
        """Update the page, and print a line every `_LINE_EVERY_NS`, unless it is the same as the last one."""
        now_ns = monotonic_ns()
        self._live.take(progress, now_ns)
        if self._page is not None:
            self._page.show(self._live.view())
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _LINE_EVERY_NS
            line = self._live.line()
            if line != self._last_line:
                print_status(line)
            self._last_line = line


class ScreenWatcher(StatusWatcher):
    """Draws a run on a terminal while it goes on."""

    def __init__(self, live: LiveRun, page: LivePage | None) -> None:
        # Imported here, because only this class needs it.
        from rich.console import Console
        from rich.live import Live

        self._live, self._page = live, page
        self._screen = Live(console=Console(stderr=True), transient=True, auto_refresh=False)

    def report(self, line: str) -> None:
        """Print the line above the drawing."""
        if self._screen.is_started:
            self._screen.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print_status(line)

    def enter(self, step: Step) -> None:
        """Remove the drawing: the session is over."""
        self.close()

    def answer(self, text: str) -> None:
        """Remove the drawing and print the text; the next progress draws below it."""
        self.close()
        super().answer(text)

    def close(self) -> None:
        """Remove the drawing."""
        self._screen.stop()

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Record the reading for the page."""
        self._live.take_counters(source, batch)

    def progress(self, progress: RunProgress) -> None:
        """Redraw the run."""
        from rich.text import Text

        self._live.take(progress, monotonic_ns())
        if self._page is not None:
            self._page.show(self._live.view())
        lines = (Text(line.text, style=_STYLES[line.mood], no_wrap=True) for line in self._live.lines())
        self._screen.start()
        self._screen.update(Text("\n").join(lines), refresh=True)


@contextmanager
def run_watcher(live: LiveRun, page: LivePage | None = None, *, shows: bool) -> Iterator[StatusWatcher]:
    """Yield the watcher that shows a run, also on a `page` if given.

    It draws a screen if it `shows` and standard error is a terminal, else it prints a line every few seconds. The screen is
    erased afterwards.
    """
    if not shows or not sys.stderr.isatty():
        yield LineWatcher(live, page)
        return
    watcher = ScreenWatcher(live, page)
    try:
        yield watcher
    finally:
        watcher.close()


@contextmanager
def live_page(address: tuple[str, int], out_dir: Path | None) -> Iterator[LivePage]:
    """Serve the page of a run at an address and port while the block lasts, then with the report of `out_dir` until its reader
    leaves. Raise `ConfigError`."""
    from etloop.cli.live_page import LivePage

    page = LivePage(*address)
    print_status(f"the run is shown at {page.url}")
    report = None
    try:
        yield page
        report = None if out_dir is None else out_dir / "report.html"
    finally:
        has_report = report is not None and report.is_file()
        if has_report:
            print_status(f"the page stays at {page.url} until its reader leaves; Ctrl-C ends it")
        page.finish(report if has_report else None)


def print_status(line: str) -> None:
    """Print a line to standard error and flush it."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
