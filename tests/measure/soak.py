"""Checks that a controller does not grow over many jobs: `python -m tests.measure.soak --runs 200`, or `--all-kinds --time 2h`.

Starts Mosquitto, `etloop controller` and agents as processes, submits one job after another over the broker, and samples the
processes after each. `--all-kinds` runs jobs of all kinds (`soaking.kinds`) on a lab, and at the same time the same kinds in
virtual time, repeatedly in one process; it needs root. `soaking.judged` decides which figures grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import secrets
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError, parse_duration_ns
from etloop.controller.rack.client.client import RackClient, RequestRefused
from etloop.controller.rack.client.web import RackWeb
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobStatus
from etloop.lab.client import lab_down, lab_up
from etloop.lab.plan import plan_lab, rig_text
from etloop.lab.request import LabOrder
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.stop_signals import terminate_as_interrupt
from etloop.traffic.topology.topology_file import parse_topology
from tests.measure.one_rack import (
    agent,
    controller,
    damaged_job,
    own_network,
    rig_of,
    started,
    synth_job,
    two_agents,
    write_rack,
)
from tests.measure.processes import children, status
from tests.measure.soaking.judged import LEAST_RUNS, Sample, soak_verdicts
from tests.measure.soaking.kinds import KINDS, TOPOLOGY, Kind
from tests.measure.soaking.rack_samples import ProcessLook, Watched, looked, settled
from tests.support.ports import free_port

_MOST_RUNS: Final = 1_000_000
_BETWEEN_LINES_S: Final = 60.0
_SMALL: Final = Kind("small", "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\n")
_RETENTION: Final = "retention: {size: 40MiB, ended_jobs: 10, audit_lines: 100}\n"
"""Room for the artifacts of a few jobs, so that retention is active for most of the soak."""
_BACKEND: Final = "packet"
"""Port backend, required by transports that choose source ports."""
_PATIENCE_S: Final = 300
_MOST_MISHAPS: Final = 20
_LONGEST_MISHAP: Final = 1_000


@dataclass(frozen=True, slots=True)
class Length:
    """Number of jobs, or time, after which a soak ends."""

    jobs: int
    time_s: float

    def is_over(self, jobs: int, began_s: float) -> bool:
        """Return whether the soak ends now; at least one job is run."""
        return jobs >= self.jobs or time.monotonic() - began_s >= self.time_s


@dataclass(slots=True)
class Soaked:
    """Results of a soak so far."""

    samples: list[Sample]
    jobs: dict[str, int]
    """Number of jobs by kind."""
    mishaps: list[str]
    """Jobs that ended otherwise than expected of their kind, with their end."""
    twins: int = 0


def soak_small(directory: Path, length: Length, note: Callable[[Soaked], None]) -> Soaked:
    """Run one small job after another between two agents on loopback addresses."""
    control, broker = free_port(), free_port()
    synth_job(directory)
    write_rack(directory, rig_of(control, two_agents(own_network())), broker, _RETENTION)
    (directory / "tmp").mkdir()
    with controller(directory, broker) as pid, contextlib.ExitStack() as stack:
        processes = {"controller": pid} | {
            f"agent {name}": stack.enter_context(agent(directory, name, control)) for name in "ab"
        }
        return asyncio.run(
            _run_soak(_watched_rack(directory, processes, broker), (_SMALL,), length, note, "")
        )


def soak_all(directory: Path, length: Length, note: Callable[[Soaked], None]) -> Soaked:
    """Run jobs of all kinds in turn on a lab of four agents, with twins of the same jobs in one process. Requires root."""
    lab = f"soak-{os.getpid()}"
    bind, broker, http = f"tcp://127.0.0.1:{free_port()}", free_port(), free_port()
    synth_job(directory)
    damaged_job(directory)
    (directory / "topology.yaml").write_text(TOPOLOGY)
    (directory / "tmp").mkdir()
    plan = plan_lab(parse_topology(TOPOLOGY.encode(), "topology.yaml"), bind=bind)
    rig = rig_text(plan, backend=_BACKEND, topology="topology.yaml", lab=lab)
    _write_token(directory)
    write_rack(directory, rig, broker, f"{_RETENTION}http: {{port: {http}, tokens: tokens}}\n")
    owner = os.getpid()
    order = LabOrder(
        lab, TOPOLOGY, "topology.yaml", bind=bind, backend=_BACKEND, agents=True, measure=False, owner=owner
    )
    twins = (sys.executable, "-m", "tests.measure.soaking.twins", str(directory))
    with (
        _environment(TMPDIR=str(directory / "tmp"), XDG_RUNTIME_DIR=str(directory)),
        controller(directory, broker) as pid,
    ):
        status = lab_up(order)
        try:
            with started(directory / "twins.log", *twins) as twin:
                processes = {"controller": pid, "lab": status.pid, "twins": twin.pid} | _agents(status.pid)
                watched = _watched_rack(directory, processes, broker)
                return asyncio.run(_run_soak(watched, KINDS, length, note, f"http://127.0.0.1:{http}"))
        finally:
            lab_down(lab)


def _write_token(directory: Path) -> None:
    token = secrets.token_hex(32)
    for name, text in (("tokens", f"soak write {token}\n"), ("token", token)):
        (directory / name).touch(mode=0o600)
        (directory / name).write_text(text)


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables of this process and of its children inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _agents(lab: int) -> dict[str, int]:
    """Return the process ids of the agents that a lab's process has started, by name."""
    pids_by_name = {}
    for pid in children(lab):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if "--name" in words:
            pids_by_name[f"agent {words[words.index('--name') + 1]}"] = pid
    return pids_by_name


