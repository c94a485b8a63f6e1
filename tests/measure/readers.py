"""How fast traces are read, checked and planned: figures of one run beside each other, so that their ratio can be repeated.

    python -m tests.measure.readers [TRACE] [--files N] [--turns N] [--check]

`nodes`: the native reader compared with the official Python protobuf reader on the same files in alternating turns, both
returning every node's id, dependencies and attributes. Protobuf returns every attribute as a Python object; the native reader
returns columns of those that a replay uses and skips the rest. `job`: the time to read, lint and plan the whole trace compared
with reading its bytes from the page cache, and the peak memory, each in a process of its own.

Without TRACE a synthetic job is written to a temporary directory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
from tests.measure.harness import (
    Bar,
    Options,
    Row,
    UsageError,
    Values,
    alternate,
    in_fresh_process,
    measure,
    peak_bytes,
    table,
)
from tests.support.traces.chakra_schema import OfficialMetadata, OfficialNode, decode

RATIO: Final = "ratio of the rates"
TOTAL: Final = "s to read, lint and plan"
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

    def nodes_and_rate(reader: Callable[[bytes], int]) -> tuple[int, float]:
        began = time.perf_counter()
        nodes = sum(map(reader, contents))
        return nodes, nodes / (time.perf_counter() - began)

    ways = {
        "protobuf": partial(nodes_and_rate, read_with_protobuf),
        "ours": partial(nodes_and_rate, read_with_ours),
    }
    turns_by_way = alternate(ways, turns)
    best = {name: max(rate for _, rate in results) for name, results in turns_by_way.items()}
    return Readers(len(paths), turns_by_way["ours"][-1][0], best["protobuf"], best["ours"])


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


COLUMNS: Final = table("figure|40s; value|>12,.1f; bar|>8.1f")
OPTIONS: Final[Options] = {
    "trace": {"nargs": "?", "type": Path, "metavar": "TRACE", "help": "directory of .et files"},
    "--files": {"type": int, "default": 4, "help": "files that both readers read (default 4)"},
    "--turns": {"type": int, "default": 3, "help": "turns of each reader (default 3)"},
}


def figures_of(readers: Readers, job: JobFigures) -> Iterator[Values]:
    """Yield the rows of both measurements."""
    yield f"nodes/s by protobuf, {readers.nodes} nodes", readers.protobuf_nodes_per_s, None
    yield f"nodes/s by this reader, {readers.files} files", readers.ours_nodes_per_s, None
    yield RATIO, readers.ratio, READER_BAR
    yield f"MB of the trace, {job.ranks} ranks, {job.nodes} nodes", job.trace_bytes / 1e6, None
    yield "s to read its bytes twice", job.bytes_twice_s, None
    yield from (
        ("s to read", job.read_s, None),
        ("s to lint", job.lint_s, None),
        ("s to plan", job.plan_s, None),
    )
    yield TOTAL, job.total_s, job.limit_s
    yield "MB of memory before", job.start_peak_bytes / 1e6, None
    yield "MB of memory after reading", job.read_peak_bytes / 1e6, None
    yield f"MB of memory at most, {job.programs} programs", job.peak_bytes / 1e6, None


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Measure the readers and the job; yield their figures."""
    with tempfile.TemporaryDirectory() as work_directory:
        directory = chosen.trace or Path(work_directory)
        if chosen.trace is None:
            job = synthesize(SyntheticSpec(tensor_parallel=4, layers_per_stage=8, micro_batches=4))
            write_trace(directory, job.ranks, job.groups)
        paths = sorted(directory.glob("*.et"))
        if not paths:
            raise UsageError(
                f"{directory} has no .et files: give a directory of them, unpacked and not compressed"
            )
        readers = compare_readers(paths[: chosen.files], chosen.turns)
        # In a fresh process: peak memory never goes down in this one.
        yield from figures_of(readers, in_fresh_process(measure_job, directory))


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bars of the ratio and of the time."""
    figures = {row["figure"]: (row["value"], row["bar"]) for row in measured}
    (ratio, least), (total_s, limit_s) = figures[RATIO], figures[TOTAL]
    return [
        (f"{ratio:.1f} times as fast as protobuf, bar {least:.0f}", ratio >= least),
        (f"{total_s:.2f} s to read, lint and plan, bar {limit_s:.1f} s", total_s <= limit_s),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
