"""Measure the processor time of commands that answer at once: `--help`, `--version` and `lint` of a small trace.

    python -m tests.measure.startup [TRACE] [--runs N] [--check]

Each command runs in a process of its own, in turn with the others, and finds its modules compiled, as an installed command
does from its second start on. The figure is the user and system time of that process, so that other work on the machine
and waiting for the disk do not count; remaining effects of a busy machine (cold caches, a slower clock) show in the maximum.
Without TRACE a synthetic job is written to a temporary directory. --check ends with 30 when a median is not below the bar.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from tests.measure.processes import BAR_MISSED

BAR_S: Final = 0.25
"""Bar for the CPU time of each command."""
_ETLOOP: Final = (sys.executable, "-m", "etloop")


@dataclass(frozen=True, slots=True)
class StartupTimes:
    """CPU times of one command, one per run."""

    command: str
    runs_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Return the median CPU time of a run in seconds."""
        return median(self.runs_s)

    @property
    def meets_bar(self) -> bool:
        """Return whether the median is below the bar."""
        return self.median_s < BAR_S


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


def measure(trace: Path, runs: int, compiled: Path) -> tuple[StartupTimes, ...]:
    """Run every command once to have its modules compiled in `compiled`, then `runs` times in turn."""
    commands: tuple[tuple[str, ...], ...] = (("--help",), ("--version",), ("lint", str(trace)))
    for words in commands:
        processor_time_s((*_ETLOOP, *words), compiled)
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(runs):
        for command_times, words in zip(times, commands, strict=True):
            command_times.append(processor_time_s((*_ETLOOP, *words), compiled))
    return tuple(
        StartupTimes(f"etloop {words[0]}", tuple(command_times))
        for words, command_times in zip(commands, times, strict=True)
    )


def table(measured: Sequence[StartupTimes]) -> str:
    """Return the figures as lines, one per command; ends with a newline."""
    lines = [f"{'processor time':<20}{'min':>9}{'median':>9}{'max':>9}"]
    lines += [
        f"{times.command:<20}{min(times.runs_s):>7.3f} s{times.median_s:>7.3f} s{max(times.runs_s):>7.3f} s"
        for times in measured
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.measure.startup", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE", help="what is linted")
    parser.add_argument("--runs", type=int, default=15, metavar="N", help="runs of each command (default 15)")
    parser.add_argument("--check", action="store_true", help=f"end with {BAR_MISSED} when a bar is not met")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        trace = parsed.trace
        if trace is None:
            trace = Path(directory) / "job"
            subprocess.run((*_ETLOOP, "synth", str(trace)), check=True, stdout=subprocess.DEVNULL)
        measured = measure(trace, parsed.runs, Path(directory) / "compiled")
    print(table(measured), end="")
    slow_commands = [times for times in measured if not times.meets_bar]
    for times in slow_commands:
        print(f"{times.command}: the median is not below {BAR_S} s", file=sys.stderr)
    return BAR_MISSED if parsed.check and slow_commands else 0


if __name__ == "__main__":
    sys.exit(main())
