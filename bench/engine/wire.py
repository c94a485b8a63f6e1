"""`etloop bench wire`: throughput of ports compared with bare sockets of the same kind.

Decides the measured ports and numbers of queue pairs, and their bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from etloop.bench.engine.figures import Bar, Bound, Ratio, Section, Series, Unit, ratio_of
from etloop.bench.engine.load import BenchLoad, Shape
from etloop.bench.engine.measure import EngineRun
from etloop.bench.engine.rounds import Bench, notes_of
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport_kinds import TransportKind
from etloop.workload.trace.trace import CollectiveKind

WIRE_BARS: Final = {
    PortBackend.UDP: Bar(Bound.AT_LEAST, 0.95),
    PortBackend.PACKET: Bar(Bound.AT_LEAST, 1.0),
    PortBackend.XDP: Bar(Bound.AT_LEAST, 1.0),
}
"""Bars for any number of queue pairs."""
MESSAGE_PACKETS: Final = 128
"""Packets of a message of the load: 512 KiB, a slot of NCCL's Simple protocol, at path MTU 4096."""
SPRAYED_BAR: Final = Bar(Bound.AT_LEAST, 0.7)


@dataclass(frozen=True, slots=True)
class WirePorts:
    """Selection for `wire`: every backend with every number of queue pairs; and for `pacing`: every backend."""

    backends: tuple[PortBackend, ...]
    queue_pairs: tuple[int, ...]
    kind: TransportKind = TransportKind.ROCE
    """Transport of the messages of `wire`."""


ALL_PORTS: Final = WirePorts((PortBackend.UDP, PortBackend.PACKET, PortBackend.XDP), (1, 100, 1000))


def wire_sections(bench: Bench, ports: WirePorts) -> tuple[Section, ...]:
    """Return a section for every backend that can be measured here. Raises as the measurements do."""
    return tuple(
        _wire_section(bench, backend, ports)
        for backend in backends_here(bench, ports)
        if ports.kind is TransportKind.ROCE or backend is not PortBackend.UDP
    )


def backends_here(bench: Bench, ports: WirePorts) -> tuple[PortBackend, ...]:
    """Return the requested backends that can be used on the network of the bench."""
    return tuple(
        backend for backend in ports.backends if backend is PortBackend.UDP or bench.place.has_frames
    )


def wire_bar(backend: PortBackend, kind: TransportKind = TransportKind.ROCE) -> Bar:
    """Return the bar of a port."""
    return WIRE_BARS[backend] if kind is TransportKind.ROCE else SPRAYED_BAR


def _wire_section(bench: Bench, backend: PortBackend, ports: WirePorts) -> Section:
    queue_pairs, kind = ports.queue_pairs, ports.kind
    name = f"wire {backend.name.lower()}" + ("" if kind is TransportKind.ROCE else f" {kind.name.lower()}")
    bare: list[int] = []
    # FIRST and LAST are longer than a MIDDLE, and GSO cuts equal lengths: this is the cost of a protocol unknown to the kernel.
    has_calls = backend is PortBackend.UDP and kind is TransportKind.ROCE
    in_calls: list[int] = []
    runs: dict[int, list[EngineRun]] = {count: [] for count in queue_pairs}
    has_ring = backend is PortBackend.PACKET and kind is TransportKind.ROCE
    by_ring: dict[int, list[EngineRun]] = {count: [] for count in (queue_pairs if has_ring else ())}
    size = bench.lengths.broadcast_bytes
    for _ in bench.turns(name):
        bare.append(bench.bare_bytes_per_s(backend))
        if has_calls:
            in_calls.append(bench.bare_bytes_per_s(backend, MESSAGE_PACKETS))
        load = BenchLoad(CollectiveKind.BROADCAST, 2, size, bench.iterations(size, bare[-1]))
        for count in queue_pairs:
            shape = Shape(queue_pairs=count, kind=kind)
            runs[count].append(bench.run(load, shape, backend))
            if has_ring:
                by_ring[count].append(bench.run(load, replace(shape, receive_ring=True), backend))
    rings = {count: [run.wire_bytes_per_s for run in ring_runs] for count, ring_runs in by_ring.items()}
    engine_rates = {count: [run.wire_bytes_per_s for run in runs[count]] for count in queue_pairs}
    return Section(
        name=name,
        title=_title(backend, kind),
        series=(
            Series("bare payload", Unit.BYTES_PER_S, tuple(bare)),
            *(
                [Series("bare, in the calls of messages", Unit.BYTES_PER_S, tuple(in_calls))]
                if in_calls
                else ()
            ),
            *(
                Series(f"ETLoop, {_pairs(count)}", Unit.BYTES_PER_S, tuple(engine_rates[count]))
                for count in queue_pairs
            ),
            *(
                Series(f"with receive_ring, {_pairs(count)}", Unit.BYTES_PER_S, tuple(rates))
                for count, rates in rings.items()
            ),
        ),
        ratios=(
            *(
                ratio_of(
                    f"ETLoop / bare, {_pairs(count)}", engine_rates[count], bare, wire_bar(backend, kind)
                )
                for count in queue_pairs
            ),
            *(
                [Ratio("bare in the calls of messages / bare", _quotients(in_calls, bare))]
                if in_calls
                else ()
            ),
            *(
                Ratio(f"ETLoop / bare in the calls of messages, {_pairs(count)}", _quotients(rates, in_calls))
                for count, rates in (engine_rates.items() if in_calls else ())
            ),
            *(
                Ratio(f"with receive_ring / without, {_pairs(count)}", _quotients(rates, engine_rates[count]))
                for count, rates in rings.items()
            ),
            *_calls(runs),
        ),
        notes=notes_of([run for repeated in (*runs.values(), *by_ring.values()) for run in repeated]),
    )


def _title(backend: PortBackend, kind: TransportKind) -> str:
    messages = "RC WRITE messages with DCQCN" if kind is TransportKind.ROCE else f"{kind.name} writes"
    udp = backend is PortBackend.UDP
    bare = "UDP with GSO and GRO" if udp else f"frames over the {backend.name.lower()} socket"
    return f"payload of {messages} one way, path MTU 4096, compared with bare {bare}"


def _calls(runs: Mapping[int, Sequence[EngineRun]]) -> tuple[Ratio, ...]:
    """Return packets per system call at the sending end, answers per packet, and the kernel's share of both ends' CPU
    time.
    """
    ratios = []
    for count, count_runs in runs.items():
        carried = [(run.calls[0].sent_packets, run.calls[0].sending) for run in count_runs]
        answers = [(run.calls[0].received_packets, run.calls[0].sent_packets) for run in count_runs]
        kernel = [(sum(run.kernel_ns), sum(run.processor_ns)) for run in count_runs]
        ratios += [
            Ratio(f"packets a sending call, {_pairs(count)}", _shares(carried)),
            Ratio(f"answers a packet sent, {_pairs(count)}", _shares(answers)),
            Ratio(f"time inside the kernel, {_pairs(count)}", _shares(kernel)),
        ]
    return tuple(ratios)


def _shares(parts: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    return tuple(part / max(total, 1) for part, total in parts)


def _quotients(these: list[int], those: list[int]) -> tuple[float, ...]:
    return tuple(dividend / divisor for dividend, divisor in zip(these, those, strict=True))


def _pairs(count: int) -> str:
    return "1 queue pair" if count == 1 else f"{count:,} queue pairs"
