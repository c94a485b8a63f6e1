"""Measure the processor time of commands that answer at once: `--help`, `--version` and `lint` of a small trace.

    python -m tests.measure.startup [TRACE] [--runs N] [--check]

Each command runs in a process of its own, in turn with the others, and finds its modules compiled, as an installed command
does from its second start on. The figure is the user and system time of that process, so that other work on the machine
and waiting for the disk do not count; remaining effects of a busy machine (cold caches, a slower clock) show in the maximum.
Without TRACE a synthetic job is written to a temporary directory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from tests.measure.harness import Bar, Options, Row, Values, alternate, measure, table

BAR_S: Final = 0.25
"""Bar for the CPU time of each command."""
_ETLOOP: Final = (sys.executable, "-m", "etloop")


def processor_time_s(command: Sequence[str], compiled: Path) -> float:
    """Return the user and system time of a process that runs `command` to its end.

    Compiled modules are found in `compiled`, and put there. Raises `CalledProcessError` if it ends with another code than 0.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


def startup_times(trace: Path, runs: int, compiled: Path) -> dict[str, list[float]]:
    """Run every command once to have its modules compiled in `compiled`, then `runs` times in turn; return CPU seconds."""
    commands: tuple[tuple[str, ...], ...] = (("--help",), ("--version",), ("lint", str(trace)))
    ways = {
        f"etloop {words[0]}": partial(processor_time_s, (*_ETLOOP, *words), compiled) for words in commands
    }
    alternate(ways, 1)
    return alternate(ways, runs)


COLUMNS: Final = table("processor time|18s; min s|>8.3f; median s|>8.3f; max s|>8.3f")
OPTIONS: Final[Options] = {
    "trace": {"nargs": "?", "type": Path, "metavar": "TRACE", "help": "trace that is linted"},
    "--runs": {"type": int, "default": 15, "metavar": "N", "help": "runs of each command (default 15)"},
}


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield the CPU times of every command."""
    with tempfile.TemporaryDirectory() as directory:
        trace = chosen.trace or Path(directory) / "job"
        if chosen.trace is None:
            subprocess.run((*_ETLOOP, "synth", str(trace)), check=True, stdout=subprocess.DEVNULL)
        for command, runs_s in startup_times(trace, chosen.runs, Path(directory) / "compiled").items():
            yield command, min(runs_s), median(runs_s), max(runs_s)


def bars(measured: Sequence[Row]) -> list[Bar]:
    """Return the bar of each command."""
    return [(f"{row['processor time']}: median, bar {BAR_S} s", row["median s"] < BAR_S) for row in measured]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
