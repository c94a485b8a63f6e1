"""The command `collective`: a benchmark of collectives on a rig, or on this machine for a first try. A shell: files, screen.

Decides what is printed, and the rig of a first try; `experiments.collective` decides what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.cli.bench_table import TableWatcher
from etloop.cli.commands import demo
from etloop.cli.progress import print_status, run_watcher
from etloop.cli.result import CommandResult, to_json, write_answer
from etloop.cli.text.live import LiveRun
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.collective_spec import Average, BenchSpec, Variant
from etloop.controller.run.prepare import InputFile, read_rig
from etloop.experiments.collective.nccl_json import tests_as_json
from etloop.experiments.collective.result import TestResult
from etloop.experiments.collective.run import (
    BenchRequest,
    Trial,
    measure_trial,
    plan_trials,
    result_of,
    spec_on,
)
from etloop.experiments.collective.scenario import Layout
from etloop.experiments.collective.table import SweepLine, render_sweep
from etloop.runtime.version import installed_version

MOST_LOOPBACK_RANKS: Final = 508
"""Two networks of 254 addresses."""
_MOST_JSON_FILES: Final = 10_000


def run_collective(parsed: argparse.Namespace) -> CommandResult:
    """Measure all tests, print each when it is done, and return the exit code of the results.

    Options that contradict each other end the program like usage errors. Raise an `InputError` before any traffic if options,
    files, plan or rig cannot be used.
    """
    shows = parsed.json_file != "-"
    parsed.json = not shows
    with contextlib.ExitStack() as stack:
        bench = _bench_request(parsed)
        _check_json_directory(parsed.json_file)
        trials = plan_trials(bench)
        if parsed.rig is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-collective-")))
            stack.enter_context(demo.agents(logs, read_rig(bench.rig).bind, once=False))
        tests: list[TestResult] = []
        for trial in trials:
            tests += _measured(parsed, bench, trial, shows=shows)
            if tests[-1].errors:
                break
        if len(trials) > 1 and shows:
            lines = [SweepLine(test.kind, test.variant, test.verdict, test.rows) for test in tests]
            sys.stdout.write(render_sweep(lines))
        _write_json(parsed, bench.spec, tests)
    return CommandResult("", result_of(tests).exit_code)


def _measured(
    parsed: argparse.Namespace, bench: BenchRequest, trial: Trial, *, shows: bool
) -> tuple[TestResult, ...]:
    """Measure a trial; if it `shows`, print each row as soon as it is known, and the rest at the end of the session."""
    live = LiveRun(1, {name: port.link_bps for name, port in read_rig(bench.rig).ports.items()})
    with run_watcher(live, shows=shows and not parsed.no_progress) as screen:
        if not shows:
            return measure_trial(bench, trial, screen)
        table = TableWatcher(screen, bench, trial, per_iteration=parsed.per_iteration)
        tests = measure_trial(bench, trial, table)
        table.finish(tests)
    return tests


def _bench_request(parsed: argparse.Namespace) -> BenchRequest:
    spec = _spec_of(parsed)
    layout = Layout(parsed.ranks_per_host, parsed.nics_per_host, parsed.placement)
    if parsed.rig is not None:
        rig = InputFile(parsed.rig)
        rig = replace(rig, content=rig.read())
    else:
        if not 2 <= spec.ranks <= MOST_LOOPBACK_RANKS:
            problem = f"{spec.ranks} ranks, expected 2 to {MOST_LOOPBACK_RANKS}"
            raise ConfigError(Problem("--loopback", problem, "choose another number, or name a rig"))
        local = demo.choose_rig(-(-spec.ranks // len(demo.AGENTS)))
        rig = InputFile(Path("loopback"), demo.rig_text(local).encode())
        # Neighbours are on different agents, so that every step of a ring crosses the sockets.
        if layout.placement is None and parsed.scenario is None:
            layout = replace(layout, placement="round_robin")
    return BenchRequest(
        spec=spec_on(spec, rig),
        rig=rig,
        scenario=None if parsed.scenario is None else InputFile(parsed.scenario),
        layout=layout,
        out_dir=parsed.out,
        least_busbw=None if parsed.min_busbw is None else parsed.min_busbw * 1e9,
        strict=parsed.strict,
    )


def _spec_of(parsed: argparse.Namespace) -> BenchSpec:
    """Return the benchmark of the command line. `ranks` 0: the rig decides, one rank per address."""
    error = parsed.parser.error
    kind_lists = [
        kinds for kinds in (parsed.collectives, parsed.collective, parsed.concurrent) if kinds is not None
    ]
    if len(kind_lists) != 1:
        error("name collectives once: as COLLECTIVES, with -c, or with --concurrent")
    if (parsed.rig is None) == (parsed.loopback is None):
        error("give either --rig FILE or --loopback RANKS")
    if parsed.loopback is not None and parsed.ranks:
        error("--loopback already says how many ranks there are")
    if parsed.stepbytes is not None and parsed.stepfactor is not None:
        error("give either -i or -f")
    variants = itertools.product(
        parsed.shaping or ("",),
        parsed.algorithm or ("",),
        parsed.protocol or ("",),
        parsed.channels or (0,),
        parsed.qps or (0,),
    )
    default = BenchSpec((), 2)
    return BenchSpec(
        kinds=kind_lists[0],
        ranks=parsed.ranks if parsed.loopback is None else parsed.loopback,
        least_bytes=parsed.minbytes,
        most_bytes=max(parsed.minbytes, default.most_bytes) if parsed.maxbytes is None else parsed.maxbytes,
        step_bytes=default.step_bytes if parsed.stepbytes is None else parsed.stepbytes,
        factor=default.factor if parsed.stepfactor is None else parsed.stepfactor,
        iterations=parsed.iters,
        warmups=parsed.warmup_iters,
        datatype=parsed.datatype,
        reduction=parsed.op,
        average=Average(parsed.average),
        variants=tuple(Variant(*variant) for variant in itertools.islice(variants, 10_000)),
        concurrent=parsed.concurrent is not None,
    )


def _check_json_directory(name: str) -> None:
    """Raise `ConfigError` before any measurement if the results could not be written to this place."""
    directory = Path(name).parent
    if name not in ("", "-") and not (directory.is_dir() and os.access(directory, os.W_OK)):
        problem = "is no directory" if not directory.is_dir() else "cannot be written to"
        raise ConfigError(Problem("--json", f"{directory} {problem}", "name a file elsewhere"))


def _write_json(parsed: argparse.Namespace, spec: BenchSpec, tests: list[TestResult]) -> None:
    if not parsed.json_file:
        return
    text = to_json(tests_as_json(installed_version(), parsed.arguments, spec, tests))
    if parsed.json_file == "-":
        sys.stdout.write(text)
        return
    path = next(_free_names(Path(parsed.json_file)))
    write_answer(path, text, "name another file with --json", mode="x")
    print_status(f"results are also in {path}")


def _free_names(wanted: Path) -> Iterator[Path]:
    """Yield the wanted path, or with .0, .1 ... appended if it exists: files are never overwritten, as in nccl-tests."""
    if not wanted.exists():
        yield wanted
    for number in range(_MOST_JSON_FILES):
        path = wanted.with_name(f"{wanted.name}.{number}")
        if not path.exists():
            yield path
    raise ConfigError(Problem(str(wanted), f"{_MOST_JSON_FILES} results lie beside it", "remove some"))
