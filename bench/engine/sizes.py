"""All-reduces size by size, compared with Open MPI and gloo between the same ends.

Decides sizes, repetitions of each in a turn, and the comparisons.
"""

from __future__ import annotations

import importlib.util
from typing import Final

from etloop.bench.engine.figures import Bar, Bound, Ratio, Section, Series, Unit, ratio_of
from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import EngineRun, gloo_duration_ns
from etloop.bench.engine.open_mpi import OpenMpi, absence, open_mpi
from etloop.bench.engine.rounds import BYTES_PER_MIB, Bench, notes_of
from etloop.contract.base.units import format_bytes
from etloop.workload.trace.trace import CollectiveKind

SIZES_BYTES: Final = (
    *(64, 1024, 64 * 1024),
    *(BYTES_PER_MIB, 16 * BYTES_PER_MIB, 64 * BYTES_PER_MIB),
)
RANKS: Final = (2, 4)
OPEN_MPI_BAR: Final = Bar(Bound.AT_LEAST, 1.0)
MOST_ITERATIONS: Final = 5_000
_SETUP_NS: Final = 100_000
"""Estimated time of an empty all-reduce; to choose how many fill a turn."""
_BYTE_NS: Final = 4
"""Estimated time of each further byte."""
PLAIN: Final = Shape(shaping="plain", completion="posted")
"""Shape with one message per step, of whole buffers; as in Open MPI and gloo, an op does not wait for acknowledgements."""
AS_NCCL: Final = Shape(as_nccl=True)
SHAPED_BYTES: Final = 64 * 1024
SHAPED_BAR: Final = Bar(Bound.AT_MOST, 2.0)
"""Ratio of the times with NCCL's choices and with the plain ring."""


def iterations_of(size_bytes: int, duration_ns: int) -> int:
    """Return the number of all-reduces that fill about `duration_ns`."""
    return max(2, min(MOST_ITERATIONS, duration_ns // (_SETUP_NS + _BYTE_NS * size_bytes)))


def size_sections(bench: Bench) -> tuple[Section, ...]:
    """Measure every size over two and over four ranks."""
    with open_mpi(bench.place) as mpi:
        return tuple(_sizes(bench, ranks, mpi) for ranks in RANKS)


def _sizes(bench: Bench, ranks: int, mpi: OpenMpi | None) -> Section:
    sizes = [size for size in SIZES_BYTES if size <= bench.lengths.all_reduce_bytes]
    counts = {size: iterations_of(size, bench.lengths.duration_ns // len(sizes)) for size in sizes}
    with_gloo = importlib.util.find_spec("torch") is not None
    ours: dict[int, list[int]] = {size: [] for size in sizes}
    medians: dict[int, list[int]] = {size: [] for size in sizes}
    theirs: dict[int, list[int]] = {size: [] for size in sizes}
    gloo: dict[int, list[int]] = {size: [] for size in sizes}
    shaped: list[int] = []
    runs: list[EngineRun] = []
    for _ in bench.turns(f"collective {ranks} ranks"):
        for size, count in counts.items():
            load = BenchLoad(CollectiveKind.ALL_REDUCE, ranks, size, count)
            runs.append(bench.run(load, PLAIN))
            ours[size].append(runs[-1].duration_ns // count)
            medians[size].append(runs[-1].op_p50_ns)
            if size == SHAPED_BYTES:
                runs.append(bench.run(load, AS_NCCL))
                shaped.append(runs[-1].duration_ns // count)
            if with_gloo:
                gloo[size].append(gloo_duration_ns(bench.place, load) // count)
        if mpi is not None:
            for size, duration_ns in mpi.durations_ns(ranks, counts).items():
                theirs[size].append(duration_ns // counts[size])
    series: list[Series] = []
    ratios: list[Ratio] = []
    for size in sizes:
        name = format_bytes(size)
        series.append(Series(f"ETLoop, {name}", Unit.NANOSECONDS, tuple(ours[size])))
        series.append(Series(f"ETLoop, {name}, single, p50", Unit.NANOSECONDS, tuple(medians[size])))
        if mpi is not None:
            series.append(Series(f"Open MPI, {name}", Unit.NANOSECONDS, tuple(theirs[size])))
            ratios.append(ratio_of(f"Open MPI / ETLoop, {name}", theirs[size], ours[size], OPEN_MPI_BAR))
        if with_gloo:
            series.append(Series(f"gloo, {name}", Unit.NANOSECONDS, tuple(gloo[size])))
            ratios.append(ratio_of(f"gloo / ETLoop, {name}", gloo[size], ours[size], OPEN_MPI_BAR))
    if shaped:
        name = f"shaped as NCCL does, {format_bytes(SHAPED_BYTES)}"
        series.append(Series(f"ETLoop, {name}", Unit.NANOSECONDS, tuple(shaped)))
        ratios.append(ratio_of(f"{name} / plain", shaped, ours[SHAPED_BYTES], SHAPED_BAR))
    notes = (absence(bench.place), "" if with_gloo else "torch is not installed: not compared with gloo")
    return Section(
        name=f"collective {ranks} ranks",
        title=f"time of an all-reduce over {ranks} ranks, plain ring",
        series=tuple(series),
        ratios=tuple(ratios),
        notes=(*notes_of(runs), *filter(None, notes)),
    )
