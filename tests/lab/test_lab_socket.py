"""A lab's socket is reached wherever its directory lies."""

import errno
import os
import socket
from pathlib import Path

import pytest

from etloop.contract.base.errors import RigError
from etloop.contract.protocol.lab import LabStatus, StatusRequest
from etloop.lab.client import _Line
from etloop.runtime.lab_directory import connect_problem
from etloop.runtime.sockets.unix_socket import connect, listening

_TOO_LONG = "d" * 150
"""By itself more than an address of AF_UNIX has room for."""


def test_a_socket_in_a_directory_of_a_long_name_is_reached(tmp_path: Path) -> None:
    path = tmp_path / _TOO_LONG / "lab.sock"
    path.parent.mkdir()
    with listening(path) as server:
        server.listen()
        with connect(path, 10) as asking:
            answering, _ = server.accept()
            with answering:
                asking.sendall(b"?")
                assert answering.recv(1) == b"?"


def test_one_that_a_killed_lab_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lab.sock"
    listening(path).close()
    assert path.is_socket()
    with pytest.raises(ConnectionRefusedError):
        connect(path, 10)
    listening(path).close()


def test_where_no_lab_is_there_is_nothing_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "none" / "lab.sock", 10)


@pytest.mark.parametrize(
    ("code", "is_down"),
    [
        (errno.ENOENT, True),
        (errno.ECONNREFUSED, True),
        (errno.EMFILE, False),
        (errno.EACCES, False),
        (errno.ENOMEM, False),
        (errno.EAGAIN, False),
    ],
    ids=errno.errorcode.get,
)
def test_only_a_socket_without_a_listener_is_a_lab_that_is_down(code: int, is_down: bool) -> None:
    problem = connect_problem("x", OSError(code, os.strerror(code)))
    assert ("is up" in problem.what) is is_down
    assert (os.strerror(code) in problem.what) is not is_down


@pytest.mark.parametrize("request_before", [b"", b"an earlier request"], ids=["closed", "reset"])
def test_a_lab_that_ends_before_its_answer_is_reported(request_before: bytes) -> None:
    """A socket that closes with unread data resets its connection."""
    own_end, lab_end = socket.socketpair()
    line = _Line(own_end)
    own_end.sendall(request_before)
    lab_end.close()
    with pytest.raises(RigError, match="ended before it answered"):
        line.ask(StatusRequest(), LabStatus)
    line.close()
