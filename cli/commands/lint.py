"""`etloop lint`: what is wrong with a trace, and the trace repaired. Needs no rig."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from etloop.cli.progress import reading_bar
from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.lint import render_lint, render_repairs
from etloop.cli.trace_options import settings_of
from etloop.contract.base.errors import ExitCode
from etloop.runtime.linear_algebra import one_blas_thread
from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit

with one_blas_thread():
    from etloop.workload.lint.report import LintReport, lint
    from etloop.workload.readers.files import read_trace


def lint_command(parsed: argparse.Namespace) -> CommandResult:
    """All that is wrong or remarkable about a trace, which is repaired if asked for. Raises `TraceError` where files cannot be
    read at all."""
    if parsed.fix is not None:
        return _fix(parsed)
    with reading_bar() as bar:
        report = lint(read_trace(parsed.trace, parsed.groups, bar), settings_of(parsed))
    return CommandResult(
        to_json(_as_json(report)) if parsed.json else render_lint(report), _exit_code(report)
    )


def _fix(parsed: argparse.Namespace) -> CommandResult:
    """Write the repaired trace, read it back and check it: what is left is what no rule can mend.

    Raises `TraceError` where files cannot be read or written at all.
    """
    from etloop.workload.chakra.encoder import EtAttribute, ValueCase, encode_metadata
    from etloop.workload.chakra.nodes import et_nodes
    from etloop.workload.lint.fix import fix
    from etloop.workload.readers.et_writer import write_trace

    settings, out_dir = settings_of(parsed), parsed.fix
    with reading_bar() as bar:
        fixed = fix(read_trace(parsed.trace, parsed.groups, bar), settings)
    metadata = None
    if not fixed.in_bytes:
        # Sizes stay what they were, so the mark by which they are read stays as well.
        metadata = encode_metadata("", (EtAttribute("schema", ValueCase.STRING, STAGE_SCHEMA),))
    ranks = [et_nodes(rank) for rank in fixed.trace.ranks]
    write_trace(out_dir, ranks, fixed.trace.groups, metadata=metadata)
    after = replace(settings, size_unit=SizeUnit.BYTES, element_bytes=None) if fixed.in_bytes else settings
    report = lint(read_trace(out_dir), after)
    text = f"{render_repairs(fixed, out_dir)}\n{render_lint(report)}"
    if parsed.json:
        answer = {
            "directory": str(out_dir),
            "repairs": [asdict(repair) for repair in fixed.repairs],
            "remarks": [asdict(one) for one in fixed.trace.remarks],
            "left": _as_json(report),
        }
        text = to_json(answer)
    return CommandResult(text, _exit_code(report))


def _exit_code(report: LintReport) -> ExitCode:
    return ExitCode.PASS if report.replayable else ExitCode.PREPARATION_FAILED


def _as_json(report: LintReport) -> dict[str, object]:
    return asdict(report) | {"replayable": report.replayable}
