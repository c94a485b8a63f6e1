"""`etloop lint`: reports the problems of a trace, and repairs it, in words or as JSON. Needs no rig."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.progress import reading_bar
from etloop.cli.result import CommandResult, to_json
from etloop.cli.trace_options import settings_of, world_of
from etloop.contract.base.errors import ConfigError, ExitCode, Problem, Severity
from etloop.contract.model.edges import edge_words
from etloop.workload.lint.report import LintReport, lint
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit

if TYPE_CHECKING:
    from etloop.workload.lint.fix import FixedTrace
    from etloop.workload.trace.findings import Finding


def lint_command(parsed: argparse.Namespace) -> CommandResult:
    """Report all problems and remarks of a trace, and repair it if requested.

    Raise `TraceError` if files cannot be read at all.
    """
    if parsed.fix is not None:
        return _fix(parsed)
    with reading_bar() as bar:
        report = lint(
            read_trace(parsed.trace, parsed.groups, bar, parsed.kernels, world_of(parsed)),
            settings_of(parsed),
        )
    return CommandResult(
        to_json(_as_json(report)) if parsed.json else render_lint(report), _exit_code(report)
    )


def _fix(parsed: argparse.Namespace) -> CommandResult:
    """Write the repaired trace, read it back and check it: the report lists the problems that no rule can repair.

    Raise `TraceError` if files cannot be read or written at all.
    """
    from etloop.workload.chakra.encoder import EtAttribute, ValueCase, encode_metadata
    from etloop.workload.chakra.nodes import et_nodes
    from etloop.workload.lint.fix import fix
    from etloop.workload.readers.et_writer import write_trace

    settings, out_dir = settings_of(parsed), parsed.fix
    if settings.stand_ins:
        problem = "is of the recorded ranks themselves, and --stand-ins of those that they stand for"
        raise ConfigError(Problem("--fix", problem, "repair the recordings without --stand-ins"))
    with reading_bar() as bar:
        fixed = fix(read_trace(parsed.trace, parsed.groups, bar, parsed.kernels), settings)
    metadata = None
    if not fixed.in_bytes:
        # Sizes are unchanged, so the attribute that selects their unit is kept as well.
        metadata = encode_metadata("", (EtAttribute("schema", ValueCase.STRING, STAGE_SCHEMA),))
    ranks = [et_nodes(rank) for rank in fixed.trace.ranks]
    write_trace(out_dir, ranks, fixed.trace.groups, metadata=metadata)
    repaired_settings = (
        replace(settings, size_unit=SizeUnit.BYTES, element_bytes=None) if fixed.in_bytes else settings
    )
    report = lint(read_trace(out_dir), repaired_settings)
    text = f"{render_repairs(fixed, out_dir)}\n{render_lint(report)}"
    if parsed.json:
        answer = {
            "directory": str(out_dir),
            "repairs": [asdict(repair) for repair in fixed.repairs],
            "remarks": [asdict(remark) for remark in (*fixed.trace.remarks, *_left_out(fixed))],
            "left": _as_json(report),
        }
        text = to_json(answer)
    return CommandResult(text, _exit_code(report))


def _exit_code(report: LintReport) -> ExitCode:
    return ExitCode.PASS if report.replayable else ExitCode.PREPARATION_FAILED


def _as_json(report: LintReport) -> dict[str, object]:
    return asdict(report) | {"replayable": report.replayable}


def render_repairs(fixed: FixedTrace, out_dir: Path) -> str:
    """Return the repairs in words; the text ends with the heading of the report that follows."""
    lines = [f"{fixed.trace.source}: written to {out_dir}, with these repairs"]
    lines += [f"  {repair.sentence()}" for repair in fixed.repairs] or ["  nothing to repair"]
    lines += [
        f"  the source leaves out: {remark.where}: {remark.what}; {remark.remedy}"
        for remark in (*fixed.trace.remarks, *_left_out(fixed))
    ]
    lines += ["", "what is left after that:"]
    return "\n".join(lines) + "\n"


def _left_out(fixed: FixedTrace) -> tuple[Problem, ...]:
    return tuple(omission.problem for omission in fixed.trace.left_out)


def render_lint(report: LintReport) -> str:
    """Return the report in words; the text ends with a newline."""
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
    if report.replayable and not report.collectives + report.sends:
        verdict = "nothing to replay"
    remarks = len(report.of(Severity.INFO))
    lines += ["", f"{verdict}: {errors} errors, {warnings} warnings, {remarks} remarks"]
    return "\n".join(lines) + "\n"


def _finding_lines(finding: Finding) -> list[str]:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    lines = [f"{finding.severity}: {finding.check}{times}; {finding.remedy}"]
    lines += [
        f"  {example.where}: expected {example.expected}, found {example.found}"
        for example in finding.examples
    ]
    if finding.count > len(finding.examples):
        lines.append(f"  ... and {finding.count - len(finding.examples)} more")
    return lines
