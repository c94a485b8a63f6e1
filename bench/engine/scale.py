"""`etloop bench scale`: one rank of one address over 1, 2, ... queues of its port.

Decides how many queues are measured, the CPU time per packet at both ends, and the extrapolation to fast links. Idle threads
sleep, so that CPU time is that of the work alone. The kernel's time for packets is charged to the interrupted thread, over a veth
pair mostly to the sender.
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
"""The bars apply to two queues, if there are two cores; figures of other numbers are only reported."""
QUEUE_PAIRS: Final = 16
PATH_MTU_BYTES: Final = 4096
LINKS_BPS: Final = (100_000_000_000, 200_000_000_000, 400_000_000_000)
LINK_BYTES: Final = 4096 + 12 + 4 + 8 + 20 + 18 + 20
"""Bytes of a packet on the link: payload, BTH, ICRC, UDP, IPv4, Ethernet with FCS, preamble and gap."""
MOST_QUEUES: Final = 16


def queue_counts(cores: int) -> tuple[int, ...]:
    """Return 1, 2, 4 ... up to the number of cores, and at least up to 2."""
    return tuple(count for count in (1, 2, 4, 8, MOST_QUEUES) if count <= max(cores, BARRED_QUEUES))


def cores_for(link_bps: int, packet_ns: float) -> float:
    """Return the cores that carry full packets at link rate if each takes `packet_ns` of a core and queues share no
    resources.
    """
    return link_bps / (8 * LINK_BYTES) * packet_ns / NS_PER_S


def scale_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """Return a section for every backend whose frames can be distributed here. Raises as the measurements do."""
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
    costs = {count: [_packet_ns(run, sender) for run in runs[count] for sender in (0,)] for count in counts}
    takes = {count: [_packet_ns(run, 1) for run in runs[count]] for count in counts}
    total_costs = {
        count: [send_ns + receive_ns for send_ns, receive_ns in zip(costs[count], takes[count], strict=True)]
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
                _ratio(f"cost, {_queues(count)} / one", total_costs[count], total_costs[1], count, COST_BAR),
            )
        ),
        notes=(
            *_expectations(median(costs[1]), median(takes[1])),
            *notes_of([run for count in counts for run in runs[count]]),
        ),
    )


def _packet_ns(run: EngineRun, end: int) -> int:
    """Return the CPU time in ns per data packet of an end, answers included."""
    packets = max(run.wire_bytes // PATH_MTU_BYTES, 1)
    return max(run.processor_ns[end] // packets, 1)


def _ratio(name: str, many: Sequence[int], single: Sequence[int], count: int, bar: Bar) -> Ratio:
    ratio = ratio_of(name, many, single, bar)
    return ratio if count == BARRED_QUEUES else Ratio(ratio.name, ratio.samples)


def _expectations(send_ns: float, take_ns: float) -> tuple[str, ...]:
    """Return notes that extrapolate these costs to links that are faster than this machine."""
    return tuple(
        f"by these costs {format_rate(link)} takes {cores_for(link, send_ns):.1f} cores to send and "
        f"{cores_for(link, take_ns):.1f} to receive, if a packet costs the same on every core: a calculation, not a measurement"
        for link in LINKS_BPS
    )


def _queues(count: int) -> str:
    return "1 queue" if count == 1 else f"{count} queues"
