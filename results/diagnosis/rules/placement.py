"""Finds mappings of ranks to ports that send far more bytes between switches than another mapping would.

Decides which other mappings are tried: the ranks in order, the ranks dealt out in turn, and ranks next to those that they
exchange most bytes with; every switch keeps its number of ranks. It is a finding only if half of the bytes could stay, and if
the links between switches need longer for their bytes than any host does: then they limit the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.units import approximate_bytes
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

KEPT: Final = 0.5
"""Share of the bytes between switches that the best mapping may leave, at most."""
_MOST_RANKS: Final = 4096
"""Ranks above which no mapping is searched by bytes exchanged."""


def look(evidence: Evidence) -> Found:
    """Return the mapping as a finding if another one sends at most half of the bytes between switches."""
    kind = FindingKind.PLACEMENT
    flows, hosts = evidence.flows, evidence.hosts
    switch = np.unique(np.array([*evidence.ports.switch, ""], object), return_inverse=True)[1]
    home = np.where(hosts.port >= 0, switch[hosts.port], -1)
    known = (flows.src_host >= 0) & (flows.dst_host >= 0)
    if not known.any() or (home < 0).any():
        return no_evidence(kind, "the switches that ranks are on are not known")
    ranks = int(max(flows.src_rank.max(), flows.dst_rank.max())) + 1
    switch_of_rank = np.full(ranks, -1)
    for rank, host in ((flows.src_rank, flows.src_host), (flows.dst_rank, flows.dst_host)):
        switch_of_rank[rank[known]] = home[host[known]]
    placed = np.flatnonzero(switch_of_rank >= 0)
    if len(np.unique(switch_of_rank[placed])) < 2:
        return not_exercised(kind, "all ranks are on one switch")
    between = _bytes_between(evidence, switch_of_rank)
    mappings = _mappings(evidence, switch_of_rank, placed)
    name, least = min(
        ((name, _bytes_between(evidence, mapping)) for name, mapping in mappings.items()),
        key=lambda entry: entry[1],
    )
    if least > KEPT * between or not _limits_job(evidence, switch_of_rank, home):
        return report(kind, ())
    sentence = (
        f"the mapping sends {approximate_bytes(round(between))} between switches; {name} would send "
        f"{approximate_bytes(round(least))}"
    )
    fact = Fact("bytes_between_switches", between, "bytes", least, len(placed))
    place = Place(PlaceKind.JOB, "mapping")
    remedy = f"map ranks so that those that exchange most bytes are on one switch (mapping.placement): {name}"
    return report(kind, (Finding(kind, (place,), sentence, (fact,), 1.0, remedy),))


def _bytes_between(evidence: Evidence, switch_of_rank: Rows) -> float:
    """Return the planned bytes between ranks on different switches."""
    flows = evidence.flows
    crosses = switch_of_rank[flows.src_rank] != switch_of_rank[flows.dst_rank]
    return float(flows.payload_bytes[crosses].sum())


def _mappings(evidence: Evidence, switch_of_rank: Rows, placed: Rows) -> dict[str, Rows]:
    """Return switches by rank of other mappings, by a name for each."""
    slots = np.sort(switch_of_rank[placed])
    turn = np.argsort(np.arange(len(slots)) - np.searchsorted(slots, slots), kind="stable")
    mappings = {
        "ranks in order": _map_ranks(switch_of_rank, placed, slots),
        "ranks dealt out in turn": _map_ranks(switch_of_rank, placed, slots[turn]),
    }
    if len(placed) <= _MOST_RANKS:
        order = _by_exchange(evidence, placed)
        mappings["ranks next to those they exchange most bytes with"] = _map_ranks(
            switch_of_rank, order, slots
        )
    return mappings


def _map_ranks(switch_of_rank: Rows, order: Rows, slots: Rows) -> Rows:
    mapping = switch_of_rank.copy()
    mapping[order] = slots
    return mapping


def _by_exchange(evidence: Evidence, placed: Rows) -> Rows:
    """Return ranks so that each is next to the ones before with which it exchanges most bytes (greedy)."""
    flows = evidence.flows
    width = int(placed.max()) + 1
    exchanged = np.zeros((width, width), np.float32)
    np.add.at(exchanged, (flows.src_rank, flows.dst_rank), flows.payload_bytes)
    exchanged += exchanged.T
    pull = np.full(width, -np.inf)
    pull[placed] = 0.0
    order = []
    for _ in range(len(placed)):
        rank = int(pull.argmax())
        order.append(rank)
        pull += exchanged[rank]
        pull[rank] = -np.inf
        pull *= 0.5  # what was placed lately counts most
    return np.array(order, np.int64)


def _limits_job(evidence: Evidence, switch_of_rank: Rows, home: Rows) -> bool:
    """Return whether the uplinks of a switch need longer for their bytes, evenly spread, than any host for its own."""
    flows, hosts, ports = evidence.flows, evidence.hosts, evidence.ports
    src, dst = switch_of_rank[flows.src_rank], switch_of_rank[flows.dst_rank]
    crosses = (src != dst) & (src >= 0) & (dst >= 0)
    numbers = np.unique(np.array([*ports.switch, ""], object), return_inverse=True)[1][:-1]
    uplink = ports.peer_row >= 0
    rate = np.bincount(numbers[uplink], np.nan_to_num(ports.described_bps[uplink]), int(numbers.max()) + 1)
    most_ns, host_ns = 0.0, 0.0
    for end, host in ((src, flows.src_host), (dst, flows.dst_host)):
        sums = np.bincount(end[crosses], flows.payload_bytes[crosses], len(rate))
        most_ns = max(most_ns, float((sums / np.where(rate > 0, rate, np.inf)).max()))
        own = np.bincount(host[host >= 0], flows.payload_bytes[host >= 0], len(home))
        host_ns = max(host_ns, float(np.nanmax(own / hosts.link_bps)))
    return most_ns > host_ns
