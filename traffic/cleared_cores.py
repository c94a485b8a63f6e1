"""Cores that the host's other threads are kept off for as long as a block lasts."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.errors import ConfigError, Problem, RigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START_TIMEOUT_S: Final = 20
"""Until a host with very many threads has moved them."""
END_TIMEOUT_S: Final = 20
LINE_BYTES: Final = 64


@contextlib.contextmanager
def cleared_cores(cores: Sequence[int], usable: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """Moves every thread of the host that may be moved off `cores` to those it may use beside them, and back at the end.

    Threads that are put on one of the cores meanwhile stay there, which is what the loops do. Gives what could not be had.
    Raises `ConfigError` where nothing of the `usable` cores would be left for all else, `RigError` if it cannot be done.
    """
    listed = ", ".join(map(str, cores))
    if not set(usable) - set(cores):
        what = f"no core would be left for everything else beside {listed}"
        raise ConfigError(Problem("--clear-cores", what, "leave one out, or do without it"))
    # The same code as this process runs, whatever the working directory holds.
    ours = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH", ""))))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "traffic.core_clearer", *map(str, cores)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        try:
            refused = _refused(process)
            yield _told(listed, refused)
        finally:
            _end(process)


def _refused(process: subprocess.Popen[bytes]) -> int:
    pipe = process.stdout
    assert pipe is not None, "it was asked for"
    readable, _, _ = select.select([pipe], [], [], START_TIMEOUT_S)
    line = os.read(pipe.fileno(), LINE_BYTES) if readable else b""
    if not line:
        why = "it said why above" if readable else f"nothing was heard of it for {START_TIMEOUT_S} s"
        raise RigError(Problem("--clear-cores", "the cores were not cleared", f"{why}; or do without it"))
    return int(line)


def _told(listed: str, refused: int) -> tuple[str, ...]:
    if not refused:
        return ()
    remedy = "give it CAP_SYS_NICE"
    return (f"cores {listed} are shared: {refused} threads of others may not be moved from here; {remedy}",)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "it was asked for"
    process.stdin.close()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
