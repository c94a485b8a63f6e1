"""Injects random faults into a rack and checks that no job is lost or run twice. `python -m tests.measure.random_faults`

Starts Mosquitto, `etloop controller` and two agents as processes and submits jobs continuously, while faults
are drawn by a seed: processes killed and stopped, the control connection cut, an address lost, the data path
silent, the disk full or failing, the clock stepped, no descriptor free, files damaged, the broker down. After
each fault the time is measured until the rack is ready: controller, broker and both agents are up, and jobs
can start.
At the end every acknowledged job must exist once,
must have run at most once for each time that it was queued, and must have ended with an exit code and, unless it
passed, a reason; and every run directory that a job names must hold a complete run. A job that did not pass must give a
fault that was inflicted while it ran as the cause (`breaking.causes`); at most 2 % may not. An interrupt (Ctrl-C, or
`timeout --signal INT 30m`) ends the faults; the jobs until then are checked.

Root, for the full disk (a tmpfs) and the cuts (iptables). The full size is `--faults 1000 --jobs 500`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import EtloopError, ExitCode
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.client.client import RackClient, RackUnreachable, RequestRefused
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.results.store.run_dir import read_run
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.stop_signals import terminate_as_interrupt
from tests.measure.breaking.causes import Inflicted, Unpassed, faults_during, wrong_causes
from tests.measure.breaking.faults import Fault, drawn_faults, inflict
from tests.measure.breaking.rack import AGENTS, POLL_S, Rack, absence, written_rack
from tests.measure.harness import BAR_MISSED

READY_BAR_S: Final = 30.0
"""Longest time after a fault until the rack is ready again."""
MOST_WRONG: Final = 0.02
"""Share of all jobs that may give a wrong cause."""
_SCENARIOS: Final = (
    "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\n",
    "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\nscale: {time: 800}\n",
    "workload: {trace: damaged}\n",
)
"""Scenarios of a short job, a longer one, and one that cannot be prepared."""
_WAITING_JOBS: Final = 4
"""Jobs kept in the queue, as long as there are some left to submit."""
_END_PATIENCE_S: Final = 600.0
_LOOK_S: Final = 0.25
_LOOKED_AT: Final = 50
"""Newest jobs that may change between two looks."""
_A_JOB_S: Final = 20.0
"""Longest time per job on a busy machine, for the jobs that are not submitted yet when the last fault is over."""
_DISK_MIB: Final = 128
_DISK_MIB_A_JOB: Final = 8
"""Disk space per job for everything that is kept, and for the space that a run reserves when it begins."""


@dataclass(frozen=True, slots=True)
class Healed:
    """One fault, with the time from its end until the rack was ready."""

    fault: Fault
    ready_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of all faults and jobs."""

    healed: tuple[Healed, ...]
    ended: Mapping[str, int]
    """Number of jobs by state and exit code."""
    mistakes: tuple[str, ...]
    """Violations of the guarantees, in words."""
    wrong_causes: tuple[str, ...] = ()
    """Jobs that give a wrong cause, in words."""
    reasons: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of each job that did not pass: its reason, and the faults while it ran."""

    @property
    def holds(self) -> bool:
        """Return whether no job was lost, causes were right and the rack was ready in time."""
        in_time = all(healed_fault.ready_s <= READY_BAR_S for healed_fault in self.healed)
        return (
            not self.mistakes and in_time and len(self.wrong_causes) <= MOST_WRONG * sum(self.ended.values())
        )


class Feeder(threading.Thread):
    """Keeps jobs in the queue, like automation that must submit every one: it repeats each until it is acknowledged."""

    def __init__(self, rack: Rack, jobs: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._rack = rack
        self._left = jobs
        self._chance = chance
        self.acknowledged: dict[str, str] = {}
        """Client key -> job."""
        self.mistakes: list[str] = []
        self.failure: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Submit until all jobs are acknowledged or `over` is set."""
        try:
            asyncio.run(self._fed())
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self.failure = error

    async def _fed(self) -> None:
        settings = BrokerSettings("127.0.0.1", self._rack.broker)
        while self._left and not self.over.is_set():
            with contextlib.suppress(RackUnreachable, RequestRefused):  # such as for want of room
                async with RackClient(settings, "rack", response_timeout_s=5) as client:
                    while self._left and not self.over.is_set():
                        waiting = [job for job in await client.jobs(50) if job.state is JobState.QUEUED]
                        if len(waiting) < _WAITING_JOBS:
                            await self._submit(client)
                        else:
                            await asyncio.sleep(0.2)
            await asyncio.sleep(0.1)

    async def _submit(self, client: RackClient) -> None:
        key = f"key {self._left}"
        scenario = random.Random(key).choices(_SCENARIOS, (3, 6, 1))[0]
        job = await client.submit(scenario, ports=("a/p0", "b/p0"), client_key=key)
        if self.acknowledged.setdefault(key, job.job_id) != job.job_id:
            self.mistakes.append(f"{key} stands for {self.acknowledged[key]} and {job.job_id}")
        # Submit some jobs again, like a client that lost the answer.
        if self._chance.random() < 0.8:
            self._left -= 1


