"""Runs the kinds of a soak in virtual time repeatedly, in one process: `python -m tests.measure.soaking.twins DIRECTORY`.

The directory has the trace and the topology; the number of runs so far is in its file `twins`.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

import etloop
from tests.measure.soaking.kinds import KINDS


def main() -> None:
    """Run until the process is ended."""
    directory = Path(sys.argv[1])
    out = directory / "twin"
    kinds = [kind for kind in KINDS if kind.in_twin]
    for kind in kinds:
        (directory / "traces" / f"{kind.name}.yaml").write_text(kind.scenario)
    for number in itertools.count(1):
        kind = kinds[number % len(kinds)]
        scenario = directory / "traces" / f"{kind.name}.yaml"
        etloop.run_twin(scenario, out_dir=out, topology=directory / "topology.yaml", seed=number)
        shutil.rmtree(out)
        (directory / "twins").write_text(str(number))


if __name__ == "__main__":
    main()
