"""Signals end a process in one of four ways, and nobody else installs handlers."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading

import pytest

from etloop.runtime.stop_signals import (
    event_set_by_stop,
    ignore_stops,
    stop_reasons,
    terminate_as_interrupt,
)
from tests.support.places import ROOT

PATIENCE_S = 10
HANDLERS = re.compile(r"signal\.signal\(|add_signal_handler|default_int_handler")
ROOMS = (
    "agent",
    "bench",
    "cli",
    "contract",
    "controller",
    "counters",
    "dut_profiles",
    "etloop",
    "experiments",
    "lab",
    "results",
    "runtime",
    "traffic",
    "workload",
)


async def test_a_loop_collects_reasons_to_wind_up() -> None:
    with stop_reasons() as stops:
        async with asyncio.timeout(PATIENCE_S):
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
                heard = len(stops)
                while len(stops) == heard:  # noqa: ASYNC110 - a list has no event
                    await asyncio.sleep(0)
    assert stops == ["stopped by SIGTERM", "stopped by Ctrl-C"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_sets_an_event(number: signal.Signals) -> None:
    event = asyncio.Event()
    with event_set_by_stop(event):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE_S):
            await event.wait()


def test_outside_the_main_thread_there_are_no_reasons() -> None:
    async def live() -> None:
        with stop_reasons() as stops:
            found.append(stops)

    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    thread.join(PATIENCE_S)
    assert found == [[]]


def test_code_in_the_middle_of_something_is_interrupted_as_by_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_others_end_does_not_listen() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with ignore_stops():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
        with ignore_stops(signal.SIGINT):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_one_module_installs_handlers() -> None:
    sources = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix() for path in sources if HANDLERS.search(path.read_text())}
    # A schedule file's limit of processor time is a timer of its own; the door's process ignores stop signals and ends with its
    # controller.
    assert found == {
        "runtime/stop_signals.py",
        "controller/inputs/schedule_files.py",
        "controller/session/door/relay.py",
    }