def mistakes_of(store: JobStore, state_dir: Path, acknowledged: Mapping[str, str]) -> tuple[str, ...]:
    """Return the mistakes of the jobs in a store, in words."""
    mistakes: list[str] = []
    jobs = {job.job_id: job for job in store.latest(1 << 20)}
    mistakes += [
        f"{job_id} was acknowledged and is not there"
        for job_id in acknowledged.values()
        if job_id not in jobs
    ]
    keys = Counter(job.request.client_key for job in jobs.values())
    mistakes += [f"{count} jobs were submitted as {key}" for key, count in keys.items() if count > 1]
    for job in jobs.values():
        mistakes += [f"{job.job_id} {mistake}" for mistake in _mistakes_of_job(store, state_dir, job)]
    return tuple(mistakes)


def _mistakes_of_job(store: JobStore, state_dir: Path, job: Job) -> Iterator[str]:
    if job.state not in ENDED:
        yield f"has not ended: {job.state}"
        return
    steps = Counter(line.event for line in store.audit(job.job_id))
    queued = 1 + sum(count for step, count in steps.items() if step.endswith(f"-> {JobState.QUEUED}"))
    started = sum(count for step, count in steps.items() if step.endswith(f"-> {JobState.RUNNING}"))
    if started > queued:
        yield f"ran {started} times and was queued {queued} times"
    if job.state is JobState.FINISHED and job.exit_code is None:
        yield "has no exit code"
    if job.exit_code != 0 and not job.reason:
        yield f"ended as {job.state} with exit code {job.exit_code} and no reason"
    if job.exit_code == 0 and not job.run_directory:
        yield "passed and kept nothing"
    if job.run_directory:
        try:
            read_run(state_dir / "artifacts" / job.run_directory)
        except (EtloopError, OSError) as error:
            names = _names_in(state_dir / "artifacts" / job.run_directory)
            yield f"kept no whole run: {error}; it holds {names} ({job.state}: {job.reason})"


def _names_in(directory: Path) -> str:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        return f"nothing that can be read ({error.strerror})"
    return ", ".join(names[:20]) or "nothing"


class Watch(threading.Thread):
    """Notes when jobs left the queue and ended, on this process's clock: the controller's own clock is stepped."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._queued_s: dict[str, float] = {}
        """When a job was last found queued, or not there yet."""
        self._ended_s: dict[str, float] = {}
        self._before_s = time.monotonic()
        self.over = threading.Event()

    def run(self) -> None:
        """Look until `over` is set."""
        while not self.over.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Note the states of the newest jobs."""
        now_s = time.monotonic()
        with contextlib.suppress(StoreFailed):
            store = JobStore.look(self._path)
            try:
                for job in store.latest(_LOOKED_AT):
                    self._queued_s.setdefault(job.job_id, self._before_s)
                    if job.state is JobState.QUEUED:
                        self._queued_s[job.job_id] = now_s
                    elif job.state in ENDED:
                        self._ended_s.setdefault(job.job_id, now_s)
            finally:
                store.close()
            self._before_s = now_s

    def unpassed(self, jobs: Iterable[Job]) -> list[Unpassed]:
        """Return the jobs that did not pass. Raises `KeyError` if one has not ended."""
        return [
            Unpassed(
                job.job_id,
                job.reason,
                self._queued_s[job.job_id],
                self._ended_s[job.job_id],
                "trace: damaged" in job.request.scenario_text,
            )
            for job in jobs
            if job.exit_code != ExitCode.PASS
        ]


def broken_rack(
    directory: Path,
    faults: Sequence[Fault],
    jobs: int,
    seed: int,
    say: Callable[[str], None],
    while_s: float | None = None,
) -> Outcome:
    """Inject faults into a rack in `directory`, which must be empty, and check it.

    Temporary faults last `while_s` seconds, None: a random time. Raises `SystemExit` if the rack cannot start.
    """
    rack = written_rack(directory)
    state = directory / "state"
    state.mkdir()
    watch = Watch(state / "jobs.sqlite")
    rack.set_addresses("add")
    size = f"size={_DISK_MIB + _DISK_MIB_A_JOB * jobs}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(state)], check=True)
    feeder = Feeder(rack, jobs, random.Random(seed + 1))
    try:
        for name in ("broker", "controller", *AGENTS):
            rack.start(name)
        rack.await_ready()
        feeder.start()
        watch.start()
        healed, inflicted = _inflict_all(faults, seed, while_s, rack, feeder, say)
        feeder.join(_END_PATIENCE_S + _A_JOB_S * jobs)
        was_cut = feeder.over.is_set()
        feeder.over.set()
        store = JobStore.look(state / "jobs.sqlite")
        try:
            _await_ends(store)
            watch.over.set()
            watch.join()
            watch.look()
            mistakes = (*feeder.mistakes, *mistakes_of(store, state, feeder.acknowledged))
            all_jobs = store.latest(1 << 20)
            jobs_by_end = Counter(f"{job.state}, {job.exit_code}" for job in all_jobs)
        finally:
            store.close()
        if len(feeder.acknowledged) != jobs and not was_cut:
            mistakes = (*mistakes, f"{len(feeder.acknowledged)} of {jobs} jobs were acknowledged")
        unpassed = watch.unpassed(job for job in all_jobs if job.state in ENDED)
        reasons = tuple(
            (job.reason, tuple(event.fault.value for event in faults_during(job, inflicted)))
            for job in unpassed
        )
        wrong = wrong_causes(unpassed, inflicted)
        return Outcome(tuple(healed), dict(jobs_by_end), mistakes, wrong, reasons)
    finally:
        feeder.over.set()
        watch.over.set()
        rack.end()
        rack.set_addresses("delete")
        subprocess.run(["umount", "-l", str(state)], check=False, capture_output=True)


