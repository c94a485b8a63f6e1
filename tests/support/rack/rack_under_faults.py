"""A rack as its users run it, `etloop controller` and agents as processes beside a real Mosquitto, to be broken and looked at.

What a fault did is noted with the seconds until the rack was clear again: the job ended with its reason and nothing of it
left. With ETLOOP_FAULTS set to a file the notes are added to it;
`python -m tests.support.rack.rack_under_faults` makes docs/faults.md of them.
No test judges the seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.mqtt.messages import ResultStatus
from etloop.controller.rack.store import locks
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.store.orphaned_runs import lock_of
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto
from tests.controller.rack.test_rack_daemon import SCENARIO
from tests.support.first_light.commands import PATIENCE_S, Live, Place, running
from tests.support.places import ROOT

DOCUMENT: Final = ROOT / "docs" / "faults.md"


@dataclass(frozen=True, slots=True)
class Note:
    """A row of the table."""

    fault: str
    happened: str
    kept: str
    clear_s: float
    load: int
    """Processes that wanted the machine's cores then, over the last minute."""


class Broken:
    """Where a test breaks something: the place, its broker, and whatever controller serves it."""

    def __init__(self, place: Place, mosquitto: Mosquitto) -> None:
        self.place = place
        self.mosquitto = mosquitto
        self.state_dir = place.directory / "state"
        self._began_s: float | None = None

    # ---- the rack

    @contextlib.contextmanager
    def controller(
        self, more: str = "", environment: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> Iterator[Live]:
        """A controller that is ready; `more` is added to its configuration, `within` is what starts it."""
        config = self.place.directory / "controller.yaml"
        base = config.read_text().split("#", maxsplit=1)[0]
        mqtt = f"mqtt: {{port: {self.mosquitto.port}, progress_interval: 100ms, requests_per_s: 100000}}\n"
        config.write_text(f"{base}#\n{mqtt}{more}")
        with (
            _environment(environment or {}),
            running(self.place, "etloop.cli.main", "controller", "--config", config, within=within) as live,
        ):
            live.wait_for('"broker joined"')
            yield live

    def submit(
        self,
        scenario: str = SCENARIO,
        *,
        ports: Sequence[str] = ("a/p0", "b/p0"),
        count: int = 1,
        priority: int = 0,
    ) -> str:
        """Queues `count` equal jobs over the broker; the id of the last."""

        async def submitted() -> str:
            async with RackClient(BrokerSettings("127.0.0.1", self.mosquitto.port), "rack") as rack:
                for _ in range(count):
                    job = await rack.submit(scenario, ports=ports, priority=priority)
                return job.job_id

        return asyncio.run(submitted())

    def cancel(self, *job_ids: str) -> None:
        """Cancels jobs over the broker."""

        async def cancelled() -> None:
            async with RackClient(BrokerSettings("127.0.0.1", self.mosquitto.port), "rack") as rack:
                for job_id in job_ids:
                    await rack.cancel(job_id)

        asyncio.run(cancelled())

    def result(self, job_id: str) -> ResultStatus:
        """What the broker retains of a job that ended."""

        async def reported() -> ResultStatus:
            async with RackClient(BrokerSettings("127.0.0.1", self.mosquitto.port), "rack") as rack:
                return await rack.result(job_id, PATIENCE_S)

        return asyncio.run(reported())

    # ---- what is kept

    def jobs(self) -> tuple[Job, ...]:
        """All jobs, newest first, as anybody may read them beside the controller."""
        store = JobStore.look(self.state_dir / "jobs.sqlite")
        try:
            return store.latest(10_000)
        finally:
            store.close()

    def job(self, job_id: str) -> Job:
        """One of them."""
        return next(job for job in self.jobs() if job.job_id == job_id)

    def reaches(self, live: Live, job_id: str, *states: JobState) -> Job:
        """Waits until a job is in one of these states."""
        live.wait_until(lambda: self.job(job_id).state in states, f"job {job_id} {states}")
        return self.job(job_id)

    def artifacts(self, job: Job) -> list[str]:
        """Names of the files that a job left."""
        return sorted(path.name for path in (self.state_dir / "artifacts" / job.job_id).glob("*"))

    def run_pid(self, job_id: str) -> int:
        """The process of a job's run."""
        pid = locks.signature(lock_of(self.state_dir, job_id))
        assert pid is not None
        return pid

    # ---- the fault

    def strikes(self, fault: Callable[[], object]) -> None:
        """Does it, and starts the watch."""
        fault()
        self._began_s = time.monotonic()

    def cleared(self, fault: str, happened: str, kept: str) -> None:
        """It is over: nothing of an ended job lives; notes the row."""
        assert self._began_s is not None, "nothing has struck"
        clear_s = round(time.monotonic() - self._began_s, 1)
        ended = {job.job_id for job in self.jobs() if job.state in ENDED}
        alive = [path for path in (self.state_dir / "running").iterdir() if path.name in ended]
        assert not [path for path in alive if locks.is_held(path)], "a run outlives its job"
        sink = os.environ.get("ETLOOP_FAULTS")
        if sink:
            with Path(sink).open("a") as notes:
                note = Note(fault, happened, kept, clear_s, round(os.getloadavg()[0]))
                notes.write(json.dumps(asdict(note)) + "\n")

    def serves_on(self, live: Live, ports: Sequence[str] = ("a/p0", "b/p0")) -> None:
        """The rack is whole, as far as `ports` go: one more job passes."""
        job = self.reaches(live, self.submit(ports=ports), *ENDED)
        assert (job.state, job.exit_code) == (JobState.FINISHED, ExitCode.PASS), job.reason


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A file system of `size` at `directory` (for root); what is yielded gives it another size."""

    def mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, timeout=60)

    directory.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory))
    try:
        yield lambda changed: mount("-o", f"remount,size={changed}", str(directory))
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=False, capture_output=True, timeout=60)


def lets_pass(controller: Live, seconds: float) -> None:
    """Time passes as part of a fault; the controller must not end in it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        controller.process.wait(seconds)
        raise AssertionError(f"the controller ended:\n{controller.printed()}")


HEAD: Final = "| fault | what happens | what is kept | clear after | load |\n|---|---|---|---|---|\n"


def main() -> None:
    """Write the rows of docs/faults.md from the notes in the file that the first argument names."""
    notes = [Note(**json.loads(line)) for line in Path(sys.argv[1]).read_text().splitlines()]
    rows = "".join(
        f"| {note.fault} | {note.happened} | {note.kept} | {note.clear_s:g} s | {note.load:g} |\n"
        for note in notes
    )
    before, _, behind = DOCUMENT.read_text().partition(HEAD)
    _, end, after = behind.partition("\n\n")
    DOCUMENT.write_text(before + HEAD + rows.removesuffix("\n") + end + after)


if __name__ == "__main__":
    main()
