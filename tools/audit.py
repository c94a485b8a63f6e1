"""Looks for known vulnerabilities in all that the locks name: `python tools/audit.py PIP_AUDIT`.

Ends with 1 where there is one, and with 0 where every package was looked up and there is none. Where the database does not
answer it says which host and how many packages were not looked up, and ends with 0, or with 1 if ETLOOP_AUDIT=required:
pip-audit itself ends with 0 and "No known vulnerabilities found" then. Decides what a report of pip-audit means.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.write_locks import LOCKS, ROOT, pins

HOST: Final = "pypi.org"
"""Whose JSON pages tell of vulnerabilities."""
TIME_LIMIT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found out about the packages of the locks."""

    found: tuple[str, ...]
    unanswered: int
    packages: int
    trouble: str = ""

    def lines(self) -> list[str]:
        """Returns the findings, then what was not looked up, then what was."""
        looked_up = self.packages - self.unanswered
        missed = (
            f"not audited: {self.unanswered} of {self.packages} packages: {HOST} does not answer for them"
        )
        because = f" ({self.trouble})" if self.trouble else ""
        return [
            *self.found,
            *([f"skipped: {missed}{because}"] if self.unanswered else []),
            f"{looked_up} of {self.packages} packages audited, {len(self.found)} known vulnerabilities",
        ]

    def code(self, *, required: bool) -> int:
        """Returns the code to end with."""
        return int(bool(self.found) or (required and self.unanswered > 0))


def judged(report: dict[str, Any], packages: int) -> Audit:
    """Returns what a report of pip-audit says; packages that it does not mention were not looked up."""
    rows = [row for row in report["dependencies"] if "skip_reason" not in row]
    found = tuple(
        f"{row['name']} {row['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no release'}"
        for row in rows
        for one in row["vulns"]
    )
    return Audit(found, packages - len(rows), packages)


def audit(program: str) -> Audit:
    """Asks pip-audit about every package of the locks, once."""
    locked: dict[str, str] = {}
    for name in LOCKS:
        locked |= pins((ROOT / "locks" / f"{name}.lock").read_text())
    asked = ROOT / "build" / "audited.txt"
    asked.parent.mkdir(exist_ok=True)
    asked.write_text("".join(f"{name}=={version}\n" for name, version in sorted(locked.items())))
    options = ("--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=10")
    done = subprocess.run(
        (program, "--requirement", asked, *options),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    if not done.stdout.startswith("{"):
        last = done.stderr.strip().splitlines()[-1:] or [f"pip-audit ended with {done.returncode}"]
        return Audit((), len(locked), len(locked), last[0][:200])
    return judged(json.loads(done.stdout), len(locked))


def main(arguments: list[str]) -> int:
    """Prints what was found."""
    if len(arguments) != 1:
        print("usage: python tools/audit.py PIP_AUDIT", file=sys.stderr)
        return 2
    told = audit(arguments[0])
    print("\n".join(told.lines()))
    return told.code(required=os.environ.get("ETLOOP_AUDIT") == "required")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
