"""All-reduces size by size, compared with Open MPI's same algorithm and with gloo between the same ends.

Decides sizes, algorithms, repetitions of each in a turn, and the comparisons. Open MPI's median of single operations is compared
with ETLoop's; gloo's mean, the only one measured, with the mean.
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
MOST_DOUBLED_BYTES: Final = 1024
"""Sizes up to this one are measured with recursive doubling, which Open MPI prefers for them, larger ones with the ring."""
OPEN_MPI_BAR: Final = Bar(Bound.AT_LEAST, 1.0)
MOST_ITERATIONS: Final = 5_000
_SETUP_NS: Final = 100_000
"""Estimated time of an empty all-reduce; to choose how many fill a turn."""
_BYTE_NS: Final = 4
"""Estimated time of each further byte."""
PLAIN: Final = {
    algorithm: Shape(shaping="plain", algorithm=algorithm, completion="posted")
    for algorithm in ("recursive_doubling", "ring")
}
"""Shapes with one message per step, of whole buffers; as in Open MPI and gloo, an op does not wait for acknowledgements."""
AS_NCCL: Final = Shape(as_nccl=True)
SHAPED_BYTES: Final = 64 * 1024
SHAPED_BAR: Final = Bar(Bound.AT_MOST, 2.0)
"""Ratio of the times with NCCL's choices and with the plain ring."""
_NCCL_CHANNELS: Final = 4
_LL_BYTES: Final = 2
"""Bytes that NCCL's choice for `SHAPED_BYTES`, LL, sends for each byte of data."""
_LEAST_MESSAGE_PACKETS: Final = 3
"""Shortest message whose system calls the bare path can repeat: first, middle and last packet."""


def iterations_of(size_bytes: int, duration_ns: int) -> int:
    """Return the number of all-reduces that fill about `duration_ns`."""
    return max(2, min(MOST_ITERATIONS, duration_ns // (_SETUP_NS + _BYTE_NS * size_bytes)))


def size_sections(bench: Bench) -> tuple[Section, ...]:
    """Measure every size over two and over four ranks."""
    with open_mpi(bench.place) as mpi:
        return tuple(_sizes(bench, ranks, mpi) for ranks in RANKS)


def algorithm_of(size_bytes: int) -> str:
    """Return the algorithm that both ETLoop and Open MPI use for a size."""
    return "recursive_doubling" if size_bytes <= MOST_DOUBLED_BYTES else "ring"


def _sizes(bench: Bench, ranks: int, mpi: OpenMpi | None) -> Section:
    sizes = [size for size in SIZES_BYTES if size <= bench.lengths.all_reduce_bytes]
    counts = {size: iterations_of(size, bench.lengths.duration_ns // len(sizes)) for size in sizes}
    with_gloo = importlib.util.find_spec("torch") is not None
    means: dict[int, list[int]] = {size: [] for size in sizes}
    medians: dict[int, list[int]] = {size: [] for size in sizes}
    mpi_means: dict[int, list[int]] = {size: [] for size in sizes}
    mpi_medians: dict[int, list[int]] = {size: [] for size in sizes}
    gloo: dict[int, list[int]] = {size: [] for size in sizes}
    shaped: list[int] = []
    bare_shaped: list[float] = []
    runs: list[EngineRun] = []
    for _ in bench.turns(f"collective {ranks} ranks"):
        for size, count in counts.items():
            load = BenchLoad(CollectiveKind.ALL_REDUCE, ranks, size, count)
            runs.append(bench.run(load, PLAIN[algorithm_of(size)]))
            means[size].append(runs[-1].duration_ns // count)
            medians[size].append(runs[-1].op_p50_ns)
            if size == SHAPED_BYTES:
                runs.append(bench.run(load, AS_NCCL))
                shaped.append(runs[-1].op_p50_ns)
                bare_shaped += _bare_shaped(bench, ranks)
            if with_gloo:
                gloo[size].append(gloo_duration_ns(bench.place, load) // count)
        if mpi is None:
            continue
        for algorithm in PLAIN:
            counts_of = {size: count for size, count in counts.items() if algorithm_of(size) == algorithm}
            for size, times in mpi.measure(ranks, algorithm, counts_of).items():
                mpi_means[size].append(times.duration_ns // counts[size])
                mpi_medians[size].append(times.p50_ns)
    series: list[Series] = []
    ratios: list[Ratio] = []
    for size in sizes:
        name = format_bytes(size)
        series += _both(f"ETLoop, {name}", means[size], medians[size])
        if mpi is not None:
            series += _both(f"Open MPI, {name}", mpi_means[size], mpi_medians[size])
            ratios.append(
                ratio_of(f"Open MPI / ETLoop, {name}, p50", mpi_medians[size], medians[size], OPEN_MPI_BAR)
            )
        if with_gloo:
            series.append(Series(f"gloo, {name}", Unit.NANOSECONDS, tuple(gloo[size])))
            ratios.append(ratio_of(f"gloo / ETLoop, {name}", gloo[size], means[size], OPEN_MPI_BAR))
    if shaped:
        name = f"shaped as NCCL does, {format_bytes(SHAPED_BYTES)}"
        series.append(Series(f"ETLoop, {name}, single, p50", Unit.NANOSECONDS, tuple(shaped)))
        ratios.append(ratio_of(f"{name} / plain", shaped, medians[SHAPED_BYTES], SHAPED_BAR))
    if bare_shaped:
        ratios.append(Ratio("the same bytes in the same system calls, bare", tuple(bare_shaped)))
    notes = (absence(bench.place), "" if with_gloo else "torch is not installed: not compared with gloo")
    return Section(
        name=f"collective {ranks} ranks",
        title=f"time of an all-reduce over {ranks} ranks: recursive doubling up to {format_bytes(MOST_DOUBLED_BYTES)}, then ring",
        series=tuple(series),
        ratios=tuple(ratios),
        notes=(*notes_of(runs), *filter(None, notes)),
    )


def _both(name: str, means: list[int], medians: list[int]) -> tuple[Series, Series]:
    return (
        Series(name, Unit.NANOSECONDS, tuple(means)),
        Series(f"{name}, single, p50", Unit.NANOSECONDS, tuple(medians)),
    )


def _bare_shaped(bench: Bench, ranks: int) -> tuple[float, ...]:
    """Return the bare path's time for the bytes of NCCL's choice, in the calls of its messages, divided by that for the
    plain ring's: a floor of their ratio. Empty if the messages are too short for the bare path.
    """
    plain_packets = SHAPED_BYTES // ranks // Shape().path_mtu_bytes
    shaped_packets = plain_packets * _LL_BYTES // _NCCL_CHANNELS
    if shaped_packets < _LEAST_MESSAGE_PACKETS:
        return ()
    plain, shaped = (
        bench.bare_bytes_per_s(message_packets=count) for count in (plain_packets, shaped_packets)
    )
    return (_LL_BYTES * plain / shaped,)
