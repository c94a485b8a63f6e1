"""The process of a lab: becomes root of a user namespace where it has to, then serves until it is told to end.

Started by `lab_client` with the lab's directory and a pipe, and nobody's child from then on. The first line it writes into
the pipe is its number, the second says whether the lab is up, or why not. When nobody reads that any more, because who
started it was killed, there is no lab. Everything else is imported only after the user namespace is entered, which a
process of one thread may alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from etloop.contract.base.errors import EtloopError, InputError, Problem, RigError
from etloop.contract.protocol.lab import FROM_LAB, LabStatus, NotUp
from etloop.lab.namespaces import become_root


def main(words: list[str]) -> int:
    """`words`: the lab's directory, and the descriptor of the pipe."""
    directory, pipe = Path(words[0]), int(words[1])
    if os.fork() != 0:
        os._exit(0)  # who started it waits for this one
    os.setsid()

    def report(answer: LabStatus | NotUp) -> None:
        os.write(pipe, FROM_LAB.encode(answer))
        os.close(pipe)

    mine = directory.stat().st_ino
    try:
        os.write(pipe, f"{os.getpid()}\n".encode())
        code, wanted = _serve(directory, report)
    except BrokenPipeError:
        code, wanted = 0, False
    if not wanted and directory.exists() and directory.stat().st_ino == mine:
        shutil.rmtree(directory, ignore_errors=True)  # unless another lab has taken the name meanwhile
    return code


def _serve(directory: Path, report: Callable[[LabStatus | NotUp], None]) -> tuple[int, bool]:
    """The exit code, and whether anybody wants what the lab kept. Raises BrokenPipeError where nobody waits for it."""
    try:
        become_root()
        from etloop.runtime.module_loading import quick_loading

        with quick_loading():
            from etloop.lab.server import serve_lab
        return 0, serve_lab(directory, report)
    except BrokenPipeError:
        raise
    except InputError as error:
        report(NotUp(error.problems))
        return int(error.exit_code), True
    except (EtloopError, OSError, RuntimeError, ValueError) as error:
        report(NotUp((Problem("lab", str(error), "look at its log"),)))
        return int(RigError.exit_code), True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
