"""What a command says beside its answer, on standard error: lines as it goes, how far reading is, and how far a run."""

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
    from etloop.cli.live_page import LivePage
    from etloop.cli.text.live import LiveRun
    from etloop.controller.run.pipeline import Step
    from etloop.controller.session.actions import RunProgress
    from etloop.workload.readers.files import Progress
    from numpy.typing import NDArray

FEWEST_FILES: Final = 16
"""Files from which a bar is worth its place."""

_WIDTH: Final = 32
_LINE_EVERY_NS: Final = 5 * NS_PER_S
_STYLES: Final = {"": "", "good": "green", "doubtful": "yellow", "bad": "bold red"}
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

    def measured(self, records: NDArray[np.void]) -> None:
        """Show nothing."""

    def answer(self, text: str) -> None:
        """Print a part of the command's answer on standard output."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def stored(self, ops: int) -> None:
        """Show nothing."""


class LineWatcher(StatusWatcher):
    """Prints a line every few seconds while a session runs, where nobody sees a screen."""

    def __init__(self, live: LiveRun, page: LivePage | None) -> None:
        self._live, self._page = live, page
        self._next_ns = monotonic_ns() + _LINE_EVERY_NS

    def progress(self, progress: RunProgress) -> None:
        """Print a line when it is time for one."""
        now_ns = monotonic_ns()
        self._live.take(progress, now_ns)
        if self._page is not None:
            self._page.show(self._live.view())
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _LINE_EVERY_NS
            print_status(self._live.line())


class ScreenWatcher(StatusWatcher):
    """Draws a run on a terminal while it goes on."""

    def __init__(self, live: LiveRun, page: LivePage | None) -> None:
        # Here, because only this needs it.
        from rich.console import Console
        from rich.live import Live

        self._live, self._page = live, page
        self._screen = Live(console=Console(stderr=True), transient=True, auto_refresh=False)

    def report(self, line: str) -> None:
        """Print above what is drawn."""
        if self._screen.is_started:
            self._screen.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print_status(line)

    def enter(self, step: Step) -> None:
        """Take away what is drawn: the session is over."""
        self.close()

    def answer(self, text: str) -> None:
        """Print it where nothing is drawn; the next progress draws below it."""
        self.close()
        super().answer(text)

    def close(self) -> None:
        """Take away what is drawn."""
        self._screen.stop()

    def progress(self, progress: RunProgress) -> None:
        """Draw it anew."""
        from rich.text import Text

        self._live.take(progress, monotonic_ns())
        if self._page is not None:
            self._page.show(self._live.view())
        lines = (Text(one.text, style=_STYLES[one.mood], no_wrap=True) for one in self._live.lines())
        self._screen.start()
        self._screen.update(Text("\n").join(lines), refresh=True)


@contextmanager
def run_watcher(live: LiveRun, page: LivePage | None = None, *, shows: bool) -> Iterator[StatusWatcher]:
    """Open what shows a run, on a `page` too.

    A screen where standard error is a terminal and it `shows`; else a line every few seconds. The screen is gone afterwards.
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
    """Open the page of a run at an address and port, which becomes the report of `out_dir`. Raises `ConfigError`."""
    from etloop.cli.live_page import LivePage

    page = LivePage(*address)
    print_status(f"the run is shown at {page.url}")
    report = None
    try:
        yield page
        report = None if out_dir is None else out_dir / "report.html"
    finally:
        page.finish(report if report is not None and report.is_file() else None)


def print_status(line: str) -> None:
    """At once, whatever is buffered."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
