"""What a training job of many ranks costs on paper: `etloop synth`, `lint`, `plan` and `twin --level flow`, one after another.

    python -m tests.measure.jobs.whole_job [--ranks 64] [--summary] [--check]

Ranks are in tensor-parallel groups of eight on one host, with one port at 400 Gb/s per host behind one switch. Time is wall
time, memory the peak of the command. --check ends with 30 when a command fails, all together take more than ten minutes, or one
uses more than 4 GB; the bar is for 4,096 ranks. With --summary the commands are `etloop synth` and `plan --summary`, and the bar
is two minutes for 16,384 ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ExitCode

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of all commands; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64, help="a multiple of 8 from 16 to 8192 (default 64)")
    parser.add_argument("--summary", action="store_true", help="on paper alone, of up to 16384 ranks")
    parser.add_argument("--check", action="store_true", help="end with 30 when a bar is not met")
    chosen = parser.parse_args(arguments)
    most = MOST_SUMMARISED if chosen.summary else MOST_RANKS
    if chosen.ranks % RANKS_OF_A_HOST or not 2 * RANKS_OF_A_HOST <= chosen.ranks <= most:
        parser.error(f"--ranks: {chosen.ranks}, expected a multiple of 8 from 16 to {most}")
    bar_s = SUMMARY_BAR_S if chosen.summary else BAR_S
    total_s, most_bytes, failed = 0.0, 0, False
    with tempfile.TemporaryDirectory() as work_directory:
        write_inputs(Path(work_directory), chosen.ranks)
        print(f"{'':8s} {'ranks':>5} {'wall s':>8} {'MiB':>6}")
        for words in commands(chosen.ranks, summary=chosen.summary):
            code, lasted_s, held_bytes = timed(Path(work_directory), words)
            total_s, most_bytes, failed = total_s + lasted_s, max(most_bytes, held_bytes), failed or code != 0
            print(f"{words[0]:8s} {chosen.ranks:>5} {lasted_s:>8.1f} {held_bytes >> 20:>6}", flush=True)
            if code != 0:
                print(f"etloop {' '.join(words)} ended with {code}", file=sys.stderr)
                break
    print(f"together {total_s:.1f} s (bar {bar_s}), at most {most_bytes >> 20} MiB (bar {BAR_BYTES >> 20})")
    met = not failed and total_s <= bar_s and most_bytes <= BAR_BYTES
    return 0 if met or not chosen.check else ExitCode.VERDICT_FAILED


if __name__ == "__main__":
    sys.exit(main())
