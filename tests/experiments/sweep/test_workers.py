"""Worker processes: values and errors come back, a lost worker costs its task, and memory bounds how many are busy."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, Problem
from etloop.experiments.sweep.tasks import MOST_ATTEMPTS, outcomes
from etloop.experiments.sweep.workers import MemoryGate, WorkerLost, Workers
from etloop.runtime.machine_share import (
    available_memory_bytes,
    meminfo_available_bytes,
    quota_cores,
    usable_cores,
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(1, 1 << 40) as made:
        yield made


def test_values_and_errors_come_back_from_one_process_that_prints(workers: Workers) -> None:
    first = workers.submit(os.getpid).result()
    assert first != os.getpid()
    assert workers.submit(print, "this goes to standard error").result() is None
    problem = Problem("a", "is b", "write c")
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result()
    with pytest.raises(ConfigError, match="a: is b; write c") as caught:
        workers.submit(ConfigError, problem).result()
    assert caught.value.problems == (problem,)
    assert workers.submit(os.getpid).result() == first, "one process makes many runs"


def test_a_lost_worker_is_reported_and_replaced(workers: Workers) -> None:
    number = workers.submit(os.getpid).result()
    with pytest.raises(WorkerLost, match="a worker process ended by signal 9 before its task did"):
        workers.submit(os.kill, number, signal.SIGKILL).result()
    assert workers.submit(os.getpid).result() != number


class Losses:
    """A task whose worker is lost the first times."""

    def __init__(self, losses: dict[int, int]) -> None:
        self.losses = losses
        self.calls: list[int] = []

    def __call__(self, number: int) -> int:
        self.calls.append(number)
        if self.losses.get(number, 0) >= self.calls.count(number):
            raise WorkerLost("gone")
        return number * number


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.mark.parametrize("window", [1, 3])
def test_only_the_task_of_a_lost_worker_is_repeated(executor: Executor, window: int) -> None:
    task = Losses({1: MOST_ATTEMPTS - 1, 2: MOST_ATTEMPTS})
    results = dict(outcomes(executor, window, task, [(number,) for number in range(4)]))
    assert [results[0], results[1], results[3]] == [0, 1, 9]
    assert isinstance(results[2], WorkerLost)
    assert sorted(task.calls) == [0, *[1] * MOST_ATTEMPTS, *[2] * MOST_ATTEMPTS, 3]


def test_memory_bounds_the_busy_workers() -> None:
    gate = MemoryGate(1000)
    gate.note(300)
    gate.note(200)
    assert gate.places == 3
    gate.note(2000)
    assert gate.places == 1, "one works in any case"
    with gate.place():
        pass


@pytest.mark.parametrize(
    ("cpu_max", "cores"), [("max 100000\n", None), ("150000 100000\n", 2), ("50000 100000", 1), ("", None)]
)
def test_the_quota_of_a_control_group_is_rounded_up(cpu_max: str, cores: int | None) -> None:
    assert quota_cores(cpu_max) == cores


def test_the_share_of_this_machine() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    available = meminfo_available_bytes(meminfo)
    assert available is not None
    assert 0 < available_memory_bytes() < 2 * available
    assert meminfo_available_bytes("MemTotal: 5 kB\n") is None