def _watched_rack(directory: Path, processes: dict[str, int], broker: int) -> Watched:
    working = tuple(name for name in processes if name == "controller" or name.startswith("agent"))
    settings = BrokerSettings("127.0.0.1", broker)
    return Watched(processes, working, directory / "state", directory / "tmp", settings, _look)


def _look(pid: int) -> ProcessLook:
    try:
        rss_bytes = status(pid, "VmRSS") * 1024
    except StopIteration:  # it waits to be reaped
        raise ProcessLookupError(f"process {pid} has ended") from None
    return ProcessLook(rss_bytes, status(pid, "Threads"), len(children(pid)))


async def _run_soak(
    watched: Watched, kinds: Sequence[Kind], length: Length, note: Callable[[Soaked], None], web: str
) -> Soaked:
    soaked = Soaked([], dict.fromkeys((kind.name for kind in kinds), 0), [])
    twin_count_file = watched.temporary.parent / "twins"
    began_s = time.monotonic()
    # Ctrl-C ends it with the results so far.
    with contextlib.suppress(asyncio.CancelledError):
        async with RackClient(watched.broker, "rack", response_timeout_s=60) as rack:
            for kind in itertools.cycle(kinds):
                if mishap := await _one_job(rack, kind, watched, web):
                    soaked.mishaps.append(f"{kind.name}: {mishap}"[:_LONGEST_MISHAP])
                    if len(soaked.mishaps) > _MOST_MISHAPS:
                        raise SystemExit(
                            "too many jobs end otherwise than they are meant to:\n"
                            + "\n".join(soaked.mishaps)
                        )
                soaked.jobs[kind.name] += 1
                await settled(watched)
                soaked.samples.append(await looked(watched))
                if twin_count_file.exists():
                    soaked.twins = int(twin_count_file.read_text() or soaked.twins)
                note(soaked)
                if length.is_over(len(soaked.samples), began_s):
                    break
    return soaked


async def _one_job(rack: RackClient, kind: Kind, watched: Watched, web: str) -> str:
    """Run one job from submission to end; return its end if that differs from the expected one, else ""."""
    scenario = kind.scenario
    if kind.uploaded:
        archive = watched.temporary.parent / "trace.tar"
        scenario = scenario.replace("TRACE", await asyncio.to_thread(_upload, archive, web))
    try:
        job = await rack.submit(scenario, time_limit_ns=kind.time_limit_ns)
    except RequestRefused as refusal:
        return "" if kind.refused else f"refused: {refusal}"
    if kind.cancelled_after_s:
        async for update in rack.follow(job.job_id):
            if isinstance(update, JobStatus) and update.state is JobState.RUNNING:
                break
        await asyncio.sleep(kind.cancelled_after_s)
        await rack.cancel(job.job_id)
    result = await rack.result(job.job_id, _PATIENCE_S)
    as_meant = (
        result.state is JobState.CANCELLED if kind.cancelled_after_s else result.exit_code in kind.exit_codes
    )
    if as_meant and not kind.refused:
        return ""
    return f"{result.state}, exit code {result.exit_code}: {result.reason}"


