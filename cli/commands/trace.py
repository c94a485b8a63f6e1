"""The commands about traces alone: `synth` makes one, `lint` checks one and repairs it. Neither needs a rig.

Each takes what the command line said and returns an `CommandResult`; printing is left to `cli`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ExitCode, Severity
from etloop.contract.model.edges import edge_words
from etloop.workload.chakra.encoder import EtAttribute, ValueCase, encode_metadata
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.lint.fix import FixedTrace, fix
from etloop.workload.lint.report import LintReport, lint
from etloop.workload.readers.files import Progress, read_trace, write_trace
from etloop.workload.synthetic.sweep import SweepSpec, sweep
from etloop.workload.synthetic.training_step import SyntheticJob, SyntheticSpec, synthesize
from etloop.workload.trace.findings import Finding
from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from etloop.workload.trace.settings import WorkloadSettings


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


def lint_command(
    source: Path,
    groups: Path | None,
    settings: WorkloadSettings,
    *,
    as_json: bool,
    progress: Progress | None = None,
) -> CommandResult:
    """All that is wrong or remarkable about a trace. Raises `TraceError` where files cannot be read at all."""
    report = lint(read_trace(source, groups, progress), settings)
    code = ExitCode.PASS if report.replayable else ExitCode.PREPARATION_FAILED
    if as_json:
        return CommandResult(to_json(_as_json(report)), code)
    return CommandResult(render_lint(report), code)


def fix_command(
    source: Path,
    groups: Path | None,
    settings: WorkloadSettings,
    out_dir: Path,
    *,
    as_json: bool,
    progress: Progress | None = None,
) -> CommandResult:
    """Writes the repaired trace, reads it back and checks it: what is left is what no rule can fix.

    Raises `TraceError` where files cannot be read or written at all.
    """
    fixed = fix(read_trace(source, groups, progress), settings)
    metadata = None
    if not fixed.in_bytes:
        # Sizes stay what they were, so the mark by which they are read stays as well.
        metadata = encode_metadata("", (EtAttribute("schema", ValueCase.STRING, STAGE_SCHEMA),))
    ranks = [et_nodes(rank) for rank in fixed.trace.ranks]
    write_trace(out_dir, ranks, fixed.trace.groups, metadata=metadata)
    after = replace(settings, size_unit=SizeUnit.BYTES, element_bytes=None) if fixed.in_bytes else settings
    report = lint(read_trace(out_dir), after)
    code = ExitCode.PASS if report.replayable else ExitCode.PREPARATION_FAILED
    if as_json:
        repairs = [asdict(repair) for repair in fixed.repairs]
        return CommandResult(
            to_json(
                {
                    "directory": str(out_dir),
                    "repairs": repairs,
                    "remarks": [asdict(one) for one in fixed.trace.remarks],
                    "left": _as_json(report),
                }
            ),
            code,
        )
    return CommandResult(f"{_render_repairs(fixed, out_dir)}\n{render_lint(report)}", code)


def _render_repairs(fixed: FixedTrace, out_dir: Path) -> str:
    lines = [f"{fixed.trace.source}: repaired in {out_dir}"]
    lines += [f"  {repair.sentence()}" for repair in fixed.repairs] or ["  nothing to repair"]
    lines += [
        f"  the source leaves out: {remark.where}: {remark.what}; {remark.remedy}"
        for remark in fixed.trace.remarks
    ]
    lines += ["", "what is left after that:"]
    return "\n".join(lines) + "\n"


def _as_json(report: LintReport) -> dict[str, object]:
    return asdict(report) | {"replayable": report.replayable}


def render_lint(report: LintReport) -> str:
    """The report in words; ends with a newline."""
    sizes = f"sizes in {report.size_unit}" + (
        f" of {report.element_bytes} bytes" if report.size_unit == "elements" else ""
    )
    contents = f"{report.ranks} ranks, {report.nodes} nodes, {report.communicators} communicators"
    ops = f"{report.collectives} collectives, {report.sends} sends"
    lines = [f"{report.source}: {contents}, {ops}; {sizes}, dependencies {report.policy}"]
    lines.append(f"edges: {edge_words(report.edges)}")
    for finding in report.findings:
        lines += ["", *_finding_lines(finding)]
    errors, warnings = len(report.errors), len(report.warnings)
    verdict = "can be replayed" if report.replayable else "cannot be replayed"
    remarks = len(report.of(Severity.INFO))
    lines += ["", f"{verdict}: {errors} errors, {warnings} warnings, {remarks} remarks"]
    return "\n".join(lines) + "\n"


def _finding_lines(finding: Finding) -> list[str]:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    lines = [f"{finding.severity}: {finding.check}{times}; {finding.remedy}"]
    lines += [f"  {one.where}: expected {one.expected}, found {one.found}" for one in finding.examples]
    if finding.count > len(finding.examples):
        lines.append(f"  ... and {finding.count - len(finding.examples)} more")
    return lines
