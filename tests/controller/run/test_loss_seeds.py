"""Losses of drawn jobs in virtual time: a clean run receives every packet of every kind, and planted drops are counted exactly.

Contexts of UET close in the middle of a job, and timers are so short that commands, answers and data come twice and late.
ETLOOP_FULL=1 draws 100 jobs a transport; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.controller.run.test_losses import Case, losses_of, twin_of

if TYPE_CHECKING:
    from etloop.results.schema.losses import LossSummary

SEEDS: Final = 100 if os.environ.get("ETLOOP_FULL") == "1" else 8
BATCHES: Final = 2
KINDS: Final = ("rocev2", "mrc", "uet")
ALGORITHMS: Final = {
    "rocev2": ("none", "dcqcn", "dctcp", "swift", "timely"),
    "mrc": ("none", "nscc"),
    "uet": ("none", "nscc", "rccc"),
}
QUIET_ROWS: Final = ("data", "acknowledgements", "naks", "cnps", "streams", "others", "all", "unexplained")
BACKGROUND: Final = (
    "background: [{name: bulk, udp: {from: a/p0, to: c/p0, rate: 1Mbps, size: 500B}}, "
    "{name: burst, incast: {senders: 2, size: 16KiB, period: 3ms}}]\n"
)


def job(kind: str, draw: random.Random, faults: str = "") -> str:
    """Return a scenario: a collective or an incast over one transport, with short timers."""
    what = draw.choice(("all_to_all", "all_reduce", "all_gather", "reduce_scatter", "incast"))
    size = draw.choice(("128B", "8KiB", "96KiB", "400KiB"))
    work = (
        f"{{incast: {{senders: 3, size: {size}}}}}"
        if what == "incast"
        else f"{{collective: {{kind: {what}, ranks: {draw.choice((3, 4, 8))}, size: {size}}}}}"
    )
    settings = [
        f"kind: {kind}",
        f"cc: {{algorithm: {draw.choice(ALGORITHMS[kind])}}}",
        f"timeout_floor: {draw.choice(('100us' if kind == 'uet' else '1ms', '2ms', '20ms'))}",
        f"qps_per_connection: {draw.choice((1, 2))}",
    ]
    if kind == "mrc":
        settings.append(f"mrc: {{entropy_values: {draw.choice((1, 16, 128))}}}")
    if kind == "uet":
        paths = (
            "credit: true, " if draw.random() < 0.4 and "rccc" not in settings[1] else "",
            draw.choice(("delivery: rod", "entropy_values: 16", "messages: send")),
        )
        settings.append(
            f"uet: {{{''.join(paths)}, close_after: {draw.choice(('5us', '50us', '1ms', '0ns'))}}}"
        )
    if kind == "rocev2" and draw.random() < 0.5:
        settings.append("retransmission: selective_repeat")
    if draw.random() < 0.4:
        settings.append("trimming: {dscp: 10}")
    if faults:
        settings.append(f"faults: [{faults}]")
    more = BACKGROUND if draw.random() < 0.3 else ""
    return (
        f"workload: {work}\niterations: {draw.choice((1, 4))}\ntransport: {{{', '.join(settings)}}}\n{more}"
    )


def star(draw: random.Random, faults: str = "", preset: str = "lossless") -> str:
    rate = draw.choice(("100Mbps", "2Gbps"))
    return f"""\
single:
  ports: [a/p0, b/p0, c/p0, d/p0]
  rate: {rate}
  switch: {{preset: {preset}, buffer: {"4MiB" if preset == "lossless" else "64KiB"}{faults}}}
"""


def rows_of(losses: LossSummary, names: tuple[str, ...]) -> dict[str, int | None]:
    return {name: losses.packets(name) for name in names}


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_clean_run_every_packet_of_every_kind_is_received(kind: str, batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        draw = random.Random(seed)
        run = twin_of(Case("", job(kind, draw), star(draw)))
        losses = losses_of(run)
        assert run.summary.transport["foreign_datagrams"] == 0, seed
        assert losses.dropped_packets == losses.lost_control_packets == 0, seed
        assert rows_of(losses, QUIET_ROWS) == dict.fromkeys(QUIET_ROWS, 0), seed
        assert not losses.notes, seed


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_planted_drops_are_counted_exactly(kind: str, batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        draw = random.Random(seed)
        topology = star(draw, ", faults: [{chance: 1%}]")
        run = twin_of(Case("", job(kind, draw), topology))
        losses = losses_of(run)
        assert run.summary.transport["foreign_datagrams"] == 0, seed
        planted = losses.packets("dropped_by_fault")
        assert losses.dropped_packets == losses.packets("all") == planted, seed
        of_kinds = ("data", "acknowledgements", "naks", "cnps", "streams", "others")
        assert sum(losses.packets(name) or 0 for name in of_kinds) == planted, seed
        assert all((losses.packets(name) or 0) >= 0 for name in of_kinds), seed
        assert losses.unexplained_packets == 0, seed


RULES: Final = (
    "{do: drop, chance: 1%}, {do: drop, chance: 1%, side: received}, {do: duplicate, chance: 2%}, "
    "{do: duplicate, chance: 1%, side: received}, "
    "{do: delay, delay: 2ms, chance: 2%}, {do: delay, delay: 1ms, chance: 2%, side: received}"
)
CORRUPTION: Final = ", {do: corrupt_icrc, chance: 1%}"
"""Not of UET, which has no ICRC."""


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_what_endpoints_do_wrong_hides_no_drop(kind: str, batch: int) -> None:
    """What is lost, repeated or held back on purpose is no loss of the device, and the drops of the device stay its own."""
    for seed in range(batch, SEEDS, BATCHES):
        draw = random.Random(seed)
        rules = RULES + ("" if kind == "uet" else CORRUPTION)
        preset = draw.choice(("lossy", "lossless"))
        run = twin_of(Case("", job(kind, draw, rules), star(draw, ", faults: [{chance: 0.5%}]", preset)))
        losses = losses_of(run)
        assert run.summary.transport["foreign_datagrams"] == 0, seed
        assert losses.unexplained_packets == 0, seed
