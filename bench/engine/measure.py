"""Single measurements: the bare kernel path, its latency, the engine under a load, gloo. Each returns figures of one turn.

Decides how a measurement is started and which part of it counts; the benchmarks decide how often, and choose the baseline.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.figures import bytes_per_s
from etloop.bench.engine.load import BenchLoad, Messages, PingPong, Shape, bench_assignments
from etloop.bench.engine.network import BenchPlace
from etloop.bench.engine.protocol import (
    BlastExchange,
    BlastReceive,
    BlastSend,
    Collect,
    Counted,
    Done,
    EchoPings,
    Load,
    Opened,
    PortCalls,
    Probe,
    Ran,
    RoundTrips,
    SendPings,
    Start,
    StepTimes,
    TakeSteps,
    Watch,
    Watched,
)
from etloop.bench.engine.workers import Workers, ask_both, start_module
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import RunAborted
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.engine import TurnaroundPart
from etloop.controller.inputs.rig import ROCE_UDP_PORT
from etloop.results.measure.distribution import nearest_rank
from etloop.runtime.clock import monotonic_ns

RESPONSE_TIMEOUT_NS: Final = 30 * NS_PER_S
"""Timeout of orders that are carried out immediately."""
BLAST_LEAD_NS: Final = NS_PER_S
"""A blast lasts this much longer at the sender, because a busy machine may be slow to open a socket, a ring or a program."""
START_LEAD_NS: Final = 20 * NS_PER_MS
"""Time from the start order to the start."""
RUN_TIMEOUT_NS: Final = 120 * NS_PER_S
GLOO_TIMEOUT_S: Final = 180
GLOO_OUTPUT_BYTES: Final = 4096

EndCores = tuple[tuple[int, ...], tuple[int, ...]]
"""Cores of the threads of each end; (): all that its process may use."""
ANY_CORES: Final[EndCores] = ((), ())


@dataclass(frozen=True, slots=True)
class EngineRun:
    """Measurements of the engine under a load, both ends together."""

    wire_bytes: int
    duration_ns: int
    """Time from the first issue of an op to the last completion."""
    packets: int
    """Packets that both ends sent, acknowledgements included."""
    retransmitted_packets: int
    turnarounds: tuple[tuple[int, int], ...]
    """Histogram of the engine: least nanoseconds of a bucket, count."""
    received_ns: tuple[NDArray[np.int64], ...]
    """Completion times of the receives, by iteration and op, one array per end."""
    degraded: tuple[str, ...]
    sent: tuple[NDArray[np.int64], ...] = ()
    """If a series was requested, per end an array (rows, 2): time and packets sent until then."""
    late: tuple[NDArray[np.int64], ...] = ()
    """Per end an array (rows, 2): intended and actual time of a delayed turn of a thread."""
    realtime: bool = False
    """True if all threads of both ends were real-time."""
    processor_ns: tuple[int, ...] = ()
    """CPU time by end."""
    slip_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Slip of both ends' ops, ascending."""
    background_bytes: int = 0
    """Payload of background ranks, in completed operations."""
    misdirected_datagrams: int = 0
    """Datagrams that arrived at another queue than their queue pair's, and were handed over."""
    kernel_ns: tuple[int, ...] = ()
    """Part of `processor_ns` inside the kernel, by end."""
    calls: tuple[PortCalls, ...] = ()
    """System calls by end."""
    op_p50_ns: int = 0
    """Median over iterations of the time of the op that took longest."""
    acknowledgements: int = 0
    """Acknowledgements of data, both ends together."""
    timeouts: int = 0
    """Timeouts of queue pairs of both ends."""
    lost_packets: int = 0
    """Packets that an end missed, because its receive buffer was full or an earlier packet did not arrive."""
    parts: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Histograms of the parts of the turnarounds, in the order of `TurnaroundPart`."""

    @property
    def wire_bytes_per_s(self) -> int:
        """Return the payload rate through the sockets, both directions together."""
        return bytes_per_s(self.wire_bytes, self.duration_ns)


def bare_bytes_per_s(
    place: BenchPlace,
    workers: Workers,
    duration_ns: int,
    backend: PortBackend = PortBackend.UDP,
    message_packets: int = 0,
) -> int:
    """Return the UDP payload rate received when one end sends as fast as the kernel accepts: segmented datagrams, or
    whole frames.

    With `message_packets`, sent with the system calls of RC WRITE messages of this many packets. Raises `RunAborted`.
    """
    sender, receiver = (bench_end.addresses[0] for bench_end in place.ends)
    orders = (
        BlastSend(sender, receiver, ROCE_UDP_PORT, duration_ns + BLAST_LEAD_NS, backend, message_packets),
        BlastReceive(receiver, ROCE_UDP_PORT, duration_ns, backend),
    )
    _, received = ask_both(workers, orders, (Counted, Counted), duration_ns + RESPONSE_TIMEOUT_NS)
    if received.payload_bytes == 0 or received.duration_ns == 0:
        raise RunAborted("the bare kernel path moved nothing; look for a firewall between the ends")
    return bytes_per_s(received.payload_bytes, received.duration_ns)


def bare_packets_per_s(place: BenchPlace, workers: Workers, duration_ns: int, datagram_bytes: int) -> int:
    """Return the datagrams of this size per second received at both ends together, each sending and receiving batches
    in turn.

    Raises `RunAborted`.
    """
    address_a, address_b = (end.addresses[0] for end in place.ends)
    orders = (
        BlastExchange(address_a, address_b, ROCE_UDP_PORT, duration_ns, datagram_bytes),
        BlastExchange(address_b, address_a, ROCE_UDP_PORT, duration_ns, datagram_bytes),
    )
    counts = ask_both(workers, orders, (Counted, Counted), duration_ns + RESPONSE_TIMEOUT_NS)
    if any(end.datagrams == 0 or end.duration_ns == 0 for end in counts):
        raise RunAborted("the bare kernel path moved nothing; look for a firewall between the ends")
    return sum(end.datagrams * NS_PER_S // end.duration_ns for end in counts)


def bare_one_way_ns(place: BenchPlace, workers: Workers, count: int, message_bytes: int) -> int:
    """Return half of the median round-trip time in ns of a datagram between two busy-polling ends."""
    sender, receiver = (bench_end.addresses[0] for bench_end in place.ends)
    orders = (
        SendPings(sender, receiver, ROCE_UDP_PORT, count, message_bytes),
        EchoPings(receiver, ROCE_UDP_PORT, count),
    )
    times, _ = ask_both(workers, orders, (RoundTrips, Done), RUN_TIMEOUT_NS)
    return times.p50_ns // 2


@dataclass(frozen=True, slots=True)
class BareSteps:
    """Dependent operations without a protocol."""

    steps: int
    waits_acknowledged: bool

    def describe(self) -> str:
        """Return the words of a report."""
        pattern = "exchange" if self.steps == 1 else "two-step ring"
        return f"bare {pattern}, {'acknowledged' if self.waits_acknowledged else 'no ACK'}"


def bare_steps_ns(
    place: BenchPlace,
    workers: Workers,
    pattern: BareSteps,
    datagram_bytes: int,
    operations: int,
    *,
    realtime: bool = False,
    cores: EndCores = ANY_CORES,
) -> int:
    """Return the median time in ns of a bare operation, on the slower end as an engine's (`op_p50_ns`). Raises `RunAborted`."""
    address_a, address_b = (end.addresses[0] for end in place.ends)
    shape = (ROCE_UDP_PORT, datagram_bytes, operations, pattern.steps, pattern.waits_acknowledged, realtime)
    orders = (
        TakeSteps(address_a, address_b, *shape, cores[0]),
        TakeSteps(address_b, address_a, *shape, cores[1]),
    )
    ends = ask_both(workers, orders, (StepTimes, StepTimes), RUN_TIMEOUT_NS)
    return _slower_p50_ns([end.times_ns for end in ends])


