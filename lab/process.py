"""The process of a lab: becomes root of a user namespace where needed, then serves until it is asked to end.

`client` starts it with the lab's directory and a pipe; it then detaches from its parent. The first line it writes into the pipe
is its pid, the second its status, or the problems if it did not start. If the pipe has no reader any more, because the starter
was killed, the lab ends. All other modules are imported only after the user namespace is entered, which only a single-threaded
process may do.
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
    """Serve a lab and return the exit code. `words` are the lab's directory and the descriptor of the pipe."""
    directory, pipe = Path(words[0]), int(words[1])
    if os.fork() != 0:
        os._exit(0)  # the starter waits for this process
    os.setsid()

    def report(answer: LabStatus | NotUp) -> None:
        os.write(pipe, FROM_LAB.encode(answer))
        os.close(pipe)

    directory_inode = directory.stat().st_ino
    try:
        os.write(pipe, f"{os.getpid()}\n".encode())
        code, is_kept = _serve(directory, report)
    except BrokenPipeError:
        code, is_kept = 0, False
    if not is_kept and directory.exists() and directory.stat().st_ino == directory_inode:
        shutil.rmtree(directory, ignore_errors=True)  # unless another lab has taken the name meanwhile
    return code


def _serve(directory: Path, report: Callable[[LabStatus | NotUp], None]) -> tuple[int, bool]:
    """Return the exit code, and whether to keep the directory. Raise BrokenPipeError if the starter has gone."""
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
        report(NotUp((Problem("lab", str(error), "see its log"),)))
        return int(RigError.exit_code), True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
