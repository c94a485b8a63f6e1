"""Measure collectives by message size, with the options and the table of nccl-tests."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments import nccl
from etloop.cli.arguments.inputs import add_strict
from etloop.cli.arguments.values import argument_type, parse_whole
from etloop.cli.result import CommandResult, to_json, write_answer
from etloop.controller.inputs.collective_spec import ELEMENT_BYTES, REDUCTIONS, Average, BenchSpec, Variant
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.experiments.collective.result import TestResult
    from etloop.experiments.collective.run import BenchRequest, Trial

EXAMPLE: Final = (
    "  etloop collective all_reduce --loopback 4 -b 8 -e 4M -f 2\n"
    "  etloop collective all_reduce,alltoall --rig rig.yaml -b 1M -e 128M -f 2 --algorithm ring,tree --qps 1,4\n"
    "  etloop collective --concurrent all_reduce+alltoall --rig rig.yaml -b 16M -e 16M --json result.json"
)
MOST_LOOPBACK_RANKS: Final = 508
"""Addresses of two loopback networks."""
_MOST_JSON_FILES: Final = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add collectives, placement, sizes, sweeps and results."""
    parser.set_defaults(parser=parser)
    parser.add_argument(
        "collectives",
        nargs="?",
        type=argument_type(nccl.parse_names),
        metavar="COLLECTIVES",
        help="collectives to measure, such as all_reduce,alltoall",
    )
    parser.add_argument(
        "-c",
        "--collective",
        type=argument_type(nccl.parse_option_names),
        metavar="NAMES",
        help="COLLECTIVES as an option",
    )
    parser.add_argument(
        "--concurrent",
        type=argument_type(nccl.parse_concurrent),
        metavar="A+B",
        help="measure collectives concurrently, each on its own communicator, and each alone",
    )
    _add_placement(parser.add_argument_group("placement"))
    _add_measurement(parser.add_argument_group("measurement"))
    _add_sweeps_and_results(parser)


def _add_placement(place: argparse._ArgumentGroup) -> None:
    place.add_argument(
        "--rig", type=Path, metavar="FILE", help="rig.yaml; its agents may start before or after this command"
    )
    place.add_argument(
        "--loopback",
        type=parse_whole,
        metavar="RANKS",
        help="run this many ranks on this machine over loopback",
    )
    place.add_argument(
        "--scenario", type=Path, metavar="FILE", help="scenario.yaml for all settings but the trace"
    )
    place.add_argument(
        "--ranks", type=parse_whole, default=0, metavar="N", help="number of ranks (default: one per address)"
    )
    place.add_argument(
        "--ranks-per-host", type=parse_whole, metavar="N", help="ranks per host, numbered consecutively"
    )
    for short, long in (("-t", "--nthreads"), ("-g", "--ngpus")):
        place.add_argument(
            short,
            long,
            type=argument_type(nccl.parse_one),
            metavar="1",
            help="accepted for nccl-tests compatibility; must be 1",
        )
    place.add_argument(
        "--nics-per-host", type=parse_whole, metavar="N", help="NICs per host, each on its own rail"
    )
    place.add_argument(
        "--placement", choices=("blocked", "by_traffic", "round_robin"), help="assignment of hosts to ports"
    )
    add_strict(place)


def _add_sweeps_and_results(parser: argparse.ArgumentParser) -> None:
    sweep = parser.add_argument_group("sweeps (each option takes a list; all combinations are measured)")
    for option, parse, meaning in (
        ("--shaping", nccl.parse_words, "traffic shaping: nccl, gloo, mpi, plain"),
        ("--algorithm", nccl.parse_words, "algorithms, such as ring,tree"),
        ("--protocol", nccl.parse_words, "protocols: simple, ll, ll128"),
        ("--channels", nccl.parse_numbers, "channels per communicator"),
        ("--qps", nccl.parse_numbers, "queue pairs per connection"),
    ):
        sweep.add_argument(option, type=argument_type(parse), metavar="LIST", help=meaning)
    result = parser.add_argument_group("results")
    result.add_argument(
        "--json",
        dest="json_file",
        default="",
        metavar="FILE",
        help="write the results as JSON; - prints JSON instead of the table",
    )
    result.add_argument("--out", type=Path, metavar="DIR", help="write the run directory of every session")
    result.add_argument(
        "--min-busbw",
        type=float,
        metavar="GB/s",
        help="exit with 30 if the average bus bandwidth is below 0.9 of this",
    )
    result.add_argument("--no-progress", action="store_true", help="do not draw progress")


