"""Strangers at a control port, as a process: python -m tests.support.rack.strangers HOST PORT KIND COUNT.

It says "there" when COUNT connections were made, and ends at the end of its standard input. A connection that is shut is
made again, at most `MOST_MADE` in all.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tests.support.places import ROOT

KINDS: Final = ("silent", "drips", "greets", "goes")
MOST_MADE: Final = 50_000
_MADE_AT_ONCE: Final = 100
_TURN_S: Final = 0.02
GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
"""Of ZMTP 3.1, as a client of CURVE sends it."""


@contextlib.contextmanager
def strangers(endpoint: str, kind: str, count: int) -> Iterator[None]:
    """Hold `count` connections to an endpoint while the block lasts."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    command = [sys.executable, "-P", "-m", __name__, host, port, kind, str(count)]
    with subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"there\n"
            yield
            assert process.poll() is None, "the strangers went away"
        finally:
            process.stdin.close()
            process.wait()


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection under way."""
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(address)
    return made


def is_shut(one: socket.socket) -> bool:
    """Return whether the other side has ended a connection; what it sends is thrown away."""
    try:
        return not one.recv(4096)
    except BlockingIOError:
        return False
    except OSError:
        return True


def main() -> None:
    """Be strangers until standard input ends."""
    host, port, kind, count_text = sys.argv[1:]
    address, count = (host, int(port)), int(count_text)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    act: Callable[[socket.socket, int], object] = {
        "silent": lambda one, turns: None,
        "drips": lambda one, turns: one.send(GREETING[turns // 50 :][:1]) if turns % 50 == 0 else None,
        "greets": lambda one, turns: one.send(GREETING) if turns == 1 else None,
        "goes": lambda one, turns: one.close(),
    }[kind]
    held: dict[socket.socket, int] = {}
    made, is_told = 0, False
    while not select.select([sys.stdin], [], [], _TURN_S)[0]:
        for _ in range(min(_MADE_AT_ONCE, count - len(held), MOST_MADE - made)):
            held[connected(address)] = 0
            made += 1
        if made >= count and not is_told:
            is_told = True
            print("there", flush=True)
        for one, turns in list(held.items()):
            with contextlib.suppress(OSError):
                act(one, turns)
            held[one] = turns + 1
            if one.fileno() < 0 or is_shut(one):
                one.close()
                del held[one]


if __name__ == "__main__":
    main()
