"""Builds the libraries that answer for the CUDA runtime and driver, for one installation of PyTorch.

The imports of PyTorch are read from its libraries (`nm -D`): cuda_runtime.c answers a part of it, and the rest returns an
error. The layouts of structures belong to one major version of CUDA, so another one is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass

TESTED_CUDA_MAJORS: Final = ("13",)
COUNT_VARIABLE: Final = "ETLOOP_GPU_COUNT"
_SOURCES: Final = Path(__file__).parent
_INSPECT: Final = """
import importlib.util, json, pathlib, runpy
spec = importlib.util.find_spec("torch")
facts = None
if spec is not None and spec.submodule_search_locations:
    directory = pathlib.Path(next(iter(spec.submodule_search_locations)))
    version = runpy.run_path(str(directory / "version.py"))
    facts = [str(version["__version__"]), version.get("cuda"), version.get("hip"), str(directory)]
print(json.dumps(facts))
"""
_ON_CPU: Final = "or record the script's branch for the CPU with --cpu"
_COMPILE_TIMEOUT_S: Final = 120


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """One installation of PyTorch."""

    version: str
    cuda: str | None
    """Version of CUDA that it was built for; None: it has no code for it."""
    hip: str | None
    directory: str

    @property
    def has_gpu_code(self) -> bool:
        """Return whether scripts can say `cuda` with it."""
        return self.cuda is not None or self.hip is not None


def inspect_torch(python: str) -> TorchBuild | None:
    """Return the PyTorch of an interpreter without importing it, None if it has none. Raises `ConfigError`."""
    try:
        done = subprocess.run([python, "-c", _INSPECT], check=False, capture_output=True, text=True)
    except OSError as error:
        fault = f"cannot be started: {error.strerror}"
        raise ConfigError(Problem(python, fault, "name a Python with --python")) from None
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        fault = f"does not say which PyTorch it has: {done.stderr.strip()[-300:]}"
        raise ConfigError(Problem(python, fault, "name another Python with --python")) from None
    return None if facts is None else TorchBuild(*facts)


def build_preload(build: TorchBuild, directory: Path) -> Path:
    """Compile the libraries into a directory, and return the one to preload.

    Raises `ConfigError` for a version of CUDA that is not known, and if there is no compiler.
    """
    _check_cuda(build)
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    lister = shutil.which("nm")
    if compiler is None or lister is None:
        fault = "a C compiler and nm are needed to answer for CUDA, and are not installed"
        raise ConfigError(Problem("cc", fault, f"install them (Debian packages gcc, binutils), {_ON_CPU}"))
    imports = _imports(lister, Path(build.directory) / "lib")
    preload = directory / "libetloop_cuda_runtime.so"
    for source, pattern, listing, output in (
        ("cuda_runtime.c", r"(?:__)?cuda[A-Z]\w*", "unanswered.inc", preload),
        ("cuda_driver.c", r"cu(?!File)[A-Z]\w*", "unanswered_driver.inc", directory / "libcuda.so.1"),
    ):
        text = (_SOURCES / source).read_text()
        wanted = {name for name in imports if re.fullmatch(pattern, name)} - _answers(text)
        (directory / listing).write_text("".join(f"UNANSWERED({name})\n" for name in sorted(wanted)))
        _compile(compiler, _SOURCES / source, directory, output)
    return preload


def environment_of(preload: Path, device_count: int) -> Mapping[str, str]:
    """Return the variables that put the libraries before those of CUDA."""
    joined = {
        "LD_PRELOAD": (str(preload), os.environ.get("LD_PRELOAD", "")),
        "LD_LIBRARY_PATH": (str(preload.parent), os.environ.get("LD_LIBRARY_PATH", "")),
    }
    return {
        **{name: ":".join(filter(None, paths)) for name, paths in joined.items()},
        COUNT_VARIABLE: str(device_count),
    }


def _check_cuda(build: TorchBuild) -> None:
    if build.hip is not None:
        fault = f"torch {build.version} is built for ROCm {build.hip}, which has no answers without a GPU"
        raise ConfigError(
            Problem(build.directory, fault, f"name a Python with a CUDA build (--python), {_ON_CPU}")
        )
    major = (build.cuda or "").partition(".")[0]
    if major not in TESTED_CUDA_MAJORS:
        known = ", ".join(TESTED_CUDA_MAJORS)
        fault = f"torch {build.version} is built for CUDA {build.cuda}; answers are known for CUDA {known}"
        raise ConfigError(
            Problem(
                build.directory, fault, f"name a Python with a build for CUDA {known} (--python), {_ON_CPU}"
            )
        )


def _imports(lister: str, libraries: Path) -> frozenset[str]:
    paths = sorted(map(str, libraries.glob("*.so*")))
    if not paths:
        fault = "has no libraries of PyTorch"
        raise ConfigError(Problem(str(libraries), fault, "install PyTorch again, or name another Python"))
    done = subprocess.run(
        [lister, "-D", "--undefined-only", *paths], check=False, capture_output=True, text=True
    )
    names = (line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if " U " in line)
    return frozenset(names)


def _answers(source: str) -> frozenset[str]:
    """Return the functions that a source defines for PyTorch."""
    return frozenset(re.findall(r"^PUBLIC [^(=;]*?(\w+)\(", source, re.MULTILINE))


def _compile(compiler: str, source: Path, directory: Path, output: Path) -> None:
    command = [
        *(
            compiler,
            "-std=gnu11",
            "-O1",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            f"-Wl,-soname,{output.name}",
        ),
        *("-I", str(directory), "-o", str(output), str(source), "-lpthread"),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
    if done.returncode:
        fault = f"does not compile: {done.stderr.strip()[-500:]}"
        raise ConfigError(Problem(str(source), fault, f"name another compiler in CC, {_ON_CPU}"))
