"""Starts labs, asks them, runs commands inside them and ends them; each lab is a process of its own.

A lab is known by its directory, which holds its socket and logs and belongs to one user. Whether it is up is found out by
asking, never by a file: a killed lab leaves a directory with a socket that nobody answers, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import InputError, Problem, RigError
from etloop.lab.request import LOG_FILE, ORDER_FILE, LabOrder, order_text
from etloop.lab.status import Values
from etloop.runtime.lab_directory import SOCKET_FILE, lab_directory
from etloop.runtime.own_module import own_module
from etloop.runtime.unix_socket import connected

UP_TIMEOUT_S: Final = 60
RESPONSE_TIMEOUT_S: Final = 10
DOWN_TIMEOUT_S: Final = 15
LAST_TIMEOUT_S: Final = 1
MOST_RESPONSE_BYTES: Final = 1 << 26
DEFAULT_NAME: Final = "lab"
_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of unix(7)."""


def lab_up(order: LabOrder) -> Values:
    """Starts a lab and returns its status once it is up.

    Raises `InputError` with what the lab's process found, `RigError` if a lab of that name is up or it does not come up.
    """
    directory = lab_taken(order.name)
    (directory / ORDER_FILE).write_text(order_text(order))
    reading, writing = os.pipe()
    with (directory / LOG_FILE).open("wb") as log:
        subprocess.run(
            own_module("etloop.lab.process", str(directory), str(writing)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
            check=False,
        )
    os.close(writing)
    pid, status = _two_lines(reading)
    if status is not None and "problems" not in status:
        return status
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    tail = (directory / LOG_FILE).read_text(errors="replace").strip().splitlines()[-1:]
    shutil.rmtree(directory, ignore_errors=True)
    if status is None:
        what = f"its process ended or hung before it was up: {tail[0] if tail else 'it status nothing'}"
        raise RigError(Problem("lab", what, "try again; if it stays so, this is a defect of etloop"))
    raise InputError(*(Problem(*problem) for problem in status["problems"]))


def lab_taken(name: str) -> Path:
    """The directory of a lab to be, empty. Raises `RigError` if a lab of that name is up."""
    directory = lab_directory(name)
    if _answers(directory):
        what = f'a lab called "{name}" is up'
        raise RigError(Problem("lab", what, "take it down (etloop lab down), or name this one with --name"))
    release(directory)
    directory.mkdir(mode=0o700)
    return directory


def release(directory: Path) -> None:
    """Removes what a lab kept."""
    shutil.rmtree(directory, ignore_errors=True)


def lab_ask(name: str, question: Values) -> Values:
    """A lab's answer. Raises `RigError` where none is up or it does not answer."""
    with _conversation(name) as line:
        answer = line(question)
    if "error" in answer:
        remedy = str(answer.get("remedy", "ask for what docs/lab.md lists"))
        raise RigError(Problem("lab", str(answer["error"]), remedy))
    return answer


def lab_down(name: str) -> bool:
    """Ends a lab and returns when nothing of it is left; False if none was up, but a killed one's directory is gone now.

    Raises `RigError` if none was ever there.
    """
    directory = lab_directory(name)
    if not _answers(directory):
        if not directory.exists():
            raise RigError(Problem("lab", f'no lab called "{name}" is up', "see docs/lab.md"))
        shutil.rmtree(directory, ignore_errors=True)
        return False
    with contextlib.suppress(ProcessLookupError), _process(_pid_of(directory)) as process:
        patience_s = DOWN_TIMEOUT_S
        try:
            lab_ask(name, {"ask": "down"})
        except RigError:
            patience_s = LAST_TIMEOUT_S  # it hangs, or has just ended
        if not select.select([process], [], [], patience_s)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], DOWN_TIMEOUT_S)
    shutil.rmtree(directory, ignore_errors=True)
    return True


def lab_exec(name: str, agent: str, command: Sequence[str]) -> int:
    """Runs a command in an agent's namespace, with this terminal; returns its exit code. It ends when the lab does."""
    status = lab_ask(name, {"ask": "status"})
    namespaces = status["namespaces"]
    if not namespaces:
        what = "the lab has no namespaces: its switch is attached to interfaces"
        raise RigError(Problem("lab exec", what, "run the command where the agent is"))
    if agent not in namespaces:
        raise RigError(
            Problem("lab exec", f'the lab has no agent "{agent}"', f"name one of {', '.join(namespaces)}")
        )
    lab = f"/proc/{status['pid']}"
    where = (
        "--user",
        f"{lab}/ns/user",
        "--net",
        f"{lab}/fd/{namespaces[agent]}",
        "--parent",
        str(os.getpid()),
    )
    with _conversation(name) as line, _process(int(status["pid"])) as gone:
        line({"ask": "watch"})
        process = subprocess.Popen(own_module("etloop.lab.exec", *where, "--", *command))
        with _process(process.pid) as ended:
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the command
            try:
                ready = select.select([ended, gone], [], [])[0]
                if ended not in ready:
                    process.terminate()
                code = process.wait()
            finally:
                signal.signal(signal.SIGINT, previous)
    return code if code >= 0 else 128 - code


def _two_lines(reading: int) -> tuple[int, Values | None]:
    """What a lab's process says of itself: its number (0: nothing), and its status if it got so far."""
    content = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while content.count(b"\n") < 2 and select.select([pipe], [], [], UP_TIMEOUT_S)[0]:
            more = pipe.read(1 << 16)
            if not more:
                break
            content += more
    lines = content.split(b"\n")
    status: Values | None = json.loads(lines[1]) if content.count(b"\n") >= 2 else None
    return int(lines[0] or b"0") if len(lines) > 1 else 0, status


class _Line:
    """One connection to a lab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")

    def __call__(self, question: Values) -> Values:
        self._connection.sendall(json.dumps(question).encode() + b"\n")
        content = self._answers.readline(MOST_RESPONSE_BYTES)
        if not content.endswith(b"\n"):
            raise RigError(Problem("lab", "it ended while it was asked", "look whether it was taken down"))
        answer: Values = json.loads(content)
        return answer

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


@contextlib.contextmanager
def _conversation(name: str) -> Iterator[_Line]:
    directory = lab_directory(name)
    try:
        connection = connected(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S)
    except OSError:
        was = "; it was killed" if directory.exists() else ""
        what = f'no lab called "{name}" is up{was}'
        raise RigError(Problem("lab", what, "start one with etloop lab up TOPOLOGY")) from None
    line = _Line(connection)
    try:
        yield line
    except TimeoutError:
        what = f"it has not answered for {RESPONSE_TIMEOUT_S} s"
        raise RigError(Problem("lab", what, "take it down (etloop lab down) and up again")) from None
    finally:
        line.close()


def _pid_of(directory: Path) -> int:
    """Of the process that serves the lab, also where it hangs and answers nothing: the kernel says who listens."""
    try:
        with connected(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S) as connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        raise ProcessLookupError from None
    return int(_CREDENTIALS.unpack(credentials)[0])


def _answers(directory: Path) -> bool:
    try:
        connected(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process ends."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
