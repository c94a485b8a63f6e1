"""The two worker processes of a bench, driven over their pipes with a limit on every answer.

Decides how long to wait and the consequence of a silent or dead worker; the benchmarks decide the orders. However the block is
left, both processes have ended after it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, Final, TypeVar

from etloop.bench.engine.network import NAMES, BenchEnd, BenchPlace
from etloop.bench.engine.protocol import ORDERS, REPLIES, Failed, Order, WorkerReply
from etloop.contract.base.clock import NS_PER_S, seconds_text
from etloop.contract.base.errors import ProtocolError, RunAborted
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.own_module import own_module

END_TIMEOUT_S: Final = 3
READ_BYTES: Final = 1 << 16

A = TypeVar("A")
B = TypeVar("B")


class Worker:
    """One worker process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self._process = process
        self._replies = FrameReader(REPLIES)

    def send(self, order: Order) -> None:
        """Send an order. Raises `RunAborted` if the worker is gone."""
        try:
            pipe = _pipe(self._process.stdin)
            pipe.write(frame_of(ORDERS, order))
            pipe.flush()
        except BrokenPipeError:
            raise RunAborted(self._end_words()) from None

    def descriptor(self) -> int:
        """Return the descriptor that becomes readable when a part of a reply has arrived."""
        return _pipe(self._process.stdout).fileno()

    def take(self) -> WorkerReply | None:
        """Read what has arrived; return the reply once it is complete, else None. Raises `RunAborted` if the worker is
        gone.
        """
        part = os.read(self.descriptor(), READ_BYTES)
        if not part:
            raise RunAborted(self._end_words())
        return next(self._replies.feed(part), None)

    def end(self) -> None:
        """Let the process end, kill it if it does not, and reap it."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        try:
            # Bare sends end by themselves; do not wait for them.
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def _end_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        return f"worker {self.name} ended by itself with code {self._process.returncode}; it said why above"


Workers = tuple[Worker, Worker]


@contextlib.contextmanager
def bench_workers(place: BenchPlace) -> Iterator[Workers]:
    """Start a worker at each end; end both after the block."""
    with contextlib.ExitStack() as stack:
        workers = []
        for name, bench_end in zip(NAMES, place.ends, strict=True):
            worker = Worker(
                name, start_module(bench_end, "etloop.bench.engine.worker", stdin=subprocess.PIPE)
            )
            stack.callback(worker.end)
            workers.append(worker)
        yield workers[0], workers[1]


def start_module(
    end: BenchEnd, module: str, *words: str, stdin: int, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a module of this project at an end, with its standard output in a pipe."""
    return subprocess.Popen(
        [*end.prefix, *own_module(module, *words)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        # A session of its own: Ctrl-C is for the bench, which ends its workers in order.
        start_new_session=True,
    )


def ask_both(
    workers: Workers, orders: Sequence[Order], kinds: tuple[type[A], type[B]], timeout_ns: int
) -> tuple[A, B]:
    """Send each worker its order and wait for both replies, each of its type. Raises as `answers`."""
    for worker, order in zip(workers, orders, strict=True):
        worker.send(order)
    first, second = answers(workers, timeout_ns)
    return require_kind(workers[0], first, kinds[0]), require_kind(workers[1], second, kinds[1])


def require_kind(worker: Worker, answer: WorkerReply, kind: type[A]) -> A:
    """Return `answer` if it has the expected type. Raises `ProtocolError` otherwise."""
    if not isinstance(answer, kind):
        raise ProtocolError(
            f"worker {worker.name} answered {type(answer).__name__}, expected {kind.__name__}"
        )
    return answer


def answers(workers: Sequence[Worker], timeout_ns: int) -> tuple[WorkerReply, ...]:
    """Return one reply of every worker, in their order.

    Raises `RunAborted` as soon as a worker fails or is gone, or when the time is over.
    """
    deadline_ns = monotonic_ns() + timeout_ns
    waiting = {worker.descriptor(): worker for worker in workers}
    reply_by_worker: dict[str, WorkerReply] = {}
    while waiting:
        left_ns = deadline_ns - monotonic_ns()
        readable, _, _ = select.select(list(waiting), [], [], max(left_ns, 0) / NS_PER_S)
        if not readable:
            silent = ", ".join(worker.name for worker in waiting.values())
            raise RunAborted(f"no answer from worker {silent} within {seconds_text(timeout_ns)}")
        for descriptor in readable:
            answer = waiting[descriptor].take()
            if isinstance(answer, Failed):
                raise RunAborted(f"worker {waiting[descriptor].name}: {answer.reason}")
            if answer is not None:
                reply_by_worker[waiting.pop(descriptor).name] = answer
    return tuple(reply_by_worker[worker.name] for worker in workers)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
