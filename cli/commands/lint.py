"""`etloop lint`: what is wrong with a trace, and the trace repaired. Needs no rig."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.lint import render_lint, render_repairs
from etloop.contract.base.errors import ExitCode
from etloop.workload.lint.report import LintReport, lint
from etloop.workload.readers.files import Progress, read_trace
from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit, WorkloadSettings


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
    """Write the repaired trace, read it back and check it: what is left is what no rule can mend.

    Raises `TraceError` where files cannot be read or written at all.
    """
    from etloop.workload.chakra.encoder import EtAttribute, ValueCase, encode_metadata
    from etloop.workload.chakra.nodes import et_nodes
    from etloop.workload.lint.fix import fix
    from etloop.workload.readers.et_writer import write_trace

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
    return CommandResult(f"{render_repairs(fixed, out_dir)}\n{render_lint(report)}", code)


def _as_json(report: LintReport) -> dict[str, object]:
    return asdict(report) | {"replayable": report.replayable}
