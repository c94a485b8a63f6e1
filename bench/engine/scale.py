"""`etloop bench scale`: one rank of one address over 1, 2, ... queues of its port.

Decides how many queues are measured, what a packet costs of the processor at either end, and what follows from that for
fast links. Threads sleep where they have no work, so that the processor's time is that of the work alone: the time of packets
in the kernel stands with whoever it interrupts, over a veth pair mostly with the sender.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from etloop.bench.engine.figures import Bar, Bound, Ratio, Section, Series, Unit, ratio_of
from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import EngineRun
from etloop.bench.engine.rounds import Bench, notes_of
from etloop.bench.engine.wire import WirePorts, backends_here
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import format_rate
from etloop.contract.model.assignment import PortBackend
from etloop.workload.trace.trace import CollectiveKind

RATE_BAR: Final = Bar(Bound.AT_LEAST, 1.0)
COST_BAR: Final = Bar(Bound.AT_MOST, 1.1)
BARRED_QUEUES: Final = 2
"""The bars are of one queue more, where two cores are there; of others the figures are told."""
QUEUE_PAIRS: Final = 16
PATH_MTU_BYTES: Final = 4096
LINKS_BPS: Final = (100_000_000_000, 200_000_000_000, 400_000_000_000)
LINK_BYTES: Final = 4096 + 12 + 4 + 8 + 20 + 18 + 20
"""Of a packet on the link: payload, BTH, ICRC, UDP, IPv4, Ethernet with FCS, preamble and gap."""
MOST_QUEUES: Final = 16


def queue_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4 ... as far as there are cores, and at least 2."""
    return tuple(count for count in (1, 2, 4, 8, MOST_QUEUES) if count <= max(cores, BARRED_QUEUES))


def cores_for(link_bps: int, packet_ns: float) -> float:
    """Cores that carry full packets at the speed of a link, where one costs a core so long and queues share nothing."""
    return link_bps / (8 * LINK_BYTES) * packet_ns / NS_PER_S


def scale_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """A section of every backend whose frames can be sorted here. Raises as the measurements do."""
    return tuple(
        _section(bench, backend)
        for backend in backends_here(bench, ports)
        if backend is not PortBackend.XDP  # the queues of an interface cannot be changed under its figures
    )


def _section(bench: Bench, backend: PortBackend) -> Section:
    counts = queue_counts(len(bench.usable))
    runs: dict[int, list[EngineRun]] = {count: [] for count in counts}
    size = bench.lengths.broadcast_bytes
    name = f"scale {backend.name.lower()}"
    for _ in bench.turns(name):
        bare = bench.bare_bytes_per_s(backend)
        load = BenchLoad(CollectiveKind.BROADCAST, 2, size, bench.iterations(size, bare))
        for count in counts:
            shape = Shape(queue_pairs=QUEUE_PAIRS, queues=count, sleeps=True)
            runs[count].append(bench.run(load, shape, backend))
    rates = {count: [run.wire_bytes_per_s for run in runs[count]] for count in counts}
    costs = {count: [_packet_ns(run, end) for run in runs[count] for end in (0,)] for count in counts}
    takes = {count: [_packet_ns(run, 1) for run in runs[count]] for count in counts}
    both = {
        count: [sent + taken for sent, taken in zip(costs[count], takes[count], strict=True)]
        for count in counts
    }
    return Section(
        name=name,
        title=f"one rank over the queues of its port: {QUEUE_PAIRS} queue pairs one way, path MTU {PATH_MTU_BYTES}",
        series=(
            *(
                Series(f"payload, {_queues(count)}", Unit.BYTES_PER_S, tuple(rates[count]))
                for count in counts
            ),
            *(
                Series(f"sender, a packet, {_queues(count)}", Unit.NANOSECONDS, tuple(costs[count]))
                for count in counts
            ),
            *(
                Series(f"receiver, a packet, {_queues(count)}", Unit.NANOSECONDS, tuple(takes[count]))
                for count in counts
            ),
        ),
        ratios=tuple(
            ratio
            for count in counts[1:]
            for ratio in (
                _ratio(f"payload, {_queues(count)} / one", rates[count], rates[1], count, RATE_BAR),
                _ratio(f"cost, {_queues(count)} / one", both[count], both[1], count, COST_BAR),
            )
        ),
        notes=(
            *_expectations(median(costs[1]), median(takes[1])),
            *notes_of([run for count in counts for run in runs[count]]),
        ),
    )


def _packet_ns(run: EngineRun, end: int) -> int:
    """Of the processor, for each packet of data; those that answer are in it."""
    packets = max(run.wire_bytes // PATH_MTU_BYTES, 1)
    return max(run.processor_ns[end] // packets, 1)


def _ratio(name: str, ours: Sequence[int], one: Sequence[int], count: int, bar: Bar) -> Ratio:
    ratio = ratio_of(name, ours, one, bar)
    return ratio if count == BARRED_QUEUES else Ratio(ratio.name, ratio.samples)


def _expectations(send_ns: float, take_ns: float) -> tuple[str, ...]:
    """What these costs say of links that are faster than this machine."""
    return tuple(
        f"by these costs {format_rate(link)} takes {cores_for(link, send_ns):.1f} cores to send and "
        f"{cores_for(link, take_ns):.1f} to receive, if a packet costs the same on every core: a calculation, not a measurement"
        for link in LINKS_BPS
    )


def _queues(count: int) -> str:
    return "1 queue" if count == 1 else f"{count} queues"
