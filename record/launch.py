"""Runs one process per recorded rank, under the environment that torchrun gives, and reads the events that it writes.

The processes are forks of one server (record/capture/__main__.py), so that PyTorch is imported once. A process that waits
for another rank (shapes of pipeline stages, Python objects) does not count towards the number of processes that may run at
once, so that the ranks of a pipeline can wait for each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.record.gpu.preload import TorchBuild, build_preload, environment_of, inspect_torch
from etloop.workload.recording.events import RecordedRank, read_events
from etloop.workload.recording.roles import Role, check_role, plan_roles

_BOOTSTRAP: Final = Path(__file__).parent / "bootstrap.py"
_POLL_S: Final = 0.05
_STOP_S: Final = 10
_MOST_PROCESSES: Final = 256
_MOST_OUTPUT_LINES: Final = 12
MOST_RANKS_RECORDED: Final = 16
"""Jobs of at most this many ranks are recorded whole, unless the user chooses."""


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """Script and ranks to record, and values to assume."""

    script: Path
    arguments: tuple[str, ...]
    world_size: int
    module: str = ""
    """Name of a module that is run in place of the script, as `python -m` does."""
    ranks: tuple[int, ...] | None = None
    """Ranks to record; None: those of `by_role`."""
    by_role: bool = False
    ranks_per_host: int = 8
    python: str = sys.executable
    on_cpu: bool = False
    """Whether scripts find no GPU, although PyTorch has code for one."""
    hook: Path | None = None
    skew: Fraction | None = None
    """Skew of the declared expert counts, 0 for balanced; None declares none."""
    seed: int = 0
    items: tuple[tuple[str, float], ...] = ()
    """Values of `FILE:LINE` reads on the host."""
    processes: int = 2
    timeout_s: int = 1800


def record_job(order: RecordOrder) -> tuple[dict[int, RecordedRank], tuple[Role, ...]]:
    """Record the ranks of a job. Return the recordings by rank, and the roles of all ranks; no roles if all are recorded.

    Raises `ConfigError` if PyTorch cannot be used, and `TraceError` with the script's line for an operation that cannot be
    recorded.
    """
    build = _check_torch(order)
    with tempfile.TemporaryDirectory(prefix="etloop-record-") as directory:
        session = _Session(order, build, Path(directory))
        try:
            return session.record()
        finally:
            session.stop()


def _check_torch(order: RecordOrder) -> TorchBuild:
    remedy = "install it (pip install 'etloop[record]'), or name the interpreter of the training environment with --python"
    for path in (*(() if order.module else (order.script,)), *((order.hook,) if order.hook else ())):
        if not path.is_file():
            raise ConfigError(
                Problem(str(path), "is not a file", "name the script after --, the hook after --hook")
            )
    build = inspect_torch(order.python)
    if build is None:
        raise ConfigError(Problem(order.python, "has no PyTorch", remedy))
    return build


class _Session:
    """The processes of one recording."""

    def __init__(self, order: RecordOrder, build: TorchBuild, directory: Path) -> None:
        self._order, self._directory = order, directory
        self._devices = min(order.ranks_per_host, order.world_size)
        self._channel = directory / "channel"
        self._channel.mkdir()
        self._running: set[int] = set()
        self._server_output = directory / "server.output"
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._preload: Path | None = None
        if build.has_gpu_code and not order.on_cpu:
            self._preload = build_preload(build, directory)
            environment |= environment_of(self._preload, self._devices)
        with self._server_output.open("wb") as output:
            self._server = subprocess.Popen(
                [order.python, str(_BOOTSTRAP)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        self._deadline = time.monotonic() + order.timeout_s

    def record(self) -> tuple[dict[int, RecordedRank], tuple[Role, ...]]:
        order = self._order
        if not order.by_role:
            ranks = order.ranks if order.ranks is not None else tuple(range(order.world_size))
            self._announce(ranks)
            self._run(ranks)
            return self._read(ranks), ()
        roles = self._probe()
        ranks = tuple(sorted({rank for role in roles for rank in role.recorded}))
        if len(ranks) > _MOST_PROCESSES:
            fault = f"{len(ranks)} ranks would be recorded, at most {_MOST_PROCESSES} can be"
            raise TraceError(Problem(str(order.script), fault, "record fewer ranks, or a shorter pipeline"))
        self._announce(ranks)
        self._run([rank for rank in ranks if rank])
        recordings = self._read(ranks)
        if plan_roles(recordings[0]) != roles:
            fault = "the groups that the script makes later give other roles than those at its beginning"
            raise TraceError(Problem(str(order.script), fault, "record every rank: --record all"))
        for role in roles:
            if len(role.recorded) > 1:
                check_role(recordings[role.recorded[0]], recordings[role.recorded[1]])
        return recordings, roles

    def stop(self) -> None:
        """End the server, which ends the processes that still run."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            self._server.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _probe(self) -> tuple[Role, ...]:
        """Start rank 0 and return the roles as soon as it ends or waits for another rank."""
        self._start(0)
        while not self._has_ended(0) and not self._is_waiting(0):
            self._check_progress()
            time.sleep(_POLL_S)
        return plan_roles(self._read_rank(0, partial=not self._has_ended(0)))

    def _announce(self, ranks: Iterable[int]) -> None:
        partial = self._channel / "recorded.partial"
        partial.write_text(json.dumps(list(ranks)))
        partial.rename(self._channel / "recorded.json")

    def _run(self, ranks: Sequence[int]) -> None:
        """Run the processes of ranks, and those that were started before, to their end."""
        pending = list(ranks)
        while pending or self._running:
            for rank in sorted(self._running):
                if self._has_ended(rank):
                    self._running.remove(rank)
                    if not self._is_complete(rank):
                        (self._channel / "failed").touch()
                        pending = []
            active = sum(not self._is_waiting(rank) for rank in self._running)
            while pending and active < self._order.processes and len(self._running) < _MOST_PROCESSES:
                self._start(pending.pop(0))
                active += 1
            self._check_progress()
            time.sleep(_POLL_S)

    def _check_progress(self) -> None:
        if self._server.poll() is not None:
            fault = f"ends with code {self._server.returncode}: {_last_lines(self._server_output)}"
            raise ConfigError(
                Problem(
                    self._order.python, fault, "name the interpreter of the training environment: --python"
                )
            )
        if time.monotonic() > self._deadline:
            fault = f"did not end within {self._order.timeout_s} s"
            raise TraceError(
                Problem(
                    str(self._order.script), fault, "shorten the script to a few steps, or raise --timeout"
                )
            )

    def _is_waiting(self, rank: int) -> bool:
        return (self._channel / f"{rank}.waiting").exists()

    def _has_ended(self, rank: int) -> bool:
        return (self._directory / f"{rank}.ended").exists()

    def _is_complete(self, rank: int) -> bool:
        path = self._events(rank)
        if not path.exists():
            return False
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64))
            return file.read().endswith(b'{"kind":"end"}\n')

    def _events(self, rank: int) -> Path:
        return self._directory / f"{rank}.events"

    def _start(self, rank: int) -> None:
        order = self._order
        capture_order = {
            "script": str(order.script),
            "module": order.module,
            "arguments": list(order.arguments),
            "events": str(self._events(rank)),
            "rank": rank,
            "world_size": order.world_size,
            "skew": None if order.skew is None else float(order.skew),
            "seed": order.seed,
            "items": dict(order.items),
            "hook": str(order.hook or ""),
            "preload": str(self._preload or ""),
            "channel": str(self._channel),
            "timeout_s": order.timeout_s,
            "environment": self._environment(rank),
            "output": str(self._output(rank)),
            "ended": str(self._directory / f"{rank}.ended"),
        }
        path = self._directory / f"{rank}.order"
        path.write_text(json.dumps(capture_order))
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(f"{path}\n".encode())
            self._server.stdin.flush()
        except BrokenPipeError:
            self._server.wait()
            self._check_progress()
        self._running.add(rank)

    def _environment(self, rank: int) -> dict[str, str]:
        hosts = self._order.ranks_per_host
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._order.world_size),
            "LOCAL_RANK": str(rank % hosts),
            "LOCAL_WORLD_SIZE": str(min(hosts, self._order.world_size)),
            "GROUP_RANK": str(rank // hosts),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }

    def _output(self, rank: int) -> Path:
        return self._directory / f"{rank}.output"

    def _read(self, ranks: Sequence[int]) -> dict[int, RecordedRank]:
        """Read all recordings. Raises `TraceError` with the mistakes of all ranks, each once."""
        recordings: dict[int, RecordedRank] = {}
        problems: dict[Problem, None] = {}
        for rank in ranks:
            try:
                recordings[rank] = self._read_rank(rank)
            except TraceError as error:
                problems.update(dict.fromkeys(error.problems))
        own = [
            problem
            for problem in problems
            if "did not hand over" not in problem.what and "ends before" not in problem.what
        ]
        if problems:
            raise TraceError(*(own or problems))
        return recordings

    def _read_rank(self, rank: int, *, partial: bool = False) -> RecordedRank:
        path = self._events(rank)
        if not path.exists() or not path.stat().st_size:
            raise TraceError(
                Problem(
                    f"rank {rank}",
                    f"ends before its script begins: {self._last_output(rank)}",
                    "see --python",
                )
            )
        with path.open(encoding="utf-8") as file:
            lines = (line for line in file if line.endswith("\n"))
            return read_events(f"rank {rank}", lines, partial=partial)

    def _last_output(self, rank: int) -> str:
        return _last_lines(self._output(rank))


def _last_lines(path: Path) -> str:
    """Return the end of a process's output in one line."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return " | ".join(lines[-_MOST_OUTPUT_LINES:]) or "no output"
