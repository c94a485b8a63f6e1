"""MRC and UET through switches that mark, trim, drop and lose links in virtual time: every byte arrives once, at any seed.

ETLOOP_FULL=1 draws 10,000 networks for each way of delivery; a failing one names its seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.topology import LoadBalancing, SwitchEnd, Trimming
from etloop.contract.model.transport import DeliveryOrder, EntropyChoice, TrimAnswer, TrimSettings
from etloop.traffic.twin import LinkChange
from tests.support.traffic.sprayed_by_hand import (
    PROBED,
    Delivery,
    lossy,
    of_each_delivery,
    paths_of,
    sprayed,
)
from tests.support.traffic.twin_by_hand import changed, pairs, through, two_tiers

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology

SEEDS = 10_000 if os.environ.get("ETLOOP_FULL") == "1" else 80
BATCHES = 4
TRIMMED_DSCP = 50
MESSAGE_BYTES = 200_000


def network(draw: random.Random) -> Topology:
    """Two leaves and some spines with shallow buffers, of which most trim."""
    fabric = lossy(two_tiers(2, 4, draw.choice((1, 2, 4))))
    classes = list(fabric.switches[0].dscp_to_class)
    classes[TRIMMED_DSCP] = classes[48]
    trims = draw.random() < 0.7
    fabric = changed(
        fabric,
        buffer_bytes=draw.choice((110_000, 150_000, 600_000)),
        trimming=Trimming(draw.choice((84, 128, 256)), TRIMMED_DSCP) if trims else None,
        dscp_to_class=tuple(classes),
    )
    # What reorders would make gaps where ordered delivery knows of none.
    return changed(fabric, balancing=draw.choice((LoadBalancing.ECMP, LoadBalancing.STRUCTURED)))


def outage(draw: random.Random) -> tuple[LinkChange, ...]:
    """An uplink of a leaf that goes down, mostly to come back before the switch has noticed."""
    if draw.random() < 0.4:
        return ()
    down_ns = draw.randrange(0, 200_000)
    end = SwitchEnd(draw.randrange(2), 4)
    back_ns = down_ns + draw.choice((50_000, 400_000, 3_000_000))
    return (LinkChange(end, up=False, at_ns=down_ns), LinkChange(end, up=True, at_ns=back_ns))


def held_back(draw: random.Random) -> tuple[FaultRule, ...]:
    """Packets that endpoints hold back, for a time or behind others."""
    if draw.random() < 0.5:
        return ()
    return (
        FaultRule(
            draw.choice((FaultAction.REORDER, FaultAction.DELAY)),
            draw.choice(tuple(FaultDirection)),
            draw.choice((FaultPackets.ANY, FaultPackets.DATA, FaultPackets.ACK)),
            first=draw.randrange(1, 9),
            every=draw.choice((3, 11, 50)),
            delay_ns=draw.choice((1_000, 30_000)),
            behind_packets=draw.choice((1, 2, 9)),
        ),
    )


@of_each_delivery
@pytest.mark.parametrize("batch", range(BATCHES))
def test_whatever_switches_trim_drop_or_cut_every_byte_arrives_once(delivery: Delivery, batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        draw = random.Random(seed)
        flows = (*((sender, draw.randrange(4, 8)) for sender in range(4)), (5, 0))
        answered = TrimSettings((TRIMMED_DSCP,), TrimAnswer.NAK if draw.random() < 0.8 else TrimAnswer.NONE)
        paths = replace(paths_of(delivery, seed), choice=EntropyChoice(draw.randrange(4)))
        transport = sprayed(delivery.kind, "nscc" if seed % 3 else "none", paths, trimming=answered)
        if delivery.order is DeliveryOrder.SENT:
            transport = replace(transport, window_packets=64)
        else:  # ordered delivery knows of no gaps
            transport = replace(transport, faults=held_back(draw))
        job = pairs(flows, MESSAGE_BYTES, transport)
        settings = replace(PROBED, seed=seed, link_changes=outage(draw))
        outcome = through(job, network(draw), settings)
        assert outcome.failure == "", seed
        data = outcome.flows[outcome.flows["sends_data"] == 0]
        assert data["rx_payload_bytes"].sum() == len(flows) * MESSAGE_BYTES, seed
        assert outcome.ops["wire_rx_bytes"].sum() == len(flows) * MESSAGE_BYTES, seed
