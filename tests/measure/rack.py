"""Measures the cost of a large rack and the start latency of jobs. `python -m tests.measure.rack [--agents 256] [--jobs 100]`

Scale: `etloop controller`, Mosquitto, and simulated agents with four ports each: many in one process, with engines that send no
packets. They register, are idle, and run one job over all ports; measured are the CPU time and memory of the controller, and of
the run's own process.

Latency: two real agents and one small job after another; from the client's submission to each state, as the client receives it
from the broker. Once over loopback addresses and, as root, once on a lab: agents in namespaces, a soft switch between them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from etloop.cli.main import main as etloop
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import ENDED, JobState
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
    own_network,
    rig_of,
    started,
    synth_job,
    two_agents,
    write_rack,
)
from tests.measure.processes import children, status
from tests.support.ports import free_port

PORTS: Final = 4
_PROCESSES: Final = 8
"""Processes of simulated agents: each has one interpreter for its agents, and must answer heartbeats in time."""
_IDLE_S: Final = 10
_PATIENCE_S: Final = 600
_SCENARIO: Final = "workload: {trace: job}\nmapping: {placement: round_robin}\n"
_LIMITS: Final = "limits: {gather_timeout: 300s, stall_timeout: 120s, lost_after: 60s}\n"
"""Long timeouts, because hundreds of agents share this machine's cores and load their parts of the job one after another."""


_TOPOLOGY: Final = "single: {rate: 200Mbps, ports: [a/p0, b/p0], switch: {preset: lossless}}\n"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    unit: str


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    return status(pid, "VmHWM") / 1024


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# ---- scale


