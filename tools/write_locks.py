"""Writes locks/: `python tools/write_locks.py UV`, where UV is the program that resolves them.

From a lock pip installs a set of packages with `--require-hashes`. Versions are those of constraints.txt, hashes those of all
files of a release, so one lock serves every interpreter and processor. The first lines of a lock have a digest of its inputs;
tests/repo/test_locks.py names each lock that is older than its inputs. Decides no version.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "build": ("--group", "build"),
    "run": ("pyproject.toml", "--extra", "controller", "--extra", "broker"),
    "agent": ("pyproject.toml", "--extra", "agent"),
    "rack": (
        "pyproject.toml",
        "--extra",
        "controller",
        "--extra",
        "broker",
        "--extra",
        "otel",
        "--extra",
        "snmp",
        "--extra",
        "gnmi",
        "--extra",
        "infragraph",
    ),
    "dev": ("pyproject.toml", "--extra", "dev"),
    "supply": ("--group", "supply"),
}
"""The sets of packages, each with the arguments from which uv resolves it."""
INDEX: Final = "https://pypi.org/simple"
EVERYWHERE: Final = frozenset(
    {
        "sys_platform == 'linux'",
        "implementation_name == 'cpython'",
        "platform_python_implementation != 'PyPy'",
    }
)
"""Conditions that hold wherever a lock is used (`environments` in pyproject.toml)."""


def pins(text: str) -> dict[str, str]:
    """Return the version of every pinned package of constraints or of a lock, by its normalized name."""
    pairs = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {normalize(name): version for name, version in pairs}


def normalize(name: str) -> str:
    """Return a package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def digest(constraints: str, project: Mapping[str, Any]) -> str:
    """Return a digest of all that determines the locks: versions and requirements."""
    inputs = (
        sorted(pins(constraints).items()),
        project["project"]["dependencies"],
        project["project"]["optional-dependencies"],
        project["dependency-groups"],
        project["tool"]["uv"],
        {name: list(arguments) for name, arguments in LOCKS.items()},
    )
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def digest_here() -> str:
    """Return the digest of this tree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return digest((ROOT / "constraints.txt").read_text(), project)


def without_environment(lock: str) -> str:
    """Return a lock without the conditions that hold wherever it is used."""

    def shorten(match: re.Match[str]) -> str:
        clauses = [clause for clause in match.group(2).split(" and ") if clause not in EVERYWHERE]
        return match.group(1) + (f" ; {' and '.join(clauses)}" if clauses else "") + (match.group(3) or "")

    return re.sub(r"^(\S+==\S+) ; (.*?)( \\)?$", shorten, lock, flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write every lock; return the exit code, that of uv if it fails."""
    if len(arguments) != 1:
        print("usage: python tools/write_locks.py UV", file=sys.stderr)
        return 2
    (ROOT / "locks").mkdir(exist_ok=True)
    for name, sources in LOCKS.items():
        options = (
            "--universal",
            "--python-version=3.11",
            "--generate-hashes",
            "--no-annotate",
            "--no-header",
            "--quiet",
        )
        version_options = ("--constraint=constraints.txt", f"--default-index={INDEX}", "--no-cache")
        resolved = subprocess.run(
            (arguments[0], "pip", "compile", *options, *version_options, *sources),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if resolved.returncode:
            print(f"locks/{name}.lock is left as it was: {resolved.stderr.strip()}", file=sys.stderr)
            return resolved.returncode
        head = (
            f"# Written by `make locks` from constraints.txt and pyproject.toml.\n# digest: {digest_here()}\n"
        )
        text = head + without_environment(resolved.stdout)
        (ROOT / "locks" / f"{name}.lock").write_text(text)
        print(f"locks/{name}.lock: {len(pins(text))} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
