"""Turnaround and slip of small messages while two more ranks move large ones over the same ports, each port's thread alone on
its core if there are cores for both ends.

Decides the load and the reported figures. Percentiles of one turn are over all its messages; delays by other work of the loop
show in the tails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.figures import Ratio, Section, Series, Unit, bytes_per_s, percentile_of
from etloop.bench.engine.load import PingPong
from etloop.bench.engine.measure import EngineRun, wire_turnarounds_ns
from etloop.bench.engine.rounds import BYTES_PER_MIB, Bench, notes_of
from etloop.contract.base.errors import RunAborted
from etloop.contract.model.engine import TurnaroundPart
from etloop.results.measure.distribution import nearest_rank

MESSAGE_BYTES: Final = 4096
"""Message of a turnaround: one packet of the path MTU."""
EXCHANGES: Final = 200
"""Exchanges in one iteration; between iterations the receives are granted again."""
BULK_BYTES: Final = BYTES_PER_MIB


def under_load_section(bench: Bench) -> Section:
    """Measure the same ping-pong with and without a load. Raises as the measurements do."""
    iterations = max(1, bench.lengths.exchanges // EXCHANGES)
    alone = PingPong(MESSAGE_BYTES, EXCHANGES, iterations)
    loaded = PingPong(MESSAGE_BYTES, EXCHANGES, iterations, BULK_BYTES)
    cores = bench.dependent_cores()
    quiet: list[EngineRun] = []
    busy: list[EngineRun] = []
    for _ in bench.turns("turnaround under load"):
        quiet.append(bench.run(alone, cores=cores))
        busy.append(bench.run(loaded, cores=cores))
        if busy[-1].background_bytes >= 2 * EXCHANGES * iterations * BULK_BYTES:
            raise RunAborted("the load ended before the measurement")
    before = [wire_turnarounds_ns(alone, run) for run in quiet]
    under = [wire_turnarounds_ns(loaded, run) for run in busy]
    moved = tuple(bytes_per_s(run.background_bytes, run.duration_ns) for run in busy)
    return Section(
        name="turnaround under load",
        title=f"turnaround and slip while messages of {BULK_BYTES // BYTES_PER_MIB} MiB go both ways",
        series=(
            Series("payload of the load, both ways", Unit.BYTES_PER_S, moved),
            *_spread("turnaround, alone", before),
            *_spread("turnaround, under load", under),
            *_spread("slip, alone", [run.slip_ns for run in quiet]),
            *_spread("slip, under load", [run.slip_ns for run in busy]),
            *_parts("alone", quiet),
            *_parts("under load", busy),
        ),
        ratios=(
            Ratio(
                "p99 under load / p99 alone",
                tuple(
                    nearest_rank(loud, 99) / max(nearest_rank(still, 99), 1)
                    for loud, still in zip(under, before, strict=True)
                ),
            ),
        ),
        notes=notes_of([*quiet, *busy]),
    )


_PART_NAMES: Final = {
    TurnaroundPart.RECEIVE_QUEUE: "in the receive queue",
    TurnaroundPart.LOOP: "read, until the loop sends",
    TurnaroundPart.ARBITRATION: "until its queue pair is served",
    TurnaroundPart.SEND_CALL: "in the send call",
}


def _parts(when: str, runs: list[EngineRun]) -> Iterator[Series]:
    """Yield the median and the 99th percentile of each part of the turnarounds at their host."""
    for part, name in _PART_NAMES.items():
        for percent in (50, 99):
            times = tuple(percentile_of(run.parts[part.value], percent) for run in runs)
            yield Series(f"{name}, {when}, p{percent}", Unit.NANOSECONDS, times)


def _spread(name: str, times: list[NDArray[np.int64]]) -> tuple[Series, Series]:
    p50, p99 = (tuple(int(nearest_rank(turn_times, percent)) for turn_times in times) for percent in (50, 99))
    return Series(f"{name}, p50", Unit.NANOSECONDS, p50), Series(f"{name}, p99", Unit.NANOSECONDS, p99)
