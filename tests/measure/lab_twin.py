"""The lab beside its twin: `python -m tests.measure.lab_twin [--json] [--check]`, as root.

The same scenario, rig and topology in both.

Jobs at rates that the soft switch holds anywhere: incasts that are paused, marked or both, one to all, rings, all with all.
Held against each other are job completion (10 %), marks and pauses (20 %, and a few of either).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from etloop.cli.main import main as etloop
from etloop.contract.base.errors import EtloopError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.lab import LabCounters
from etloop.lab.client import lab_counters, lab_down, lab_up
from etloop.lab.plan import plan_lab, rig_text
from etloop.lab.request import LabOrder
from etloop.results.text.layout import align
from etloop.traffic.topology.topology_file import parse_topology
from tests.measure.harness import BAR_MISSED
from tests.support.ports import free_port

JCT_PERCENT: Final = 10
COUNT_PERCENT: Final = 20
FEW: Final = 20
"""Difference in marks or pause frames that is allowed whatever their number."""
ATTEMPTS: Final = 3
"""Attempts of a run, because a busy machine may abort it."""
STAR: Final = """\
single:
  rate: 100Mbps
  ports: [a/p0, b/p0, c/p0, d/p0]
  switch: {SWITCH}
"""
LOSSLESS: Final = STAR.replace("SWITCH", "preset: lossless")
TWO_SPINES: Final = """\
leaf_spine:
  leaves: [{ports: [a/p0, b/p0]}, {ports: [c/p0, d/p0]}]
  spines: 2
  rate: 100Mbps
"""
SCENARIO: Final = """\
workload: {trace: trace}
mapping: {ranks_per_host: 1, placement: round_robin}
transport: {timeout_floor: 500ms, timeout: 4s, cc: {algorithm: ALGORITHM}}
limits: {gather_timeout: 60s}
"""


@dataclass(frozen=True, slots=True)
class LabJob:
    """One scenario on one topology."""

    name: str
    topology: str
    collective: str
    message: str
    algorithm: str


JOBS: Final = (
    LabJob(
        "incast, paused, no rate control",
        STAR.replace("SWITCH", "buffer: 300KB, queues: {3: {ecn: {enabled: false}}}"),
        "gather",
        "2MiB",
        "none",
    ),
    LabJob("incast, marked and paused, DCQCN", LOSSLESS, "gather", "2MiB", "dcqcn"),
    LabJob("incast, marked, DCTCP", LOSSLESS, "gather", "2MiB", "dctcp"),
    LabJob("one to all", LOSSLESS, "scatter", "2MiB", "none"),
    LabJob("ring", LOSSLESS, "all_reduce", "2MiB", "none"),
    LabJob("all with all, DCQCN", LOSSLESS, "all_to_all", "4MiB", "dcqcn"),
    LabJob("ring over two spines", TWO_SPINES, "all_reduce", "2MiB", "none"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of a job on one side."""

    jct_ns: int
    marks: int
    pauses: int
    drops: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Figures of a job in the lab and in the twin."""

    name: str
    lab: Outcome
    twin: Outcome
    overload_frames: int
    late_frames: int
    retransmitted_packets: int
    attempts: int

    def holds(self) -> bool:
        """Return whether the bars are met."""
        difference_ns = abs(self.lab.jct_ns - self.twin.jct_ns)
        return difference_ns * 100 <= self.twin.jct_ns * JCT_PERCENT and all(
            abs(lab - twin) <= max(FEW, twin * COUNT_PERCENT / 100)
            for lab, twin in ((self.lab.marks, self.twin.marks), (self.lab.pauses, self.twin.pauses))
        )


def run_job(job: LabJob) -> Pair:
    """Run one job in the lab and in the twin. Raises `EtloopError` if no lab can be made or every attempt is aborted."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        bind = f"tcp://127.0.0.1:{free_port()}"
        topology = parse_topology(job.topology.encode(), "topology.yaml")
        Path("topology.yaml").write_text(job.topology)
        Path("scenario.yaml").write_text(SCENARIO.replace("ALGORITHM", job.algorithm))
        Path("rig.yaml").write_text(rig_text(plan_lab(topology, bind=bind), topology="topology.yaml"))
        sizes = f"{job.message}-{job.message}"
        ranks = str(len(topology.attachments))
        _etloop("synth", "trace", "--sweep", job.collective, "--sizes", sizes, "--ranks", ranks)
        twin = json.loads(_etloop("twin", "scenario.yaml", "--rig", "rig.yaml", "--json"))
        lab = f"twin-{os.getpid()}"
        for attempt in range(1, ATTEMPTS + 1):
            order = LabOrder(lab, job.topology, "topology.yaml", bind=bind, agents=True, measure=False)
            lab_up(replace(order, owner=os.getpid()))
            try:
                to = ("--rig", "rig.yaml", "--out", f"run{attempt}")
                _etloop("run", "scenario.yaml", *to, "--no-twin", "--no-progress")
                counters = lab_counters(lab)
            except EtloopError:
                if attempt == ATTEMPTS:
                    raise
                continue
            finally:
                lab_down(lab)
            summary = json.loads(Path(f"run{attempt}", "summary.json").read_text())
            if summary["state"] == "done":
                return _pair(job, summary, counters, twin, attempt)
        raise EtloopError(f"{job.name}: {ATTEMPTS} runs were aborted; the last: {summary['reason']}")


