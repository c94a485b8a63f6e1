"""Cores that the host's other threads are kept off for as long as a block lasts."""

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
"""Until a host with very many threads has moved them."""
END_TIMEOUT_S: Final = 20
LINE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class ClearedCores:
    """What came of it."""

    cores: tuple[int, ...]
    moved: int
    """Threads that were there and are not now."""
    refused: int
    """Threads that may not be moved by this process. The kernel's own that are bound to a core are not among them."""
    sees_the_host: bool

    @property
    def done(self) -> str:
        """For whoever runs it."""
        return f"{self.moved} threads were moved off core {_listed(self.cores)}"

    @property
    def degraded(self) -> tuple[str, ...]:
        """What could not be had, and the remedy."""
        shared = f"core {_listed(self.cores)} is shared"
        notes = []
        if self.refused:
            notes.append(
                f"{shared}: {self.refused} threads of others may not be moved from here; give it CAP_SYS_NICE"
            )
        if not self.sees_the_host:
            notes.append(
                f"{shared}: not all of the host's threads are seen from here; docker run --pid=host shows them"
            )
        return tuple(notes)


def _listed(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores))


@contextlib.contextmanager
def cleared_cores(cores: Sequence[int], usable: Sequence[int]) -> Iterator[ClearedCores]:
    """Moves every thread of the host that may be moved off `cores` to those it may use beside them, and back at the end.

    Threads that are put on one of the cores meanwhile stay there, which is what the loops do. Raises `ConfigError` where nothing
    of the `usable` cores would be left for all else, `RigError` if it cannot be done.
    """
    if not set(usable) - set(cores):
        what = f"no core would be left for everything else beside {_listed(cores)}"
        raise ConfigError(Problem("--clear-cores", what, "leave one out, or do without it"))
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
    pipe = process.stdout
    assert pipe is not None, "it was asked for"
    readable, _, _ = select.select([pipe], [], [], START_TIMEOUT_S)
    line = os.read(pipe.fileno(), LINE_BYTES) if readable else b""
    if not line:
        why = "it said why above" if readable else f"nothing was heard of it for {START_TIMEOUT_S} s"
        raise RigError(Problem("--clear-cores", "the cores were not cleared", f"{why}; or do without it"))
    moved, refused, sees_the_host = map(int, line.split())
    return moved, refused, bool(sees_the_host)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "it was asked for"
    process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
