"""Finds reordering without loss, where the transport needs the order of a flow's packets.

Decides by flows that lost nothing and yet received packets ahead of a missing one. A switch that spreads packets of a flow
by its configuration is the place; without one, the flows name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.configured import settings_by_switch
from etloop.results.diagnosis.loss_places import blame_hosts
from etloop.results.diagnosis.loss_sources import host_findings, total_of
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.REORDERING
LEAST_PACKETS: Final = 3.0
"""Packets out of order below which a change of routes is as likely."""


def look(evidence: Evidence) -> Found:
    """Return where packets of flows without loss were reordered."""
    flows, needs = evidence.flows, evidence.needs
    ahead = flows.received.get("out_of_sequence")
    if ahead is None or np.isnan(ahead).all():
        return no_evidence(_KIND, "no flow counts packets out of order")
    if needs.sprays or not needs.keeps_order:
        return not_exercised(_KIND, "the transport takes packets in any order")
    injected = host_findings(evidence, _KIND, "injected_reorders", "puts packets behind others")
    if injected:
        return report(_KIND, injected)
    if total_of(evidence.ports.counter("link_dropped_packets")) or evidence.run.summary.timeline:
        return not_exercised(_KIND, "routes changed in the run")
    is_whole = np.nan_to_num(flows.missing_packets()) == 0
    clean = np.where(is_whole, np.nan_to_num(ahead), 0.0)
    total = float(clean.sum())
    naks = total_of(flows.received.get("naks_tx", np.zeros(1)))
    if total < LEAST_PACKETS or not naks:
        return report(_KIND, ())
    places, confidence = _places(evidence), 1.0
    if not places:
        blame = blame_hosts(
            evidence, flows.src_host, flows.dst_host, np.nan_to_num(flows.sent["tx_packets"]), clean
        )
        places, confidence = (blame.places, blame.probability) if blame is not None else ((), 0.0)
    hit = int((clean > 0).sum())
    names = ", ".join(str(place) for place in places[:4])
    sentence = (
        f"{total:,.0f} packets of {hit} flows arrived out of order although these flows lost none, and the transport needs "
        f"their order: {names}"
    )
    facts = (
        Fact("out_of_sequence", total, "packets", 0.0, hit),
        Fact("naks_tx", naks, "packets", 0.0),
    )
    remedy = (
        f"balance by flow (ECMP) on {names}, or let the transport accept packets out of order"
        if places and places[0].kind is PlaceKind.SWITCH
        else f"look for a link aggregate or a switch on the way of {names} that balances packet by packet"
    )
    return report(_KIND, (Finding(_KIND, places, sentence, facts, confidence, remedy),))


def _places(evidence: Evidence) -> tuple[Place, ...]:
    """Return the switches that spread packets of a flow over several ports by their configuration."""
    return tuple(
        Place(PlaceKind.SWITCH, name)
        for name, switch in settings_by_switch(evidence).items()
        if switch.balancing.reorders and (evidence.ports.host[_rows(evidence, name)] < 0).sum() > 1
    )


def _rows(evidence: Evidence, switch: str) -> list[int]:
    return [row for row, name in enumerate(evidence.ports.switch) if name == switch]
