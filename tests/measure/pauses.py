"""Pauses processes of a rack for 5 s during runs, which must continue. `python -m tests.measure.pauses [--runs 50]`

Each run has one pause (SIGSTOP): of the controller, of the run's process, of both, or of all processes of the rack, as
when a virtual machine stands still. A run continues if its job passes. The pause begins at a random time of the traffic.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.store.job_store import JobStore
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.stop_signals import terminate_as_interrupt
from tests.measure.breaking.faults import stopped
from tests.measure.breaking.rack import AGENTS, POLL_S, Rack, absence, written_rack
from tests.measure.harness import BAR_MISSED

_SCENARIO: Final = (
    "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\nscale: {time: 800}\n"
)
"""A job of some 6 s, which leaves the processors idle."""
_PATIENCE_S: Final = 600.0
_LATEST_S: Final = 3.0
"""Latest begin of a pause after that of the traffic."""


class Paused(Enum):
    """The processes that stand still together."""

    CONTROLLER = "controller"
    RUN = "run process"
    BOTH = "controller and run process"
    ALL = "all processes"


def paused_pids(rack: Rack, paused: Paused) -> list[int]:
    """Return the processes to stop."""
    controller = [rack.processes["controller"].pid]
    run = rack.children("runs.process")
    match paused:
        case Paused.CONTROLLER:
            return controller
        case Paused.RUN:
            return run
        case Paused.BOTH:
            return controller + run
        case Paused.ALL:
            return controller + rack.children("") + [rack.processes[name].pid for name in AGENTS]


async def _submitted(rack: Rack) -> str:
    settings = BrokerSettings("127.0.0.1", rack.broker)
    async with RackClient(settings, "rack", response_timeout_s=_PATIENCE_S) as client:
        return (await client.submit(_SCENARIO, ports=("a/p0", "b/p0"))).job_id


def _await_state(rack: Rack, job_id: str, *states: JobState) -> Job:
    """Return the job as soon as it is in a state. Raises `SystemExit` if that takes too long."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        store = JobStore.look(rack.directory / "state/jobs.sqlite")
        try:
            job = next(job for job in store.latest(10) if job.job_id == job_id)
        finally:
            store.close()
        if job.state in states:
            return job
        time.sleep(POLL_S)
    raise SystemExit(f"job {job_id} is {job.state} after {_PATIENCE_S:g} s")


def paused_runs(
    directory: Path, runs: int, seconds: float, seed: int, say: Callable[[str], None]
) -> list[tuple[Paused, str]]:
    """Pause each kind of process in turn during `runs` runs; return kind and reason of each run, "" if it passed.

    Raises `SystemExit` if the rack cannot start.
    """
    chance = random.Random(seed)
    rack = written_rack(directory)
    rack.set_addresses("add")
    ends: list[tuple[Paused, str]] = []
    try:
        for name in ("broker", "controller", *AGENTS):
            rack.start(name)
        rack.await_ready()
        for number in range(runs):
            paused = tuple(Paused)[number % len(Paused)]
            job_id = asyncio.run(_submitted(rack))
            job = _await_state(rack, job_id, JobState.RUNNING, *ENDED)
            after_s = chance.uniform(0, _LATEST_S)
            time.sleep(after_s)
            pids = paused_pids(rack, paused)
            with stopped(pids):
                time.sleep(seconds)
            job = _await_state(rack, job_id, *ENDED)
            reason = "" if job.exit_code == ExitCode.PASS else f"{job.state}: {job.reason}"
            ends.append((paused, reason))
            say(
                f"{number + 1} of {runs}: {paused.value} ({len(pids)}), {after_s:.1f} s after the begin: "
                + (reason or "passed")
            )
    finally:
        rack.end()
        rack.set_addresses("delete")
    return ends


def main() -> None:
    """Print how many runs continued, by paused process; end with 30 if one did not."""
    parser = argparse.ArgumentParser(description="Do runs continue after pauses of processes?")
    parser.add_argument("--runs", type=int, default=50, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each pause (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the pauses' begins (default: %(default)s)")
    parsed = parser.parse_args()
    if why := absence():
        raise SystemExit(f"a rack cannot be paused here: {why}")
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-pauses-") as directory:
        ends = paused_runs(
            Path(directory),
            parsed.runs,
            parsed.seconds,
            parsed.seed,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    counts, passed = Counter(kind for kind, _ in ends), Counter(kind for kind, reason in ends if not reason)
    for kind in counts:
        print(f"{kind.value}: {passed[kind]} of {counts[kind]} continued")
    if any(reason for _, reason in ends):
        raise SystemExit(BAR_MISSED)


if __name__ == "__main__":
    main()
