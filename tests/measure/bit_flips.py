"""Whether every damaged bit of a run directory is reported: single bit flips, evenly over all of its files, from a seed.

    python -m tests.measure.bit_flips [RUN_DIR] [--flips 2000] [--seed 1] [--check]

After each flip, `report`, `compare`, `bundle` and the Python reader have to refuse the copy and name the damaged file; then the
bit is restored. Without RUN_DIR, a small run with device counters is made in virtual time. The bar: no flip is accepted by any
reader, so no byte of a run directory is without information.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from etloop.cli.main import main as etloop
from etloop.contract.base.errors import InputError
from etloop.controller.case.bundling import bundle
from etloop.results.compare.samples import read_samples
from etloop.results.store.run_dir import look_at_run
from etloop.runs import open_run
from tests.measure.harness import Bar, Options, Row, UsageError, Values, measure, table

READERS: Final[Mapping[str, Callable[[Path], object]]] = {
    "report": look_at_run,
    "compare": lambda run_dir: read_samples(run_dir, 0),
    "bundle": lambda run_dir: bundle(run_dir, run_dir.with_name("case.etloop.zip")),
    "open_run": open_run,
}
ACCEPTED: Final = "accepted"


def flip(path: Path, position: int, bit: int) -> None:
    """Flip one bit of a file in place."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def names_the_file(read: Callable[[Path], object], path: Path) -> bool:
    """Return whether a reader refuses the directory of a damaged file and names the file."""
    try:
        read(path.parent)
    except InputError as error:
        return path.name in str(error)
    return False


def flips_of(run_dir: Path, flips: int, seed: int) -> Iterator[Values]:
    """Yield for each file: its size, the flips in it, and for each reader how many of them it reported."""
    draw = random.Random(seed)
    files = [path for path in sorted(run_dir.iterdir()) if path.is_file() and path.stat().st_size]
    if not files:
        raise UsageError(f"{run_dir} has no files")
    for number, path in enumerate(files):
        share = flips // len(files) + (number < flips % len(files))
        reported = dict.fromkeys(READERS, 0)
        for _ in range(share):
            position, bit = draw.randrange(path.stat().st_size), draw.randrange(8)
            flip(path, position, bit)
            for name, read in READERS.items():
                reported[name] += names_the_file(read, path)
            flip(path, position, bit)
        accepted = sum(share - count for count in reported.values())
        yield (path.name, path.stat().st_size, share, *reported.values(), accepted)


def run_flips(parsed: argparse.Namespace) -> Iterator[Values]:
    """Yield the rows of a copy of the run directory, which is sound at first."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "run"
        if parsed.run_dir is None:
            make_run(copy)
        else:
            shutil.copytree(parsed.run_dir, copy)
        for read in READERS.values():
            read(copy)  # Raises if the run is damaged already.
        copy.with_name("case.etloop.zip").unlink()
        yield from flips_of(copy, parsed.flips, parsed.seed)


def make_run(run_dir: Path) -> None:
    """Make a small run in virtual time, with the counters of its switch."""
    place = run_dir.parent
    texts = {
        "rig.yaml": RIG,
        "scenario.yaml": "workload: {trace: job}\n",
        "topology.yaml": "single: {ports: [a/p0, b/p0], rate: 100Gbps}\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    scenario, rig, topology = (str(place / name) for name in ("scenario.yaml", "rig.yaml", "topology.yaml"))
    orders = (
        ["synth", str(place / "job"), "--sweep", "all_reduce", "--sizes", "64KiB-128KiB", "--ranks", "4"],
        ["twin", scenario, "--rig", rig, "--topology", topology, "--out", str(run_dir)],
    )
    for order in orders:
        with contextlib.redirect_stdout(io.StringIO()):
            code = etloop(order)
        if code:
            raise UsageError(f"etloop {' '.join(order)} ended with {code}")


RIG: Final = """\
agents:
  - {name: a, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.4, link: 100Gbps}]}
  - {name: b, ports: [{name: p0, addresses: 10.0.2.1-10.0.2.4, link: 100Gbps}]}
"""
COLUMNS: Final = table(f"file|24s; bytes|>10,d; flips|>6d; {'|>8d; '.join(READERS)}|>8d; {ACCEPTED}|>8d")
OPTIONS: Final[Options] = {
    "run_dir": {"nargs": "?", "type": Path, "metavar": "RUN_DIR", "help": "directory of a finished run"},
    "--flips": {"type": int, "default": 2000, "help": "flips over all files (default 2000)"},
    "--seed": {"type": int, "default": 1, "help": "seed of positions and bits (default 1)"},
}


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Yield the number of flips that some reader accepted, with the bar."""
    accepted, flips = sum(row[ACCEPTED] for row in rows), sum(row["flips"] for row in rows)
    yield f"{flips} flips, {accepted} accepted by a reader (bar 0)", not accepted


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the figures, and return an exit code."""
    return measure(__doc__, run_flips, COLUMNS, bars, OPTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
