"""The transfers that took longest for what they had to carry, each with its story.

The story is where its time went, and what its queue pairs met.

Decides what counts as slow (time over the least that its port needs for its bytes) and the words of the story.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from etloop.results.kpis.input import KpiInput, connection_frame
from etloop.results.text.units import bytes_words, time_words
from etloop.results.verdict.evaluation import Frame

SHOWN: Final = 10
_SIGNS: Final = (
    ("missing_packets", "packets lost"),
    ("retransmitted_packets", "retransmitted"),
    ("local_ack_timeout_err", "timeouts"),
    ("np_ecn_marked_roce_packets", "marked"),
    ("rp_cnp_handled", "CNPs"),
)


@dataclass(frozen=True, slots=True)
class SlowTransfer:
    """One op of one rank."""

    name: str
    transfer_ns: float
    story: str


def slowest_transfers(given: KpiInput) -> tuple[SlowTransfer, ...]:
    """The slowest first, by how much longer they took than their own bytes need at line rate."""
    first_tx, completed = given.column("ops", "first_tx_ns"), given.column("ops", "completed_ns")
    rows = np.flatnonzero(~np.isnan(first_tx))
    if not rows.size:
        return ()
    port, speed = given.port_of_rank()
    bps = speed[port[given.column("ops", "rank").astype(np.int64)]]
    carried = np.maximum(given.column("ops", "wire_tx_bytes"), given.column("ops", "wire_rx_bytes"))
    least_ns = np.nan_to_num(carried * 8e9 / bps, nan=0.0)
    taken = completed - first_tx
    rows = rows[np.argsort(-(taken - least_ns)[rows], kind="stable")][:SHOWN]
    connections = connection_frame(given)
    label = given.frames["ops"].label
    return tuple(
        SlowTransfer(
            label(int(row)), float(taken[row]), _story(given, int(row), float(least_ns[row]), connections)
        )
        for row in rows
    )


def _story(given: KpiInput, row: int, least_ns: float, connections: Frame) -> str:
    ops = given.frames["ops"].columns
    intended, issued, first_tx, completed = (
        float(ops[name][row].item()) for name in ("intended_ns", "issued_ns", "first_tx_ns", "completed_ns")
    )
    sent, received = float(ops["wire_tx_bytes"][row].item()), float(ops["wire_rx_bytes"][row].item())
    sentences = [
        f"sent {bytes_words(sent)}, received {bytes_words(received)}",
        f"issued {time_words(issued - intended)} late",
        f"first packet {time_words(first_tx - issued)} after that",
        f"{time_words(completed - first_tx)} until all was there and acknowledged",
    ]
    if least_ns > 0:
        sentences.append(f"at line rate {time_words(least_ns)}")
    rank = float(ops["rank"][row].item())
    columns = connections.columns
    mine = (columns["src_rank"] == rank) | (columns["dst_rank"] == rank)
    met = [
        f"{total:.0f} {word}"
        for name, word in _SIGNS
        if (total := float(columns[name][mine].astype(np.float64).sum())) > 0
    ]
    sentences.append(
        f"connections of rank {rank:.0f} in the whole run: {', '.join(met) or 'no loss, no mark, no timeout'}"
    )
    return "; ".join(sentences)
