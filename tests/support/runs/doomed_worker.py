"""A task of a sweep whose worker dies at a random moment, the first time that it is given the task."""

from __future__ import annotations

import random
import signal
from pathlib import Path

from etloop.experiments.sweep.run import MadeRun
from etloop.experiments.sweep.tasks import PointTask, make_runs

LATEST_S = 0.8
"""Processor time, about twice that of a run of the small twins of tests, so that some die in a run and some do not."""


def make_runs_or_die(
    marks: Path, study: bytes, batch: tuple[PointTask, ...]
) -> tuple[tuple[MadeRun, ...], ...]:
    """Make the runs; the first time, die by SIGPROF at a processor time drawn by the point's name and its first repeat."""
    mark = marks / f"{batch[0].point.name}-{batch[0].repeats[0]}"
    if not mark.exists():
        mark.touch()
        seconds = random.Random(mark.name).uniform(0.001, LATEST_S)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    made_runs = make_runs(study, batch)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return made_runs
