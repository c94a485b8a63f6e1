"""Common means of all benchmarks: two ends, the length of a measurement, and turns.

Decides the lengths of quotable measurements; the benchmarks decide the comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.load import BenchLoad, Messages, PingPong, Shape
from etloop.bench.engine.measure import (
    ANY_CORES,
    BareSteps,
    EndCores,
    EngineRun,
    bare_bytes_per_s,
    bare_packets_per_s,
    bare_steps_ns,
    engine_run,
    watched_cores,
)
from etloop.bench.engine.network import BenchPlace
from etloop.bench.engine.workers import Workers
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_duration
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport import RecoverySettings

BYTES_PER_MIB: Final = 1 << 20
EXPECTED_SHARE: Final = 0.7
"""Expected share of the bare rate, to choose how many iterations fill the time."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Amount of each measurement."""

    repetitions: int
    duration_ns: int
    """Approximate duration of one measurement."""
    broadcast_bytes: int
    all_reduce_bytes: int
    exchanges: int
    pings: int


def full_lengths(seconds: int, repetitions: int) -> Lengths:
    """Return the lengths of measurements whose figures may be quoted."""
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
"""Lengths for a functional test; too short to quote."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Common means of all benchmarks."""

    place: BenchPlace
    workers: Workers
    lengths: Lengths
    print_status: Callable[[str], None]
    realtime: bool = False
    """True if the engines' threads are to be real-time, as by `etloop-agent run --realtime`."""
    usable: tuple[int, ...] = ()
    """Usable cores, before any of them was cleared."""
    clear_cores: bool = False
    """True if pacing is measured on cores cleared of other threads, as by `etloop-agent run --clear-cores`."""
    cores: EndCores = ANY_CORES

    def turns(self, name: str) -> Iterator[int]:
        """Yield the repetitions of a benchmark, and print each one as it begins."""
        for turn in range(self.lengths.repetitions):
            self.print_status(f"{name} {turn + 1}/{self.lengths.repetitions}")
            yield turn

    def bare_bytes_per_s(self, backend: PortBackend = PortBackend.UDP, message_packets: int = 0) -> int:
        """Measure one turn of the bare path; for UDP, with `message_packets`, by the system calls of such messages."""
        return bare_bytes_per_s(self.place, self.workers, self.lengths.duration_ns, backend, message_packets)

    def bare_packets_per_s(self, datagram_bytes: int) -> int:
        """Measure one turn of the bare path, datagram by datagram."""
        return bare_packets_per_s(self.place, self.workers, self.lengths.duration_ns, datagram_bytes)

    def bare_steps_ns(self, pattern: BareSteps, datagram_bytes: int, operations: int) -> int:
        """Measure one turn of bare dependent operations, on threads as the engine's; return their median."""
        return bare_steps_ns(
            self.place,
            self.workers,
            pattern,
            datagram_bytes,
            operations,
            realtime=self.realtime,
            cores=self.dependent_cores(),
        )

    def dependent_cores(self) -> EndCores:
        """Return a core for each end, if there are two: a busy-polling peer on the same core would be waited for."""
        if self.cores != ANY_CORES or len(self.usable) < len(self.place.ends):
            return self.cores
        return (self.usable[:1], self.usable[1:2])

    def run(
        self,
        load: BenchLoad | PingPong | Messages,
        shape: Shape | None = None,
        backend: PortBackend = PortBackend.UDP,
        cores: EndCores | None = None,
    ) -> EngineRun:
        """Run one turn of the engine, on the bench's cores unless others are given."""
        return engine_run(
            self.place,
            self.workers,
            load,
            (backend, backend),
            shape,
            realtime=self.realtime,
            cores=self.cores if cores is None else cores,
        )

    def watch_cores(self) -> tuple[int, int, NDArray[np.int64]]:
        """Measure delays of threads on the engines' cores while no engine runs; see `watched_cores`."""
        watched = tuple(core for end_cores in self.cores for core in end_cores) or self.usable[:2]
        return watched_cores(self.workers, self.lengths.duration_ns, watched)

    def iterations(self, moved_bytes: int, bare: int) -> int:
        """Return the iterations of `moved_bytes` that fill one measurement if the bare path moves `bare` bytes per
        second.
        """
        wanted_bytes = bare * self.lengths.duration_ns * EXPECTED_SHARE / NS_PER_S
        return max(1, round(wanted_bytes / moved_bytes))


def notes_of(runs: Sequence[EngineRun]) -> tuple[str, ...]:
    """Return the notes for a reader of the figures of these runs."""
    notes = _retransmission_notes(runs)
    if strays := sum(run.misdirected_datagrams for run in runs):
        notes.append(f"{strays} datagrams came to another queue than their queue pair's and were handed over")
    return tuple(dict.fromkeys([*notes, *(text for run in runs for text in run.degraded)]))


def _retransmission_notes(runs: Sequence[EngineRun]) -> list[str]:
    """Return a note on retransmitted packets with their cause: lost packets, or an emulator's thread that did not run."""
    packets = sum(run.retransmitted_packets for run in runs)
    if packets == 0:
        return []
    timeouts, lost_packets = sum(run.timeouts for run in runs), sum(run.lost_packets for run in runs)
    absences_ns = [int((turns[:, 1] - turns[:, 0]).max()) for run in runs for turns in run.late if len(turns)]
    longest_ns = max(absences_ns, default=0)
    if lost_packets or not timeouts or longest_ns < RecoverySettings().timeout_floor_ns:
        return [
            f"{packets} packets were sent again, after {timeouts} timeouts and {lost_packets} packets out of sequence"
        ]
    cause = f"a thread of the emulator did not run for up to {approximate_duration(longest_ns)}"
    return [
        f"{packets} packets were sent again after {timeouts} timeouts; none was lost: the answers were late, because {cause}"
    ]