def _inflict_all(
    faults: Sequence[Fault],
    seed: int,
    while_s: float | None,
    rack: Rack,
    feeder: Feeder,
    say: Callable[[str], None],
) -> tuple[list[Healed], list[Inflicted]]:
    """Inject the faults one after another, each once the rack is ready; an interrupt ends them, and the feeder."""
    healed: list[Healed] = []
    inflicted: list[Inflicted] = []
    for number, fault in enumerate(faults):
        chance = random.Random(f"{seed} {number}")
        begin_s, agent = time.monotonic(), ""
        try:
            time.sleep(chance.uniform(0, 2))
            begin_s = time.monotonic()
            agent = inflict(fault, rack, chance, while_s)
            healed.append(Healed(fault, rack.await_ready()))
        except KeyboardInterrupt:
            say(f"interrupted after {len(healed)} faults")
            feeder.over.set()
            rack.revive()
        inflicted.append(Inflicted(fault, begin_s, time.monotonic(), agent))
        if feeder.over.is_set():
            break
        say(f"{number + 1} of {len(faults)}: {fault.value}, ready after {healed[-1].ready_s:.1f} s")
        if feeder.failure is not None:
            raise feeder.failure
    return healed, inflicted


def _await_ends(store: JobStore) -> None:
    deadline_s = time.monotonic() + _END_PATIENCE_S
    while time.monotonic() < deadline_s:
        if store.count(*(state for state in JobState if state not in ENDED)) == 0:
            return
        time.sleep(POLL_S)


def table_of(outcome: Outcome) -> str:
    """Return the outcome as Markdown."""
    lines = ["| fault | times | ready after, median | worst |", "|---|---|---|---|"]
    by_fault = sorted(outcome.healed, key=lambda healed: healed.fault.value)
    for fault, group in itertools.groupby(by_fault, key=lambda healed: healed.fault):
        seconds = [healed.ready_s for healed in group]
        middle = statistics.median(seconds)
        lines.append(f"| {fault.value} | {len(seconds)} | {middle:.1f} s | {max(seconds):.1f} s |")
    job_words = ", ".join(f"{count} {end}" for end, count in sorted(outcome.ended.items()))
    lines += ["", f"jobs (state, exit code): {job_words}"]
    lines += [f"MISTAKE: {mistake}" for mistake in outcome.mistakes]
    lines += [f"WRONG CAUSE: {text}" for text in outcome.wrong_causes]
    return "\n".join(lines)


def main() -> None:
    """Print the table, as Markdown or JSON; with --check, end with 30 if a job was lost or the rack was late."""
    parser = argparse.ArgumentParser(description="Does a rack that chance breaks lose anything?")
    parser.add_argument("--faults", type=int, default=50, help="how many (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=25, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens when (default: %(default)s)")
    parser.add_argument(
        "--only", help="kinds of faults by name, such as ALL_STOPPED,RUN_STOPPED (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, help="how long temporary faults last (default: a random time)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--check", action="store_true", help="exit with 30 when a bar is not met")
    parsed = parser.parse_args()
    if why := absence():
        raise SystemExit(f"a rack cannot be broken here: {why}")
    kinds = tuple(Fault[name] for name in parsed.only.split(",")) if parsed.only else tuple(Fault)
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-faults-") as directory:
        outcome = broken_rack(
            Path(directory),
            drawn_faults(parsed.faults, parsed.seed, kinds),
            parsed.jobs,
            parsed.seed,
            lambda text: print(text, file=sys.stderr),
            parsed.seconds,
        )
    if parsed.json:
        healed = [{"fault": row.fault.value, "ready_s": row.ready_s} for row in outcome.healed]
        figures = {
            "seed": parsed.seed,
            "healed": healed,
            "ended": outcome.ended,
            "mistakes": outcome.mistakes,
            "wrong_causes": outcome.wrong_causes,
            "reasons": outcome.reasons,
        }
        print(json.dumps(figures, indent=2))
    else:
        print(table_of(outcome))
    if parsed.check and not outcome.holds:
        raise SystemExit(BAR_MISSED)


if __name__ == "__main__":
    main()
