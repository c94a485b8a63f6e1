"""The interop machine, booted once for all tests that want it, and the peer program compiled for it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.machine import ROOT, Machine, booted, obstacle


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the kernel's Soft-RoCE; skips, with the reason, where none can run."""
    if reason := obstacle():
        pytest.skip(f"no interop machine: {reason}")
    with booted(tmp_path_factory.mktemp("machine")) as started:
        yield started


@pytest.fixture(scope="session")
def rxe_peer() -> Path:
    """The program that moves queue pairs of the machine's device, compiled here and run there."""
    if not Path("/usr/include/infiniband/verbs.h").exists():
        pytest.skip("infiniband/verbs.h is not here (Debian package libibverbs-dev)")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed (Debian package g++)")
    source = ROOT / "tests" / "interop" / "guest" / "rxe_peer.cpp"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = ROOT / "build" / "interop" / f"rxe_peer-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".unfinished")
        flags = ("-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror")
        subprocess.run([compiler, *flags, str(source), "-o", str(unfinished), "-libverbs"], check=True)
        unfinished.rename(program)
    return program
