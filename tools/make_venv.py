"""Makes the virtual environment that everything is built in: `python3 tools/make_venv.py DIRECTORY`.

Decides how pip is installed: by ensurepip if the interpreter has it, else (Debian and Ubuntu without python3-venv)
by tools/bootstrap_pip.py. Needs only the standard library. The Makefile decides which packages are installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

OLDEST_PYTHON: Final = (3, 11)


def main(arguments: list[str]) -> int:
    """Create or complete the environment named by the one argument; return the exit code."""
    if len(arguments) != 1:
        print("usage: python3 tools/make_venv.py DIRECTORY", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        print(
            f"Python {sys.version.split()[0]} is too old; run: make PYTHON=/path/to/python{oldest} (or newer)",
            file=sys.stderr,
        )
        return 1
    directory = Path(arguments[0])
    python = directory / "bin" / "python"
    if not works(python):
        with_pip = importlib.util.find_spec("ensurepip") is not None
        venv.EnvBuilder(clear=directory.exists(), symlinks=True, with_pip=with_pip).create(directory)
    if has_pip(python):
        return 0
    print(
        "this Python has no ensurepip (Debian's python3-venv is not installed): fetching pip from the package index"
    )
    bootstrap = Path(__file__).with_name("bootstrap_pip.py")
    return subprocess.run([python, bootstrap], check=False).returncode


def works(python: Path) -> bool:
    """Return whether the environment's interpreter still runs: it is a link to a Python that may have been removed."""
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0


def has_pip(python: Path) -> bool:
    """Return whether pip can be run in the environment."""
    finished = subprocess.run([python, "-m", "pip", "--version"], check=False, capture_output=True)
    return finished.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
