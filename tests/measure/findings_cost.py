"""What the findings of a large run cost: processor time and memory from its tables on disk to its diagnosis.

    python -m tests.measure.findings_cost [--ranks 256,1024] [--check]

The job is a ring all-reduce and an all-to-all, in virtual time, through a leaf-spine of 100 Gb/s with 32 hosts a leaf, each of
which loses packets of one port. The run is made first; a process of its own then reads it, and measures the diagnosis alone: its
evidence and all rules. Bars for 1,024 ranks: 5 s and 500 MB.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import etloop
from etloop.results.artifacts import kpi_input
from etloop.results.diagnosis.build import evidence_of
from etloop.results.diagnosis.diagnose import diagnose
from etloop.results.store.run_dir import read_artifacts, read_kpis
from etloop.traffic.topology.topology_file import parse_topology
from tests.measure.harness import (
    Bar,
    Options,
    Row,
    Values,
    in_fresh_process,
    integers,
    measure,
    peak_bytes,
    table,
)

HOSTS: Final = 32
"""Hosts of a leaf."""
SPINES: Final = 16
JUDGED_RANKS: Final = 1024
LIMIT_S: Final = 5.0
LIMIT_MB: Final = 500
KINDS: Final = {"all_reduce": ("4MiB", JUDGED_RANKS), "all_to_all": ("1MiB", 256)}
"""Kind -> bytes, and the most ranks: the twin of a million connections takes a quarter of an hour."""


def topology_of(ranks: int) -> bytes:
    """Return a topology file with a port for each rank; each leaf drops 0.1 % of the packets of one."""
    ports = [f"h{rank}/p0" for rank in range(ranks)]
    leaves = [{"ports": ports[first : first + HOSTS]} for first in range(0, ranks, HOSTS)]
    tree = {"rate": "100Gbps", "uplink_rate": "200Gbps", "spines": SPINES, "leaves": leaves}
    return json.dumps({"leaf_spine": tree | {"leaf": {"faults": [{"in": "0", "chance": "0.1%"}]}}}).encode()


def diagnosis_cost(directory: str, topology: bytes) -> tuple[float, float, int]:
    """Return the processor time (s) and the growth of the peak memory (MB) of a run's diagnosis, and its number of findings."""
    run, kpis = read_artifacts(Path(directory)), read_kpis(Path(directory))
    network = parse_topology(topology, "topology.yaml")
    before_bytes, began = peak_bytes(), time.process_time()
    diagnosis = diagnose(lambda: evidence_of(kpi_input(run, kpis.basis), kpis.basis, kpis, network))
    return time.process_time() - began, (peak_bytes() - before_bytes) / 1e6, len(diagnosis.findings)


def run(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield a row for each kind and number of ranks."""
    for ranks in chosen.ranks:
        for kind, (size, most_ranks) in KINDS.items():
            if ranks > most_ranks:
                continue
            with tempfile.TemporaryDirectory(prefix="findings-") as directory:
                topology = topology_of(ranks)
                scenario = {
                    "workload": {"collective": {"kind": kind, "size": size, "ranks": ranks}},
                    "mapping": {"ranks_per_host": 1},
                }
                out = Path(directory) / "run"
                summary = etloop.run_twin(scenario, topology=json.loads(topology), out_dir=out).summary
                cpu_s, peak_mb, findings = in_fresh_process(diagnosis_cost, str(out), topology)
                yield kind, ranks, summary.transport["tx_packets"], findings, cpu_s, peak_mb


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Yield whether the largest runs keep to the bars."""
    for row in rows:
        if row["ranks"] == JUDGED_RANKS:
            figures = f"{row['kind']}: {row['seconds']:.1f} s, {row['MB']:.0f} MB"
            yield (
                f"{figures} (bar: {LIMIT_S:.0f} s, {LIMIT_MB} MB)",
                row["seconds"] <= LIMIT_S and row["MB"] <= LIMIT_MB,
            )


OPTIONS: Final[Options] = {
    "--ranks": {"type": integers, "default": [256, JUDGED_RANKS], "help": "numbers of ranks"},
}
COLUMNS: Final = table("kind|<12s; ranks|6d; packets|11,d; findings|9d; seconds|8.2f; MB|7.0f")

if __name__ == "__main__":
    raise SystemExit(measure(__doc__, run, COLUMNS, bars, OPTIONS))