def measure_scale(directory: Path, agents: int) -> list[Figure]:
    """Register `agents`, keep them idle, and run one job over all of their ports; return the figures."""
    control, broker = free_port(), free_port()
    parallel = ["--tp", str(PORTS), "--dp", str(agents), "--pp", "1"]
    # The output of the command is not part of the figures.
    with contextlib.redirect_stdout(sys.stderr):
        etloop(
            ["synth", str(directory / "traces" / "job"), "--layers", "1", "--micro-batches", "1", *parallel]
        )
    rows = "".join(
        f"  - {{name: n{k:04}, host: h{k}, ports: ["
        + ", ".join(
            f"{{name: p{port}, addresses: 127.{20 + k // 250}.{k % 250}.{port + 1}, link: 100Gbps}}"
            for port in range(PORTS)
        )
        + "]}\n"
        for k in range(agents)
    )
    write_rack(directory, rig_of(control, rows), broker)
    settings = BrokerSettings("127.0.0.1", broker)
    with controller(directory, broker) as pid, contextlib.ExitStack() as stack:
        before_s, empty_mib = _cpu_s(pid), _peak_mib(pid)
        began = time.monotonic()
        share = -(-agents // _PROCESSES)
        for first in range(0, agents, share):
            count = str(min(share, agents - first))
            command = (
                "-m",
                "tests.support.control_plane.many_agents",
                f"tcp://127.0.0.1:{control}",
                str(first),
                count,
            )
            stack.enter_context(started(directory / f"agents-{first}.log", sys.executable, *command))
        registered_s, port_count = asyncio.run(_await_registration(settings, agents, began))
        register_cpu_s = _cpu_s(pid) - before_s
        idle_from_s = _cpu_s(pid)
        time.sleep(_IDLE_S)
        idle_percent = 100 * (_cpu_s(pid) - idle_from_s) / _IDLE_S
        idle_mib = _peak_mib(pid)
        run_from_s = _cpu_s(pid)
        figures = [
            Figure("agents", agents, ""),
            Figure("ports", port_count, ""),
            Figure("from their start until all are registered", registered_s, "s"),
            Figure("controller: processor time to register them", register_cpu_s, "s"),
            Figure("controller: processor time while they are idle", idle_percent, "%"),
            Figure("controller: memory without agents, peak", empty_mib, "MiB"),
            Figure("controller: memory with all of them, peak", idle_mib, "MiB"),
        ]
        # Print them now: they are valid even if the job fails.
        sys.stderr.write(_table("scale, so far", figures))
        figures += asyncio.run(_one_job(settings, pid))
        figures.append(Figure("controller: processor time for that job", _cpu_s(pid) - run_from_s, "s"))
        figures.append(Figure("controller: memory after it, peak", _peak_mib(pid), "MiB"))
        return figures


async def _await_registration(settings: BrokerSettings, agents: int, began: float) -> tuple[float, int]:
    async with RackClient(settings, "rack", response_timeout_s=60) as rack:
        while time.monotonic() - began < _PATIENCE_S:
            update = await rack.inventory()
            if sum(agent.present for agent in update.agents) == agents:
                return time.monotonic() - began, len(update.ports)
            await asyncio.sleep(0.25)
    raise SystemExit("not all agents registered")


async def _one_job(settings: BrokerSettings, controller: int) -> list[Figure]:
    async with RackClient(settings, "rack", response_timeout_s=60) as rack:
        began = time.monotonic()
        job = await rack.submit(_SCENARIO + _LIMITS)
        first_seen_s: dict[str, float] = {}
        peak_mib = 0.0
        async for update in rack.follow(job.job_id):
            for child in children(controller):
                with contextlib.suppress(OSError, StopIteration):
                    peak_mib = max(peak_mib, _peak_mib(child))
            if isinstance(update, JobStatus):
                first_seen_s.setdefault(str(update.state), time.monotonic() - began)
        result = await rack.result(job.job_id, _PATIENCE_S)
    if result.summary is None or result.summary["state"] != "done":
        raise SystemExit(f"the job over all ports broke: {result.reason}")
    return [
        Figure("one job over all ports: until its traffic begins", first_seen_s["running"], "s"),
        Figure(
            "its traffic (2 s are the engines') and collecting",
            first_seen_s["storing"] - first_seen_s["running"],
            "s",
        ),
        Figure("storing its results", first_seen_s["finished"] - first_seen_s["storing"], "s"),
        Figure("operations recorded", result.summary["ops"]["recorded"], ""),
        Figure("the run's own process: memory, peak seen", peak_mib, "MiB"),
    ]


# ---- latency


def measure_latency(directory: Path, jobs: int) -> list[Figure]:
    """Run one small job after another between two real agents over loopback addresses; return the figures."""
    control, broker = free_port(), free_port()
    synth_job(directory)
    write_rack(directory, rig_of(control, two_agents(own_network())), broker)
    with controller(directory, broker), agent(directory, "a", control), agent(directory, "b", control):
        return asyncio.run(_latencies(BrokerSettings("127.0.0.1", broker), jobs))


def measure_lab_latency(directory: Path, jobs: int) -> list[Figure]:
    """Measure as `measure_latency`, with the agents in namespaces and a soft switch between them. Requires root."""
    bind, broker = f"tcp://127.0.0.1:{free_port()}", free_port()
    synth_job(directory)
    (directory / "topology.yaml").write_text(_TOPOLOGY)
    plan = plan_lab(parse_topology(_TOPOLOGY.encode(), "topology.yaml"), bind=bind)
    write_rack(directory, rig_text(plan, topology="topology.yaml"), broker)
    lab = f"rack-{os.getpid()}"
    with controller(directory, broker):
        lab_up(
            LabOrder(
                lab, _TOPOLOGY, "topology.yaml", bind=bind, agents=True, measure=False, owner=os.getpid()
            )
        )
        try:
            return asyncio.run(_latencies(BrokerSettings("127.0.0.1", broker), jobs))
        finally:
            lab_down(lab)


async def _latencies(settings: BrokerSettings, jobs: int) -> list[Figure]:
    spans: dict[str, list[float]] = {"queued": [], "starting": [], "running": [], "finished": []}
    async with RackClient(settings, "rack", response_timeout_s=60) as rack:
        for _ in range(jobs):
            began = time.monotonic()
            job = await rack.submit(_SCENARIO)
            spans["queued"].append(time.monotonic() - began)
            first_seen_s: dict[JobState, float] = {}
            async for update in rack.follow(job.job_id):
                if isinstance(update, JobStatus):
                    first_seen_s.setdefault(update.state, time.monotonic() - began)
                    if update.state in ENDED and update.exit_code:
                        raise SystemExit(f"a job broke: {update.reason}")
            for state, values in spans.items():
                if state in first_seen_s and state != "queued":
                    values.append(first_seen_s[JobState(state)])
    meanings = {
        "queued": "submission to its answer",
        "starting": "submission to the lease of its ports",
        "running": "submission to the start of its traffic",
        "finished": "submission to the verdict",
    }
    return [
        Figure(
            f"{meaning}, p{percent}",
            1000 * float(np.percentile(spans[state], percent, method="inverted_cdf")),
            "ms",
        )
        for state, meaning in meanings.items()
        for percent in (50, 99)
        if spans[state]
    ]


def main() -> None:
    """Print both tables, as Markdown or JSON."""
    parser = argparse.ArgumentParser(
        description="What a large rack costs its controller, and how soon a job starts."
    )
    parser.add_argument("--agents", type=int, default=256, help="of four ports each (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=100, help="one after another (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parsed = parser.parse_args()
    if not 1 <= parsed.agents <= 1000 or parsed.jobs < 1:
        parser.error("--agents: 1 to 1000; --jobs: at least 1")
    figures = {}
    for name, measure, count in (
        ("scale", measure_scale, parsed.agents),
        ("latency over loopback", measure_latency, parsed.jobs),
        ("latency on a lab", measure_lab_latency, parsed.jobs),
    ):
        if measure is measure_lab_latency and os.geteuid() != 0:
            sys.stderr.write("no latency on a lab: that needs root\n")
            continue
        # Its child processes would outlive it otherwise.
        with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-rack-") as directory:
            figures[name] = measure(Path(directory), count)
        if not parsed.json:
            print(_table(name, figures[name]), flush=True)
    if parsed.json:
        rows = {
            name: [[figure.what, figure.value, figure.unit] for figure in table_figures]
            for name, table_figures in figures.items()
        }
        print(json.dumps(rows, indent=2))


def _table(name: str, lines: list[Figure]) -> str:
    rows = (
        f"| {figure.what} | {figure.value:,.3g} {figure.unit} |"
        if figure.unit
        else f"| {figure.what} | {figure.value:,.0f} |"
        for figure in lines
    )
    return "\n".join((f"| {name} | |", "|---|---|", *rows, ""))


if __name__ == "__main__":
    main()
