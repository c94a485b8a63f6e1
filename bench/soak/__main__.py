"""Does a controller grow over many jobs? `python -m etloop.bench.soak --runs 200`, or `--all-kinds --time 2h`.

Starts Mosquitto, `etloop controller` and agents as processes, submits one job after another over the broker, and looks at the
processes after each. `--all-kinds` takes jobs of all kinds (`kinds`) on a lab, and beside them runs the same kinds in virtual
time, over and over in one process; it needs root. What grew is decided in `judged`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from etloop.bench.soak.judged import LEAST_RUNS, soak_verdicts
from etloop.bench.soak.rack_jobs import Length, Soaked, soak_all, soak_small
from etloop.contract.base.units import QuantityError, parse_duration_ns
from etloop.runtime.stop_signals import terminate_as_interrupt

_MOST_RUNS: Final = 1_000_000
_BETWEEN_LINES_S: Final = 60.0


class _Notes:
    """Says now and then how far it is, and keeps every sample in a file where one is named."""

    def __init__(self, samples: Path | None) -> None:
        self._samples = samples
        self._began_s = time.monotonic()
        self._said_s = -_BETWEEN_LINES_S

    def __call__(self, soaked: Soaked) -> None:
        at_s = time.monotonic() - self._began_s
        jobs = len(soaked.samples)
        if sys.stderr.isatty() or at_s - self._said_s >= _BETWEEN_LINES_S:
            self._said_s = at_s
            sys.stderr.write(f"{jobs} jobs and {soaked.twins} twins after {at_s:.0f} s\n")
        if self._samples is not None:
            line = {"at_s": round(at_s, 1), "twins": soaked.twins, "mishaps": soaked.mishaps} | asdict(
                soaked.samples[-1]
            )
            with self._samples.open("a") as file:
                file.write(json.dumps(line) + "\n")


def main() -> None:
    """Prints the table, as Markdown or JSON, and ends with 1 if anything grows or a job ended otherwise than meant."""
    parser = argparse.ArgumentParser(description="Does a controller grow over many jobs?")
    parser.add_argument("--runs", type=int, help="how many jobs (default: 200 without --time)")
    parser.add_argument("--time", help="how long, such as 2h")
    parser.add_argument(
        "--all-kinds", action="store_true", help="jobs of all kinds on a lab, and twins; as root"
    )
    parser.add_argument(
        "--samples", type=Path, metavar="FILE", help="keep what was seen after each job, as JSON lines"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parsed = parser.parse_args()
    length = _length_of(parser, parsed)
    if parsed.all_kinds and os.geteuid() != 0:
        parser.error("--all-kinds: needs root, for the lab's namespaces")
    # What it started would outlive it otherwise.
    with terminate_as_interrupt(), tempfile.TemporaryDirectory(prefix="etloop-soak-") as directory:
        soak = soak_all if parsed.all_kinds else soak_small
        soaked = soak(Path(directory), length, _Notes(parsed.samples))
    if len(soaked.samples) < LEAST_RUNS:
        raise SystemExit(f"{len(soaked.samples)} jobs are too few to judge")
    verdicts = soak_verdicts(soaked.samples)
    if parsed.json:
        figures = list(map(asdict, verdicts))
        whole = {"jobs": soaked.jobs, "twins": soaked.twins, "mishaps": soaked.mishaps, "figures": figures}
        print(json.dumps(whole, indent=2))
    else:
        print(f"{len(soaked.samples)} jobs, {soaked.twins} twins\n")
        print("| figure | after the warm-up | after the last job | |\n|---|---|---|---|")
        for v in verdicts:
            print(f"| {v.figure} | {v.first} | {v.last} | {'GROWS: ' if v.grows else ''}{v.detail} |")
        for mishap in soaked.mishaps:
            print(f"MISHAP: {mishap}")
    raise SystemExit(bool(soaked.mishaps) or any(verdict.grows for verdict in verdicts))


def _length_of(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Length:
    """How long it goes on; ends the program where that is no length."""
    if parsed.runs is not None and not LEAST_RUNS <= parsed.runs <= _MOST_RUNS:
        parser.error(
            f"--runs: at least {LEAST_RUNS}, or there is nothing to compare, and {_MOST_RUNS} at most"
        )
    if parsed.time is None:
        return Length(200 if parsed.runs is None else parsed.runs, float("inf"))
    try:
        time_ns = parse_duration_ns(parsed.time)
    except QuantityError as error:
        parser.error(f"--time: {error}")
    return Length(_MOST_RUNS if parsed.runs is None else parsed.runs, time_ns / 1e9)


if __name__ == "__main__":
    main()
