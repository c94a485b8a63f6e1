"""The command `etloop`: reads the command line, calls the command, prints its answer, turns errors into exit codes.

A command's answer goes to standard output, everything said on the way to standard error. Errors that a user can cause
end with their message and the code of their class (contract/errors.py); a traceback is always a mistake of ours.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contract.errors import ConfigError, EtloopError, ExitCode, Problem
from contract.units import (
    parse_duration_ns,
    parse_factor,
    parse_flops,
    parse_rate_bps,
)
from controller import cli_collective, cli_twin, commands_lab
from controller.cli_values import quantity, queue_pair_counts, size_range, turns, whole
from controller.commands_plan import answer_plan, error_as_json
from controller.commands_trace import Answer, answer_fix, answer_lint, answer_sweep, answer_synth
from controller.keys_arguments import add_keys, answer_keys
from controller.rack.commands import add_config, add_jobs, answer_controller, answer_jobs
from controller.rack.submit_arguments import add_submit, answer_submit
from controller.reading_bar import reading_bar
from results.run_dir import read_run
from results.table import render
from results.typed_json import to_json
from workload.inspection_path import IdealNetwork
from workload.settings import DependencyPolicy, SizeUnit, WorkloadSettings
from workload.synthetic import SyntheticSpec
from workload.synthetic_sweep import SWEPT, SweepSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    parser = make_parser()
    parsed = parser.parse_args(arguments)
    parsed.arguments = tuple(sys.argv[1:] if arguments is None else arguments)
    try:
        answer: Answer = parsed.command(parsed)
        sys.stdout.write(answer.text)
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
    return int(answer.exit_code)


def make_parser() -> argparse.ArgumentParser:
    """The whole command line; `command` of the parsed arguments is what to call."""
    parser = argparse.ArgumentParser(
        prog="etloop",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_synth(commands)
    _add_lint(commands)
    _add_inspect(commands)
    _add_plan(commands)
    _add_run(commands)
    _add_report(commands)
    _add_twin(commands)
    _add_collective(commands)
    _add_capture(commands)
    _add_bench(commands)
    _add_lab(commands)
    _add_controller(commands)
    return parser


_Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _add(
    commands: _Commands[argparse.ArgumentParser],
    name: str,
    summary: str,
    example: str,
    command: Callable[[argparse.Namespace], Answer],
    *,
    answers_in_json: bool = True,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if answers_in_json:
        parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    parser.set_defaults(command=command, json=False)
    return parser


def _add_demo(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop demo --out demo-run --iterations 5"
    summary = "a whole run on this machine, through a switch of software where there can be one"
    parser = _add(commands, "demo", summary, example, _demo, answers_in_json=False)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-run"), metavar="DIR", help="where the results go"
    )
    parser.add_argument("--iterations", type=whole, default=5, metavar="N", help="passes over the job")
    parser.add_argument("--loopback", action="store_true", help="two agents over loopback, without a switch")


def _add_synth(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = (
        "  etloop synth job/ --tp 2 --dp 4 --pp 2 --layers 4 --expert-skew 0.8 --seed 7\n"
        "  etloop synth sweep/ --sweep all_reduce --sizes 1KiB-64MiB --ranks 8"
    )
    parser = _add(commands, "synth", "write a synthetic training job as Chakra .et files", example, _synth)
    parser.add_argument(
        "out_dir", type=Path, metavar="OUT_DIR", help="directory for the files, made if absent"
    )
    default = SyntheticSpec()
    for option, field, meaning in _SYNTH_OPTIONS:
        value = getattr(default, field)
        parser.add_argument(
            option, dest=field, type=whole, default=value, metavar="N", help=f"{meaning} (default {value})"
        )
    parser.add_argument(
        "--no-experts", dest="experts", action="store_false", help="leave out the expert all-to-all"
    )
    parser.add_argument(
        "--fsdp",
        dest="sharded_parameters",
        action="store_true",
        help="gather parameters before every pass of a layer (fully sharded data parallelism)",
    )
    parser.add_argument(
        "--expert-skew",
        type=quantity(parse_factor),
        default=Fraction(0),
        metavar="X",
        help="popularity of experts falls with this power of their place, such as 0.8; left out: even",
    )
    _add_sweep(parser)
    parser.add_argument(
        "--flops",
        dest="device_flops",
        type=quantity(parse_flops),
        default=default.device_flops,
        metavar="RATE",
        help='speed of one device, such as "312TFLOPS"',
    )


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    default = SweepSpec(())
    group = parser.add_argument_group("instead of a training job, plain collectives on all ranks")
    kinds = [kind.name.lower() for kind in SWEPT]
    group.add_argument(
        "--sweep", metavar="KINDS", help=f"such as all_reduce,all_gather: any of {', '.join(kinds)}"
    )
    group.add_argument(
        "--sizes",
        type=quantity(size_range),
        default=(default.least_bytes, default.most_bytes),
        metavar="A-B",
        help="what a rank puts in, doubling from A to B (default 1KiB-64MiB)",
    )
    group.add_argument("--ranks", type=whole, default=default.ranks, metavar="N", help="ranks (default 8)")
    group.add_argument(
        "--repeat", type=whole, default=default.repeats, metavar="N", help="operations of a size (default 1)"
    )


_SYNTH_OPTIONS: Final = (
    ("--tp", "tensor_parallel", "ranks of a tensor-parallel group"),
    ("--dp", "data_parallel", "data-parallel replicas"),
    ("--pp", "pipeline_parallel", "pipeline stages"),
    ("--layers", "layers_per_stage", "layers of a stage"),
    ("--micro-batches", "micro_batches", "micro-batches of an iteration"),
    ("--micro-batch-sequences", "micro_batch_sequences", "sequences of a micro-batch"),
    ("--sequence", "sequence_tokens", "tokens of a sequence"),
    ("--hidden", "hidden_size", "hidden size of the model"),
    ("--element-bytes", "element_bytes", "bytes of one number"),
    ("--seed", "seed", "which experts are popular, with --expert-skew"),
)


def _add_lint(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop lint job/\n  etloop lint trace.tar.zst --size-unit elements --element-bytes 2 --json"
    parser = _add(
        commands, "lint", "check a trace: everything that is wrong or worth knowing", example, _lint
    )
    _add_reading(parser)
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT_DIR",
        help="also write the trace as .et files, repaired by named rules",
    )


def _add_inspect(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop inspect job/\n  etloop inspect trace.tar.zst --link 400Gbps --svg traffic.svg"
    summary = "tell what a job is: parallelism, bytes by kind and pair, its time on an ideal network"
    parser = _add(commands, "inspect", summary, example, _inspect)
    _add_reading(parser)
    default = IdealNetwork()
    parser.add_argument(
        "--link",
        type=quantity(parse_rate_bps),
        default=default.link_bps,
        metavar="RATE",
        help="link of a rank on the ideal network (default 400Gbps)",
    )
    parser.add_argument(
        "--latency",
        type=quantity(parse_duration_ns),
        default=default.latency_ns,
        metavar="TIME",
        help="latency of a message on it (default 2us)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write the bytes by pair as a picture")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    """Which trace, and what its files do not say."""
    what = "directory, prefix, archive or file of traces (.et, PyTorch, Kineto), or HOST+KINETO"
    parser.add_argument("trace", type=Path, metavar="TRACE", help=what)
    parser.add_argument("--groups", type=Path, metavar="FILE", help="communicator groups (JSON)")
    parser.add_argument(
        "--size-unit",
        choices=[unit.value for unit in SizeUnit],
        default="auto",
        help="what comm_size counts (default auto)",
    )
    parser.add_argument("--element-bytes", type=whole, metavar="N", help="bytes of one element")
    parser.add_argument(
        "--dependencies",
        type=quantity(DependencyPolicy.parse),
        default=DependencyPolicy.DATA_COMMUNICATOR,
        metavar="POLICY",
        help="edges that are honoured: data, ctrl, stream, communicator, recorded, joined by + "
        "(default data+communicator)",
    )
    parser.add_argument(
        "--replicate-ranks",
        type=whole,
        metavar="N",
        help="take the trace of one rank for each of N ranks",
    )
    parser.add_argument(
        "--flops",
        type=quantity(parse_flops),
        metavar="RATE",
        help='speed of one rank, for compute nodes without a duration, such as "312TFLOPS"',
    )
    parser.add_argument(
        "--memory-bandwidth",
        type=quantity(parse_rate_bps),
        metavar="RATE",
        help='memory bandwidth of one rank, such as "2TB/s"',
    )


def _add_plan(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml"
    summary = "tell what a run would send, from where to where, without sending it"
    _add_files(_add(commands, "plan", summary, example, _plan))


def _add_run(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = (
        "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
        "  and on each agent's machine: etloop-agent run --controller tcp://HOST:PORT --name NAME"
    )
    parser = _add(
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


def _add_report(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands, "report", "print the results table of a run again", "  etloop report run1/", _report
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="what --out of the run named")


def _add_twin(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "twin", cli_twin.SUMMARY, cli_twin.EXAMPLE, cli_twin.answer)
    _add_files(parser)
    cli_twin.add_arguments(parser)


def _add_collective(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands,
        "collective",
        cli_collective.SUMMARY,
        cli_collective.EXAMPLE,
        _collective,
        answers_in_json=False,
    )
    cli_collective.add_arguments(parser)
    parser.set_defaults(parser=parser)


def _add_capture(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop capture captures/run-r1-a-p0.pcapng"
    parser = _add(commands, "capture", "print a port's capture, one line a packet", example, _capture)
    parser.add_argument("file", type=Path, metavar="FILE", help="what `etloop-agent run --capture` wrote")


def _add_bench(commands: _Commands[argparse.ArgumentParser]) -> None:
    example = "  etloop bench\n  etloop bench wire --seconds 5 --repeat 9 --json"
    summary = "measure the engine beside the bare kernel path of this machine"
    parser = _add(commands, "bench", summary, example, _bench)
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
        help="the port of wire (default: all that can be measured)",
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
    parser.add_argument("--check", action="store_true", help="exit with 30 when a bar is not met")


def _add_lab(commands: _Commands[argparse.ArgumentParser]) -> None:
    summary, example, answer = commands_lab.SUMMARY, commands_lab.EXAMPLE, commands_lab.answer_lab
    commands_lab.add_arguments(_add(commands, "lab", summary, example, answer, answers_in_json=False))


def _add_controller(commands: _Commands[argparse.ArgumentParser]) -> None:
    summary = (
        "serve a rack: take jobs, queue them, run them on the ports they are given, keep what they leave"
    )
    example = "  etloop controller --config examples/rack/controller.yaml"
    parser = _add(commands, "controller", summary, example, answer_controller, answers_in_json=False)
    add_config(parser)
    summary = "submit a job to a rack, wait for it, cancel it, or list jobs"
    example = (
        "  etloop submit scenario.yaml --broker rack:1883 --ports a/p0,b/p0 --wait\n"
        "  etloop submit --list --json"
    )
    add_submit(_add(commands, "submit", summary, example, answer_submit))
    summary = "list a rack's jobs from its state directory, whether its controller runs or not"
    example = (
        "  etloop jobs --config controller.yaml --state queued --state running\n"
        "  etloop jobs --state-dir /var/lib/etloop --audit 20260101-120000-000-abcdef"
    )
    add_jobs(_add(commands, "jobs", summary, example, answer_jobs))
    summary = "make, list, allow and revoke the keys of the control connection"
    example = "  etloop keys make controller a b --dir keys\n  etloop keys allow a b --dir keys"
    add_keys(_add(commands, "keys", summary, example, answer_keys))


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="scenario.yaml")
    parser.add_argument("--rig", type=Path, required=True, metavar="FILE", help="rig.yaml")


def _demo(parsed: argparse.Namespace) -> Answer:
    from controller.demo import run_demo

    code = run_demo(parsed.out, parsed.iterations, as_json=parsed.json, loopback=parsed.loopback)
    return Answer("", ExitCode(code))


def _synth(parsed: argparse.Namespace) -> Answer:
    if parsed.sweep is not None:
        return answer_sweep(parsed.out_dir, _sweep_spec(parsed), as_json=parsed.json)
    chosen = {field: getattr(parsed, field) for _, field, _ in _SYNTH_OPTIONS}
    spec = SyntheticSpec(
        **chosen,
        experts=parsed.experts,
        expert_skew_percent=round(100 * parsed.expert_skew),
        sharded_parameters=parsed.sharded_parameters,
        device_flops=parsed.device_flops,
    )
    rng = random.Random(spec.seed)  # noqa: S311 - the same job again for the same seed
    return answer_synth(parsed.out_dir, spec, rng, as_json=parsed.json)


def _sweep_spec(parsed: argparse.Namespace) -> SweepSpec:
    known = {kind.name.lower(): kind for kind in SWEPT}
    names = tuple(dict.fromkeys(name.strip() for name in parsed.sweep.split(",")))
    if unknown := [name for name in names if name not in known]:
        what = f'"{unknown[0][:64]}" cannot be swept'
        raise ConfigError(Problem("--sweep", what, f"name some of {', '.join(known)}"))
    least_bytes, most_bytes = parsed.sizes
    kinds = tuple(known[name] for name in names)
    return SweepSpec(kinds, least_bytes, most_bytes, parsed.ranks, parsed.repeat)


def _settings(parsed: argparse.Namespace) -> WorkloadSettings:
    return WorkloadSettings(
        size_unit=SizeUnit(parsed.size_unit),
        element_bytes=parsed.element_bytes,
        dependencies=parsed.dependencies,
        replicate_ranks=parsed.replicate_ranks,
        flops=parsed.flops,
        memory_bandwidth_bytes_per_s=None
        if parsed.memory_bandwidth is None
        else parsed.memory_bandwidth // 8,
    )


def _lint(parsed: argparse.Namespace) -> Answer:
    settings = _settings(parsed)
    with reading_bar() as bar:
        if parsed.fix is not None:
            return answer_fix(
                parsed.trace, parsed.groups, settings, parsed.fix, as_json=parsed.json, progress=bar
            )
        return answer_lint(parsed.trace, parsed.groups, settings, as_json=parsed.json, progress=bar)


def _inspect(parsed: argparse.Namespace) -> Answer:
    from controller.commands_inspect import answer_inspect

    if parsed.link <= 0:
        raise ConfigError(Problem("--link", "is 0", "state the speed of a link, such as 400Gbps"))
    network = IdealNetwork(parsed.link, parsed.latency)
    settings = _settings(parsed)
    with reading_bar() as bar:
        return answer_inspect(
            parsed.trace,
            parsed.groups,
            settings,
            network,
            parsed.svg,
            as_json=parsed.json,
            progress=bar,
        )


def _plan(parsed: argparse.Namespace) -> Answer:
    with reading_bar() as bar:
        return answer_plan(parsed.scenario, parsed.rig, as_json=parsed.json, progress=bar)


def _run(parsed: argparse.Namespace) -> Answer:
    # Here, because only a run needs the event loop, ZeroMQ and the progress bar.
    from controller.commands_run import run_files

    code = run_files(
        parsed.scenario,
        parsed.rig,
        parsed.out,
        as_json=parsed.json,
        progress_bar=not parsed.no_progress,
        compares=not parsed.no_twin,
    )
    return Answer("", ExitCode(code))


def _report(parsed: argparse.Namespace) -> Answer:
    summary = read_run(parsed.run_dir).summary
    return Answer(to_json(summary) if parsed.json else render(summary, str(parsed.run_dir)))


def _collective(parsed: argparse.Namespace) -> Answer:
    from controller.commands_collective import run_collective

    parsed.json = parsed.json_file == "-"
    return Answer("", run_collective(cli_collective.request_of(parsed.parser, parsed, parsed.arguments)))


def _capture(parsed: argparse.Namespace) -> Answer:
    from controller.commands_capture import answer_capture

    return answer_capture(parsed.file)


def _bench(parsed: argparse.Namespace) -> Answer:
    from contract.assignment import PortBackend
    from controller.bench import Benchmark, answer_bench
    from controller.bench_turns import SMALL_LENGTHS, full_lengths
    from controller.bench_wire import ALL_PORTS, WirePorts

    ports = WirePorts(
        (PortBackend[parsed.backend.upper()],) if parsed.backend else ALL_PORTS.backends,
        parsed.queue_pairs or ALL_PORTS.queue_pairs,
    )
    lengths = SMALL_LENGTHS if parsed.small else full_lengths(parsed.seconds, parsed.repeat)
    chosen = tuple(Benchmark) if parsed.benchmark == "all" else (Benchmark(parsed.benchmark),)
    return answer_bench(chosen, lengths, ports, as_json=parsed.json, check=parsed.check)


if __name__ == "__main__":
    sys.exit(main())
