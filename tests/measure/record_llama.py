"""What it costs to record an 80-layer model on 1,024 ranks by role, and to lint, plan and run the recording in the twin.

    python -m tests.measure.record_llama [--ranks N] [--microbatches N] [--python FILE] [--keep DIR] [--check]

The script is tests/measure/recording/llama.py: tensor parallelism of 8, a pipeline of 4 stages, the rest data parallel.
`--python` names an interpreter with a CUDA build of PyTorch. Memory is the largest sum of the proportional set sizes of a
command's processes, looked at every second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure
from tests.support.places import ROOT

SCRIPT: Final = ROOT / "tests/measure/recording/llama.py"
RECORD_BAR_S: Final = 600
RECORD_BAR_BYTES: Final = 8 << 30
_SAMPLE_S: Final = 1.0
_RANKS_PER_HOST: Final = 8
_COLUMNS: Final = {"command": "<8", "s": ">8.1f", "GB": ">7.2f", "says": "<60"}
_OPTIONS: Final[Options] = {
    "--ranks": {"type": int, "default": 1024, "help": "a multiple of 32 (default 1024)"},
    "--microbatches": {"type": int, "default": 8, "help": "default 8"},
    "--python": {"default": sys.executable, "help": "interpreter with a CUDA build of PyTorch"},
    "--keep": {"type": Path, "default": None, "help": "directory for the job, which is kept"},
}


def run(options: argparse.Namespace) -> Iterator[Values]:
    """Yield a row for each command."""
    if options.ranks % 32:
        raise UsageError("--ranks is a multiple of 32: 8 tensor-parallel ranks in each of 4 stages")
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        job = directory / "job"
        (directory / "scenario.yaml").write_text(
            f"workload: {{trace: {job}}}\n"
            f"mapping: {{placement: blocked, ranks_per_host: {_RANKS_PER_HOST}, nics_per_host: {_RANKS_PER_HOST}}}\n"
        )
        (directory / "topology.yaml").write_text(_topology(options.ranks // _RANKS_PER_HOST))
        (directory / "rig.yaml").write_text(_rig(options.ranks // _RANKS_PER_HOST))
        record = ("record", "--python", options.python, "--ranks", str(options.ranks), "--record", "roles")
        scenario, topology = str(directory / "scenario.yaml"), str(directory / "topology.yaml")
        for words in (
            (*record, "--out", str(job), "--", str(SCRIPT), str(options.microbatches)),
            ("lint", str(job)),
            ("plan", scenario, "--rig", str(directory / "rig.yaml"), "--summary"),
            ("twin", scenario, "--topology", topology, "--level", "flow"),
        ):
            yield _measured(words)


def _topology(hosts: int) -> str:
    """Return a leaf-spine of one 400 Gb/s port for each GPU of a host."""
    ports = ", ".join(f"h{host}/p{port}" for host in range(hosts) for port in range(_RANKS_PER_HOST))
    return f"single:\n  rate: 400Gbps\n  ports: [{ports}]\n"


def _rig(hosts: int) -> str:
    """Return a rig of an agent for each host and a port for each GPU."""
    agents = [
        {
            "name": f"h{host}",
            "host": f"h{host}",
            "ports": [
                {"name": f"p{port}", "addresses": [f"10.0.{host}.{port + 1}"], "link": "400Gbps"}
                for port in range(_RANKS_PER_HOST)
            ],
        }
        for host in range(hosts)
    ]
    return json.dumps({"controller": {"bind": "tcp://10.1.0.1:7420"}, "agents": agents})


def _measured(words: Sequence[str]) -> Values:
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "etloop.cli.main", *words], stdout=output, stderr=output, cwd=ROOT
        )
        most = 0
        while process.poll() is None:
            most = max(most, _tree_bytes(process.pid))
            time.sleep(_SAMPLE_S)
        elapsed = time.monotonic() - start
        output.seek(0)
        lines = output.read().strip().splitlines() or [""]
    if process.returncode:
        raise UsageError(f"etloop {words[0]} ends with {process.returncode}: {' | '.join(lines[-5:])}")
    return words[0], elapsed, most / 1e9, lines[0]


def _tree_bytes(root: int) -> int:
    """Return the proportional set sizes of a process and its descendants together."""
    pending, total = [root], 0
    while pending:
        number = pending.pop()
        try:
            children = Path(f"/proc/{number}/task/{number}/children").read_text()
            rollup = Path(f"/proc/{number}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        pending += map(int, children.split())
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Yield the bars of recording."""
    for row in rows:
        if row["command"] == "record":
            yield (
                f"record: {row['s']:.0f} s, bar {RECORD_BAR_S} s on two cores (this machine: {os.cpu_count()})",
                row["s"] <= RECORD_BAR_S,
            )
            yield (
                f"record: {row['GB']:.1f} GB, bar {RECORD_BAR_BYTES / 1e9:.1f} GB",
                row["GB"] * 1e9 <= RECORD_BAR_BYTES,
            )


if __name__ == "__main__":
    sys.exit(measure(__doc__, run, _COLUMNS, bars, _OPTIONS))
