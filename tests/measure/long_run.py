"""Measures the memory of a run of millions of operations, and checks that its records survive a cancellation.

`python -m tests.measure.long_run --time 100s [--check]`: Mosquitto, `etloop controller` and an agent as processes; one job of
one port, whose eight ranks exchange the smallest possible messages, cancelled a given time after the start of its traffic, or
after a number of operations (`--ops`). The output is the peak memory of each process as the kernel counts it, and the results on
disk: the tables must hold every operation that the summary counts exactly once, and `etloop report` must read them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError, parse_duration_ns
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobStatus, ProgressStatus
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.stop_signals import terminate_as_interrupt
from tests.measure.harness import BAR_MISSED
from tests.measure.one_rack import agent, controller, own_network, rig_of, write_rack
from tests.measure.processes import children, status
from tests.support.ports import free_port

MOST_BYTES: Final = 512 << 20
"""Bar for the memory of each process."""
_SCENARIO: Final = (
    "workload: {collective: {kind: all_reduce, ranks: 8, size: SIZE, count: COUNT}}\niterations: 100\nallow_local: true\n"
    "transport: {timeout_floor: 200ms}\nlimits: {stall_timeout: 60s, lost_after: 60s}\n"
)
"""Scenario with timeouts so long that a slow host causes neither loss nor abort."""
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 3_600
_REPORT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Length:
    """Number of operations, or time, after which a run is cancelled."""

    ops: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """Repeated load of the ranks: collectives per iteration, and bytes of each."""

    count: int
    size: str = "8B"

    def scenario(self) -> str:
        """Return the job."""
        return _SCENARIO.replace("COUNT", str(self.count)).replace("SIZE", self.size)


@dataclass(frozen=True, slots=True)
class LongRun:
    """Results of a run that was cancelled."""

    done_ops: int
    """Ops that its agent had reported when it was cancelled."""
    recorded_ops: int
    """Ops recorded by its summary."""
    table_ops: int
    """Rows of ops.parquet."""
    twice_ops: int
    """Rows that repeat another row."""
    traffic_s: float
    ending_s: float
    """Seconds from the order to cancel until the results existed."""
    reason: str
    report_exit_code: int
    """Exit code of `etloop report RUN_DIR`."""
    report_bytes: int
    """Peak memory of the process that reads them."""
    peak_bytes: Mapping[str, int]
    """Peak memory by process."""

    def faults(self) -> tuple[str, ...]:
        """Return each violation of an expectation, in words."""
        violations = [
            f"{name} took {peak / (1 << 20):.0f} MiB, and {MOST_BYTES >> 20} are allowed"
            for name, peak in (*self.peak_bytes.items(), ("etloop report", self.report_bytes))
            if peak > MOST_BYTES
        ]
        if self.recorded_ops < self.done_ops:
            violations.append(f"{self.done_ops} ops were reported and {self.recorded_ops} are recorded")
        if self.table_ops != self.recorded_ops:
            violations.append(f"{self.recorded_ops} ops are recorded and ops.parquet has {self.table_ops}")
        if self.twice_ops:
            violations.append(f"{self.twice_ops} ops stand twice in ops.parquet")
        if self.report_exit_code:
            violations.append(f"etloop report ended with {self.report_exit_code}")
        return tuple(violations)


@dataclass(slots=True)
class Peaks:
    """Peak memory of processes by name, sampled ten times a second inside the block."""

    processes: Mapping[str, int]
    """Permanent processes; children of the controller are processes of runs and reports."""
    bytes_of: dict[str, int] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Mapping[str, int]]:
        """Sample inside the block; yield the peaks in bytes by name."""
        looking = threading.Thread(target=self._look_on, name="peaks")
        looking.start()
        try:
            yield self.bytes_of
        finally:
            self._over.set()
            looking.join()

    def _look_on(self) -> None:
        while not self._over.wait(_LOOK_S):
            for name, pid in self.processes.items():
                self._look(name, pid)
            for pid in children(self.processes["controller"]):
                self._look("run", pid)

    def _look(self, name: str, pid: int) -> None:
        # A process may end while it is looked at.
        with contextlib.suppress(OSError, StopIteration):
            self.bytes_of[name] = max(self.bytes_of.get(name, 0), status(pid, "VmHWM") * 1024)


def measure(directory: Path, length: Length, load: Load, say: Callable[[str], None]) -> LongRun:
    """Run a job for this long, cancel it, and check its results."""
    control, broker = free_port(), free_port()
    (directory / "traces").mkdir()
    network = own_network()
    port = f"{{name: p0, addresses: {network}.0.1-{network}.0.8, link: 100Gbps}}"
    write_rack(directory, rig_of(control, f"  - {{name: a, host: here, ports: [{port}]}}\n"), broker)
    settings = BrokerSettings("127.0.0.1", broker)
    with controller(directory, broker) as pid, agent(directory, "a", control) as agent_pid:
        peaks = Peaks({"controller": pid, "agent": agent_pid})
        with peaks.watching() as peak_bytes:
            ran = asyncio.run(_cancelled(settings, load.scenario(), length, say))
    run_dir = directory / "state/artifacts" / ran.run_directory
    say(f"reading {run_dir.name}")
    recorded = json.loads((run_dir / "summary.json").read_text())["ops"]["recorded"]
    table_ops, twice_ops = _rows_of(run_dir / "ops.parquet")
    exit_code, report_bytes = _run_report(run_dir, directory / "report.log")
    return LongRun(
        ran.done_ops,
        recorded,
        table_ops,
        twice_ops,
        ran.traffic_s,
        ran.ending_s,
        ran.reason,
        exit_code,
        report_bytes,
        dict(peak_bytes),
    )


@dataclass(slots=True)
class _Ran:
    done_ops: int = 0
    traffic_s: float = 0.0
    ending_s: float = 0.0
    reason: str = ""
    run_directory: str = ""


async def _cancelled(
    settings: BrokerSettings, scenario: str, length: Length, say: Callable[[str], None]
) -> _Ran:
    ran = _Ran()
    async with RackClient(settings, "rack", response_timeout_s=60) as rack:
        job = await rack.submit(scenario)
        began_s = 0.0
        async for update in rack.follow(job.job_id):
            if isinstance(update, JobStatus):
                if update.state is JobState.RUNNING and not began_s:
                    began_s = time.monotonic()
                elif update.exit_code is not None:
                    raise SystemExit(f"the job ended before it was cancelled: {update.reason}")
            elif isinstance(update, ProgressStatus):
                ran.done_ops = update.ops_done
            ran.traffic_s = time.monotonic() - began_s if began_s else 0.0
            if ran.done_ops >= length.ops or ran.traffic_s >= length.time_s:
                break
        say(f"{ran.done_ops} ops after {ran.traffic_s:.0f} s: cancelled")
        ordered_s = time.monotonic()
        await rack.cancel(job.job_id)
        result = await rack.result(job.job_id, _PATIENCE_S)
        ran.ending_s = time.monotonic() - ordered_s
    if not result.run_directory:
        raise SystemExit(f"nothing of it was kept: {result.reason}")
    ran.reason, ran.run_directory = result.reason, result.run_directory
    return ran


def _rows_of(table: Path) -> tuple[int, int]:
    """Return the number of rows of ops.parquet, and of rows that repeat another: the same op of the same rank and
    iteration.
    """
    file = pq.ParquetFile(table)
    keys_of_rows = np.empty(file.metadata.num_rows, np.uint64)
    filled = 0
    for batch in file.iter_batches(columns=["iteration", "rank", "op"]):
        keys = [batch.column(name).to_numpy().astype(np.uint64) for name in ("iteration", "rank", "op")]
        keys_of_rows[filled : filled + batch.num_rows] = (
            keys[0] << np.uint64(48) | keys[1] << np.uint64(40) | keys[2]
        )
        filled += batch.num_rows
    keys_of_rows.sort()
    return filled, int(np.count_nonzero(keys_of_rows[1:] == keys_of_rows[:-1]))


def _run_report(run_dir: Path, log: Path) -> tuple[int, int]:
    """Run `etloop report`; return its exit code and the peak memory of its process in bytes."""
    command = (sys.executable, "-m", "etloop.cli.main", "report", str(run_dir))
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink) as process:
        peak_bytes = 0
        deadline_s = time.monotonic() + _REPORT_S
        while process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(OSError, StopIteration):
                peak_bytes = max(peak_bytes, status(process.pid, "VmHWM") * 1024)
            time.sleep(_LOOK_S)
        process.kill()
    return process.returncode, peak_bytes


def table_of(ran: LongRun) -> str:
    """Return the figures as Markdown."""
    mib = {name: f"{peak / (1 << 20):.0f} MiB" for name, peak in ran.peak_bytes.items()}
    rows = (
        ("operations reported when it was cancelled", f"{ran.done_ops:,}"),
        ("operations in summary.json, and in ops.parquet", f"{ran.recorded_ops:,}, {ran.table_ops:,}"),
        ("traffic", f"{ran.traffic_s:.0f} s"),
        ("from the order to cancel to the results", f"{ran.ending_s:.1f} s"),
        *((f"{name}: memory, peak", mib[name]) for name in sorted(mib)),
        ("`etloop report` of it: memory, peak", f"{ran.report_bytes / (1 << 20):.0f} MiB"),
    )
    return "\n".join(("| figure | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows)))


def main() -> None:
    """Print the table, as Markdown or JSON; with --check end with 30 if records are missing or memory is above the bar."""
    parser = argparse.ArgumentParser(description="A run of millions of operations, cancelled.")
    parser.add_argument("--ops", type=int, default=sys.maxsize, help="cancelled after so many operations")
    parser.add_argument("--time", default="100s", help="or so long after it began (default: %(default)s)")
    parser.add_argument(
        "--count", type=int, default=65_536, help="collectives an iteration (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--check", action="store_true", help="end with 30 if something is missed")
    parsed = parser.parse_args()
    if parsed.ops < 1 or not 1 <= parsed.count <= 1 << 20:
        parser.error("--ops: at least 1; --count: 1 to 1048576")
    try:
        length = Length(parsed.ops, parse_duration_ns(parsed.time) / 1e9)
    except QuantityError as error:
        parser.error(f"--time: {error}")
    # Its child processes would outlive it otherwise.
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-long-") as directory:
        ran = measure(Path(directory), length, Load(parsed.count), lambda line: print(line, file=sys.stderr))
    faults = ran.faults()
    print(json.dumps(asdict(ran) | {"faults": faults}, indent=2) if parsed.json else table_of(ran))
    for fault in faults:
        print(f"MISSED: {fault}", file=sys.stderr)
    raise SystemExit(BAR_MISSED if faults and parsed.check else 0)


if __name__ == "__main__":
    main()
