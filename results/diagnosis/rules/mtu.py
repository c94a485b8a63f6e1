"""Finds paths that lose packets of full size while short ones arrive: an MTU below the packets of the job.

Decides by direction between two ports of the rig: data packets are of full size, acknowledgements are short. A link that is
down, a pause or a full queue would stop both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.loss_places import blame_hosts
from etloop.results.diagnosis.loss_sources import cable_words
from etloop.results.diagnosis.pause_graph import ended_paused
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.schema.findings import Fact, Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_KIND: Final = FindingKind.MTU
LEAST_PACKETS: Final = 3.0
"""Data packets of a direction without which its loss may be chance."""
MOST_ARRIVED: Final = 0.1
"""Share of data packets that may arrive: short last packets of messages."""
LEAST_SHORT_ARRIVED: Final = 0.9


def look(evidence: Evidence) -> Found:
    """Return the ports or pairs of the rig between which no full-size packet arrives."""
    flows, count = evidence.flows, max(len(evidence.hosts.names), 1)
    sent, arrived = _column(flows.sent, "tx_packets"), _column(flows.received, "rx_packets")
    if sent is None or arrived is None:
        return no_evidence(_KIND, "no flow counts packets at both ends")
    if ended_paused(evidence):
        return no_evidence(_KIND, "the run ended early while pauses held packets")
    there = flows.src_host * count + flows.dst_host
    back = flows.dst_host * count + flows.src_host
    pairs, place_of = np.unique(np.r_[there, back], return_inverse=True)
    of_data, of_answers = np.split(place_of.reshape(-1), 2)

    def sums(rows: NDArray[np.int64], values: Floats) -> Floats:
        return np.bincount(rows, np.nan_to_num(values), len(pairs)).astype(np.float64)

    data_sent, data_arrived = sums(of_data, sent), sums(of_data, arrived)
    empty = np.zeros(len(sent))
    short_sent = sums(of_data, flows.sent.get("acks_tx", empty))
    short_sent += sums(of_answers, flows.received.get("acks_tx", empty))
    short_arrived = sums(of_data, flows.received.get("acks_rx", empty))
    short_arrived += sums(of_answers, flows.sent.get("acks_rx", empty))
    if not data_sent.sum() or (evidence.needs.path_mtu_bytes and not _is_full_size(evidence)):
        return not_exercised(_KIND, "no packets of full size were sent")
    is_lost = (data_sent >= LEAST_PACKETS) & (data_arrived <= MOST_ARRIVED * data_sent)
    is_lost &= (short_sent > 0) & (short_arrived >= LEAST_SHORT_ARRIVED * short_sent)
    if not is_lost.any():
        return report(_KIND, ())
    lost = np.where(is_lost, data_sent - data_arrived, 0.0)
    src, dst = np.divmod(pairs, count)
    blame = blame_hosts(evidence, src, dst, data_sent, lost)
    if blame is None:
        return report(_KIND, ())
    place = blame.places[0]
    short = float(short_arrived[is_lost].sum())
    size = evidence.needs.path_mtu_bytes
    sentence = (
        f"{lost.sum():,.0f} data packets of {size:,} B {blame.side} {place} were lost, while {short:,.0f} short packets of "
        "the same direction arrived: an MTU on the way is too small"
    )
    facts = (
        Fact("missing_packets", float(lost.sum()), "packets", 0.0, int(data_sent[is_lost].sum())),
        Fact("short_packets_arrived", short, "packets"),
        Fact("path_mtu_bytes", float(size), "bytes"),
    )
    remedy = f"raise the MTU on every hop of {cable_words(place)}, or lower transport.path_mtu"
    return report(
        _KIND,
        (
            Finding(
                _KIND,
                blame.places,
                sentence,
                facts,
                blame.probability,
                remedy,
                is_ambiguous=len(blame.places) > 1,
            ),
        ),
    )


def _column(end: Mapping[str, Floats], name: str) -> Floats | None:
    column = end.get(name)
    return None if column is None or np.isnan(column).all() else column


def _is_full_size(evidence: Evidence) -> bool:
    """Return whether messages fill packets: the largest planned flow has more payload than a packet."""
    payload = evidence.flows.payload_bytes
    return bool(len(payload) and np.nanmax(payload) >= evidence.needs.path_mtu_bytes)