def _upload(archive: Path, web: str) -> str:
    """Upload the trace as an archive, unless the rack has it; return its name for a scenario."""
    if not archive.exists():
        with tarfile.open(archive, "w") as packed:
            for file in sorted((archive.parent / "traces" / "job").iterdir()):
                packed.add(file, file.name)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    RackWeb(archive.parent / "token").upload(web, archive, digest)
    return f"sha256:{digest}"


class _Notes:
    """Prints the progress from time to time, and writes every sample to a file if one is named."""

    def __init__(self, samples: Path | None) -> None:
        self._samples = samples
        self._began_s = time.monotonic()
        self._said_s = -_BETWEEN_LINES_S

    def __call__(self, soaked: Soaked) -> None:
        at_s = time.monotonic() - self._began_s
        jobs = len(soaked.samples)
        if sys.stderr.isatty() or at_s - self._said_s >= _BETWEEN_LINES_S:
            self._said_s = at_s
            sys.stderr.write(f"{jobs} jobs and {soaked.twins} twins after {at_s:.0f} s\n")
        if self._samples is not None:
            line = {"at_s": round(at_s, 1), "twins": soaked.twins, "mishaps": soaked.mishaps} | asdict(
                soaked.samples[-1]
            )
            with self._samples.open("a") as file:
                file.write(json.dumps(line) + "\n")


def main() -> None:
    """Print the table, as Markdown or JSON, and exit with 1 if a figure grows or a job ended unexpectedly."""
    parser = argparse.ArgumentParser(description="Does a controller grow over many jobs?")
    parser.add_argument("--runs", type=int, help="how many jobs (default: 200 without --time)")
    parser.add_argument("--time", help="how long, such as 2h")
    parser.add_argument(
        "--all-kinds", action="store_true", help="jobs of all kinds on a lab, and twins; as root"
    )
    parser.add_argument(
        "--samples", type=Path, metavar="FILE", help="keep what was seen after each job, as JSON lines"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parsed = parser.parse_args()
    length = _length_of(parser, parsed)
    if parsed.all_kinds and os.geteuid() != 0:
        parser.error("--all-kinds: needs root, for the lab's namespaces")
    # Its child processes would outlive it otherwise.
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-soak-") as directory:
        soak = soak_all if parsed.all_kinds else soak_small
        soaked = soak(Path(directory), length, _Notes(parsed.samples))
    if len(soaked.samples) < LEAST_RUNS:
        raise SystemExit(f"{len(soaked.samples)} jobs are too few to judge")
    verdicts = soak_verdicts(soaked.samples)
    if parsed.json:
        figures = list(map(asdict, verdicts))
        report = {"jobs": soaked.jobs, "twins": soaked.twins, "mishaps": soaked.mishaps, "figures": figures}
        print(json.dumps(report, indent=2))
    else:
        print(f"{len(soaked.samples)} jobs, {soaked.twins} twins\n")
        print("| figure | after the warm-up | after the last job | |\n|---|---|---|---|")
        for v in verdicts:
            print(f"| {v.figure} | {v.first} | {v.last} | {'GROWS: ' if v.grows else ''}{v.detail} |")
        for mishap in soaked.mishaps:
            print(f"MISHAP: {mishap}")
    raise SystemExit(bool(soaked.mishaps) or any(verdict.grows for verdict in verdicts))


def _length_of(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Length:
    """Return the length of the soak; exit with a usage error if it is invalid."""
    if parsed.runs is not None and not LEAST_RUNS <= parsed.runs <= _MOST_RUNS:
        parser.error(
            f"--runs: at least {LEAST_RUNS}, or there is nothing to compare, and {_MOST_RUNS} at most"
        )
    if parsed.time is None:
        return Length(200 if parsed.runs is None else parsed.runs, float("inf"))
    try:
        time_ns = parse_duration_ns(parsed.time)
    except QuantityError as error:
        parser.error(f"--time: {error}")
    return Length(_MOST_RUNS if parsed.runs is None else parsed.runs, time_ns / 1e9)


if __name__ == "__main__":
    main()
