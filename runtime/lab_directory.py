"""Locates the socket and logs of a lab of this user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, RigError

SOCKET_FILE: Final = "lab.sock"
NO_LISTENER: Final = (FileNotFoundError, ConnectionRefusedError)
"""Errors of a connection where no process listens: no socket, or one that a killed process left behind."""


def lab_directory(name: str) -> Path:
    """Return the directory of a lab's socket and logs, and make its parent. Raises `RigError` if that belongs to
    another user.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"etloop-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        status = base.lstat()
    except OSError as error:
        raise RigError(Problem(str(base), f"cannot be created: {error.strerror}", _remedy())) from None
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or base.is_symlink():
        raise RigError(
            Problem(
                str(base),
                "belongs to another user or is accessible to other users",
                "remove it, or set XDG_RUNTIME_DIR",
            )
        )
    return base / f"lab-{name}"


def connect_problem(name: str, error: OSError) -> Problem:
    """Return the problem of a connection to a lab's socket that failed: no lab is up only where no process listens.

    Other errors (permissions, descriptors, memory) are those of the process that connects, and the lab may well be up.
    """
    if isinstance(error, NO_LISTENER):
        return Problem("lab", f'no lab named "{name}" is up', "start one with etloop lab up TOPOLOGY")
    problem = f'cannot reach the socket of lab "{name}": {error.strerror or error}'
    return Problem("lab", problem, "see whether you may open files there and have descriptors left")


def _remedy() -> str:
    stated = os.environ.get("XDG_RUNTIME_DIR")
    if stated is None:
        return "set XDG_RUNTIME_DIR to a directory that you own"
    return f"XDG_RUNTIME_DIR is {stated}: create that directory, or set one that exists"
