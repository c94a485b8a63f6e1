"""Jobs that several points share: a trace is read and matched once in a process, as long as its files do not change.

Decides when the files of a trace are unchanged: the same names, sizes, times and inodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from glob import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.controller.plan.jobs import build_job_of, build_jobs

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.inputs.scenario.workload import Source
    from etloop.controller.plan.job_set import JobSet
    from etloop.workload.trace.program import Job

_JOBS_KEPT: Final = 8
_MOST_FILES: Final = 4096
"""Files of a trace that are compared; a job of more is read anew."""
_FileState = tuple[str, int, int, int]


def kept_jobs(scenario: Scenario) -> JobSet:
    """Return the jobs of a scenario as `build_jobs` does, those of unchanged sources as they were built before."""
    return build_jobs(scenario, build=_kept_job)


def _kept_job(source: Source) -> Job:
    paths = [path for path in (source.trace, source.groups, source.kernels) if path is not None]
    states: list[_FileState] = []
    for path in paths:
        for state in _states(path):
            states.append(state)
            if len(states) > _MOST_FILES:
                return build_job_of(source)
    return _job_of(source, tuple(states))


@lru_cache(maxsize=_JOBS_KEPT)
def _job_of(source: Source, _: tuple[_FileState, ...]) -> Job:
    return build_job_of(source)


def _states(source: Path) -> Iterator[_FileState]:
    """Yield the state of the files that a source may read: a file, those of a directory, or those of a prefix.

    HOST+KINETO names two sources.
    """
    for part in str(source).split("+"):
        path = Path(part)
        if path.is_file():
            entries = iter((path,))
        else:
            entries = path.rglob("*") if path.is_dir() else path.parent.glob(f"{escape(path.name)}*")
        for file in sorted(islice((entry for entry in entries if entry.is_file()), _MOST_FILES + 1)):
            status = file.stat()
            yield str(file), status.st_size, status.st_mtime_ns, status.st_ino
