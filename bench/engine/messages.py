"""`etloop bench messages`: small messages compared with bare datagrams that both ends send by sendmmsg and receive by recvmmsg.

Decides sizes and numbers of queue pairs. Packets of both ends count, acknowledgements and grants included, because each costs as
much as a bare datagram of its kind; messages per second are shown, too.
"""

from __future__ import annotations

from typing import Final

from etloop.bench.engine.figures import Bar, Bound, Section, Series, Unit, ratio_of
from etloop.bench.engine.load import Messages, Shape
from etloop.bench.engine.measure import EngineRun
from etloop.bench.engine.rounds import Bench, notes_of
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.units import format_bytes

SIZES_BYTES: Final = (64, 1024, 4096)
QUEUE_PAIRS: Final = (1, 16, 64)
MESSAGES_BAR: Final = Bar(Bound.AT_LEAST, 0.7)
MESSAGES: Final = 2_000
"""Messages per iteration."""
MOST_MESSAGES: Final = 100_000
"""Most messages of a run, because an engine keeps their records until its end."""
HEADERS_BYTES: Final = 36
"""Headers in the UDP payload of a message of one packet: BTH, RETH, immediate and ICRC."""
_MESSAGE_NS: Final = 4_000
"""Estimated time of a message, to choose how many fill a turn."""


def iterations_of(duration_ns: int) -> int:
    """Return the iterations that fill a turn that all numbers of queue pairs share."""
    fitting = duration_ns // (MESSAGES * _MESSAGE_NS * len(QUEUE_PAIRS))
    return max(1, min(fitting, MOST_MESSAGES // MESSAGES))


def message_sections(bench: Bench) -> tuple[Section, ...]:
    """Return a section for every size. Raises as the measurements do."""
    return tuple(_section(bench, size) for size in SIZES_BYTES)


def _section(bench: Bench, size_bytes: int) -> Section:
    iterations = iterations_of(bench.lengths.duration_ns)
    load = Messages(size_bytes, MESSAGES, iterations)
    bare: list[int] = []
    runs: dict[int, list[EngineRun]] = {count: [] for count in QUEUE_PAIRS}
    name = f"messages {format_bytes(size_bytes)}"
    for _ in bench.turns(name):
        bare.append(bench.bare_packets_per_s(size_bytes + HEADERS_BYTES))
        for count in QUEUE_PAIRS:
            # By NCCL's own rule a connection has eight messages under way, which measures its round trip.
            runs[count].append(bench.run(load, Shape(queue_pairs=count, completion="acknowledged")))
    packets = {count: [_per_s(run, run.packets) for run in runs[count]] for count in QUEUE_PAIRS}
    messages_sent = MESSAGES * iterations
    return Section(
        name=name,
        title=f"RC WRITE messages of {format_bytes(size_bytes)} one way, compared with bare datagrams of that size, both ways",
        series=(
            Series("bare datagrams, both ends", Unit.PER_S, tuple(bare)),
            *(
                Series(
                    f"ETLoop messages, {_pairs(count)}",
                    Unit.PER_S,
                    tuple(_per_s(run, messages_sent) for run in runs[count]),
                )
                for count in QUEUE_PAIRS
            ),
            *(
                Series(f"ETLoop packets, {_pairs(count)}", Unit.PER_S, tuple(packets[count]))
                for count in QUEUE_PAIRS
            ),
        ),
        ratios=tuple(
            ratio_of(f"packets / bare, {_pairs(count)}", packets[count], bare, MESSAGES_BAR)
            for count in QUEUE_PAIRS
        ),
        notes=notes_of([run for count in QUEUE_PAIRS for run in runs[count]]),
    )


def _per_s(run: EngineRun, number: int) -> int:
    return number * NS_PER_S // max(run.duration_ns, 1)


def _pairs(count: int) -> str:
    return "1 queue pair" if count == 1 else f"{count} queue pairs"