def _slower_p50_ns(raw_times: Sequence[bytes]) -> int:
    """Return the median over operations of the longest time of any end, from little-endian int64 by operation."""
    longest_ns = np.max([np.frombuffer(raw, "<i8") for raw in raw_times], axis=0)
    return int(nearest_rank(np.sort(longest_ns), 50))


def engine_run(
    place: BenchPlace,
    workers: Workers,
    load: BenchLoad | PingPong | Messages,
    backends: tuple[PortBackend, PortBackend] = (PortBackend.UDP, PortBackend.UDP),
    shape: Shape | None = None,
    *,
    realtime: bool = False,
    cores: EndCores = ANY_CORES,
) -> EngineRun:
    """Run a load from open sockets to the last completion. Raises `RunAborted` if it does not complete."""
    assignments = bench_assignments(load, [end.addresses for end in place.ends], backends, shape)
    loads = [
        Load(assignment, realtime, end_cores)
        for assignment, end_cores in zip(assignments, cores, strict=True)
    ]
    opened = ask_both(workers, loads, (Opened, Opened), RESPONSE_TIMEOUT_NS)
    ask_both(workers, (Probe(), Probe()), (Done, Done), RESPONSE_TIMEOUT_NS)
    start = Start(monotonic_ns() + START_LEAD_NS)
    ask_both(workers, (start, start), (Done, Done), RUN_TIMEOUT_NS)
    results = ask_both(workers, (Collect(), Collect()), (Ran, Ran), RESPONSE_TIMEOUT_NS)
    completed = sum(end.ops for end in results)
    if completed != load.ops:
        raise RunAborted(f"{completed} of {load.ops} operations were recorded")
    return EngineRun(
        wire_bytes=sum(end.wire_tx_bytes for end in results),
        duration_ns=max(end.last_completed_ns for end in results)
        - min(end.first_issued_ns for end in results),
        packets=sum(end.packets for end in results),
        retransmitted_packets=sum(end.retransmitted_packets for end in results),
        turnarounds=tuple(
            bucket
            for end in results
            for bucket in zip(end.turnaround_least_ns, end.turnaround_counts, strict=True)
        ),
        received_ns=tuple(np.frombuffer(end.received_ns, "<i8") for end in results),
        degraded=tuple(dict.fromkeys(text for end in opened for text in end.degraded)),
        sent=tuple(_pairs(end.sent) for end in results),
        late=tuple(_pairs(end.late) for end in results),
        realtime=all(end.realtime for end in results),
        processor_ns=tuple(end.processor_ns for end in results),
        slip_ns=np.sort(np.concatenate([np.frombuffer(end.slip_ns, "<i8") for end in results])),
        background_bytes=sum(end.carried_bytes for end in results),
        misdirected_datagrams=sum(end.misdirected_datagrams for end in results),
        kernel_ns=tuple(end.kernel_ns for end in results),
        calls=tuple(end.calls for end in results),
        op_p50_ns=_slower_p50_ns([end.op_ns for end in results]),
        acknowledgements=sum(end.acknowledgements for end in results),
        timeouts=sum(end.timeouts for end in results),
        lost_packets=sum(end.lost_packets for end in results),
        parts=tuple(
            tuple(
                bucket
                for end in results
                for bucket in zip(end.parts[part.value].least_ns, end.parts[part.value].counts, strict=True)
            )
            for part in TurnaroundPart
        ),
    )


