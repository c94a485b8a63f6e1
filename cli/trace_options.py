"""The commands about traces: `synth`, `lint`, `inspect`, from their arguments to their answers."""

from __future__ import annotations

import argparse
import random
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.cli.commands.trace import fix_command, lint_command, sweep_command, synth_command
from etloop.cli.parser import Commands, add_command
from etloop.cli.progress import reading_bar
from etloop.cli.result import CommandResult
from etloop.cli.values import quantity, size_range, whole
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import (
    parse_duration_ns,
    parse_factor,
    parse_flops,
    parse_rate_bps,
)
from etloop.workload.inspect.critical_path import IdealNetwork
from etloop.workload.synthetic.sweep import SWEPT, SweepSpec
from etloop.workload.synthetic.training_step import SyntheticSpec
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit, WorkloadSettings


def add_synth(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `synth` and its arguments."""
    example = (
        "  etloop synth job/ --tp 2 --dp 4 --pp 2 --layers 4 --expert-skew 0.8 --seed 7\n"
        "  etloop synth sweep/ --sweep all_reduce --sizes 1KiB-64MiB --ranks 8"
    )
    parser = add_command(
        commands, "synth", "write a synthetic training job as Chakra .et files", example, _synth
    )
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


def add_lint(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `lint` and its arguments."""
    example = "  etloop lint job/\n  etloop lint trace.tar.zst --size-unit elements --element-bytes 2 --json"
    parser = add_command(
        commands, "lint", "check a trace: everything that is wrong or worth knowing", example, _lint
    )
    _add_reading(parser)
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT_DIR",
        help="also write the trace as .et files, repaired by named rules",
    )


def add_inspect(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `inspect` and its arguments."""
    example = "  etloop inspect job/\n  etloop inspect trace.tar.zst --link 400Gbps --svg traffic.svg"
    summary = "tell what a job is: parallelism, bytes by kind and pair, its time on an ideal network"
    parser = add_command(commands, "inspect", summary, example, _inspect)
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


def _synth(parsed: argparse.Namespace) -> CommandResult:
    if parsed.sweep is not None:
        return sweep_command(parsed.out_dir, _sweep_spec(parsed), as_json=parsed.json)
    chosen = {field: getattr(parsed, field) for _, field, _ in _SYNTH_OPTIONS}
    spec = SyntheticSpec(
        **chosen,
        experts=parsed.experts,
        expert_skew_percent=round(100 * parsed.expert_skew),
        sharded_parameters=parsed.sharded_parameters,
        device_flops=parsed.device_flops,
    )
    rng = random.Random(spec.seed)  # noqa: S311 - the same job again for the same seed
    return synth_command(parsed.out_dir, spec, rng, as_json=parsed.json)


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


def _lint(parsed: argparse.Namespace) -> CommandResult:
    settings = _settings(parsed)
    with reading_bar() as bar:
        if parsed.fix is not None:
            return fix_command(
                parsed.trace, parsed.groups, settings, parsed.fix, as_json=parsed.json, progress=bar
            )
        return lint_command(parsed.trace, parsed.groups, settings, as_json=parsed.json, progress=bar)


def _inspect(parsed: argparse.Namespace) -> CommandResult:
    from etloop.cli.commands.inspect import inspect_command

    if parsed.link <= 0:
        raise ConfigError(Problem("--link", "is 0", "state the speed of a link, such as 400Gbps"))
    network = IdealNetwork(parsed.link, parsed.latency)
    settings = _settings(parsed)
    with reading_bar() as bar:
        return inspect_command(
            parsed.trace,
            parsed.groups,
            settings,
            network,
            parsed.svg,
            as_json=parsed.json,
            progress=bar,
        )
