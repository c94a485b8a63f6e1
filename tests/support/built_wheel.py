"""Makes a wheel of this tree from what `make` compiled, one test at a time, for they share its build directory."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT


def build_wheel(place: Path) -> Path:
    """Returns the wheel, in this directory; nothing is compiled or downloaded."""
    native = ROOT / "build" / "native"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel")
    options = ("--no-build-isolation", "--no-deps", "--no-index", f"--config-settings=build-dir={native}")
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))
    }
    with (ROOT / "build" / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            (*pip, *options, "--wheel-dir", place, ROOT),
            cwd=place,
            env=outside,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = place.glob("etloop-*.whl")
    return built