def watched_cores(
    workers: Workers, duration_ns: int, cores: Sequence[int]
) -> tuple[int, int, NDArray[np.int64]]:
    """Return begin, end, and an array (rows, 2) of intended and actual times of delays of a clock-reading thread on two
    cores.

    No engine runs meanwhile. Raises `RunAborted` if the workers may not be real-time.
    """
    begin_ns = monotonic_ns()
    orders = (Watch(cores[0], duration_ns), Watch(cores[-1], duration_ns))
    ends = ask_both(workers, orders, (Watched, Watched), duration_ns + RESPONSE_TIMEOUT_NS)
    return begin_ns, begin_ns + duration_ns, np.concatenate([_pairs(watched.late) for watched in ends])


def _pairs(raw: bytes) -> NDArray[np.int64]:
    return np.frombuffer(raw, "<i8").reshape(-1, 2)


def wire_turnarounds_ns(load: PingPong, run: EngineRun) -> NDArray[np.int64]:
    """Return times from the arrival of a message at one end to that of its answer's first packet at the other, in ns,
    ascending.

    Both timestamps are of one kernel, taken at the same point of its receive path, so this is the turnaround on the
    wire between the ends plus one crossing of it. Each answer is one packet.
    """
    thrown, caught = (
        received.reshape(load.iterations, load.exchanges) for received in reversed(run.received_ns)
    )
    forward = caught - thrown
    back = thrown[:, 1:] - caught[:, :-1]
    return np.sort(np.concatenate([forward.ravel(), back.ravel()]))


def gloo_duration_ns(place: BenchPlace, load: BenchLoad) -> int:
    """Return how long gloo takes for the same all-reduces between the same ends, with the same placement of ranks.

    Raises `RunAborted` if a rank fails; its output is on standard error.
    """
    with tempfile.TemporaryDirectory(prefix="etloop-bench-") as directory, contextlib.ExitStack() as stack:
        numbers = (load.ranks, load.message_bytes, load.iterations)
        ranks = [
            stack.enter_context(_gloo_rank(place, rank, (*map(str, numbers), f"{directory}/meeting")))
            for rank in range(load.ranks)
        ]
        deadline_ns = monotonic_ns() + GLOO_TIMEOUT_S * NS_PER_S
        times = [_gloo_times(rank, process, deadline_ns) for rank, process in enumerate(ranks)]
    return max(end for _, end in times) - min(start for start, _ in times)


@contextlib.contextmanager
def _gloo_rank(place: BenchPlace, rank: int, words: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    bench_end = place.ends[rank % len(place.ends)]
    process = start_module(
        bench_end,
        "etloop.bench.engine.gloo",
        str(rank),
        *words,
        stdin=subprocess.DEVNULL,
        environment={"GLOO_SOCKET_IFNAME": bench_end.interface},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _gloo_times(rank: int, process: subprocess.Popen[bytes], deadline_ns: int) -> tuple[int, int]:
    left_s = max(deadline_ns - monotonic_ns(), 0) / NS_PER_S
    try:
        output, _ = process.communicate(timeout=left_s)
    except subprocess.TimeoutExpired:
        raise RunAborted(f"rank {rank} of gloo did not end within {GLOO_TIMEOUT_S} s") from None
    words = output[:GLOO_OUTPUT_BYTES].split()
    if process.returncode != 0 or len(words) != 2 or not all(word.isdigit() for word in words):
        raise RunAborted(f"rank {rank} of gloo ended with code {process.returncode}; it said why above")
    return int(words[0]), int(words[1])
