"""`etloop synth`: makes a synthetic trace and writes it."""

from __future__ import annotations

import argparse
import random
from dataclasses import asdict
from pathlib import Path

from etloop.cli.options.synth import SYNTH_OPTIONS
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, Problem
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.synthetic.spec import SWEPT, SweepSpec, SyntheticSpec
from etloop.workload.synthetic.sweep import sweep
from etloop.workload.synthetic.training_step import SyntheticJob, synthesize


def synth_command(parsed: argparse.Namespace) -> CommandResult:
    """Write the trace files of a synthetic job, or of a sweep.

    Raise `ConfigError` for an impossible job, `TraceError` if it cannot write.
    """
    if parsed.sweep is not None:
        sweep_spec = _sweep_spec(parsed)
        kinds = ", ".join(kind.name.lower() for kind in sweep_spec.kinds)
        return _written(
            parsed, sweep(sweep_spec), asdict(sweep_spec), f"{kinds} in {len(sweep_spec.sizes())} sizes"
        )
    spec = SyntheticSpec(
        **{field: getattr(parsed, field) for _, field, _ in SYNTH_OPTIONS},
        experts=parsed.experts,
        expert_skew_percent=round(100 * parsed.expert_skew),
        sharded_parameters=parsed.sharded_parameters,
        device_flops=parsed.device_flops,
    )
    rng = random.Random(spec.seed)  # noqa: S311 - the same job again for the same seed
    shape = f"{spec.tensor_parallel} tensor x {spec.data_parallel} data x {spec.pipeline_parallel} pipeline"
    return _written(parsed, synthesize(spec, rng), asdict(spec), shape)


def _sweep_spec(parsed: argparse.Namespace) -> SweepSpec:
    kinds_by_name = {kind.name.lower(): kind for kind in SWEPT}
    names = tuple(dict.fromkeys(name.strip() for name in parsed.sweep.split(",")))
    if unknown := [name for name in names if name not in kinds_by_name]:
        problem = f'"{unknown[0][:64]}" cannot be swept'
        raise ConfigError(Problem("--sweep", problem, f"name some of {', '.join(kinds_by_name)}"))
    least_bytes, most_bytes = parsed.sizes
    kinds = tuple(kinds_by_name[name] for name in names)
    return SweepSpec(kinds, least_bytes, most_bytes, parsed.ranks, parsed.repeat)


def _written(
    parsed: argparse.Namespace, job: SyntheticJob, spec: dict[str, object], shape: str
) -> CommandResult:
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
        f"{out_dir}: {len(job.ranks)} ranks ({shape}), {nodes} nodes, {len(job.groups)} communicators\n"
    )
