"""MRC and UET while links are cut and come back: nothing is lost, nothing counted twice, nothing stands still.

ETLOOP_FULL=1 draws 10,000 networks; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from etloop.contract.model.topology import LoadBalancing, SwitchEnd, Trimming
from etloop.contract.model.transport import (
    CreditSettings,
    EntropyChoice,
    MultipathSettings,
    TrimAnswer,
    TrimSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.twin import LinkChange
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.sprayed_by_hand import PROBED, STAYS_OPEN, lossy, of_each_kind, sprayed
from tests.support.traffic.twin_by_hand import RATE_BPS, changed, pairs, star, through, two_tiers
from tests.traffic.test_simulation import CLOSED_FORMS, everywhere

SEEDS = 10_000 if os.environ.get("ETLOOP_FULL") == "1" else 80
BATCHES = 10
LEAVES, HOSTS, SPINES = 2, 2, 4
RUN_NS = 400_000
TRIMMED_DSCP = 48


def uplink(leaf: int, spine: int) -> SwitchEnd:
    return SwitchEnd(leaf, HOSTS + spine)


def cut(end: SwitchEnd, draws: random.Random) -> list[LinkChange]:
    """A link goes down, and comes back in three of four."""
    down_ns = draws.randrange(RUN_NS)
    changes = [LinkChange(end, up=False, at_ns=down_ns)]
    if draws.randrange(4):
        changes.append(LinkChange(end, up=True, at_ns=down_ns + draws.randrange(RUN_NS)))
    return changes


def failures(draws: random.Random) -> tuple[LinkChange, ...]:
    """Single links of three spines, or a whole spine: a plane. One spine stays whole."""
    if draws.randrange(3) == 0:
        plane, at_ns = draws.randrange(1, SPINES), draws.randrange(RUN_NS)
        changes = [LinkChange(uplink(leaf, plane), up=False, at_ns=at_ns) for leaf in range(LEAVES)]
        changes += [LinkChange(uplink(leaf, plane), up=True, at_ns=at_ns + RUN_NS) for leaf in range(LEAVES)]
    else:
        ends = [uplink(leaf, spine) for leaf in range(LEAVES) for spine in range(1, SPINES)]
        changes = [change for end in draws.sample(ends, draws.randrange(1, 4)) for change in cut(end, draws)]
    return tuple(sorted(changes, key=lambda change: change.at_ns))


@of_each_kind
@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_is_lost_whatever_links_do(kind: TransportKind, batch: int) -> None:
    fabric = lossy(two_tiers(LEAVES, HOSTS, SPINES))
    for seed in range(batch, SEEDS, BATCHES):
        draws = random.Random(seed)
        paths = MultipathSettings(
            EntropyChoice(seed % 4), entropy_values=draws.choice((8, 32, 128)), uet=STAYS_OPEN
        )
        trims = seed % 2 == 1
        transport = sprayed(
            kind,
            "nscc" if seed % 3 else "none",
            paths,
            trimming=TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK) if trims else TrimSettings(),
        )
        topology = changed(
            fabric,
            balancing=LoadBalancing.STRUCTURED if draws.randrange(2) else LoadBalancing.ECMP,
            trimming=Trimming(128, TRIMMED_DSCP) if trims else None,
        )
        name, size = list(CLOSED_FORMS)[seed % len(CLOSED_FORMS)], LEAVES * HOSTS
        amounts = (size * 300_000, size * 1024)
        job = assignment(
            everywhere(size, HandOp(name, amounts[0]), HandOp(name, amounts[1], (0,))), transport=transport
        )
        settings = replace(PROBED, seed=seed, link_changes=failures(draws))
        outcome = through(job, topology, settings)
        assert outcome.failure == "", seed
        expected = sum(CLOSED_FORMS[name](amount, size) for amount in amounts)
        data = outcome.flows[outcome.flows["sends_data"] == 0]
        assert data["rx_payload_bytes"].sum() == expected, seed
        assert outcome.ops["wire_rx_bytes"].sum() == expected, seed
        if seed < BATCHES:
            again = through(job, topology, settings)
            assert again.ops.tobytes() == outcome.ops.tobytes(), seed
            assert again.flows.tobytes() == outcome.flows.tobytes(), seed


@pytest.mark.parametrize("at_ns", range(20_000, 60_000, 5_000))
def test_who_asks_for_credit_and_hears_nothing_ends_the_run_with_its_error(at_ns: int) -> None:
    """The only link goes down for good: what was under way is given up, and then nothing is left but to ask."""
    paths = MultipathSettings(uet=replace(STAYS_OPEN, credit=CreditSettings(granted=True, window_percent=10)))
    job = pairs(((0, 1),), 4 << 20, sprayed(TransportKind.UET, multipath=paths))
    down = LinkChange(SwitchEnd(0, 1), up=False, at_ns=at_ns)
    outcome = through(job, lossy(star(2, RATE_BPS)), replace(PROBED, link_changes=(down,)))
    assert outcome.failure.startswith("rank 0 -> rank 1 (127.77.0.1 -> 127.77.0.2): no acknowledgement after")
