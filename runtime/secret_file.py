"""Read files that hold a secret, and refuse those that other users may read. A shell: the file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem

_LARGEST_SECRET_BYTES: Final = 65_536


def exposed_secret(path: Path) -> Problem | None:
    """Return a problem if users other than its owner may read a secret file, or if that cannot be determined.

    None if they may not, or if there is no such file.

    A group may read a file that another user owns: that is how Kubernetes and systemd pass a secret to a process that
    is not root. For a file of this user, group access counts as a mistake.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Problem(str(path), f"cannot be checked: {error.strerror}", "check that it is readable")
    mode = stat.S_IMODE(status.st_mode)
    exposes_to_group = bool(mode & stat.S_IRWXG) and status.st_uid == os.geteuid()
    if not exposes_to_group and not mode & stat.S_IRWXO:
        return None
    readers = "all users of this host" if mode & stat.S_IRWXO else "its group"
    return Problem(
        str(path),
        f"contains a secret that {readers} may read or change (mode {mode:04o})",
        f"chmod 600 {path}",
    )


def read_secret(path: Path) -> str:
    """Return the single line of text in a file, such as a password.

    Raises `ConfigError` for a file that cannot be read, that other users may read, or that does not hold one line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_SECRET_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), reason, "check that it exists and is readable")) from None
    try:
        secret = raw.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret or not secret.isprintable() or len(raw) > _LARGEST_SECRET_BYTES:
        reason = "contains no secret, expected one line of text"
        raise ConfigError(Problem(str(path), reason, "write only the secret into it"))
    if problem := exposed_secret(path):
        raise ConfigError(problem)
    return secret
