"""Packets that an end of a queue pair received although its peer never sent them: forged, or of another run. Pure.

Both ends of a queue pair count every packet by kind, so no count of packets received can be above the peer's of packets
sent. More is neither the device's loss nor the job's: another host of this network sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import PlanTables, RunOutcome
    from etloop.results.measure.joined import MeasuredFlows

_EXAMPLES: Final = 5
_KINDS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "data packets": (("tx_packets",), ("rx_packets",), ()),
    "acknowledgements": (("acks_tx",), ("acks_rx",), ()),
    "NAKs": (("naks_tx",), ("naks_rx",), ("injected_naks", "injected_rnr_naks")),
    "CNPs": (("np_cnp_sent",), ("rp_cnp_handled", "rp_cnp_ignored"), ("injected_cnps",)),
}
"""By kind: columns of flows.parquet of packets sent and received, and of ports.parquet of packets that only ports count as
sent, because a rule of the scenario sends them."""
_REPEATED: Final = "injected_duplicates"


@dataclass(frozen=True, slots=True)
class NeverSent:
    """Packets received by all queue pair ends, those of them that no agent sent, and the first of these in words."""

    received: int
    packets: int
    examples: tuple[str, ...]


def never_sent(outcome: RunOutcome, tables: PlanTables, flows: MeasuredFlows) -> NeverSent:
    """Return the packets received beyond what the peers sent, over all queue pairs of which both ends were counted.

    Packets that rules of the scenario sent or repeated count as sent, wherever they went.
    """
    senders, receivers = _both_ends(flows)
    received = packets = 0
    examples: list[str] = []
    repeated = _of_ports(outcome, (_REPEATED,))
    for kind, (sends, receives, of_rules) in _KINDS.items():
        sent_counts = _sum(flows, sends)
        received_counts = _sum(flows, receives)
        more = np.zeros(len(flows.records), np.int64)
        for end, peer in ((senders, receivers), (receivers, senders)):
            more[end] = np.maximum(received_counts[end] - sent_counts[peer], 0)
        received += int(received_counts[senders].sum() + received_counts[receivers].sum())
        excused = _of_ports(outcome, of_rules)
        beyond = max(int(more.sum()) - excused - repeated, 0)
        repeated -= min(repeated, max(int(more.sum()) - excused, 0))
        packets += beyond
        if beyond:
            examples += [
                _words(tables, flows, int(row), int(more[row]), kind)
                for row in np.flatnonzero(more)[:_EXAMPLES]
            ]
    return NeverSent(received, packets, tuple(examples[:_EXAMPLES]))


def _both_ends(flows: MeasuredFlows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of both ends of each queue pair whose ends were both counted packet by packet (int64)."""
    # Network cards count messages, and no packets.
    counts_packets = (_sum(flows, ("tx_messages", "rx_messages")) == 0) | (
        _sum(flows, ("tx_packets", "rx_packets")) > 0
    )
    first = np.flatnonzero(flows.queue_pair[1:] == flows.queue_pair[:-1])
    first = first[counts_packets[first] & counts_packets[first + 1]]
    return first, first + 1


def _sum(flows: MeasuredFlows, columns: tuple[str, ...]) -> NDArray[np.int64]:
    total = np.zeros(len(flows.records), np.int64)
    for column in columns:
        total += flows.records[column].astype(np.int64)
    return total


def _of_ports(outcome: RunOutcome, columns: tuple[str, ...]) -> int:
    """Return the sum of columns over all ports."""
    return sum(int(agent.ports[column].sum()) for agent in outcome.agents for column in columns)


def _words(tables: PlanTables, flows: MeasuredFlows, row: int, packets: int, kind: str) -> str:
    connection = int(flows.connection[row])
    plan, record = tables.connections, flows.records[row]
    src, dst = int(plan.src_rank[connection]), int(plan.dst_rank[connection])
    end = src if record["sends_data"] else dst
    return f"rank {src} -> rank {dst}: rank {end} received {packets} {kind} that its peer did not send"
