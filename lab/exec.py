"""Becomes another program that ends with its parent, in a namespace or outside:

`lab_enter [--user PATH] [--net PATH] --parent PID -- CMD`.

It is a separate process because only a single-threaded process may enter a user namespace. It imports as little as possible.
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
    """Execute the command; return a shell's exit code only if it cannot be executed."""
    options, command = words[: words.index("--")], words[words.index("--") + 1 :]
    options_by_name = dict(zip(options[::2], options[1::2], strict=True))
    try:
        if "--user" in options_by_name and not _is_same(options_by_name["--user"], "/proc/self/ns/user"):
            _enter(options_by_name["--user"], CLONE_NEWUSER)
        if "--net" in options_by_name:
            _enter(options_by_name["--net"], CLONE_NEWNET)
        die_with_parent(signal.SIGTERM)
        if str(os.getppid()) != options_by_name["--parent"]:
            return EXIT_NOT_STARTED  # the parent has ended already
    except OSError as error:
        print(f"etloop: cannot enter the lab: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command
    except FileNotFoundError:
        print(f"etloop: {command[0]}: not found", file=sys.stderr)
        return EXIT_NOT_FOUND
    except OSError as error:
        print(f"etloop: {command[0]}: {error.strerror}", file=sys.stderr)
        return EXIT_NOT_STARTED


def _is_same(first: str, second: str) -> bool:
    return Path(first).stat().st_ino == Path(second).stat().st_ino


def _enter(path: str, kind: int) -> None:
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_for_good(namespace, kind)
    finally:
        os.close(namespace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
