"""Becomes another program that ends with its parent, inside a namespace or where it is:
`lab_enter [--user PATH] [--net PATH] --parent PID -- CMD`.

A process of its own, because only a process of one thread may enter a user namespace. Imports as little as it can.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from etloop.lab.namespaces import CLONE_NEWNET, CLONE_NEWUSER, die_with_parent, enter_for_good

EXIT_NOT_FOUND = 127
EXIT_NOT_STARTED = 126


def main(words: list[str]) -> int:
    """Does not return where the program starts; else the exit code that shells give."""
    options, command = words[: words.index("--")], words[words.index("--") + 1 :]
    named = dict(zip(options[::2], options[1::2], strict=True))
    try:
        if "--user" in named and not _is_same(named["--user"], "/proc/self/ns/user"):
            _enter(named["--user"], CLONE_NEWUSER)
        if "--net" in named:
            _enter(named["--net"], CLONE_NEWNET)
        die_with_parent(signal.SIGTERM)
        if str(os.getppid()) != named["--parent"]:
            return EXIT_NOT_STARTED  # it ended meanwhile
    except OSError as error:
        print(f"etloop: cannot enter the lab: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED
    try:
        os.execvp(command[0], command)  # noqa: S606 - it is the command that the user wrote
    except FileNotFoundError:
        print(f"etloop: {command[0]}: not found", file=sys.stderr)
        return EXIT_NOT_FOUND
    except OSError as error:
        print(f"etloop: {command[0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED


def _is_same(one: str, other: str) -> bool:
    return Path(one).stat().st_ino == Path(other).stat().st_ino


def _enter(path: str, kind: int) -> None:
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_for_good(namespace, kind)
    finally:
        os.close(namespace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
