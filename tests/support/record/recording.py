"""Record a script, run it over gloo for comparison, and say which PyTorch there is.

PyTorch is that of this environment, or of the interpreter that ETLOOP_TORCH_PYTHON names.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from etloop.cli.main import main
from etloop.record.gpu.preload import TESTED_CUDA_MAJORS, inspect_torch
from etloop.workload.trace.trace import CollectiveKind, NodeKind, RankTrace
from tests.support.places import ROOT
from tests.support.ports import free_port

PYTHON: Final = os.environ.get("ETLOOP_TORCH_PYTHON", sys.executable)
HAS_TORCH: Final = "ETLOOP_TORCH_PYTHON" in os.environ or importlib.util.find_spec("torch") is not None
NO_TORCH: Final = "PyTorch is not installed, nor named by ETLOOP_TORCH_PYTHON"
NO_CUDA: Final = "PyTorch is not installed with code for CUDA"
_REAL_RUN: Final = ROOT / "tests/support/record/real_run.py"


@functools.cache
def has_cuda_build() -> bool:
    """Whether scripts that say `cuda` can be recorded."""
    build = inspect_torch(PYTHON) if HAS_TORCH else None
    return build is not None and (build.cuda or "").partition(".")[0] in TESTED_CUDA_MAJORS


def record(tmp_path: Path, script: str, ranks: int, *options: str, arguments: tuple[str, ...] = ()) -> int:
    """Record a script into `job`; return the exit code."""
    path = tmp_path / "train.py"
    path.write_text(script)
    words = ["record", "--python", PYTHON, "--ranks", str(ranks), "--out", str(tmp_path / "job"), *options]
    return main([*words, "--", str(path), *arguments])


def operations(rank: RankTrace) -> list[tuple[str, int]]:
    """Return kind and bytes of every network operation, in file order."""
    rows = []
    for index, kind in enumerate(rank.kind.tolist()):
        if kind == NodeKind.COMM_COLL and rank.is_cpu_op[index] != 1:
            rows.append((CollectiveKind(int(rank.comm.type[index])).name, int(rank.comm.size[index])))
        elif kind in (NodeKind.COMM_SEND, NodeKind.COMM_RECV):
            rows.append((NodeKind(kind).name, int(rank.comm.size[index])))
    return rows


def real_run(tmp_path: Path, how: str, script: Path, ranks: int) -> Path:
    """Run a script over gloo on all ranks at once; return the directory of their files."""
    directory = tmp_path / how
    directory.mkdir()
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        command = [PYTHON, str(_REAL_RUN), how, str(directory / f"w.{rank}.json"), str(script)]
        with (directory / f"{rank}.errors").open("wb") as errors:
            processes.append(subprocess.Popen(command, env=environment, stderr=errors))
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * ranks, (directory / "0.errors").read_text()[-2000:]
    return directory
