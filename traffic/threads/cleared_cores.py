"""Cores that are cleared of the host's other threads for the duration of a block."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.runtime.own_module import own_module

START_TIMEOUT_S: Final = 20
"""Time to move the threads, even on a host with very many of them."""
END_TIMEOUT_S: Final = 20
LINE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ClearedCores:
    """Result of clearing cores."""

    cores: tuple[int, ...]
    moved: int
    """Threads that were on the cores and were moved off."""
    refused: int
    """Threads that this process has no permission to move. Kernel threads bound to a core are not counted."""
    sees_the_host: bool

    @property
    def done(self) -> str:
        """Return a summary for the user."""
        return f"{self.moved} threads were moved off core {_join_numbers(self.cores)}"

    @property
    def degraded(self) -> tuple[str, ...]:
        """Return what could not be cleared, and the remedy."""
        shared = f"core {_join_numbers(self.cores)} is shared"
        notes = []
        if self.refused:
            notes.append(
                f"{shared}: {self.refused} threads of other users cannot be moved; give the agent CAP_SYS_NICE"
            )
        if not self.sees_the_host:
            notes.append(f"{shared}: not all threads of the host are visible; use docker run --pid=host")
        return tuple(notes)


def _join_numbers(cores: Sequence[int]) -> str:
    """Join core numbers with commas."""
    return ", ".join(map(str, cores))


@contextlib.contextmanager
def cleared_cores(cores: Sequence[int], usable: Sequence[int]) -> Iterator[ClearedCores]:
    """Move the host's threads off `cores` to other cores that they may use, and move them back at the end of the block.

    Threads that are placed on one of the cores during the block stay there, as the engine's loops do. Raises
    `ConfigError` if no `usable` core would remain for everything else, `RigError` if the cores cannot be cleared.
    """
    if not set(usable) - set(cores):
        problem = f"no core would be left for other threads next to {_join_numbers(cores)}"
        raise ConfigError(Problem("--clear-cores", problem, "remove one core, or remove --clear-cores"))
    with subprocess.Popen(
        own_module("etloop.traffic.threads.core_clearer", *map(str, cores)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield ClearedCores(tuple(cores), *_answer(process))
        finally:
            _end(process)


def _answer(process: subprocess.Popen[bytes]) -> tuple[int, int, bool]:
    """Return (moved, refused, sees_the_host) from the process. Raises `RigError` if it does not report in time."""
    pipe = process.stdout
    assert pipe is not None, "it was asked for"
    readable, _, _ = select.select([pipe], [], [], START_TIMEOUT_S)
    line = os.read(pipe.fileno(), LINE_BYTES) if readable else b""
    if not line:
        why = "see its message above" if readable else f"it did not report within {START_TIMEOUT_S} s"
        raise RigError(
            Problem("--clear-cores", "the cores were not cleared", f"{why}; or remove --clear-cores")
        )
    moved, refused, sees_the_host = map(int, line.split())
    return moved, refused, bool(sees_the_host)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the process's input, so that it moves the threads back, and wait for its end."""
    assert process.stdin is not None, "it was asked for"
    process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
