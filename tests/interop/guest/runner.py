"""Inside the interop machine: starts programs for the tests, one at a time on each virtual serial port.

A port carries lines both ways. The host opens with a JSON object {"argv", "env", "cwd"}; what it writes then goes to the
program, what the program writes comes back as lines that begin with ">", and its exit code ends it as "= CODE".
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/sys/class/virtio-ports")
KILL: Final = b"!kill\n"


def serve(device: str) -> None:
    """Runs what the host asks for on one port, for ever."""
    port = os.open(device, os.O_RDWR)
    lines = lines_of(port)
    order = next(lines)
    while True:
        order = run(order, port, lines)


def run(order: bytes, port: int, lines: Iterator[bytes]) -> bytes:
    """Runs one program until the host asks for the next, which is returned: it has seen this one end."""
    asked = json.loads(order)
    with subprocess.Popen(
        asked["argv"], env={**os.environ, **asked["env"]}, cwd=asked["cwd"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as program:  # fmt: skip
        assert program.stdin is not None
        forward = threading.Thread(target=answer, args=(program, port))
        forward.start()
        for line in lines:
            if line.startswith(b"{"):
                return line
            if line == KILL:
                program.kill()
                continue
            try:
                program.stdin.write(line)
                program.stdin.flush()
            except BrokenPipeError:
                continue
    raise AssertionError("a virtual serial port has no end")


def lines_of(port: int) -> Iterator[bytes]:
    """The lines that the host writes."""
    pending = b""
    while True:
        head, newline, rest = pending.partition(b"\n")
        if newline:
            pending = rest
            yield head + newline
        else:
            pending += os.read(port, 65536)


def answer(program: subprocess.Popen[bytes], port: int) -> None:
    """Sends back what the program writes, then its exit code."""
    assert program.stdout is not None
    for line in iter(program.stdout.readline, b""):
        report(port, b">" + line.rstrip(b"\n") + b"\n")
    report(port, b"= %d\n" % program.wait())


def report(port: int, line: bytes) -> None:
    """Writes all of it; a virtual serial port takes 32 KiB at a time."""
    while line:
        line = line[os.write(port, line) :]


def main() -> None:
    """Serves every port that is named as ours."""
    for entry in sorted(FOLDER.iterdir()):
        if (entry / "name").read_text().startswith("etloop."):
            threading.Thread(target=serve, args=(f"/dev/{entry.name}",), daemon=True).start()
    print("interop: ready", flush=True)
    threading.Event().wait()


main()
