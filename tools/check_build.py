"""Checks the requirements of the native build before a compiler fails: `PYTHON tools/check_build.py`.

Checks for a C++20 compiler and Python's headers. Missing headers are installed where that needs no
question (root, apt-get); otherwise each missing thing is named with the command that brings it. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

CXX20_PROBE: Final = (
    "#include <span>\n#include <concepts>\nint first(std::span<const int> s) { return s[0]; }\n"
)


def compiler_problem() -> str:
    """Return the problem of the C++ compiler, "" if it compiles C++20."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), "")
    if not compiler:
        return "no C++ compiler; run: sudo apt-get install g++"
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "probe.cpp"
        source.write_text(CXX20_PROBE)
        command = [*compiler.split(), "-std=c++20", "-c", str(source), "-o", str(Path(directory) / "probe.o")]
        try:
            compiled = subprocess.run(command, check=False, capture_output=True, text=True)
        except OSError as error:
            return f"the C++ compiler {compiler!r} does not run ({error}); set CXX to one that does"
    if compiled.returncode == 0:
        return ""
    return f"{compiler} does not compile C++20; GCC 11 or Clang 14 and later do, choose one with CXX=\n{compiled.stderr}"


def headers_problem() -> str:
    """Return the problem of Python's headers, "" if they exist, after trying to install them as root."""
    if has_headers():
        return ""
    package = headers_package()
    if os.geteuid() == 0 and package and shutil.which("apt-get"):
        print(f"Python.h is missing: installing {package} with apt-get")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package],
        ):
            subprocess.run(command, check=False, env=quiet, stdout=subprocess.DEVNULL)
        if has_headers():
            return ""
    if package:
        return f"Python.h is missing in {include_directory()}; run: sudo apt-get install {package}"
    return f"Python.h is missing in {include_directory()}; install the development files of {sys.executable}"


def include_directory() -> Path:
    """Return the directory of this interpreter's headers."""
    return Path(sysconfig.get_paths()["include"])


def has_headers() -> bool:
    """Return whether an extension module can be compiled for this interpreter."""
    return (include_directory() / "Python.h").is_file()


def headers_package() -> str:
    """Return the Debian package with this interpreter's headers, "" if the interpreter is not Debian's."""
    if sys.base_prefix != "/usr":
        return ""
    return f"python{sys.version_info.major}.{sys.version_info.minor}-dev"


def main() -> int:
    """Print everything that is missing at once; return the exit code."""
    problems = [text for text in (compiler_problem(), headers_problem()) if text]
    for text in problems:
        print(f"etloop cannot be built: {text}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
