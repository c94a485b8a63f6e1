"""What every benchmark has to work with: two ends, how long a measurement lasts, and turns.

Decides the lengths that figures are quoted from; what is compared is decided by `bench` and `bench_wire`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from etloop.bench.engine.load import BenchLoad, Messages, PingPong, Shape
from etloop.bench.engine.measure import (
    ANY_CORES,
    EndCores,
    EngineRun,
    bare_bytes_per_s,
    bare_packets_per_s,
    engine_run,
    watched_cores,
)
from etloop.bench.engine.network import BenchPlace
from etloop.bench.engine.workers import Workers
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from numpy.typing import NDArray

BYTES_PER_MIB: Final = 1 << 20
EXPECTED_SHARE: Final = 0.7
"""Of the bare rate, to choose how many iterations fill the time."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """How much is measured."""

    repetitions: int
    duration_ns: int
    """Of one measurement, about."""
    broadcast_bytes: int
    all_reduce_bytes: int
    exchanges: int
    pings: int


def full_lengths(seconds: int, repetitions: int) -> Lengths:
    """What figures are quoted from."""
    return Lengths(
        repetitions=repetitions,
        duration_ns=seconds * NS_PER_S,
        broadcast_bytes=1024 * BYTES_PER_MIB,
        all_reduce_bytes=64 * BYTES_PER_MIB,
        exchanges=20_000 * seconds,
        pings=20_000 * seconds,
    )


SMALL_LENGTHS: Final = Lengths(
    repetitions=2,
    duration_ns=200 * NS_PER_MS,
    broadcast_bytes=64 * BYTES_PER_MIB,
    all_reduce_bytes=8 * BYTES_PER_MIB,
    exchanges=2_000,
    pings=2_000,
)
"""Enough to see that everything works; too short to quote."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What every benchmark has to work with."""

    place: BenchPlace
    workers: Workers
    lengths: Lengths
    print_status: Callable[[str], None]
    realtime: bool = False
    """Whether the engines' threads are to be real-time, as by `etloop-agent run --realtime`."""
    usable: tuple[int, ...] = ()
    """The cores that are there, before any of them was cleared."""
    clear_cores: bool = False
    """Whether pacing is measured on cores that others are kept off, as by `etloop-agent run --clear-cores`."""
    cores: EndCores = ANY_CORES

    def turns(self, name: str) -> Iterator[int]:
        """The repetitions of a benchmark, told as they begin."""
        for turn in range(self.lengths.repetitions):
            self.print_status(f"{name} {turn + 1}/{self.lengths.repetitions}")
            yield turn

    def bare_bytes_per_s(self, backend: PortBackend = PortBackend.UDP, message_packets: int = 0) -> int:
        """One turn of the bare path; of udp, with `message_packets` in the calls that such messages take."""
        return bare_bytes_per_s(self.place, self.workers, self.lengths.duration_ns, backend, message_packets)

    def bare_packets_per_s(self, datagram_bytes: int) -> int:
        """One turn of the bare path, datagram by datagram."""
        return bare_packets_per_s(self.place, self.workers, self.lengths.duration_ns, datagram_bytes)

    def run(
        self,
        load: BenchLoad | PingPong | Messages,
        shape: Shape | None = None,
        backend: PortBackend = PortBackend.UDP,
    ) -> EngineRun:
        """One turn of the engine."""
        return engine_run(
            self.place,
            self.workers,
            load,
            (backend, backend),
            shape,
            realtime=self.realtime,
            cores=self.cores,
        )

    def watch_cores(self) -> tuple[int, int, NDArray[np.int64]]:
        """When a thread would be late on one of the engines' cores although they are not there; see `watched_cores`."""
        watched = tuple(core for own in self.cores for core in own) or self.usable[:2]
        return watched_cores(self.workers, self.lengths.duration_ns, watched)

    def iterations(self, moved_bytes: int, bare: int) -> int:
        """How many iterations of `moved_bytes` fill one measurement where the bare path moves `bare` bytes a second."""
        wanted_bytes = bare * self.lengths.duration_ns * EXPECTED_SHARE / NS_PER_S
        return max(1, round(wanted_bytes / moved_bytes))


def notes_of(runs: Sequence[EngineRun]) -> tuple[str, ...]:
    """What a reader of the figures of these runs must know."""
    again = sum(run.retransmitted_packets for run in runs)
    notes = [f"{again} packets were sent again"] if again else []
    if strays := sum(run.misdirected_datagrams for run in runs):
        notes.append(f"{strays} datagrams came to another queue than their queue pair's and were handed over")
    return tuple(dict.fromkeys([*notes, *(text for run in runs for text in run.degraded)]))
