"""A lab's socket is reached wherever its directory lies."""

from pathlib import Path

import pytest

from etloop.runtime.sockets.unix_socket import connected, listening

_TOO_LONG = "d" * 150
"""By itself more than an address of AF_UNIX has room for."""


def test_a_socket_in_a_directory_of_a_long_name_is_reached(tmp_path: Path) -> None:
    path = tmp_path / _TOO_LONG / "lab.sock"
    path.parent.mkdir()
    with listening(path) as server:
        server.listen()
        with connected(path, 10) as asking:
            answering, _ = server.accept()
            with answering:
                asking.sendall(b"?")
                assert answering.recv(1) == b"?"


def test_one_that_a_killed_lab_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lab.sock"
    listening(path).close()
    assert path.is_socket()
    with pytest.raises(ConnectionRefusedError):
        connected(path, 10)
    listening(path).close()


def test_where_no_lab_is_there_is_nothing_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connected(tmp_path / "none" / "lab.sock", 10)
