"""Read files that hold a secret, and refuse those that others may read. A shell: the file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

_LARGEST_SECRET_BYTES: Final = 65_536


def exposed_secret(path: Path) -> Problem | None:
    """Return that others than its owner may read a secret file; None if they may not, or there is no such file.

    A group may read a file that belongs to somebody else: that is how Kubernetes and systemd hand a secret to a process
    that is not root. Of a file of one's own that would be an oversight.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    mode = stat.S_IMODE(found.st_mode)
    group = bool(mode & stat.S_IRWXG) and found.st_uid == os.geteuid()
    if not group and not mode & stat.S_IRWXO:
        return None
    who = "everybody on this host" if mode & stat.S_IRWXO else "its group"
    return Problem(
        str(path), f"holds a secret that {who} may read or change (mode {mode:04o})", f"chmod 600 {path}"
    )


def read_secret(path: Path) -> str:
    """Return the one line that a file holds, such as a password.

    Raises `ConfigError` for a file that cannot be read, that others may read, or that holds no such line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_SECRET_BYTES + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
    try:
        secret = raw.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or not secret.isprintable() or len(raw) > _LARGEST_SECRET_BYTES:
        what = "holds no secret, which is one line of text"
        raise ConfigError(Problem(str(path), what, "write the secret into it, and nothing else"))
    if problem := exposed_secret(path):
        raise ConfigError(problem)
    return secret
