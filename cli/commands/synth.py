"""`etloop synth`: makes a trace up and writes it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult, to_json
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.synthetic.spec import SweepSpec, SyntheticSpec
from etloop.workload.synthetic.sweep import sweep
from etloop.workload.synthetic.training_step import SyntheticJob, synthesize

if TYPE_CHECKING:
    import random


def synth_command(out_dir: Path, spec: SyntheticSpec, rng: random.Random, *, as_json: bool) -> CommandResult:
    """Writes a synthetic job's trace files; `rng` is seeded with the spec's seed.

    Raises `ConfigError` for an impossible job, `TraceError` if it cannot write.
    """
    shape = f"{spec.tensor_parallel} tensor x {spec.data_parallel} data x {spec.pipeline_parallel} pipeline"
    return _written(out_dir, synthesize(spec, rng), asdict(spec), shape, as_json=as_json)


def sweep_command(out_dir: Path, spec: SweepSpec, *, as_json: bool) -> CommandResult:
    """Writes a sweep's trace files. Raises as `synth_command` does."""
    kinds = ", ".join(kind.name.lower() for kind in spec.kinds)
    return _written(
        out_dir, sweep(spec), asdict(spec), f"{kinds} in {len(spec.sizes())} sizes", as_json=as_json
    )


def _written(
    out_dir: Path, job: SyntheticJob, spec: dict[str, object], shape: str, *, as_json: bool
) -> CommandResult:
    write_trace(out_dir, job.ranks, job.groups)
    nodes = sum(len(rank) for rank in job.ranks)
    if as_json:
        written = {
            "directory": str(out_dir),
            "ranks": len(job.ranks),
            "nodes": nodes,
            "groups": len(job.groups),
        }
        return CommandResult(to_json(written | {"spec": spec}))
    return CommandResult(
        f"{out_dir}: {len(job.ranks)} ranks ({shape}), {nodes} nodes, {len(job.groups)} communicators\n"
    )
