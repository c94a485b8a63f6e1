"""What was found in a trace, and what was repaired, as lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.errors import Severity
from etloop.contract.model.edges import edge_words
from etloop.workload.trace.findings import Finding

if TYPE_CHECKING:
    from etloop.workload.lint.fix import FixedTrace
    from etloop.workload.lint.report import LintReport


def render_repairs(fixed: FixedTrace, out_dir: Path) -> str:
    """Return what was repaired, in words; ends with the heading of the report that follows."""
    lines = [f"{fixed.trace.source}: repaired in {out_dir}"]
    lines += [f"  {repair.sentence()}" for repair in fixed.repairs] or ["  nothing to repair"]
    lines += [
        f"  the source leaves out: {remark.where}: {remark.what}; {remark.remedy}"
        for remark in fixed.trace.remarks
    ]
    lines += ["", "what is left after that:"]
    return "\n".join(lines) + "\n"


def render_lint(report: LintReport) -> str:
    """Return the report in words; ends with a newline."""
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
