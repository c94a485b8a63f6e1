"""A run's process that does not keep up with what its agents say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.runs import supervisor
from etloop.controller.rack.runs.protocol import Begin, Ended, RunFrame
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.runs.supervisor import RunChild
from etloop.controller.rack.store import locks
from tests.support.first_light.commands import PATIENCE_S

MESSAGE = bytes(4 << 20)


def child_in(directory: Path, on_frame: Callable[[RunFrame], None] = lambda _: None) -> RunChild:
    begin = Begin(
        "r1",
        "",
        str(directory),
        "",
        str(directory),
        (),
        str(directory / "out"),
        AllowedCode(),
        {},
        strict=False,
    )
    return RunChild(begin, directory / "r1.lock", 16 << 30, on_frame)


async def test_a_run_that_takes_nothing_holds_others_up_for_a_while_and_is_then_killed(
    tmp_path: Path,
) -> None:
    child = child_in(tmp_path)
    living = asyncio.create_task(child.run())
    async with asyncio.timeout(PATIENCE_S):
        while (pid := locks.signature(tmp_path / "r1.lock")) is None:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGSTOP)
        assert not child.is_behind(0)
        while not child.is_behind(0):
            child.forward(b"a", MESSAGE)
            await asyncio.sleep(0)
        assert child.is_behind(15 * NS_PER_S)
        assert not living.done(), "a pause that runs survive is borne"
        assert child.is_behind(15 * NS_PER_S + 1)
        assert await living == "its process does not read the messages of its agents"
    assert not child.is_behind(40 * NS_PER_S), "it holds nobody up any more"


async def test_what_is_asked_of_a_run_while_it_starts_is_not_lost(tmp_path: Path) -> None:
    stopped, killed = child_in(tmp_path / "a"), child_in(tmp_path / "b")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    stopped.stop("cancelled by a test")
    killed.kill("nobody wants it")
    async with asyncio.timeout(PATIENCE_S):
        assert [*await asyncio.gather(stopped.run(), killed.run())] == ["", "nobody wants it"]


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_run_whose_task_is_cancelled_while_it_starts_ends(tmp_path: Path, turns: int) -> None:
    child, own_tasks = child_in(tmp_path), asyncio.all_tasks()
    running = asyncio.create_task(child.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    pid = locks.signature(tmp_path / "r1.lock")
    assert pid is not None
    # As at the end of a loop: every task is cancelled, those inside of asyncio too.
    for task in asyncio.all_tasks() - own_tasks:
        task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await running
        while not has_ended(pid):  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0)
    assert not (tmp_path / "r1.lock").exists()
    child.kill()
    child.forward(b"a", b"")


async def test_a_process_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    child = child_in(tmp_path / "none")
    assert await child.run() == "its process could not be started: No such file or directory"
    child.kill()
    child.forward(b"a", b"")
    assert not child.is_behind(0)


ENDS_AT_ONCE = """\
import pathlib, socket, sys
from etloop.contract.protocol.frames import frame_of
from etloop.controller.rack.runs.protocol import FROM_RUN, Ended
link = socket.socket(fileno=int(sys.argv[1]))
link.recv(1)
pathlib.Path(sys.argv[2]).touch()
link.sendall(frame_of(FROM_RUN, Ended(0, "its last words", stored=True, summary="{}")))
"""


def has_ended(pid: int) -> bool:
    """Whether a process is gone or waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_the_last_frames_of_a_process_are_read_although_nothing_can_be_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, begun = (sys.executable, "-c", ENDS_AT_ONCE), tmp_path / "begun"
    monkeypatch.setattr(supervisor, "own_module", lambda _, number: (*command, number, str(begun)))
    frames: list[RunFrame] = []
    child = child_in(tmp_path, frames.append)
    living = asyncio.create_task(child.run())
    async with asyncio.timeout(PATIENCE_S):
        while not begun.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0)
        # The daemon stands still until the process has ended, then writes before it reads.
        pid = locks.signature(tmp_path / "r1.lock")
        assert pid is not None
        while not has_ended(pid):
            pass
        child.forward(b"a", MESSAGE)
        assert await living == ""
    assert frames == [Ended(0, "its last words", stored=True, summary="{}")]
