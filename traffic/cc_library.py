"""Turn a user's congestion control plugin into a shared library on this host.

This module decides how a plugin's source is compiled and where the result is cached. The interface that the library
must export is defined in traffic/native/cc/etloop_cc.h and checked when it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.congestion import MOST_PLUGIN_BYTES, CongestionSettings

HEADER: Final = Path(__file__).parent / "native" / "cc" / "etloop_cc.h"
SUFFIXES: Final = (".cpp", ".so")
_COMPILERS: Final = ("c++", "g++", "clang++")
_FLAGS: Final = (
    "-std=c++20",
    "-O2",
    "-Wall",
    "-fPIC",
    "-shared",
    "-fvisibility=default",
    "-ffp-contract=off",
)
_COMPILE_TIMEOUT_S: Final = 120
_MOST_SHOWN_CHARS: Final = 3000


def cache_directory() -> Path:
    """Return the cache directory of compiled plugins: `etloop/cc` below $XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "etloop" / "cc"


def read_plugin(path: Path) -> bytes:
    """Return the content of a plugin file. Raises `ConfigError` if it is not a plugin or cannot be read."""
    if path.suffix not in SUFFIXES:
        remedy = "give a C++ source .cpp or a compiled library .so"
        raise ConfigError(Problem(str(path), "is not a congestion control plugin", remedy))
    try:
        with path.open("rb") as file:
            content = file.read(MOST_PLUGIN_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None
    if not 0 < len(content) <= MOST_PLUGIN_BYTES:
        problem = "is empty" if not content else f"has more than {MOST_PLUGIN_BYTES} bytes"
        raise ConfigError(Problem(str(path), problem, "check that it is the intended file"))
    return content


def library_of(name: str, content: bytes) -> Path:
    """Return the shared library of a plugin; compile it if it is source that is not cached yet.

    Raises `ConfigError` with the compiler's errors.
    """
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if Path(name).suffix == ".so":
            return _store_once(directory / f"{hashlib.sha256(content).hexdigest()}.so", content)
        return _compile(directory, name, content)
    except OSError as error:
        problem = f"cannot be stored in {directory}: {error.strerror or error}"
        raise ConfigError(Problem(name, problem, "set XDG_CACHE_HOME to a directory that you own")) from None


def library_for(settings: CongestionSettings) -> str:
    """Return the path of the plugin's library on this host, "" for a built-in algorithm. Raises as `library_of`."""
    if not settings.plugin_name:
        return ""
    return str(library_of(settings.plugin_name, settings.plugin.tobytes()))


def libraries_for(assignment: Assignment, known: str = "") -> list[str]:
    """Return the plugin's library for each transport of an assignment, "" for one without a plugin.

    If `known` is not "", it is the library of all transports with a plugin. Raises as `library_of`.
    """
    settings = (transport.congestion for transport in assignment.transports)
    return [known or library_for(congestion) if congestion.plugin_name else "" for congestion in settings]


def _store_once(path: Path, content: bytes) -> Path:
    """Store a compiled plugin at `path` unless it exists; return `path`."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        Path(file.name).rename(path)
    return path


def _compile(directory: Path, name: str, source: bytes) -> Path:
    """Compile a plugin unless the cache has it; return the library's path. Raises `ConfigError`."""
    compiler = next((path for program in _COMPILERS if (path := shutil.which(program))), None)
    if compiler is None:
        remedy = "install a C++20 compiler (Debian: g++), or give the plugin as a library .so"
        raise ConfigError(Problem(name, f"no compiler on this host: {', '.join(_COMPILERS)}", remedy))
    parts = (source, HEADER.read_bytes(), compiler.encode(), " ".join(_FLAGS).encode())
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    library = directory / f"{key}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        source_file, compiled = Path(scratch) / "plugin.cpp", Path(scratch) / "plugin.so"
        source_file.write_bytes(source)
        command = [compiler, *_FLAGS, "-I", str(HEADER.parent), "-o", str(compiled), str(source_file)]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                timeout=_COMPILE_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            problem = f"the compiler did not finish within {_COMPILE_TIMEOUT_S} s"
            raise ConfigError(
                Problem(name, problem, "compile it yourself and give the library .so")
            ) from None
        if result.returncode != 0:
            errors = result.stderr.decode(errors="replace").replace(str(source_file), name)
            problem = f"{Path(compiler).name} rejects it:\n{errors[:_MOST_SHOWN_CHARS].rstrip()}\n"
            raise ConfigError(
                Problem(name, problem, "correct the source (etloop_cc.h states what it must define)")
            )
        compiled.rename(library)
    return library