def _pair(
    job: LabJob, summary: dict[str, Any], counters: LabCounters, twin: dict[str, Any], attempts: int
) -> Pair:
    rows = [port.counters for switch in counters.switches for port in switch.ports]
    lab = Outcome(
        summary["job"]["jct_ns"],
        marks=sum(int(row["queues"]["ecn_marked_packets"].sum()) for row in rows),
        pauses=sum(int(row["pfc_tx"].sum()) for row in rows),
        drops=sum(int(row[lanes]["dropped_packets"].sum()) for row in rows for lanes in ("queues", "groups")),
    )
    switch_totals = twin["twin"]["switches"]
    expected = Outcome(
        twin["summary"]["job"]["jct_ns"],
        switch_totals["ecn_marked_packets"],
        switch_totals["pfc_tx_frames"],
        switch_totals["dropped_packets"],
    )
    soft = counters.soft_switch
    resent = int(summary["transport"].get("retransmitted_packets", 0))
    return Pair(job.name, lab, expected, soft.overload_frames, soft.late_frames, resent, attempts)


def _etloop(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        code = etloop(words)
    if code != 0:
        raise EtloopError(f"etloop {' '.join(words)}: {err.getvalue().strip()[-500:]}")
    return out.getvalue()


def table(pairs: list[Pair]) -> str:
    """Return both sides of every job as a text table."""
    both = ("marks lab", "twin", "pauses lab", "twin", "drops lab", "twin")
    rows: list[tuple[str, ...]] = [
        ("job", "JCT lab", "twin (ms)", "apart", *both, "overload", "late", "resent", "bars")
    ]
    for pair in pairs:
        difference_percent = 100 * (pair.lab.jct_ns - pair.twin.jct_ns) / pair.twin.jct_ns
        lab, twin = pair.lab, pair.twin
        counts = (lab.marks, twin.marks, lab.pauses, twin.pauses, lab.drops, twin.drops)
        soft_switch_counts = (pair.overload_frames, pair.late_frames, pair.retransmitted_packets)
        times = (f"{lab.jct_ns / 1e6:.1f}", f"{twin.jct_ns / 1e6:.1f}", f"{difference_percent:+.1f} %")
        rows.append(
            (
                pair.name,
                *times,
                *map(str, (*counts, *soft_switch_counts)),
                "met" if pair.holds() else "NOT MET",
            )
        )
    lines = [f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f}"]
    lines += align(rows, ())
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the jobs and print the results; return 30 if --check finds a missed bar, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--check", action="store_true", help="exit with 30 when a bar is not met")
    parser.add_argument("jobs", nargs="*", type=int, help=f"numbers of jobs, 1 to {len(JOBS)} (default all)")
    options = parser.parse_args()
    jobs = [JOBS[number - 1] for number in options.jobs] or JOBS
    pairs: list[Pair] = []
    for job in jobs:
        try:
            pairs.append(run_job(job))
        except EtloopError as error:
            print(f"{job.name}: {error}", file=sys.stderr)
    print(
        json.dumps([asdict(pair) for pair in pairs], indent=2) + "\n" if options.json else table(pairs),
        end="",
    )
    met = len(pairs) == len(jobs) and all(pair.holds() for pair in pairs)
    return BAR_MISSED if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