def _add_measurement(group: argparse._ArgumentGroup) -> None:
    default = BenchSpec((), 2)
    size = argument_type(nccl.parse_size)
    group.add_argument(
        "-b",
        "--minbytes",
        type=size,
        default=default.least_bytes,
        metavar="SIZE",
        help="smallest size (default 32M)",
    )
    group.add_argument(
        "-e", "--maxbytes", type=size, metavar="SIZE", help="largest size (default 32M, or -b if larger)"
    )
    group.add_argument(
        "-i", "--stepbytes", type=size, metavar="SIZE", help="increment between sizes (default 1M)"
    )
    group.add_argument(
        "-f", "--stepfactor", type=parse_whole, metavar="N", help="factor between sizes, instead of -i"
    )
    group.add_argument(
        "-n",
        "--iters",
        type=parse_whole,
        default=default.iterations,
        metavar="N",
        help="measured iterations (default 20)",
    )
    group.add_argument(
        "-w",
        "--warmup_iters",
        type=parse_whole,
        default=default.warmups,
        metavar="N",
        help="warm-up iterations (default 1)",
    )
    group.add_argument(
        "-o",
        "--op",
        choices=REDUCTIONS,
        default=default.reduction,
        help="reduction, only named in the output: no data is reduced",
    )
    group.add_argument(
        "-d",
        "--datatype",
        choices=tuple(ELEMENT_BYTES),
        default=default.datatype,
        help="data type (default float)",
    )
    group.add_argument(
        "-a",
        "--average",
        type=int,
        choices=[int(average) for average in Average],
        default=int(default.average),
        help="reported time: 0 of rank 0, 1 mean of all ranks (default), 2 least, 3 most",
    )
    group.add_argument("-I", "--per-iteration", action="store_true", help="add columns for single iterations")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Measure all tests, print each when it is done, and return the exit code of the results.

    Options that contradict each other end the program like usage errors. Raise an `InputError` before any traffic if options,
    files, plan or rig cannot be used.
    """
    import contextlib
    import sys
    import tempfile

    with quick_loading():
        from etloop.cli.demo.loopback import run_agents
        from etloop.controller.run.prepare import read_rig
        from etloop.experiments.collective.run import plan_trials, result_of
        from etloop.experiments.collective.table import SweepLine, render_sweep

    shows = parsed.json_file != "-"
    parsed.json = not shows
    with contextlib.ExitStack() as stack:
        bench = _bench_request(parsed)
        _check_json_directory(parsed.json_file)
        trials = plan_trials(bench)
        if parsed.rig is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-collective-")))
            stack.enter_context(run_agents(logs, read_rig(bench.rig).bind, once=False))
        tests: list[TestResult] = []
        for trial in trials:
            tests += _measure(parsed, bench, trial, shows=shows)
            if tests[-1].errors:
                break
        if len(trials) > 1 and shows:
            lines = [SweepLine(test.kind, test.variant, test.verdict, test.rows) for test in tests]
            sys.stdout.write(render_sweep(lines))
        _write_json(parsed, bench.spec, tests)
    return CommandResult("", result_of(tests).exit_code)


def _measure(
    parsed: argparse.Namespace, bench: BenchRequest, trial: Trial, *, shows: bool
) -> tuple[TestResult, ...]:
    """Measure a trial; if `shows`, print each row as soon as it is measured, and the rest at the end of the session."""
    from etloop.cli.bench_table import TableWatcher
    from etloop.cli.progress import run_watcher
    from etloop.cli.text.live import LiveRun
    from etloop.controller.run.prepare import read_rig
    from etloop.experiments.collective.run import measure_trial

    live = LiveRun(1, {name: port.link_bps for name, port in read_rig(bench.rig).ports.items()})
    with run_watcher(live, shows=shows and not parsed.no_progress) as screen:
        if not shows:
            return measure_trial(bench, trial, screen)
        table = TableWatcher(screen, bench, trial, per_iteration=parsed.per_iteration)
        tests = measure_trial(bench, trial, table)
        table.finish(tests)
    return tests


def _bench_request(parsed: argparse.Namespace) -> BenchRequest:
    from dataclasses import replace

    from etloop.cli.demo.loopback import AGENTS, choose_rig, rig_text
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.controller.run.prepare import InputFile
    from etloop.experiments.collective.run import BenchRequest, spec_on
    from etloop.experiments.collective.scenario import Layout

    spec = _spec_of(parsed)
    layout = Layout(parsed.ranks_per_host, parsed.nics_per_host, parsed.placement)
    if parsed.rig is not None:
        rig = InputFile(parsed.rig)
        rig = replace(rig, content=rig.read())
    else:
        if not 2 <= spec.ranks <= MOST_LOOPBACK_RANKS:
            problem = f"{spec.ranks} ranks, expected 2 to {MOST_LOOPBACK_RANKS}"
            raise ConfigError(Problem("--loopback", problem, "choose another number, or name a rig"))
        local = choose_rig(-(-spec.ranks // len(AGENTS)))
        rig = InputFile(Path("loopback"), rig_text(local).encode())
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
        error("give either --ranks or --loopback RANKS")
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
    """Raise `ConfigError` before any measurement if the results could not be written there."""
    from etloop.contract.base.errors import ConfigError, Problem

    directory = Path(name).parent
    if name not in ("", "-") and not (directory.is_dir() and os.access(directory, os.W_OK)):
        problem = "is not a directory" if not directory.is_dir() else "cannot be written to"
        raise ConfigError(Problem("--json", f"{directory} {problem}", "name a file elsewhere"))


def _write_json(parsed: argparse.Namespace, spec: BenchSpec, tests: list[TestResult]) -> None:
    import sys

    from etloop.cli.progress import print_status
    from etloop.experiments.collective.nccl_json import tests_as_json
    from etloop.runtime.version import installed_version

    if not parsed.json_file:
        return
    text = to_json(tests_as_json(installed_version(), parsed.arguments, spec, tests))
    if parsed.json_file == "-":
        sys.stdout.write(text)
        return
    path = next(_free_names(Path(parsed.json_file)))
    write_answer(path, text, "name another file with --json", mode="x")
    print_status(f"results as JSON: {path}")


def _free_names(wanted: Path) -> Iterator[Path]:
    """Yield the wanted path, or with .0, .1 ... appended if it exists: files are never overwritten, as in nccl-tests."""
    from etloop.contract.base.errors import ConfigError, Problem

    if not wanted.exists():
        yield wanted
    for number in range(_MOST_JSON_FILES):
        path = wanted.with_name(f"{wanted.name}.{number}")
        if not path.exists():
            yield path
    raise ConfigError(Problem(str(wanted), f"{_MOST_JSON_FILES} files of this name exist", "remove some"))
