"""Jobs of Slurm behind `concurrent.futures.Executor`, through submitit (extra `slurm`). A lost job costs only its task.

A thread looks for the results that jobs leave in a shared directory, and asks `squeue` which jobs exist: one that is gone and
has left no result is lost, also where Slurm keeps no accounts, which submitit itself asks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from submitit import SlurmExecutor
from submitit.core.core import Job
from submitit.core.utils import FailedJobError, FailedSubmissionError

from etloop.contract.base.errors import ConfigError, EtloopError, Problem
from etloop.experiments.sweep.workers import WorkerLost

POLL_S: Final = 0.5
"""Between two looks at the results."""
LOOKS_PER_LISTING: Final = 10
"""Looks at the results for one call of squeue."""
LISTINGS_WITHOUT: Final = 2
"""Listings without a job after which it is lost: a shared file system may show its result late."""
FAILED_LISTINGS: Final = 60
"""Failed calls of squeue in a row after which Slurm is given up."""
LISTING_LIMIT_S: Final = 60
DEFAULT_TIME_MIN: Final = 60
P = ParamSpec("P")
T = TypeVar("T")


class _Awaited:
    """A job and the future that waits for it."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.future: Future[Any] = Future()
        self.listings_without = 0


class SlurmJobs(Executor):
    """Jobs with one task each. `options` are those of sbatch, such as partition.

    `folder`, on a file system of all nodes, has inputs, results and logs of the jobs; it stays after an error.
    """

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self._folder = folder
        try:
            self._executor = SlurmExecutor(folder)
        except RuntimeError:
            problem = "finds no srun on the PATH"
            raise ConfigError(
                Problem("--slurm", problem, "start the sweep where jobs are submitted")
            ) from None
        words: dict[str, Any] = {name.replace("_", "-"): value for name, value in options.items()}
        self._executor.update_parameters(
            job_name="etloop-sweep",
            time=DEFAULT_TIME_MIN,
            cpus_per_task=1,
            use_srun=False,
            additional_parameters=words,
        )
        self._lock = threading.Lock()
        self._awaited: dict[str, _Awaited] = {}
        self._ends = threading.Event()
        self._failed_listings = 0
        self._watcher = threading.Thread(target=self._watch, name="slurm-jobs", daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a job; the future raises `WorkerLost` if the job is gone without an answer.

        Raises `ConfigError` if Slurm refuses the job.
        """
        try:
            job = self._executor.submit(_answer, fn, args, kwargs)
        except (FailedSubmissionError, FailedJobError, OSError) as error:
            reason = str(error).strip().splitlines()
            raise ConfigError(
                Problem("--slurm", f"a job was refused: {reason[-1] if reason else error}", "see sbatch(1)")
            ) from None
        awaited = _Awaited(job)
        with self._lock:
            self._awaited[job.job_id] = awaited
        return awaited.future

    def _watch(self) -> None:
        looks = 0
        while not self._ends.wait(POLL_S):
            self._take_results()
            looks += 1
            if looks % LOOKS_PER_LISTING == 0:
                self._find_lost()

    def _take_results(self) -> None:
        for number, awaited in self._left().items():
            if awaited.job.paths.result_pickle.exists():
                self._settle(number, awaited)

    def _settle(self, number: str, awaited: _Awaited) -> None:
        with self._lock:
            self._awaited.pop(number, None)
        try:
            result = awaited.job.results()[0]
        except Exception as error:  # noqa: BLE001 - of submitit, or of unpickling what a job left
            awaited.future.set_exception(EtloopError(f"job {number} of Slurm: {error}"))
            return
        if isinstance(result, BaseException):
            awaited.future.set_exception(result)
        else:
            awaited.future.set_result(result)

    def _find_lost(self) -> None:
        left = self._left()
        if not left:
            return
        listed = _listed_jobs()
        if listed is None:
            self._failed_listings += 1
            if self._failed_listings >= FAILED_LISTINGS:
                self._give_up(left)
            return
        self._failed_listings = 0
        for number, awaited in left.items():
            awaited.listings_without = 0 if number in listed else awaited.listings_without + 1
            if awaited.listings_without >= LISTINGS_WITHOUT:
                with self._lock:
                    self._awaited.pop(number, None)
                lost = WorkerLost(f"job {number} of Slurm is gone and left no result")
                awaited.future.set_exception(lost)

    def _give_up(self, left: Mapping[str, _Awaited]) -> None:
        with self._lock:
            self._awaited.clear()
        for awaited in left.values():
            message = f"squeue failed {self._failed_listings} times in a row"
            awaited.future.set_exception(EtloopError(message))

    def _left(self) -> dict[str, _Awaited]:
        with self._lock:
            return dict(self._awaited)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the watching thread; with `cancel_futures`, jobs that have no result are cancelled."""
        left = self._left()
        if cancel_futures and left:
            command = ["scancel", *left]
            subprocess.run(command, check=False, timeout=LISTING_LIMIT_S)
        elif wait:
            for awaited in left.values():
                awaited.future.exception()
        self._ends.set()
        self._watcher.join()

    def kill(self) -> None:
        """Cancel all jobs."""
        self.shutdown(cancel_futures=True)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=error_type is not None)
        if error_type is None and self._folder.is_dir():
            shutil.rmtree(self._folder)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return what a function returns or the exception that it raises, which keeps its type that way."""
    try:
        return function(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - raised again where the sweep runs
        return error


def _listed_jobs() -> set[str] | None:
    """Return the jobs of this user that Slurm has; None if squeue fails."""
    command = ["squeue", "--noheader", "--format=%A", f"--user={os.geteuid()}"]
    try:
        listing = subprocess.run(
            command, capture_output=True, text=True, timeout=LISTING_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if listing.returncode else set(listing.stdout.split())
