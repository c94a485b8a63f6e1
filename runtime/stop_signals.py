"""Handles the signals that end a process. The only place that installs handlers of SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
SIGUSR2.

Six ways, by the state of the process: an event loop collects reasons to stop, sets an event, or reads its keys again;
a log changes its level; code outside an event loop is interrupted as by Ctrl-C; and a process that its parent ends in
another way ignores the signals.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

_REASONS: Final = {signal.SIGINT: "stopped by Ctrl-C", signal.SIGTERM: "stopped by SIGTERM"}
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which a user, a supervisor or a closed terminal ends a process."""


@contextlib.contextmanager
def stop_reasons() -> Iterator[list[str]]:
    """Collect SIGINT and SIGTERM as reasons to stop inside the block; outside the main thread the list stays empty."""
    stops: list[str] = []
    with _loop_calls(tuple(_REASONS), lambda number: stops.append(_REASONS[number])):
        yield stops


@contextlib.contextmanager
def event_set_by_stop(event: asyncio.Event) -> Iterator[None]:
    """Set `event` at SIGTERM, SIGINT and SIGHUP inside the block."""
    with _loop_calls(_ENDING, lambda _: event.set()):
        yield


@contextlib.contextmanager
def reload_calls(*calls: Callable[[], None]) -> Iterator[None]:
    """Call all of `calls` at each SIGHUP inside the block, so that a server reads its keys again without a restart."""
    with _loop_calls((signal.SIGHUP,), lambda _: [call() for call in calls]):
        yield


@contextlib.contextmanager
def level_calls(more: Callable[[], None], less: Callable[[], None]) -> Iterator[None]:
    """Call `more` at each SIGUSR1 and `less` at each SIGUSR2 inside the block, to change the log level; main thread
    only.
    """
    calls = {signal.SIGUSR1: more, signal.SIGUSR2: less}

    def call(number: int, _frame: FrameType | None) -> None:
        calls[signal.Signals(number)]()

    with _signals_handled(tuple(calls), call):
        yield


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM inside the block, so that cleanup code runs; main thread only."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _signals_handled((signal.SIGTERM,), interrupt):
        yield


@contextlib.contextmanager
def ignore_stops(*numbers: signal.Signals) -> Iterator[None]:
    """Ignore SIGTERM, SIGINT and SIGHUP, or only `numbers`, inside the block; main thread only."""
    with _signals_handled(numbers or _ENDING, signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _signals_handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def _loop_calls(
    numbers: Sequence[signal.Signals], call: Callable[[signal.Signals], object]
) -> Iterator[None]:
    # Imported late: small processes that only ignore signals start without the modules of an event loop.
    import asyncio

    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    for number in numbers:
        try:
            loop.add_signal_handler(number, call, number)
        except (ValueError, RuntimeError):
            break  # Not the main thread, which alone receives signals.
        handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
