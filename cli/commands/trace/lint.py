"""Check a trace: errors that prevent its replay, warnings and remarks; optionally repair it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.trace import add_trace_arguments, file_facts, workload_settings, world_size
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading

if TYPE_CHECKING:
    from etloop.contract.base.errors import ExitCode
    from etloop.workload.lint.report import LintReport

EXAMPLE: Final = (
    "  etloop lint job/\n  etloop lint trace.tar.zst --size-unit elements --element-bytes 2 --json"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the trace and its repair."""
    add_json(parser)
    add_trace_arguments(parser)
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT_DIR",
        help="repair the trace by named rules and write it there as .et files",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Report all findings of a trace, and repair it if requested.

    Raise `TraceError` if files cannot be read at all.
    """
    with quick_loading():
        from etloop.cli.progress import reading_bar
        from etloop.cli.text.lint import lint_values, render_lint
        from etloop.workload.lint.report import lint
        from etloop.workload.readers.files import read_trace

    if parsed.fix is not None:
        return _repair(parsed)
    with reading_bar() as bar:
        report = lint(
            read_trace(
                parsed.trace, parsed.groups, bar, parsed.kernels, world_size(parsed), file_facts(parsed)
            ),
            workload_settings(parsed),
        )
    return CommandResult(
        to_json(lint_values(report)) if parsed.json else render_lint(report), _exit_code(report)
    )


def _repair(parsed: argparse.Namespace) -> CommandResult:
    """Write the repaired trace, read it back and lint it: the report lists the problems that no rule can repair.

    Raise `TraceError` if files cannot be read or written at all.
    """
    from dataclasses import replace

    from etloop.cli.progress import reading_bar
    from etloop.cli.text.lint import render_lint, render_repairs, repair_values
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.workload.chakra.encoder import EtAttribute, ValueCase, encode_metadata
    from etloop.workload.chakra.nodes import et_nodes
    from etloop.workload.lint.fix import fix
    from etloop.workload.lint.report import lint
    from etloop.workload.readers.et_writer import write_trace
    from etloop.workload.readers.files import read_trace
    from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit

    settings, out_dir = workload_settings(parsed), parsed.fix
    if settings.stand_ins:
        problem = "repairs the recorded ranks only, and --stand-ins adds ranks without a recording"
        raise ConfigError(Problem("--fix", problem, "repair the recordings without --stand-ins"))
    with reading_bar() as bar:
        fixed = fix(
            read_trace(parsed.trace, parsed.groups, bar, parsed.kernels, facts=file_facts(parsed)), settings
        )
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
    if parsed.json:
        text = to_json(repair_values(fixed, report, out_dir))
    else:
        text = f"{render_repairs(fixed, out_dir)}\n{render_lint(report)}"
    return CommandResult(text, _exit_code(report))


def _exit_code(report: LintReport) -> ExitCode:
    from etloop.contract.base.errors import ExitCode

    return ExitCode.PASS if report.replayable else ExitCode.PREPARATION_FAILED
