"""The command `etloop`: reads the command line, calls the command, prints its answer, turns errors into exit codes.

A command's answer goes to standard output, everything said on the way to standard error. Errors that a user can cause
end with their message and the code of their class (contract/base/errors.py); a traceback is always a mistake of ours.

Most of the time that a short command takes is spent on importing what it needs: a command imports that when it is the one
that was named.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Commands, add_command
from etloop.cli.result import CommandResult, error_as_json
from etloop.cli.values import queue_pair_counts, turns, whole
from etloop.contract.base.errors import EtloopError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

STOPPED_BY_SIGINT: Final = 130
"""What shells report for a command that Ctrl-C ended."""
BROKEN_PIPE: Final = 141
"""What shells report for a command whose reader went away."""

_DESCRIPTION: Final = """\
Puts a switch or a NIC under the network load of a real AI job, without a GPU.

A controller (this command) plans a job from Chakra execution traces and partitions it over agents
(etloop-agent), which replay it as RoCEv2 through the device under test."""
_EPILOG: Final = """\
first steps:
  etloop demo                                   a whole run on this machine
  etloop synth job/                             a synthetic job as .et files
  etloop lint job/                              is the trace sound?
  etloop inspect job/                           what is in it?
  etloop plan scenario.yaml --rig rig.yaml      what would be sent, from where to where
  etloop run scenario.yaml --rig rig.yaml --out run1/

