"""What a training job of many ranks costs on paper: `etloop synth`, `lint`, `plan` and `twin --level flow`, one after another.

    python -m tests.measure.jobs.whole_job [--ranks 64] [--summary] [--check]

Ranks are in tensor-parallel groups of eight on one host, with one port at 400 Gb/s per host behind one switch. Time is wall
time, memory the peak of the command. Bars for 4,096 ranks: all together take at most ten minutes, and
none uses more than 4 GB. With --summary the commands are `etloop synth` and `plan --summary`, and the bar
is two minutes for 16,384 ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table

RANKS_OF_A_HOST: Final = 8
MOST_RANKS: Final = 8192
"""Most ranks, because a switch has at most 1,024 ports."""
MOST_SUMMARISED: Final = 16384
BAR_S: Final = 600
SUMMARY_BAR_S: Final = 120
BAR_BYTES: Final = 4 << 30
_ETLOOP: Final = (sys.executable, "-m", "etloop")


def write_inputs(directory: Path, ranks: int) -> None:
    """Write scenario, rig and topology."""
    names = [f"p{host}" for host in range(ranks // RANKS_OF_A_HOST)]
    ports = "".join(
        f"      - {{name: {name}, addresses: 10.{host >> 8}.{host & 255}.1, link: 400Gbps}}\n"
        for host, name in enumerate(names)
    )
    attached = ", ".join(f"a/{name}" for name in names)
    (directory / "scenario.yaml").write_text("workload: {trace: job}\nmapping: {ranks_per_host: 8}\n")
    (directory / "rig.yaml").write_text(f"agents:\n  - name: a\n    ports:\n{ports}")
    (directory / "topology.yaml").write_text(f"single: {{ports: [{attached}], rate: 400Gbps}}\n")


def commands(ranks: int, *, summary: bool = False) -> tuple[tuple[str, ...], ...]:
    """Return the command lines, in their order; with `summary`, only those that it needs."""
    shape = ("--tp", "8", "--dp", str(ranks // RANKS_OF_A_HOST), "--pp", "1", "--layers", "1")
    planned = ("scenario.yaml", "--rig", "rig.yaml")
    if summary:
        return ("synth", "job", *shape), ("plan", *planned, "--summary")
    return (
        ("synth", "job", *shape),
        ("lint", "job"),
        ("plan", *planned),
        ("twin", *planned, "--topology", "topology.yaml", "--level", "flow"),
    )


def timed(directory: Path, words: tuple[str, ...]) -> tuple[int, float, int]:
    """Run a command; return its exit code, its wall time in seconds and its peak memory in bytes."""
    begin_s = time.monotonic()
    child = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", 'cd "$1" && shift && exec "$@" >/dev/null', "sh", str(directory), *_ETLOOP, *words],
        os.environ,
    )
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - begin_s, usage.ru_maxrss * 1024


COLUMNS: Final = table("|8s; ranks|>5; wall s|>8.1f; MiB|>6; exit|>5")
OPTIONS: Final[Options] = {
    "--ranks": {"type": int, "default": 64, "help": "a multiple of 8 from 16 to 8192 (default 64)"},
    "--summary": {"action": "store_true", "help": "plan a summary only, of up to 16384 ranks"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the cost of every command, up to the first that fails."""
    most = MOST_SUMMARISED if chosen.summary else MOST_RANKS
    if chosen.ranks % RANKS_OF_A_HOST or not 2 * RANKS_OF_A_HOST <= chosen.ranks <= most:
        raise UsageError(f"--ranks: {chosen.ranks}, expected a multiple of 8 from 16 to {most}")
    with tempfile.TemporaryDirectory() as work_directory:
        write_inputs(Path(work_directory), chosen.ranks)
        for words in commands(chosen.ranks, summary=chosen.summary):
            code, lasted_s, held_bytes = timed(Path(work_directory), words)
            yield words[0], chosen.ranks, lasted_s, held_bytes >> 20, code
            if code != 0:
                break


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bars of time and memory, and whether every command passed."""
    total_s, most_mib = sum(row["wall s"] for row in measured), max(row["MiB"] for row in measured)
    bar_s = BAR_S if "lint" in {row[""] for row in measured} else SUMMARY_BAR_S
    met = total_s <= bar_s and most_mib <= BAR_BYTES >> 20 and all(row["exit"] == 0 for row in measured)
    return [(f"together {total_s:.1f} s (bar {bar_s}), at most {most_mib} MiB (bar {BAR_BYTES >> 20})", met)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
