"""How fast traces are read, checked and planned: figures of one run beside each other, so that their ratio can be repeated.

    python -m tests.measure.readers [TRACE] [--files N] [--turns N] [--check]

`nodes`: the native reader compared with the official Python protobuf reader on the same files in alternating turns, both
returning every node's id, dependencies and attributes. Protobuf returns every attribute as a Python object; the native reader
returns columns of those that a replay uses and skips the rest. `job`: the time to read, lint and plan the whole trace compared
with reading its bytes from the page cache, and the peak memory, each in a process of its own.

Without TRACE a synthetic job is written to a temporary directory. --check ends with 30 when a bar is not met.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.analysis import analyse
from etloop.workload.job import build_job
from etloop.workload.lint.report import report_of
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.settings import WorkloadSettings
from tests.measure.processes import BAR_MISSED, measured_apart, peak_bytes, print_figures
from tests.support.traces.chakra_schema import OfficialMetadata, OfficialNode, decode

READER_BAR: Final = 20.0
"""Ratio of this reader's nodes per second to protobuf's."""
JOB_BAR_TIMES: Final = 10.0
"""Ratio of the time to read, lint and plan to that of reading the bytes twice ..."""
JOB_BAR_S: Final = 15.0
"""... or this many seconds, whichever is more."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Both readers on the same files, best turn of each."""

    files: int
    nodes: int
    protobuf_nodes_per_s: float
    ours_nodes_per_s: float

    @property
    def ratio(self) -> float:
        """Return the ratio of the native reader's rate to protobuf's."""
        return self.ours_nodes_per_s / self.protobuf_nodes_per_s


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A whole trace, from files to programs."""

    ranks: int
    nodes: int
    trace_bytes: int
    bytes_twice_s: float
    read_s: float
    lint_s: float
    plan_s: float
    programs: int
    start_peak_bytes: int
    """Peak memory of the process before it read anything: interpreter and modules."""
    read_peak_bytes: int
    peak_bytes: int

    @property
    def total_s(self) -> float:
        """Return the seconds to read, lint and plan."""
        return self.read_s + self.lint_s + self.plan_s

    @property
    def limit_s(self) -> float:
        """Return the bar in seconds."""
        return max(JOB_BAR_TIMES * self.bytes_twice_s, JOB_BAR_S)


def read_with_protobuf(raw: bytes) -> int:
    """Read every node of a file by the official runtime; return their number."""
    offset, nodes, size = 0, -1, len(raw)
    while offset < size:
        length, shift = 0, 0
        while True:
            byte = raw[offset]
            offset += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message: Any = (OfficialMetadata if nodes < 0 else OfficialNode).FromString(
            raw[offset : offset + length]
        )
        offset += length
        nodes += 1
        if nodes:
            _look_at(message)
    return nodes


def _look_at(node: Any) -> tuple[Any, ...]:
    attributes = {}
    for attribute in node.attr:
        case = attribute.WhichOneof("value")
        if case is not None:
            value = getattr(attribute, case)
            attributes[attribute.name] = list(value.values) if case.endswith("_list") else value
    return node.id, node.name, node.type, list(node.data_deps), list(node.ctrl_deps), attributes


def read_with_ours(raw: bytes) -> int:
    """Read every node of a file as columns; return their number."""
    columns = decode(raw)
    column_values = [getattr(columns, name) for name in dir(columns) if not name.startswith("_")]
    assert column_values
    return len(columns.node_id)


def compare_readers(paths: Sequence[Path], turns: int) -> Readers:
    """Run both readers in alternating turns over files that are in memory, so that disk time does not count."""
    contents = [path.read_bytes() for path in paths]
    best: dict[Callable[[bytes], int], float] = {read_with_protobuf: 0.0, read_with_ours: 0.0}
    nodes = 0
    for _ in range(turns):
        for reader, fastest in best.items():
            began = time.perf_counter()
            nodes = sum(map(reader, contents))
            best[reader] = max(fastest, nodes / (time.perf_counter() - began))
    return Readers(len(paths), nodes, best[read_with_protobuf], best[read_with_ours])


def measure_job(directory: Path) -> JobFigures:
    """Read, lint and plan in this process, and return the figures; peak memory is that of this process."""
    start_peak = peak_bytes()
    paths = sorted(directory.glob("*.et"))
    began = time.perf_counter()
    for _ in range(2):
        for path in paths:
            path.read_bytes()
    bytes_twice_s = time.perf_counter() - began
    settings = WorkloadSettings()
    began = time.perf_counter()
    trace = read_trace(directory)
    read_s, read_peak = time.perf_counter() - began, peak_bytes()
    began = time.perf_counter()
    report = report_of(analyse(trace, settings))
    lint_s = time.perf_counter() - began
    began = time.perf_counter()
    job = build_job(trace, settings)
    plan_s = time.perf_counter() - began
    return JobFigures(
        ranks=report.ranks,
        nodes=report.nodes,
        trace_bytes=sum(path.stat().st_size for path in paths),
        bytes_twice_s=bytes_twice_s,
        read_s=read_s,
        lint_s=lint_s,
        plan_s=plan_s,
        programs=len(job.programs),
        start_peak_bytes=start_peak,
        read_peak_bytes=read_peak,
        peak_bytes=peak_bytes(),
    )


def report_text(readers: Readers, job: JobFigures) -> str:
    """Return both figures in words, with their bars."""
    return (
        f"nodes: {readers.nodes} in {readers.files} files; protobuf {readers.protobuf_nodes_per_s:,.0f}/s, "
        f"ours {readers.ours_nodes_per_s:,.0f}/s: {readers.ratio:.1f} times (bar {READER_BAR:.0f})\n"
        f"job:   {job.ranks} ranks, {job.nodes} nodes, {job.trace_bytes / 1e6:.0f} MB; read {job.read_s:.2f} s, "
        f"lint {job.lint_s:.2f} s, plan {job.plan_s:.2f} s: {job.total_s:.2f} s in all, bytes alone twice "
        f"{job.bytes_twice_s:.2f} s (limit {job.limit_s:.1f} s)\n"
        f"memory: {job.start_peak_bytes / 1e6:.0f} MB before, {job.read_peak_bytes / 1e6:.0f} MB after reading, "
        f"{job.peak_bytes / 1e6:.0f} MB at most; {job.programs} distinct programs\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.readers", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE", help="directory of .et files")
    parser.add_argument("--files", type=int, default=4, help="files that both readers read (default 4)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each reader (default 3)")
    parser.add_argument("--check", action="store_true", help=f"end with {BAR_MISSED} when a bar is not met")
    parser.add_argument("--job-only", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as work_directory:
        directory = parsed.trace
        if directory is None:
            directory = Path(work_directory)
            job = synthesize(SyntheticSpec(tensor_parallel=4, layers_per_stage=8, micro_batches=4))
            write_trace(directory, job.ranks, job.groups)
        if not any(directory.glob("*.et")):
            parser.error(
                f"{directory} has no .et files: give a directory of them, unpacked and not compressed"
            )
        if parsed.job_only:
            print_figures(measure_job(directory))
            return 0
        readers = compare_readers(sorted(directory.glob("*.et"))[: parsed.files], parsed.turns)
        # In a fresh process: peak memory never goes down in this one.
        figures = measured_apart(JobFigures, "tests.measure.readers", str(directory), "--job-only")
    sys.stdout.write(report_text(readers, figures))
    met = readers.ratio >= READER_BAR and figures.total_s <= figures.limit_s
    return BAR_MISSED if parsed.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
