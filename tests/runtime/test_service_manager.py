"""What systemd is told, and when."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.runtime.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.setblocking(False)
        yield listening, path


def heard(listening: socket.socket) -> list[str]:
    """All messages that have come."""
    messages = []
    while True:
        try:
            messages.append(listening.recv(100).decode())
        except BlockingIOError:
            return messages


def test_a_watchdog_is_fed_four_times_within_its_limit(systemd: tuple[socket.socket, str]) -> None:
    listening, path = systemd
    manager = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000"})
    manager.ready()
    for second in range(60):
        manager.turn(second * NS_PER_S)
    manager.stopping()
    assert heard(listening) == ["READY=1", *["WATCHDOG=1"] * 4, "STOPPING=1"]


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid() + 1)}]
)
def test_without_a_watchdog_of_its_own_nothing_is_fed(
    systemd: tuple[socket.socket, str], watchdog: dict[str, str]
) -> None:
    listening, path = systemd
    ServiceManager({"NOTIFY_SOCKET": path} | watchdog).turn(NS_PER_S)
    assert heard(listening) == []


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere"}, {"NOTIFY_SOCKET": "@nobody"}])
def test_a_manager_that_does_not_listen_harms_nothing(environment: dict[str, str]) -> None:
    manager = ServiceManager(environment | {"WATCHDOG_USEC": "4"})
    manager.ready()
    manager.turn(1)


def test_an_abstract_address_is_read_as_systemd_writes_it() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        name = f"etloop-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.setblocking(False)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert heard(listening) == ["READY=1"]
