"""A case that was packed, in words: what is inside, what is not and why, and how it is repeated."""

from __future__ import annotations

from etloop.contract.base.units import approximate_bytes
from etloop.controller.case.bundling import Bundle
from etloop.results.schema.case import CaseFile, CaseRole


def case_lines(made: Bundle) -> list[str]:
    """Return the lines that `etloop bundle` prints."""
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
    if any(file.role is CaseRole.TRACE and not file.inside for file in case.files):
        repeat = [
            f"{step} --traces DIR" if made.path.name in step and "--out" in step else step for step in repeat
        ]
    return [*lines, *(f"{'repeat' if not number else '':<16}{step}" for number, step in enumerate(repeat))]
