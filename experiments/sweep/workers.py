"""Worker processes behind `concurrent.futures.Executor`: a process makes many runs, and a lost one costs only its task.

A thread per worker starts `python -m etloop.experiments.sweep.worker`, writes a pickled call to its standard input and reads
the pickled answer from its standard output. `ProcessPoolExecutor` instead breaks as a whole when one process dies, and imports
the caller's main module again, which repeats a script without a main guard.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from etloop.contract.base.errors import EtloopError

WORKER_MODULE: Final = "etloop.experiments.sweep.worker"
_END_S: Final = 10
"""Time that a worker has to end by itself once its input is closed."""
P = ParamSpec("P")
T = TypeVar("T")


class WorkerLost(EtloopError):
    """A worker process ended before its task did."""


class Workers(Executor):
    """Up to `count` worker processes, started when they are first needed."""

    def __init__(self, count: int, budget_bytes: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="sweep-worker")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: set[_Process] = set()
        self._memory = MemoryGate(budget_bytes)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a worker; the future raises `WorkerLost` if the process ends before it answers."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def _call(self, function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
        with self._memory.place():
            process: _Process | None = getattr(self._own, "process", None)
            if process is None:
                process = self._own.process = _Process()
                with self._lock:
                    self._processes.add(process)
            try:
                result, peak_bytes = process.call((function, arguments, named))
            except WorkerLost:
                self._own.process = None
                with self._lock:
                    self._processes.discard(process)
                raise
            self._memory.note(peak_bytes)
        if isinstance(result, BaseException):
            raise result
        answer: T = result
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers after their current tasks."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        with self._lock:
            processes, self._processes = self._processes, set()
        for process in processes:
            process.end()

    def kill(self) -> None:
        """End all workers at once; tasks that have not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for process in self._processes:
                process.kill()
        self.shutdown(cancel_futures=True)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None:
            self.shutdown()
        else:
            self.kill()


class MemoryGate:
    """Bounds the number of busy workers: each is assumed to need as much memory as the largest has needed so far."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._peak_bytes = 1
        self._busy = 0
        self._changed = threading.Condition()

    @property
    def places(self) -> int:
        """Return the number of workers that the budget allows, at least one."""
        return max(1, self._budget_bytes // self._peak_bytes)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place among the busy workers, and hold it inside the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy < self.places)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def note(self, peak_bytes: int) -> None:
        """Take the largest memory of a worker into account."""
        with self._changed:
            self._peak_bytes = max(self._peak_bytes, peak_bytes)


class _Process:
    """One worker process and its pipes."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", WORKER_MODULE]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> tuple[Any, int]:
        """Return what the worker answers (a value, or an exception) and its largest memory in bytes."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        content = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
        try:
            process.stdin.write(content)
            process.stdin.flush()
            result, peak_bytes = pickle.load(process.stdout)  # noqa: S301 - written by our own child
        except (OSError, EOFError, pickle.UnpicklingError):
            self.kill()
            code = process.wait()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            message = f"a worker process ended {how} before its task did"
            raise WorkerLost(message) from None
        return result, peak_bytes

    def kill(self) -> None:
        """End the process at once, unless it has ended."""
        self._process.kill()

    def end(self) -> None:
        """Let the process end by itself; its pipes are closed afterwards."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
