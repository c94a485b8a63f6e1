"""Starts labs, asks them, runs commands inside them and ends them; each lab is a process of its own.

A lab is known by its directory, which holds its socket and logs and belongs to one user. Whether it is up is found out by
asking, never by a file: a killed lab leaves a directory with a socket that nobody answers, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from etloop.contract.base.errors import InputError, Problem, ProtocolError, RigError
from etloop.contract.protocol.lab import (
    FROM_LAB,
    MAX_RESPONSE_BYTES,
    TO_LAB,
    CountersRequest,
    Done,
    DownRequest,
    LabAnswer,
    LabCounters,
    LabRefused,
    LabRequest,
    LabStatus,
    LinkRequest,
    NotUp,
    StatusRequest,
    WatchRequest,
)
from etloop.lab.plan import LabPlan
from etloop.lab.request import LOG_FILE, ORDER_FILE, LabOrder, order_bytes
from etloop.runtime.lab_directory import SOCKET_FILE, lab_directory
from etloop.runtime.own_module import own_module
from etloop.runtime.sockets.unix_socket import connected
from etloop.runtime.stop_signals import ignore_stops

UP_TIMEOUT_S: Final = 60
RESPONSE_TIMEOUT_S: Final = 10
DOWN_TIMEOUT_S: Final = 15
LAST_TIMEOUT_S: Final = 1

A = TypeVar("A", bound=LabAnswer)

_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of unix(7)."""


def lab_up(order: LabOrder) -> LabStatus:
    """Starts a lab and returns its status once it is up.

    Raises `InputError` with what the lab's process found, `RigError` if a lab of that name is up or it does not come up.
    """
    directory = lab_taken(order.name)
    (directory / ORDER_FILE).write_bytes(order_bytes(order))
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
    pid, report = _two_lines(reading)
    if isinstance(report, LabStatus):
        return report
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    tail = (directory / LOG_FILE).read_text(errors="replace").strip().splitlines()[-1:]
    shutil.rmtree(directory, ignore_errors=True)
    if not isinstance(report, NotUp):
        what = f"its process ended or hung before it was up: {tail[0] if tail else 'it said nothing'}"
        raise RigError(Problem("lab", what, "try again; if it stays so, this is a defect of etloop"))
    raise InputError(*report.problems)


def lab_taken(name: str) -> Path:
    """The directory of a lab to be, empty. Raises `RigError` if a lab of that name is up."""
    directory = lab_directory(name)
    if _answers(directory):
        what = f'a lab called "{name}" is up'
        raise RigError(Problem("lab", what, "take it down (etloop lab down), or name this one with --name"))
    release(directory)
    directory.mkdir(mode=0o700)
    return directory


def refuse_taken_names(plan: LabPlan) -> None:
    """Raise `RigError` where a lab of this user is up whose agents have names of this plan's and look for the same controller.

    The controller would take the first of a name, and a run would go half through the one switch, half through the other.
    """
    names = {agent.name for agent in plan.agents}
    for directory in sorted(lab_directory("").parent.glob("lab-*")):
        name = directory.name.removeprefix("lab-")
        try:
            status = lab_status(name)
        except RigError:
            continue  # it was killed, or goes down now
        if status.bind == plan.bind and (taken := sorted(names & status.processes.keys())):
            what = f'lab "{name}" is up, and its agents {", ".join(taken)} look for a controller at {plan.bind}, too'
            remedy = f"take it down (etloop lab down --name {name}), or give this one another --bind"
            raise RigError(Problem("lab", what, remedy))


def release(directory: Path) -> None:
    """Removes what a lab kept."""
    shutil.rmtree(directory, ignore_errors=True)


def lab_status(name: str) -> LabStatus:
    """Return what a lab is, with its counters. Raises `RigError` where none is up or it does not answer."""
    return _asked(name, StatusRequest(), LabStatus)


