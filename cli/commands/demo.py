"""Run a complete measurement on this machine, through a soft switch if possible."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_verbose
from etloop.cli.arguments.values import parse_whole
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = "  etloop demo --out demo-run --iterations 5"
MOST_DIRECTORIES: Final = 10_000
LAB_FILE: Final = "lab-status.txt"
"""State of the lab at the end of the run: agents, and the counters of the soft switch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the output directory and the device of the demo."""
    parser.add_argument(
        "--out", type=Path, default=Path("demo-run"), metavar="DIR", help="directory for inputs and results"
    )
    parser.add_argument(
        "--iterations", type=parse_whole, default=5, metavar="N", help="iterations of the job"
    )
    add_verbose(parser)
    parser.add_argument(
        "--loopback", action="store_true", help="use two agents over loopback, without a switch"
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run the demo that the command line asks for. Raise as `run_demo` does."""
    code = run_demo(parsed.out, parsed.iterations, loopback=parsed.loopback, is_verbose=parsed.verbose)
    return CommandResult("", code)


def run_demo(out_dir: Path, iterations: int = 5, *, loopback: bool = False, is_verbose: bool = False) -> int:
    """Run the demo through a soft switch, or over loopback addresses if `loopback` or if this host allows no soft switch.

    Print the result in five lines, below the whole table if `is_verbose`, and return the exit code of the run, which is that of
    `etloop run` on the demo's files.

    `out_dir` receives the job, the scenario, the rig, the agents' logs and, in `run/`, the results; if it is not empty, the
    next free `out_dir-2`, `-3`, ... does. Raise `RigError` if no loopback addresses are free or the directory cannot be made.
    """
    with quick_loading():
        from etloop.cli.progress import print_status
        from etloop.workload.readers.et_writer import write_trace
        from etloop.workload.synthetic.spec import SyntheticSpec
        from etloop.workload.synthetic.training_step import synthesize

    directory = fresh_directory(out_dir)
    job = synthesize(SyntheticSpec())
    write_trace(directory / "trace", job.ranks, job.groups)
    if not loopback:
        try:
            return _run_through_switch(directory, iterations, is_verbose=is_verbose)
        except _NoSwitch as error:
            print_status(f"demo: no soft switch on this host, so over loopback addresses: {error}")
    return _run_over_loopback(directory, iterations, len(job.ranks), is_verbose=is_verbose)


class _NoSwitch(Exception):
    """The host allows no soft switch; the text gives the reason."""


def _run_through_switch(directory: Path, iterations: int, *, is_verbose: bool) -> int:
    import contextlib

    from etloop.cli.demo.lab import AGENTS, RANKS_PER_AGENT, demo_lab, scenario_text
    from etloop.cli.demo.loopback import free_tcp_port
    from etloop.cli.progress import print_status
    from etloop.contract.base.errors import InputError
    from etloop.lab.client import lab_status
    from etloop.lab.status import status_text

    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(demo_lab(directory, f"tcp://127.0.0.1:{free_tcp_port()}"))
        except InputError as error:
            raise _NoSwitch("; ".join(map(str, error.problems))) from None
        (directory / "scenario.yaml").write_text(scenario_text(iterations))
        print_status(
            f"demo: {len(AGENTS) * RANKS_PER_AGENT} ranks on {len(AGENTS)} agents, each in a namespace on a port of one "
            f"soft switch (lab {lab}, which ends with the demo); {_files_text(directory)}"
        )
        code = _run_files(directory, is_verbose=is_verbose)
        (directory / LAB_FILE).write_text(status_text(lab_status(lab)))
    return code


def _run_over_loopback(directory: Path, iterations: int, ranks: int, *, is_verbose: bool) -> int:
    from etloop.cli.demo.loopback import choose_rig, log_tails, rig_text, run_agents, scenario_text
    from etloop.cli.progress import print_status
    from etloop.controller.inputs.rig import ROCE_UDP_PORT

    rig = choose_rig()
    (directory / "scenario.yaml").write_text(scenario_text(iterations))
    (directory / "rig.yaml").write_text(rig_text(rig))
    print_status(
        f"demo: {ranks} ranks on two agents, {rig.addresses[0]} and {rig.addresses[1]}, UDP port {ROCE_UDP_PORT}; "
        f"{_files_text(directory)}"
    )
    with run_agents(directory, rig.endpoint):
        code = _run_files(directory, is_verbose=is_verbose)
    if code:
        print_status(log_tails(directory))
    return code


def _run_files(directory: Path, *, is_verbose: bool) -> int:
    from etloop.cli.session_run import run_files

    scenario, rig = directory / "scenario.yaml", directory / "rig.yaml"
    return run_files(scenario, rig, directory / "run", is_verbose=is_verbose)


def fresh_directory(wanted: Path) -> Path:
    """Make and return `wanted`, or the first of `wanted-2`, `-3`, ... that is absent or empty.

    Raise `RigError` if none can be made.
    """
    from etloop.contract.base.errors import Problem, RigError

    for number in range(1, MOST_DIRECTORIES):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not any(directory.iterdir()):
                return directory
        except OSError as error:
            problem = f"cannot be made: {error.strerror}"
            raise RigError(Problem(str(directory), problem, "name another with --out")) from None
    problem = f"{MOST_DIRECTORIES} directories of this name exist"
    raise RigError(Problem(str(wanted), problem, "remove some, or name another with --out"))


def _files_text(directory: Path) -> str:
    """Return where the inputs and the results of the demo are."""
    return f"its job, scenario, rig and results are in {directory}"
