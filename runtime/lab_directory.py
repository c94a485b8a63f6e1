"""Where a lab of this user keeps its socket and logs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem, RigError

SOCKET_FILE: Final = "lab.sock"


def lab_directory(name: str) -> Path:
    """Where a lab of this user keeps its socket and logs. Raises `RigError` if the place is somebody else's."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"etloop-{os.getuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        found = base.lstat()
    except OSError as error:
        raise RigError(Problem(str(base), f"cannot be made: {error.strerror}", _remedy())) from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or base.is_symlink():
        raise RigError(
            Problem(str(base), "belongs to others or is open to them", "remove it, or set XDG_RUNTIME_DIR")
        )
    return base / f"lab-{name}"


def _remedy() -> str:
    stated = os.environ.get("XDG_RUNTIME_DIR")
    if stated is None:
        return "set XDG_RUNTIME_DIR to a directory of yours"
    return f"XDG_RUNTIME_DIR is {stated}: make that directory, or name one that exists"
