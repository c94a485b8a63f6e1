"""The command line of `etloop synth`."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command
from etloop.cli.values import quantity, size_range, whole
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import parse_factor, parse_flops
from etloop.workload.synthetic.spec import SWEPT, SweepSpec, SyntheticSpec

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the job goes and what shape it has."""
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


def run(parsed: argparse.Namespace) -> CommandResult:
    """Write the job. Raises `ConfigError` for an impossible one, `TraceError` if it cannot be written."""
    import random

    from etloop.cli.commands.synth import sweep_command, synth_command

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


COMMAND: Final = Command(
    "  etloop synth job/ --tp 2 --dp 4 --pp 2 --layers 4 --expert-skew 0.8 --seed 7\n"
    "  etloop synth sweep/ --sweep all_reduce --sizes 1KiB-64MiB --ranks 8",
    add_arguments,
    run,
)
