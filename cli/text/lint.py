"""Lint reports and repairs -> text and values for programs. Pure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.model.edges import edge_words
from etloop.workload.lint.report import LintReport

if TYPE_CHECKING:
    from etloop.workload.lint.fix import FixedTrace
    from etloop.workload.trace.findings import Finding


def lint_values(report: LintReport) -> dict[str, object]:
    """Return a lint report for programs."""
    return asdict(report) | {"replayable": report.replayable}


def repair_values(fixed: FixedTrace, report: LintReport, out_dir: Path) -> dict[str, object]:
    """Return the repairs of a trace, and the report about the repaired one, for programs."""
    return {
        "directory": str(out_dir),
        "repairs": [asdict(repair) for repair in fixed.repairs],
        "remarks": [asdict(remark) for remark in (*fixed.trace.remarks, *_omissions(fixed))],
        "left": lint_values(report),
    }


def render_repairs(fixed: FixedTrace, out_dir: Path) -> str:
    """Return the repairs as text that ends with the heading of the report that follows."""
    lines = [f"{fixed.trace.source}: written to {out_dir}, with these repairs"]
    lines += [f"  {repair.sentence()}" for repair in fixed.repairs] or ["  nothing to repair"]
    lines += [
        f"  the source leaves out: {remark.where}: {remark.what}; {remark.remedy}"
        for remark in (*fixed.trace.remarks, *_omissions(fixed))
    ]
    lines += ["", "remaining after the repairs:"]
    return "\n".join(lines) + "\n"


def _omissions(fixed: FixedTrace) -> tuple[Problem, ...]:
    return tuple(omission.problem for omission in fixed.trace.left_out)


def render_lint(report: LintReport) -> str:
    """Return the report as text that ends with a newline."""
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
