"""The command line of `etloop synth`."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import quantity, size_range, whole
from etloop.contract.base.units import parse_factor, parse_flops
from etloop.workload.synthetic.spec import SWEPT, SweepSpec, SyntheticSpec

SYNTH_OPTIONS: Final = (
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
    parser.add_argument(
        "--keep", action="store_true", help="keep files of this very job that are there already"
    )
    default = SyntheticSpec()
    for option, field, meaning in SYNTH_OPTIONS:
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


COMMAND: Final = Command(
    "  etloop synth job/ --tp 2 --dp 4 --pp 2 --layers 4 --expert-skew 0.8 --seed 7\n"
    "  etloop synth sweep/ --sweep all_reduce --sizes 1KiB-64MiB --ranks 8",
    add_arguments,
    "synth:synth_command",
)