def lab_counters(name: str) -> LabCounters:
    """Return a lab's counters. Raises as `lab_status`."""
    return _asked(name, CountersRequest(), LabCounters)


def set_link(name: str, port: str, *, up: bool) -> None:
    """Take a link of a lab down or up. Raises as `lab_status`, and where there is no such port."""
    _asked(name, LinkRequest(port, up), Done)


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
    with contextlib.suppress(ProcessLookupError), process_descriptor(_pid_of(directory)) as process:
        patience_s = DOWN_TIMEOUT_S
        try:
            _asked(name, DownRequest(), Done)
        except RigError:
            patience_s = LAST_TIMEOUT_S  # it hangs, or has just ended
        if not select.select([process], [], [], patience_s)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], DOWN_TIMEOUT_S)
    shutil.rmtree(directory, ignore_errors=True)
    return True


def lab_exec(name: str, agent: str, command: Sequence[str]) -> int:
    """Runs a command in an agent's namespace, with this terminal; returns its exit code. It ends when the lab does."""
    status = lab_status(name)
    namespaces = status.namespaces
    if not namespaces:
        what = "the lab has no namespaces: its switch is attached to interfaces"
        raise RigError(Problem("lab exec", what, "run the command where the agent is"))
    if agent not in namespaces:
        raise RigError(
            Problem("lab exec", f'the lab has no agent "{agent}"', f"name one of {', '.join(namespaces)}")
        )
    lab = f"/proc/{status.pid}"
    where = (
        "--user",
        f"{lab}/ns/user",
        "--net",
        f"{lab}/fd/{namespaces[agent]}",
        "--parent",
        str(os.getpid()),
    )
    with _conversation(name) as line, process_descriptor(status.pid) as gone:
        line.ask(WatchRequest(), Done)
        process = subprocess.Popen(own_module("etloop.lab.exec", *where, "--", *command))
        with process_descriptor(process.pid) as ended, ignore_stops(signal.SIGINT):  # it is for the command
            ready = select.select([ended, gone], [], [])[0]
            if ended not in ready:
                process.terminate()
            code = process.wait()
    return code if code >= 0 else 128 - code


def _two_lines(reading: int) -> tuple[int, LabAnswer | None]:
    """What a lab's process says of itself: its number (0: nothing), and its status or why there is none, if it got so far."""
    content = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while content.count(b"\n") < 2 and select.select([pipe], [], [], UP_TIMEOUT_S)[0]:
            more = pipe.read(1 << 16)
            if not more:
                break
            content += more
    lines = content.split(b"\n")
    report = FROM_LAB.decode(lines[1]) if content.count(b"\n") >= 2 else None
    return int(lines[0] or b"0") if len(lines) > 1 else 0, report


class _Line:
    """One connection to a lab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")

    def ask(self, request: LabRequest, kind: type[A]) -> A:
        """Return the answer. Raises `RigError` where it is not of that kind."""
        self._connection.sendall(TO_LAB.encode(request))
        content = self._answers.readline(MAX_RESPONSE_BYTES)
        if not content.endswith(b"\n"):
            raise RigError(Problem("lab", "it ended while it was asked", "look whether it was taken down"))
        try:
            answer = FROM_LAB.decode(content)
        except ProtocolError as error:
            raise RigError(Problem("lab", str(error), "see etloop lab down")) from None
        if isinstance(answer, LabRefused):
            raise RigError(Problem("lab", answer.what, answer.remedy))
        if not isinstance(answer, kind):
            what = f"it answered {type(answer).__name__}, expected {kind.__name__}"
            raise RigError(Problem("lab", what, "take it down (etloop lab down) and up again"))
        return answer

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


def _asked(name: str, request: LabRequest, kind: type[A]) -> A:
    with _conversation(name) as line:
        return line.ask(request, kind)


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
def process_descriptor(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process ends. Raises `ProcessLookupError` if there is none."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
