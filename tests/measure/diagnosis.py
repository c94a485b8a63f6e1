"""Whether the first finding of a run names the planted cause and its place, and whether healthy runs have none.

    python -m tests.measure.diagnosis [--seeds 10] [--healthy 20] [--only WORD] [--jobs N] [--keep DIR] [--check]

`planting` draws the cases: a cause at a place and with a value that its seed draws, or a healthy run of one of ten shapes of
jobs. Runs whose load did not exercise the cause count for no row. Bars: the cause is listed first, at the right place, in 95 %
of the runs; at most one finding of a fault in 100 healthy runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import RigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Finding, FindingKind, Role
from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table
from tests.measure.planting.cases import Case, is_found, is_listed_first
from tests.measure.planting.exercise import is_exercised
from tests.measure.planting.fabric import IN_LAB, IN_TWIN
from tests.measure.planting.healthy import JOBS, healthy_case
from tests.measure.planting.plants import IN_LABS, PLANTS, planted_case
from tests.measure.planting.run_case import RUN, diagnose_in_lab, diagnose_in_twin

FIRST_SHARE: Final = 0.95
FALSE_SHARE: Final = 0.01
HEALTHY: Final = "healthy "


@dataclass(frozen=True, slots=True)
class Answer:
    """What the diagnosis of one case says."""

    name: str
    seed: int
    planted: str
    exercised: bool = True
    is_first: bool = False
    is_found: bool = False
    first: str = "none"
    """Kind and place of the first finding."""
    false: tuple[str, ...] = ()
    """Sentences of findings that a healthy run must not have."""
    failure: str = ""


def is_false(finding: Finding) -> bool:
    """Return whether a finding must not be in a healthy run: a fault, or a straggler among equal ranks."""
    return finding.effect_of is None and (
        finding.role is Role.FAULT or finding.kind in (FindingKind.STRAGGLER, FindingKind.EMULATOR_LATE)
    )


def answer(name: str, seed: int, place: Path, *, keeps: bool, in_lab: bool) -> Answer:
    """Run a case below `place` and judge its diagnosis; its files stay if `keeps`."""
    directory = place / f"{name.replace(' ', '-')}-{seed}"
    is_healthy = name.startswith(HEALTHY)
    case = (
        healthy_case(name.removeprefix(HEALTHY), seed)
        if is_healthy
        else planted_case(name, seed, IN_LAB if in_lab else IN_TWIN)
    )
    try:
        diagnosis = (diagnose_in_lab if in_lab else diagnose_in_twin)(case, directory)
        exercised = is_healthy or is_exercised(case, directory / RUN)
    except RigError as error:
        if in_lab and names_small_mtu(case, error):
            return Answer(name, seed, case.planted, True, True, True, "refused by the probes")
        return Answer(name, seed, case.planted, failure=f"RigError: {error}")
    except Exception as error:  # noqa: BLE001 - a rule that raises counts as a miss, or as a false finding
        return Answer(name, seed, case.planted, failure=f"{type(error).__name__}: {error}")
    findings = diagnosis.findings
    result = Answer(
        name,
        seed,
        case.planted,
        exercised,
        is_listed_first(case, diagnosis),
        is_found(case, diagnosis),
        f"{findings[0].kind} at {findings[0].places[0]}" if findings and findings[0].places else "none",
        tuple(f"{row.kind}: {row.sentence}" for row in findings if is_healthy and is_false(row)),
    )
    if not keeps:
        shutil.rmtree(directory)
    return result


def names_small_mtu(case: Case, error: RigError) -> bool:
    """Return whether the probes before the load name the planted port as one end of all paths of too small an MTU."""
    if case.cause != "mtu" or case.expected is None:
        return False
    rank = next(rank for rank, host in enumerate(case.fabric.hosts) if host in case.expected.names)
    pairs = [problem.where for problem in error.problems if "(MTU)" in str(problem) and "->" in problem.where]
    return bool(pairs) and all(f"rank {rank} (" in pair for pair in pairs)


def row_of(answers: Sequence[Answer]) -> Values:
    """Return the row of all answers of one cause or shape."""
    first = answers[0]
    failed = [f"seed {row.seed}: {row.failure}" for row in answers if row.failure]
    if first.name.startswith(HEALTHY):
        wrong = [f"seed {row.seed}: {sentence}" for row in answers for sentence in row.false]
        return (
            first.name,
            len(answers),
            None,
            None,
            sum(bool(row.false or row.failure) for row in answers),
            [*wrong, *failed],
        )
    fair = [row for row in answers if row.exercised or row.failure]
    others = [
        f"seed {row.seed} ({row.planted}): {row.first}"
        for row in fair
        if not row.is_first and not row.failure
    ]
    return (
        first.name,
        len(fair),
        sum(row.is_first for row in fair),
        sum(row.is_found for row in fair),
        None,
        [*others, *failed],
    )


COLUMNS: Final = table("case|<22; runs|>4d; first|>5d; found|>5d; false|>5d; in place of it, or false|s")


def rows(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield a row for each cause and shape."""
    names = [(name, chosen.seeds) for name in (IN_LABS if chosen.lab else PLANTS)]
    names += [(f"{HEALTHY}{name}", chosen.healthy) for name in JOBS if not chosen.lab]
    cases = [(name, seed) for name, seeds in names if chosen.only in name for seed in range(seeds)]
    if not cases:
        raise UsageError(f'--only: no case is named "{chosen.only}"; cases: {", ".join(n for n, _ in names)}')
    with tempfile.TemporaryDirectory(prefix="etloop-diagnosis-") as scratch:
        work = partial(answer, place=Path(chosen.keep or scratch), keeps=bool(chosen.keep), in_lab=chosen.lab)
        with ProcessPoolExecutor(1 if chosen.lab else chosen.jobs, get_context("spawn")) as pool:
            results = pool.map(work, *zip(*cases, strict=True))
            for _, group in groupby(results, key=lambda row: row.name):
                values = list(row_of(list(group)))
                values[-1] = "\n    ".join(["", *values[-1]]) if values[-1] else ""
                yield values


def bars(results: Sequence[Row]) -> Iterator[Bar]:
    """Yield whether causes are listed first, and how many healthy runs have findings."""
    planted = [row for row in results if row["first"] is not None]
    runs, first = (sum(row[title] for row in planted) for title in ("runs", "first"))
    if runs:
        text = f"listed first with its place: {first} of {runs} ({first / runs:.1%}; bar {FIRST_SHARE:.0%})"
        yield text, first >= FIRST_SHARE * runs
    healthy = [row for row in results if row["false"] is not None]
    runs, false = (sum(row[title] for row in healthy) for title in ("runs", "false"))
    if runs:
        yield (
            f"healthy runs with a finding: {false} of {runs} (bar {FALSE_SHARE:.0%})",
            false <= FALSE_SHARE * runs,
        )


OPTIONS: Final[Options] = {
    "--seeds": {"type": int, "default": 10, "help": "runs of each cause (default: %(default)s)"},
    "--healthy": {"type": int, "default": 20, "help": "healthy runs of each shape (default: %(default)s)"},
    "--only": {"default": "", "metavar": "WORD", "help": "cases whose name contains it"},
    "--jobs": {"type": int, "default": os.cpu_count(), "help": "processes (default: %(default)s)"},
    "--lab": {
        "action": "store_true",
        "help": "causes that a lab of this machine can have, in real time (root)",
    },
    "--keep": {
        "default": "",
        "metavar": "DIR",
        "help": "keep all cases in this directory, and only diagnose again those that are there",
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    return measure(__doc__, rows, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
