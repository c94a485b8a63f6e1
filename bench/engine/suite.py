"""`etloop bench`: how fast the engine is, as ratios to the bare kernel path measured in between, on the same machine.

Decides the comparisons, their length and order: bare path and engine alternate, so that a slowdown of the machine affects
both. `network` places the ends, `measure` defines the measurements, `figures` and docs/benchmarks.md the meaning of figures.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.dependent import dependent_sections
from etloop.bench.engine.figures import (
    Bar,
    BenchReport,
    Bound,
    Section,
    Series,
    Unit,
    bytes_per_s,
    percentile_of,
    ratio_of,
)
from etloop.bench.engine.load import BenchLoad, PingPong
from etloop.bench.engine.measure import EngineRun, bare_one_way_ns, gloo_duration_ns, wire_turnarounds_ns
from etloop.bench.engine.messages import message_sections
from etloop.bench.engine.network import bench_place
from etloop.bench.engine.pacing import pacing_sections
from etloop.bench.engine.rounds import BYTES_PER_MIB, SMALL_LENGTHS, Bench, Lengths, notes_of
from etloop.bench.engine.scale import scale_sections
from etloop.bench.engine.sizes import size_sections
from etloop.bench.engine.under_load import EXCHANGES, MESSAGE_BYTES, under_load_section
from etloop.bench.engine.wire import ALL_PORTS, WirePorts, wire_sections
from etloop.bench.engine.workers import bench_workers
from etloop.results.measure.distribution import nearest_rank
from etloop.runtime.stop_signals import terminate_as_interrupt
from etloop.workload.trace.trace import CollectiveKind

TURNAROUND_BAR: Final = Bar(Bound.AT_MOST, 1.3)
SLOW_TURNAROUND_NS: Final = 30_000
"""Limit that one turnaround in a hundred may exceed, on a core without other threads."""
COLLECTIVE_BAR: Final = Bar(Bound.AT_LEAST, 0.5)
GLOO_BAR: Final = Bar(Bound.AT_LEAST, 2.0)

COLLECTIVE_RANKS: Final = 4
PACKET_BYTES: Final = MESSAGE_BYTES + 36
"""UDP payload of that packet, with BTH, RETH, immediate and ICRC."""


class Benchmark(StrEnum):
    """Benchmarks that can be run separately."""

    WIRE = "wire"
    PACING = "pacing"
    TURNAROUND = "turnaround"
    COLLECTIVE = "collective"
    DEPENDENT = "dependent"
    MESSAGES = "messages"
    SCALE = "scale"


def run_bench(
    benchmarks: Sequence[Benchmark],
    lengths: Lengths,
    ports: WirePorts = ALL_PORTS,
    *,
    realtime: bool = False,
    clear_cores: bool = False,
) -> BenchReport:
    """Measure and return the report; `ports` are those of `wire` and `pacing`, and cores are cleared for `pacing`.

    Cleans up however it ends. Raises `RunAborted`, `RigError` or `ConfigError` if it cannot measure.
    """
    # The load of other programs, read before the bench itself adds to it.
    load_average = os.getloadavg()[0]
    usable = tuple(sorted(os.sched_getaffinity(0)))
    with terminate_as_interrupt(), bench_place() as place, bench_workers(place) as workers:
        bench = Bench(place, workers, lengths, _print_status, realtime, usable, clear_cores)
        _print_status(f"bench over {place.path}")
        sections = tuple(
            section for benchmark in benchmarks for section in _sections(benchmark, bench, ports)
        )
    notes = ("these lengths are too short to quote",) if lengths == SMALL_LENGTHS else ()
    return BenchReport(
        path=place.path,
        cores=len(usable),
        load_average=round(load_average, 2),
        repetitions=lengths.repetitions,
        sections=sections,
        notes=notes,
    )


def _turnaround(bench: Bench) -> Section:
    bare: list[int] = []
    runs: list[EngineRun] = []
    wire: list[NDArray[np.int64]] = []
    load = PingPong(MESSAGE_BYTES, EXCHANGES, max(1, bench.lengths.exchanges // EXCHANGES))
    for _ in bench.turns("turnaround"):
        bare.append(bare_one_way_ns(bench.place, bench.workers, bench.lengths.pings, PACKET_BYTES))
        runs.append(bench.run(load))
        wire.append(wire_turnarounds_ns(load, runs[-1]))
    p50, p99 = ([nearest_rank(times, percent) for times in wire] for percent in (50, 99))
    engine_p50 = [percentile_of(run.turnarounds, 50) for run in runs]
    return Section(
        name="turnaround",
        title="message arrived to first packet of its answer out, compared with bare one-way latency",
        series=(
            Series("bare one way (half a round trip, p50)", Unit.NANOSECONDS, tuple(bare)),
            Series("ETLoop turnaround p50, wire to wire", Unit.NANOSECONDS, tuple(p50)),
            Series("ETLoop turnaround p99, wire to wire", Unit.NANOSECONDS, tuple(p99)),
            Series("the same until the send call returned, p50", Unit.NANOSECONDS, tuple(engine_p50)),
        ),
        ratios=(
            ratio_of("ETLoop p50 / bare one way", p50, bare, TURNAROUND_BAR),
            ratio_of("ETLoop p99 / 30 us", p99, [SLOW_TURNAROUND_NS] * len(p99), Bar(Bound.AT_MOST, 1.0)),
        ),
        notes=notes_of(runs),
    )


def _collective(bench: Bench) -> Section:
    bare: list[int] = []
    runs: list[EngineRun] = []
    ours_busbw: list[int] = []
    gloo_busbw: list[int] = []
    with_gloo = importlib.util.find_spec("torch") is not None
    size = bench.lengths.all_reduce_bytes
    for _ in bench.turns("collective"):
        bare.append(bench.bare_bytes_per_s())
        # An all-reduce moves 2 (n - 1) buffers, and both directions share the cores.
        iterations = bench.iterations(2 * (COLLECTIVE_RANKS - 1) * size, bare[-1])
        load = BenchLoad(CollectiveKind.ALL_REDUCE, COLLECTIVE_RANKS, size, iterations)
        runs.append(bench.run(load))
        ours_busbw.append(_busbw(load, runs[-1].duration_ns))
        if with_gloo:
            gloo_busbw.append(_busbw(load, gloo_duration_ns(bench.place, load)))
    engine_rates = [run.wire_bytes_per_s for run in runs]
    series = [
        Series("bare UDP payload", Unit.BYTES_PER_S, tuple(bare)),
        Series("ETLoop payload, all ranks", Unit.BYTES_PER_S, tuple(engine_rates)),
        Series("ETLoop busbw", Unit.BYTES_PER_S, tuple(ours_busbw)),
    ]
    ratios = [ratio_of("ETLoop / bare", engine_rates, bare, COLLECTIVE_BAR)]
    notes = notes_of(runs)
    if with_gloo:
        series.append(Series("gloo busbw", Unit.BYTES_PER_S, tuple(gloo_busbw)))
        ratios.append(ratio_of("ETLoop busbw / gloo busbw", ours_busbw, gloo_busbw, GLOO_BAR))
        notes = (*notes, "gloo also adds the numbers it receives; the engine does not")
    else:
        notes = (*notes, "torch is not installed: not compared with gloo")
    return Section(
        name="collective",
        title=f"ring all-reduce of {size // BYTES_PER_MIB} MiB over {COLLECTIVE_RANKS} ranks, every hop over the sockets",
        series=tuple(series),
        ratios=tuple(ratios),
        notes=notes,
    )


def _sections(benchmark: Benchmark, bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    match benchmark:
        case Benchmark.WIRE:
            return wire_sections(bench, ports)
        case Benchmark.PACING:
            return pacing_sections(bench, ports)
        case Benchmark.TURNAROUND:
            return (_turnaround(bench), under_load_section(bench))
        case Benchmark.COLLECTIVE:
            return (_collective(bench), *size_sections(bench))
        case Benchmark.DEPENDENT:
            return dependent_sections(bench)
        case Benchmark.MESSAGES:
            return message_sections(bench)
        case Benchmark.SCALE:
            return scale_sections(bench, ports)
        case _:
            assert_never(benchmark)


def _busbw(load: BenchLoad, duration_ns: int) -> int:
    """Return the bus bandwidth of all-reduce as defined in docs/metrics.md: S / t times 2 (n - 1) / n, in B/s, rounded
    down.
    """
    return bytes_per_s(2 * (load.ranks - 1) * load.message_bytes * load.iterations // load.ranks, duration_ns)


def _print_status(text: str) -> None:
    """Print progress to standard error, since standard output has only the result."""
    print(text, file=sys.stderr, flush=True)
