"""Write a synthetic training job, or a sweep of collectives, as Chakra .et files."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import parse_flop_rate, parse_number, parse_size_range, parse_whole
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading
from etloop.workload.synthetic.spec import SWEPT, SweepSpec, SyntheticSpec

if TYPE_CHECKING:
    from etloop.workload.synthetic.training_step import SyntheticJob

EXAMPLE: Final = (
    "  etloop synth job/ --tp 2 --dp 4 --pp 2 --layers 4 --expert-skew 0.8 --seed 7\n"
    "  etloop synth sweep/ --sweep all_reduce --sizes 1KiB-64MiB --ranks 8"
)
_OPTIONS: Final = (
    ("--tp", "tensor_parallel", "tensor-parallel degree"),
    ("--dp", "data_parallel", "data-parallel degree"),
    ("--pp", "pipeline_parallel", "pipeline stages"),
    ("--layers", "layers_per_stage", "layers per pipeline stage"),
    ("--micro-batches", "micro_batches", "micro-batches per iteration"),
    ("--micro-batch-sequences", "micro_batch_sequences", "sequences per micro-batch"),
    ("--sequence", "sequence_tokens", "tokens per sequence"),
    ("--hidden", "hidden_size", "hidden size of the model"),
    ("--element-bytes", "element_bytes", "bytes per element"),
    ("--seed", "seed", "seed of the expert popularity, with --expert-skew"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the output directory and the shape of the job."""
    add_json(parser)
    parser.add_argument(
        "out_dir", type=Path, metavar="OUT_DIR", help="output directory, created if it does not exist"
    )
    parser.add_argument("--keep", action="store_true", help="keep existing files of the same job")
    default = SyntheticSpec()
    for option, field, meaning in _OPTIONS:
        value = getattr(default, field)
        parser.add_argument(
            option,
            dest=field,
            type=parse_whole,
            default=value,
            metavar="N",
            help=f"{meaning} (default {value})",
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
        type=parse_number,
        default=Fraction(0),
        metavar="X",
        help="Zipf exponent of the expert popularity, such as 0.8 (default 0: uniform)",
    )
    _add_sweep(parser)
    parser.add_argument(
        "--flops",
        dest="device_flops",
        type=parse_flop_rate,
        default=default.device_flops,
        metavar="RATE",
        help='compute rate of one device, such as "312TFLOPS"',
    )


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    default = SweepSpec(())
    group = parser.add_argument_group("collectives over all ranks, instead of a training job")
    kinds = [kind.name.lower() for kind in SWEPT]
    group.add_argument(
        "--sweep", metavar="KINDS", help=f"such as all_reduce,all_gather: any of {', '.join(kinds)}"
    )
    group.add_argument(
        "--sizes",
        type=parse_size_range,
        default=(default.least_bytes, default.most_bytes),
        metavar="A-B",
        help="input bytes per rank, doubling from A to B (default 1KiB-64MiB)",
    )
    group.add_argument(
        "--ranks", type=parse_whole, default=default.ranks, metavar="N", help="ranks (default 8)"
    )
    group.add_argument(
        "--repeat",
        type=parse_whole,
        default=default.repeats,
        metavar="N",
        help="operations per size (default 1)",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Write the trace files of a synthetic job, or of a sweep.

    Raise `ConfigError` for an impossible job, `TraceError` if it cannot write.
    """
    import random
    from dataclasses import asdict

    with quick_loading():
        from etloop.workload.synthetic.sweep import sweep
        from etloop.workload.synthetic.training_step import synthesize

    if parsed.sweep is not None:
        sweep_spec = _sweep_spec(parsed)
        kinds = ", ".join(kind.name.lower() for kind in sweep_spec.kinds)
        description = f"{kinds} in {len(sweep_spec.sizes())} sizes"
        return _write(parsed, sweep(sweep_spec), asdict(sweep_spec), description)
    spec = SyntheticSpec(
        **{field: getattr(parsed, field) for _, field, _ in _OPTIONS},
        experts=parsed.experts,
        expert_skew_percent=round(100 * parsed.expert_skew),
        sharded_parameters=parsed.sharded_parameters,
        device_flops=parsed.device_flops,
    )
    rng = random.Random(spec.seed)  # noqa: S311 - the same job again for the same seed
    shape = f"{spec.tensor_parallel} tensor x {spec.data_parallel} data x {spec.pipeline_parallel} pipeline"
    return _write(parsed, synthesize(spec, rng), asdict(spec), shape)


def _sweep_spec(parsed: argparse.Namespace) -> SweepSpec:
    from etloop.contract.base.errors import ConfigError, Problem

    kinds_by_name = {kind.name.lower(): kind for kind in SWEPT}
    names = tuple(dict.fromkeys(name.strip() for name in parsed.sweep.split(",")))
    if unknown := [name for name in names if name not in kinds_by_name]:
        problem = f'"{unknown[0][:64]}" cannot be swept'
        raise ConfigError(Problem("--sweep", problem, f"name some of {', '.join(kinds_by_name)}"))
    least_bytes, most_bytes = parsed.sizes
    kinds = tuple(kinds_by_name[name] for name in names)
    return SweepSpec(kinds, least_bytes, most_bytes, parsed.ranks, parsed.repeat)


def _write(
    parsed: argparse.Namespace, job: SyntheticJob, spec: dict[str, object], description: str
) -> CommandResult:
    from etloop.workload.readers.et_writer import write_trace

    out_dir: Path = parsed.out_dir
    write_trace(out_dir, job.ranks, job.groups, keep=parsed.keep)
    nodes = sum(len(rank) for rank in job.ranks)
    if parsed.json:
        row = {
            "directory": str(out_dir),
            "ranks": len(job.ranks),
            "nodes": nodes,
            "groups": len(job.groups),
        }
        return CommandResult(to_json(row | {"spec": spec}))
    return CommandResult(
        f"{out_dir}: {len(job.ranks)} ranks ({description}), {nodes} nodes, {len(job.groups)} communicators\n"
    )
