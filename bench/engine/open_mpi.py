"""All-reduces of Open MPI over TCP between a bench's two ends, as on two hosts of a cluster.

Open MPI is not a dependency of this project; if its compiler and launcher are absent, the bench reports that.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from etloop.bench.engine.network import SINGLE, BenchPlace
from etloop.contract.base.errors import RunAborted
from etloop.contract.base.late_dataclass import dataclass

COMPILER: Final = "mpicc"
LAUNCHER: Final = "mpirun"
SOURCE: Final = Path(__file__).with_name("open_mpi.c")
COMPILE_TIMEOUT_S: Final = 120
RUN_TIMEOUT_S: Final = 120
MOST_OUTPUT_CHARACTERS: Final = 4000
_ALGORITHMS: Final = {"recursive_doubling": "3", "ring": "4"}
"""Values of `coll_tuned_allreduce_algorithm` (open-mpi/ompi:ompi/mca/coll/tuned/coll_tuned_allreduce_decision.c)."""


@dataclass(frozen=True, slots=True)
class AllReduceTimes:
    """Times of the all-reduces of one size."""

    duration_ns: int
    """Time of all of them on the slowest rank."""
    p50_ns: int
    """Median of one, each on its slowest rank."""


class OpenMpi:
    """A compiled program, and the ends that its ranks run at."""

    def __init__(self, place: BenchPlace, directory: Path) -> None:
        """Compile the program. Raises `RunAborted` with the compiler's output if that fails."""
        self._place = place
        self._program = directory / "all_reduce"
        # As ssh is called, host first: the other end is one namespace away.
        self._agent = directory / "into_namespace"
        self._agent.write_text(
            f'#!/bin/sh\nshift\nexec {place.ends[1].script} /bin/sh -c "$*"\n', encoding="utf-8"
        )
        self._agent.chmod(0o700)
        _run((COMPILER, "-O2", "-o", str(self._program), str(SOURCE)), COMPILE_TIMEOUT_S)

    def measure(self, ranks: int, algorithm: str, iterations: Mapping[int, int]) -> dict[int, AllReduceTimes]:
        """Return the times, by bytes, of `iterations[bytes]` all-reduces over ranks that alternate between the ends.

        `algorithm` is a name of ETLoop's. Raises `RunAborted` if Open MPI fails.
        """
        first_end, second_end = self._place.ends
        slots = -(-ranks // 2)
        settings = {
            "plm_rsh_agent": str(self._agent),
            "pml": "ob1",
            "btl": "tcp,self",
            "btl_tcp_if_include": SINGLE,
            "oob_tcp_if_include": SINGLE,
            "coll_tuned_use_dynamic_rules": "1",
            "coll_tuned_allreduce_algorithm": _ALGORITHMS[algorithm],
            # Its launchers and other ranks need the cores, too.
            "mpi_yield_when_idle": "1",
        }
        words = [*first_end.prefix, LAUNCHER, "--allow-run-as-root", "-np", str(ranks)]
        words += ["--host", ",".join(f"{bench_end.single}:{slots}" for bench_end in (first_end, second_end))]
        words += ["--map-by", "node", "--bind-to", "none"]
        for name, value in settings.items():
            words += ["--mca", name, value]
        words.append(str(self._program))
        for size_bytes, count in iterations.items():
            words += [str(size_bytes), str(count)]
        return times_of(_run(words, RUN_TIMEOUT_S), iterations)


def times_of(output: str, sizes: Mapping[int, int]) -> dict[int, AllReduceTimes]:
    """Return the times that the program printed, by bytes. Raises `RunAborted` if a size is missing."""
    rows = [line.split() for line in output.splitlines()]
    printed = {
        int(row[0]): AllReduceTimes(int(row[1]), int(row[2]))
        for row in rows
        if len(row) == 3 and all(word.isdigit() and int(word) > 0 for word in row)
    }
    if missing := [size for size in sizes if size not in printed]:
        raise RunAborted(f"Open MPI printed no time for {missing} bytes: {output[-MOST_OUTPUT_CHARACTERS:]}")
    return {size: printed[size] for size in sizes}


def absence(place: BenchPlace) -> str:
    """Return why there can be no comparison with Open MPI; "" if there can."""
    if not place.has_frames:
        return "not compared with Open MPI: both ends are on one loopback"
    missing = [name for name in (COMPILER, LAUNCHER) if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed: not compared with Open MPI" if missing else ""


@contextlib.contextmanager
def open_mpi(place: BenchPlace) -> Iterator[OpenMpi | None]:
    """Yield the compiled program inside the block; None without Open MPI."""
    if absence(place):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="etloop-bench-") as directory:
        yield OpenMpi(place, Path(directory))


def _run(words: Sequence[str], timeout_s: int) -> str:
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpirun ends its ranks.
            raise RunAborted(f"{words[0]} did not end within {timeout_s} s") from None
    if process.returncode != 0:
        error_text = errors[-MOST_OUTPUT_CHARACTERS:].strip()
        raise RunAborted(f"{shlex.join(words)} ended with code {process.returncode}: {error_text}")
    return output
