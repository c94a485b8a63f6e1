"""Starts labs, queries them, runs commands inside them and ends them; each lab is a separate process.

A lab is identified by its directory, which holds its socket and logs and belongs to one user. Only a request shows whether it
runs, never a file: a killed lab leaves a directory with a socket that does not answer, and no other trace.
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
from dataclasses import replace
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
from etloop.runtime.lab_directory import NO_LISTENER, SOCKET_FILE, connect_problem, lab_directory
from etloop.runtime.own_module import own_module
from etloop.runtime.sockets.unix_socket import connect
from etloop.runtime.stop_signals import ignore_stops

UP_TIMEOUT_S: Final = 60
RESPONSE_TIMEOUT_S: Final = 10
DOWN_TIMEOUT_S: Final = 15
LAST_TIMEOUT_S: Final = 1

A = TypeVar("A", bound=LabAnswer)

_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of unix(7)."""


def lab_up(order: LabOrder) -> LabStatus:
    """Start a lab and return its status once it is up.

    Raise `InputError` with the problems that the lab's process found, `RigError` if a lab of that name is up or if it does not
    start.
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
    pid, report = _read_report(reading)
    if isinstance(report, LabStatus):
        return report
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    tail = (directory / LOG_FILE).read_text(errors="replace").strip().splitlines()[-1:]
    shutil.rmtree(directory, ignore_errors=True)
    if not isinstance(report, NotUp):
        problem = f"its process ended or hung during start-up: {tail[0] if tail else 'no output'}"
        raise RigError(Problem("lab", problem, "try again; if it persists, report a defect of etloop"))
    raise InputError(*report.problems)


def lab_taken(name: str) -> Path:
    """Create the directory of a new lab and return it. Raise `RigError` if a lab of that name is up."""
    directory = lab_directory(name)
    if _answers(directory):
        problem = f'a lab named "{name}" is already up'
        raise RigError(Problem("lab", problem, "take it down (etloop lab down), or choose another --name"))
    release(directory)
    directory.mkdir(mode=0o700)
    return directory


def refuse_taken_names(plan: LabPlan) -> None:
    """Raise `RigError` if another lab of this user has agents with the same names and the same controller address.

    The controller would accept the first agent of each name, and half of a run would go through each of the two switches.
    """
    names = {agent.name for agent in plan.agents}
    for directory in sorted(lab_directory("").parent.glob("lab-*")):
        name = directory.name.removeprefix("lab-")
        try:
            status = lab_status(name)
        except RigError:
            continue  # it was killed, or is ending
        if status.bind == plan.bind and (shared_names := sorted(names & status.processes.keys())):
            problem = f'lab "{name}" is up, and its agents {", ".join(shared_names)} also connect to a controller at {plan.bind}'
            remedy = f"take it down (etloop lab down --name {name}), or give this one another --bind"
            raise RigError(Problem("lab", problem, remedy))


def release(directory: Path) -> None:
    """Remove the directory of a lab."""
    shutil.rmtree(directory, ignore_errors=True)


def lab_status(name: str) -> LabStatus:
    """Return the status of a lab, with its counters. Raise `RigError` if it is not up or does not answer."""
    return _ask(name, StatusRequest(), LabStatus)


def lab_counters(name: str) -> LabCounters:
    """Return a lab's counters. Raise `RigError` as `lab_status` does."""
    return _ask(name, CountersRequest(), LabCounters)


def set_link(name: str, port: str, *, up: bool) -> None:
    """Take a link of a lab down or up. Raise `RigError` as `lab_status` does, and if there is no such port."""
    _ask(name, LinkRequest(port, up), Done)


def lab_down(name: str) -> bool:
    """End a lab and return True once its process has ended; return False if it was not up, after removing a killed lab's
    directory.

    Raise `RigError` if there is neither a lab nor a directory.
    """
    directory = lab_directory(name)
    if not _answers(directory):
        if not directory.exists():
            raise RigError(Problem("lab", f'no lab named "{name}" is up', "see docs/lab.md"))
        shutil.rmtree(directory, ignore_errors=True)
        return False
    with contextlib.suppress(ProcessLookupError), process_descriptor(_pid_of(directory)) as process:
        timeout_s = DOWN_TIMEOUT_S
        try:
            _ask(name, DownRequest(), Done)
        except RigError:
            timeout_s = LAST_TIMEOUT_S  # it hangs, or has just ended
        if not select.select([process], [], [], timeout_s)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], DOWN_TIMEOUT_S)
    shutil.rmtree(directory, ignore_errors=True)
    return True


