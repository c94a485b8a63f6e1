"""Runs a command as nobody, who may reach the directories that it names: `python as_nobody.py DIRECTORY ... -- COMMAND ...`.

Interpreters, checkouts and temporary directories often lie under one that only its owner may enter. In a mount namespace of the
command's own such a directory is covered by an empty one that anybody may enter, with those named in their places. Nothing
outside of it changes. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
CLONE_NEWNS: Final = 0x00020000
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def closed_above(path: Path) -> Path | None:
    """The first directory on the way to a path that others may not enter."""
    for above in reversed(path.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            return above
    return None


def mount(source: str, target: str, kind: str | None, flags: int, how: str | None = None) -> None:
    words = (source.encode(), target.encode(), kind and kind.encode(), flags, how and how.encode())
    if _LIBC.mount(*words) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} on {target}: {os.strerror(code)}")


def open_up(paths: list[Path]) -> None:
    """Lets everybody reach the paths, in a mount namespace of this process's own."""
    if _LIBC.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace to be had")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    under: dict[Path, list[tuple[Path, int]]] = {}
    for path in sorted({path.resolve() for path in paths}):
        if (closed := closed_above(path)) is not None:
            under.setdefault(closed, []).append((path, os.open(path, os.O_PATH)))
    for closed, needed in under.items():
        mount("none", str(closed), "tmpfs", 0, "mode=755")
        for path, descriptor in needed:
            path.mkdir(parents=True, exist_ok=True)
            mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)
            os.close(descriptor)


def main() -> None:
    at = sys.argv.index("--")
    directory = Path.cwd()
    os.umask(0o022)
    open_up([Path(word) for word in sys.argv[1:at]])
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.chdir(directory)
    command = sys.argv[at + 1 :]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
