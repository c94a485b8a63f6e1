"""Measure how fast profiler traces (Kineto) are read, glanced at and with every event read whole, in turns.

    python -m tests.measure.jobs.kineto [TRACE] [--copies N] [--turns N] [--check]

TRACE is a Kineto file, plain or gzip; without one a trace is made, in which ten of 14 events are of the host and one is a kernel.
Its events are repeated until the text is long enough to be timed. Times are CPU times of the process, without unpacking the file.
--check ends with 30 below 150 MB/s, or where the two readings differ.
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

from etloop.contract.base.errors import ExitCode
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import members
from etloop.workload.readers.pytorch.kineto import EVENTS_KEY, KinetoTrace, read_kineto

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


def measure(events: Sequence[object], copies: int, turns: int) -> KinetoTimes:
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


def report_text(measured: KinetoTimes) -> str:
    """Return the measurements in two lines."""
    size = f"{measured.text_bytes / 1e6:.0f} MB, {measured.events} events"
    ratio = measured.bytes_per_s / measured.whole_bytes_per_s
    return (
        f"{size}: {measured.bytes_per_s / 1e6:.0f} MB/s (bar {BAR_BYTES_PER_S / 1e6:.0f}), with every event read whole "
        f"{measured.whole_bytes_per_s / 1e6:.0f} MB/s: {ratio:.1f} times\n"
        f"both ways found {'the same' if measured.is_same else 'DIFFERENT things'}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.jobs.kineto", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "trace", nargs="?", type=Path, metavar="TRACE", help="Kineto file (default: a made one)"
    )
    parser.add_argument("--copies", type=int, default=20, help="of its events (default 20)")
    parser.add_argument("--turns", type=int, default=3, help="of each way (default 3)")
    parser.add_argument("--check", action="store_true", help="end with 30 where a bar is not met")
    parsed = parser.parse_args(arguments)
    events = events_of(parsed.trace) if parsed.trace is not None else made_events(40_000)
    measured = measure(events, parsed.copies, parsed.turns)
    sys.stdout.write(report_text(measured))
    is_met = measured.is_same and measured.bytes_per_s >= BAR_BYTES_PER_S
    return ExitCode.VERDICT_FAILED if parsed.check and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