def lab_exec(name: str, agent: str, command: Sequence[str]) -> int:
    """Run a command in an agent's namespace on this terminal and return its exit code. The command ends when the lab does."""
    status = lab_status(name)
    namespaces = status.namespaces
    if not namespaces:
        problem = "the lab has no namespaces: its switch is attached to interfaces"
        raise RigError(
            Problem("lab exec", problem, "run the command on the agent's machine or in its container")
        )
    if agent not in namespaces:
        raise RigError(
            Problem("lab exec", f'the lab has no agent "{agent}"', f"choose one of {', '.join(namespaces)}")
        )
    lab = f"/proc/{status.pid}"
    entry_options = (
        "--user",
        f"{lab}/ns/user",
        "--net",
        f"{lab}/fd/{namespaces[agent]}",
        "--parent",
        str(os.getpid()),
    )
    with _connection(name) as connection, process_descriptor(status.pid) as lab_end:
        connection.ask(WatchRequest(), Done)
        process = subprocess.Popen(own_module("etloop.lab.exec", *entry_options, "--", *command))
        # SIGINT is for the command.
        with process_descriptor(process.pid) as command_end, ignore_stops(signal.SIGINT):
            ready = select.select([command_end, lab_end], [], [])[0]
            if command_end not in ready:
                process.terminate()
            code = process.wait()
    return code if code >= 0 else 128 - code


def _read_report(reading: int) -> tuple[int, LabAnswer | None]:
    """Return the first report of a lab's process: its pid (0 if none came), and its status or the problems, None if it did not
    get that far."""
    content = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while content.count(b"\n") < 2 and select.select([pipe], [], [], UP_TIMEOUT_S)[0]:
            received = pipe.read(1 << 16)
            if not received:
                break
            content += received
    lines = content.split(b"\n")
    report = FROM_LAB.decode(lines[1]) if content.count(b"\n") >= 2 else None
    return int(lines[0] or b"0") if len(lines) > 1 else 0, report


class _Line:
    """One connection to a lab."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")

    def ask(self, request: LabRequest, kind: type[A]) -> A:
        """Send a request and return the answer. Raise `RigError` if the answer is not of that kind."""
        try:
            self._connection.sendall(TO_LAB.encode(request))
            content = self._answers.readline(MAX_RESPONSE_BYTES)
        except (BrokenPipeError, ConnectionResetError):
            content = b""
        if not content.endswith(b"\n"):
            raise RigError(Problem("lab", "it ended before it answered", "check whether it was taken down"))
        try:
            answer = FROM_LAB.decode(content)
        except ProtocolError as error:
            raise RigError(Problem("lab", str(error), "see etloop lab down")) from None
        if isinstance(answer, LabRefused):
            raise RigError(Problem("lab", answer.what, answer.remedy))
        if not isinstance(answer, kind):
            problem = f"it answered {type(answer).__name__}, expected {kind.__name__}"
            raise RigError(Problem("lab", problem, "take it down (etloop lab down) and up again"))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._connection.close()


def _ask(name: str, request: LabRequest, kind: type[A]) -> A:
    with _connection(name) as line:
        return line.ask(request, kind)


@contextlib.contextmanager
def _connection(name: str) -> Iterator[_Line]:
    directory = lab_directory(name)
    try:
        connection = connect(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S)
    except OSError as error:
        refusal = connect_problem(name, error)
        if isinstance(error, NO_LISTENER) and directory.exists():
            refusal = replace(refusal, what=f"{refusal.what}; its process was killed")
        raise RigError(refusal) from None
    line = _Line(connection)
    try:
        yield line
    except TimeoutError:
        problem = f"it has not answered for {RESPONSE_TIMEOUT_S} s"
        raise RigError(Problem("lab", problem, "take it down (etloop lab down) and up again")) from None
    finally:
        line.close()


def _pid_of(directory: Path) -> int:
    """Return the pid of the process that serves the lab, even if it hangs: the kernel knows who listens on the socket.

    Raise `ProcessLookupError` if none does, `RigError` if the socket cannot be reached.
    """
    try:
        with connect(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S) as connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except NO_LISTENER:
        raise ProcessLookupError from None
    except OSError as error:
        raise RigError(connect_problem(directory.name, error)) from None
    return int(_CREDENTIALS.unpack(credentials)[0])


def _answers(directory: Path) -> bool:
    try:
        connect(directory / SOCKET_FILE, RESPONSE_TIMEOUT_S).close()
    except NO_LISTENER:
        return False
    except OSError as error:
        raise RigError(connect_problem(directory.name, error)) from None
    return True


@contextlib.contextmanager
def process_descriptor(pid: int) -> Iterator[int]:
    """Yield a descriptor that becomes readable when the process ends. Raise `ProcessLookupError` if there is none."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