exit codes: 0 pass, 2 usage, 50 the run broke, 65 bad input or a rig that is not ready"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    parsed = make_parser(words[0] if words else None).parse_args(words)
    parsed.arguments = words
    try:
        result: CommandResult = parsed.command(parsed)
        sys.stdout.write(result.text)
        sys.stdout.flush()
    except EtloopError as error:
        if parsed.json:
            sys.stdout.write(error_as_json(error))
        sys.stderr.writelines(f"etloop: {line}\n" for line in str(error).splitlines())
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\netloop: stopped by Ctrl-C\n")
        return STOPPED_BY_SIGINT
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return int(result.exit_code)


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line, of one command if there is one of that name; `command` of what it parses is what to call."""
    parser = argparse.ArgumentParser(
        prog="etloop",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (COMMANDS[command],) if command in COMMANDS else COMMANDS.values():
        add(commands)
    return parser


def _add_demo(commands: Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop demo --out demo-run --iterations 5"
    summary = "a whole run on this machine, through a switch of software where there can be one"
    parser = add_command(commands, "demo", summary, example, _demo, offers_json=False)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-run"), metavar="DIR", help="where the results go"
    )
    parser.add_argument("--iterations", type=whole, default=5, metavar="N", help="passes over the job")
    parser.add_argument("--loopback", action="store_true", help="two agents over loopback, without a switch")


def _add_plan(commands: Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml"
    summary = "tell what a run would send, from where to where, without sending it"
    _add_files(add_command(commands, "plan", summary, example, _plan))


def _add_synth(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.trace_options import add_synth

    add_synth(commands)


def _add_lint(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.trace_options import add_lint

    add_lint(commands)


def _add_inspect(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.trace_options import add_inspect

    add_inspect(commands)


def _add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    example = (
        "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
        "  and on each agent's machine: etloop-agent run --controller tcp://HOST:PORT --name NAME"
    )
    parser = add_command(
        commands, "run", "run a scenario on a rig and leave the results in a directory", example, _run
    )
    _add_files(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="RUN_DIR", help="new directory for the results"
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")
    parser.add_argument(
        "--no-twin", action="store_true", help="do not work out afterwards what the run should have taken"
    )
    what = "refuse what the profile of the device contradicts, instead of warning (etloop dut check tells it, too)"
    parser.add_argument("--strict", action="store_true", help=what)


def _add_report(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "report",
        "print the results table of a run again, or judge it again",
        "  etloop report run1/\n  etloop report run1/ --conditions stricter.yaml --dut sonic-tomahawk5",
        _report,
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="what --out of the run named")
    what = "judge it again, write report.html, junit.xml, kpis.json anew, and exit with the verdict"
    parser.add_argument("--verdict", action="store_true", help=what)
    what = "judge it by the verdict: section of this file instead of the run's own conditions"
    parser.add_argument("--conditions", type=Path, metavar="FILE", help=what)
    what = "and by those of this profile (a name of etloop dut list, or a file)"
    parser.add_argument("--dut", metavar="PROFILE", help=what)


def _add_twin(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli import twin_options

    parser = add_command(commands, "twin", twin_options.SUMMARY, twin_options.EXAMPLE, twin_options.command)
    _add_files(parser)
    twin_options.add_arguments(parser)


def _add_compare(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.commands import compare

    parser = add_command(commands, "compare", compare.SUMMARY, compare.EXAMPLE, compare.compare_command)
    compare.add_arguments(parser)


def _add_sweep(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.commands import sweep

    parser = add_command(commands, "sweep", sweep.SUMMARY, sweep.EXAMPLE, sweep.sweep_command)
    sweep.add_arguments(parser)


def _add_collective(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli import collective_options

    parser = add_command(
        commands,
        "collective",
        collective_options.SUMMARY,
        collective_options.EXAMPLE,
        _collective,
        offers_json=False,
    )
    collective_options.add_arguments(parser)
    parser.set_defaults(parser=parser)


def _add_capture(commands: Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop capture captures/run-r1-a-p0.pcapng"
    parser = add_command(commands, "capture", "print a port's capture, one line a packet", example, _capture)
    parser.add_argument("file", type=Path, metavar="FILE", help="what `etloop-agent run --capture` wrote")


def _add_dut(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli import dut_options as dut

    parser = add_command(commands, "dut", dut.SUMMARY, dut.EXAMPLE, dut.dut_command, offers_json=False)
    dut.add_dut(parser)


def _add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop bench\n  etloop bench wire --seconds 5 --repeat 9 --json"
    summary = "measure the engine beside the bare kernel path of this machine"
    parser = add_command(commands, "bench", summary, example, _bench)
    parser.add_argument(
        "benchmark",
        nargs="?",
        default="all",
        choices=("wire", "pacing", "turnaround", "collective", "all"),
        help="which one (default all)",
    )
    parser.add_argument(
        "--backend",
        choices=("udp", "packet", "xdp"),
        help="the port of wire and pacing (default: all that can be measured)",
    )
    parser.add_argument(
        "--queue-pairs",
        type=queue_pair_counts,
        metavar="N,...",
        help="of wire, each measured (default 1,100,1000)",
    )
    seconds, repetitions = 2, 5
    parser.add_argument(
        "--seconds",
        type=turns,
        default=seconds,
        metavar="N",
        help=f"length of one measurement (default {seconds})",
    )
    parser.add_argument(
        "--repeat",
        type=turns,
        default=repetitions,
        metavar="N",
        help=f"turns of each (default {repetitions})",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="only see that it works, in a few seconds, whatever --seconds and --repeat say",
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="engines with real-time threads, as by etloop-agent run --realtime",
    )
    parser.add_argument(
        "--clear-cores",
        action="store_true",
        help="of pacing, with --realtime: other threads leave the sender's core, as by etloop-agent run --clear-cores",
    )
    parser.add_argument("--check", action="store_true", help="exit with 30 when a bar is not met")


def _add_lab(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.commands import lab

    summary, example, command = lab.SUMMARY, lab.EXAMPLE, lab.lab_command
    lab.add_arguments(add_command(commands, "lab", summary, example, command, offers_json=False))


def _add_controller(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.commands.rack import add_config, controller_command

    summary = (
        "serve a rack: take jobs, queue them, run them on the ports they are given, keep what they leave"
    )
    example = "  etloop controller --config examples/rack/controller.yaml"
    parser = add_command(commands, "controller", summary, example, controller_command, offers_json=False)
    add_config(parser)


def _add_submit(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.submit_options import add_submit, submit_command

    summary = "submit a job to a rack, wait for it, cancel it, or list jobs"
    example = (
        "  etloop submit scenario.yaml --broker rack:1883 --ports a/p0,b/p0 --wait\n"
        "  etloop submit --list --json"
    )
    add_submit(add_command(commands, "submit", summary, example, submit_command))


def _add_jobs(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.commands.rack import add_jobs, jobs_command

    summary = "list a rack's jobs from its state directory, whether its controller runs or not"
    example = (
        "  etloop jobs --config controller.yaml --state queued --state running\n"
        "  etloop jobs --state-dir /var/lib/etloop --audit 20260101-120000-000-abcdef"
    )
    add_jobs(add_command(commands, "jobs", summary, example, jobs_command))


def _add_keys(commands: Commands[argparse.ArgumentParser]) -> None:
    from etloop.cli.keys_options import add_keys, keys_command

    summary = "make, list, allow and revoke the keys of the control connection"
    example = "  etloop keys make controller a b --dir keys\n  etloop keys allow a b --dir keys"
    add_keys(add_command(commands, "keys", summary, example, keys_command))


COMMANDS: Final = {
    "demo": _add_demo,
    "synth": _add_synth,
    "lint": _add_lint,
    "inspect": _add_inspect,
    "plan": _add_plan,
    "run": _add_run,
    "report": _add_report,
    "twin": _add_twin,
    "compare": _add_compare,
    "sweep": _add_sweep,
    "collective": _add_collective,
    "capture": _add_capture,
    "dut": _add_dut,
    "bench": _add_bench,
    "lab": _add_lab,
    "controller": _add_controller,
    "submit": _add_submit,
    "jobs": _add_jobs,
    "keys": _add_keys,
}
"""In the order of the help."""


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="scenario.yaml")
    parser.add_argument("--rig", type=Path, required=True, metavar="FILE", help="rig.yaml")


def _demo(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.commands.demo import run_demo

    code = run_demo(parsed.out, parsed.iterations, as_json=parsed.json, loopback=parsed.loopback)
    return CommandResult("", ExitCode(code))


def _plan(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.progress import reading_bar
    from etloop.controller.run.prepare import plan_command

    with reading_bar() as bar:
        return plan_command(parsed.scenario, parsed.rig, as_json=parsed.json, progress=bar)


def _run(parsed: argparse.Namespace) -> CommandResult:
    from etloop.controller.run.execute import run_files

    code = run_files(
        parsed.scenario,
        parsed.rig,
        parsed.out,
        as_json=parsed.json,
        progress_bar=not parsed.no_progress,
        compares=not parsed.no_twin,
        strict=parsed.strict,
    )
    return CommandResult("", ExitCode(code))


def _report(parsed: argparse.Namespace) -> CommandResult:
    from etloop.results.schema.typed_json import to_json
    from etloop.results.store.run_dir import read_run
    from etloop.results.text.table import render

    code = ExitCode.PASS
    if parsed.verdict or parsed.conditions or parsed.dut:
        from etloop.controller.run.execute import FinishedRun
        from etloop.controller.run.verdict import renew_verdict

        summary = renew_verdict(parsed.run_dir, parsed.conditions, parsed.dut)
        code = FinishedRun(summary, "").exit_code
    else:
        summary = read_run(parsed.run_dir).summary
    return CommandResult(to_json(summary) if parsed.json else render(summary, str(parsed.run_dir)), code)


def _collective(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.collective_options import request_of
    from etloop.cli.commands.collective import run_collective

    parsed.json = parsed.json_file == "-"
    return CommandResult("", run_collective(request_of(parsed.parser, parsed, parsed.arguments)))


def _capture(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.commands.capture import capture_command

    return capture_command(parsed.file)


if __name__ == "__main__":
    sys.exit(main())


def _bench(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.commands.bench import bench

    return bench(parsed)
