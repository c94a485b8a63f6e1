"""Measure how fast profiler traces (Kineto) are read, glanced at and with every event read whole, in turns.

    python -m tests.measure.jobs.kineto [TRACE] [--copies N] [--turns N] [--check]

TRACE is a Kineto file, plain or gzip; without one a trace is made, in which ten of 14 events are of the host and one is a kernel.
Its events are repeated until the text is long enough to be timed. Times are CPU times of the process, without unpacking the file.
Bars: 150 MB/s, and both readings agree.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import members
from etloop.workload.readers.pytorch.kineto import EVENTS_KEY, KinetoTrace, read_kineto
from tests.measure.harness import Bar, Options, Row, Values, measure, table

BAR_BYTES_PER_S: Final = 150e6
_PIECE_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class KinetoTimes:
    """CPU times of one text."""

    text_bytes: int
    events: int
    glanced_s: tuple[float, ...]
    whole_s: tuple[float, ...]
    is_same: bool
    """True if both ways of reading gave the same result."""

    @property
    def bytes_per_s(self) -> float:
        """Return the rate of the reader in use, by the median turn."""
        return self.text_bytes / median(self.glanced_s)

    @property
    def whole_bytes_per_s(self) -> float:
        """Return the rate with every event parsed completely, by the median turn."""
        return self.text_bytes / median(self.whole_s)


def made_events(count: int) -> list[dict[str, object]]:
    """Return events of a made trace, in about the shares of a training step's profile."""
    events: list[dict[str, object]] = []
    for number in range(count):
        kind = number % 14
        event: dict[str, object] = {"ph": "X", "pid": 7, "tid": 9, "ts": 1e12 + number + 0.125, "dur": 3.5}
        if kind == 0:
            arguments = {"External id": number, "stream": 7, "correlation": number, "grid": [512, 1, 1]}
            event |= {
                "cat": "kernel",
                "name": "void at::native::elementwise_kernel<4, float>(int)",
                "args": arguments,
            }
        elif kind < 4:
            arguments = {"External id": number, "cbid": 211, "correlation": number}
            event |= {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": arguments}
        elif kind < 9:
            arguments = {"External id": number, "Record function id": number, "Ev Idx": number}
            event |= {"cat": "cpu_op", "name": "aten::add_", "args": arguments}
        else:
            event |= {
                "cat": "python_function",
                "name": "torch/nn/modules/module.py(1511): _call_impl",
                "args": {},
            }
        events.append(event)
    return events


def kineto_times(events: Sequence[object], copies: int, turns: int) -> KinetoTimes:
    """Return the times of a text that repeats the events `copies` times."""
    events_text = ",".join(map(json.dumps, events))
    text = f'{{"{EVENTS_KEY}":[{",".join([events_text] * copies)}]}}'.encode()
    times: dict[bool, list[float]] = {True: [], False: []}
    traces: dict[bool, KinetoTrace] = {}
    for _ in range(turns):
        for glances in (True, False):
            begun_s = time.process_time()
            traces[glances] = read_kineto(_pieces(text), glances=glances)
            times[glances].append(time.process_time() - begun_s)
    is_same = traces[True] == traces[False]
    return KinetoTimes(len(text), len(events) * copies, tuple(times[True]), tuple(times[False]), is_same)


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[begin : begin + _PIECE_BYTES] for begin in range(0, len(text), _PIECE_BYTES))


def events_of(path: Path) -> list[object]:
    """Return the events of a file."""
    content = path.read_bytes()
    content = gzip.decompress(content) if content.startswith(_GZIP) else content
    key = frozenset({EVENTS_KEY})
    return [item.value for item in members((content,), key, bare=EVENTS_KEY) if item.key == EVENTS_KEY]


COLUMNS: Final = table("MB|>6.0f; events|>9; MB/s|>7.0f; whole MB/s|>10.0f; times|>6.1f; results|>9")
OPTIONS: Final[Options] = {
    "trace": {"nargs": "?", "type": Path, "metavar": "TRACE", "help": "Kineto file (default: a made one)"},
    "--copies": {"type": int, "default": 20, "help": "copies of its events (default 20)"},
    "--turns": {"type": int, "default": 3, "help": "turns of each way (default 3)"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the rates of both ways to read."""
    events = events_of(chosen.trace) if chosen.trace is not None else made_events(40_000)
    times = kineto_times(events, chosen.copies, chosen.turns)
    rates = (
        times.bytes_per_s / 1e6,
        times.whole_bytes_per_s / 1e6,
        times.bytes_per_s / times.whole_bytes_per_s,
    )
    yield times.text_bytes / 1e6, times.events, *rates, "the same" if times.is_same else "DIFFER"


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar of the rate, and whether both ways agree."""
    (row,) = measured
    return [
        (f"{row['MB/s']:.0f} MB/s, bar {BAR_BYTES_PER_S / 1e6:.0f}", row["MB/s"] >= BAR_BYTES_PER_S / 1e6),
        ("both ways give the same result", row["results"] == "the same"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
