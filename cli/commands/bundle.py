"""`etloop bundle`: a run directory -> one file by which others repeat the run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.units import approximate_bytes
from etloop.controller.case.bundling import ENDING, Bundle, bundle
from etloop.results.schema.case import CaseFile


def bundle_command(parsed: argparse.Namespace) -> CommandResult:
    """Pack the run that the command line names, and say what is inside. Raises as `bundle`."""
    out = parsed.out
    if out is None:
        out = Path(f"{parsed.run_dir.resolve().name}{ENDING}")
    made = bundle(parsed.run_dir, out, parsed.traces, has_traces=not parsed.no_traces)
    if parsed.json:
        return CommandResult(
            to_json({"path": made.path, "bytes": made.packed_bytes, "case": asdict(made.case)})
        )
    return CommandResult("".join(f"{line}\n" for line in _lines(made)))


def _lines(made: Bundle) -> list[str]:
    case = made.case
    inside = [file for file in case.files if file.inside]
    unpacked = approximate_bytes(sum(file.size_bytes for file in inside))
    by_role: dict[str, list[CaseFile]] = {}
    for file in inside:
        by_role.setdefault(file.role, []).append(file)
    roles = ", ".join(
        f"{len(files)} {role} files" if len(files) > 1 else str(role) for role, files in by_role.items()
    )
    lines = [
        f"case            {made.path}, {approximate_bytes(made.packed_bytes)} ({unpacked} unpacked)",
        f"inside          {roles}",
    ]
    outside: dict[str, list[CaseFile]] = {}
    for file in case.files:
        if not file.inside:
            outside.setdefault(file.why, []).append(file)
    for why, files in outside.items():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        lines.append(f"not inside      {files[0].name}{more}: {why}")
    repeat = [step.replace("CASE", made.path.name) for step in case.steps]
    if any(file.role == "trace" and not file.inside for file in case.files):
        repeat = [
            f"{step} --traces DIR" if made.path.name in step and "--out" in step else step for step in repeat
        ]
    return [*lines, *(f"{'repeat' if not number else '':<16}{step}" for number, step in enumerate(repeat))]
