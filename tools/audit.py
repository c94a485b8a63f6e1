"""Looks up known vulnerabilities of all packages in the locks: `python tools/audit.py PIP_AUDIT`.

Ends with 1 if there is one, and with 0 if every package was looked up and there is none. If the database does not
answer, it names the host and the number of packages that were not looked up, and ends with 0, or with 1 if
ETLOOP_AUDIT=required: pip-audit itself ends with 0 and "No known vulnerabilities found" then. Decides what a report of
pip-audit means.
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
"""Host of the JSON pages with the vulnerabilities."""
TIME_LIMIT_S: Final = 900


@dataclass(frozen=True, slots=True)
class Audit:
    """Result for the packages of the locks."""

    vulnerabilities: tuple[str, ...]
    unanswered: int
    packages: int
    trouble: str = ""

    def lines(self) -> list[str]:
        """Return the findings, then the number of packages that were not looked up, then of those that were."""
        looked_up = self.packages - self.unanswered
        unaudited = (
            f"not audited: {self.unanswered} of {self.packages} packages: {HOST} does not answer for them"
        )
        because = f" ({self.trouble})" if self.trouble else ""
        return [
            *self.vulnerabilities,
            *([f"skipped: {unaudited}{because}"] if self.unanswered else []),
            f"{looked_up} of {self.packages} packages audited, {len(self.vulnerabilities)} known vulnerabilities",
        ]

    def code(self, *, required: bool) -> int:
        """Return the exit code."""
        return int(bool(self.vulnerabilities) or (required and self.unanswered > 0))


def result_of(report: dict[str, Any], packages: int) -> Audit:
    """Return the result of a report of pip-audit; packages that it does not mention were not looked up."""
    rows = [row for row in report["dependencies"] if "skip_reason" not in row]
    vulnerabilities = tuple(
        f"{row['name']} {row['version']}: {finding['id']}, fixed in {', '.join(finding['fix_versions']) or 'no release'}"
        for row in rows
        for finding in row["vulns"]
    )
    return Audit(vulnerabilities, packages - len(rows), packages)


def audit(program: str) -> Audit:
    """Run pip-audit once on every package of the locks; return its result."""
    locked: dict[str, str] = {}
    for name in LOCKS:
        locked |= pins((ROOT / "locks" / f"{name}.lock").read_text())
    requirements = ROOT / "build" / "audited.txt"
    requirements.parent.mkdir(exist_ok=True)
    requirements.write_text("".join(f"{name}=={version}\n" for name, version in sorted(locked.items())))
    options = ("--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=10")
    finished = subprocess.run(
        (program, "--requirement", requirements, *options),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    if not finished.stdout.startswith("{"):
        last = finished.stderr.strip().splitlines()[-1:] or [f"pip-audit ended with {finished.returncode}"]
        return Audit((), len(locked), len(locked), last[0][:200])
    return result_of(json.loads(finished.stdout), len(locked))


def main(arguments: list[str]) -> int:
    """Print the result and return the exit code."""
    if len(arguments) != 1:
        print("usage: python tools/audit.py PIP_AUDIT", file=sys.stderr)
        return 2
    result = audit(arguments[0])
    print("\n".join(result.lines()))
    return result.code(required=os.environ.get("ETLOOP_AUDIT") == "required")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
