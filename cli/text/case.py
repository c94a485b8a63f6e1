"""Describes a packed case: the files inside, the files outside with the reasons, and how to repeat the run."""

from __future__ import annotations

from etloop.contract.base.units import approximate_bytes
from etloop.controller.case.bundling import Bundle
from etloop.results.schema.case import CaseFile, CaseRole


def case_lines(made: Bundle) -> list[str]:
    """Return the lines that `etloop bundle` prints."""
    case = made.case
    inside_files = [file for file in case.files if file.inside]
    unpacked = approximate_bytes(sum(file.size_bytes for file in inside_files))
    by_role: dict[str, list[CaseFile]] = {}
    for file in inside_files:
        by_role.setdefault(file.role, []).append(file)
    roles = ", ".join(
        f"{len(files)} {role} files" if len(files) > 1 else str(role) for role, files in by_role.items()
    )
    lines = [
        f"case            {made.path}, {approximate_bytes(made.packed_bytes)} ({unpacked} unpacked)",
        f"inside          {roles}",
    ]
    outside_by_reason: dict[str, list[CaseFile]] = {}
    for file in case.files:
        if not file.inside:
            outside_by_reason.setdefault(file.why, []).append(file)
    for reason, files in outside_by_reason.items():
        count_text = f" and {len(files) - 1} more" if len(files) > 1 else ""
        lines.append(f"not inside      {files[0].name}{count_text}: {reason}")
    repeat_steps = [step.replace("CASE", made.path.name) for step in case.steps]
    if any(file.role is CaseRole.TRACE and not file.inside for file in case.files):
        repeat_steps = [
            f"{step} --traces DIR" if made.path.name in step and "--out" in step else step
            for step in repeat_steps
        ]
    return [
        *lines,
        *(f"{'repeat' if not number else '':<16}{step}" for number, step in enumerate(repeat_steps)),
    ]
