"""Time of a transfer alone in an empty network: the divisor of its slowdown.

Decides the formula. Packets are stored and forwarded at every hop, in order. The last packet then arrives after the
longest chain of transmissions, each of which waits for the previous one on its link and for its own arrival: the first
packet over hops 1 to b, all but first and last over hops b to c (those after the second at the rate of the slowest of
these hops), the last packet over hops c to the end. The least over all ways counts (docs/metrics.md). Packets that are
sprayed over several links have a lower bound instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.empty_network import Framing, LoneNetwork, LoneWay

    Floats = NDArray[np.float64]

TWO: Final = 2
"""Packets of a message that has only a first and a last packet."""


def lone_flow_ns(
    network: LoneNetwork, src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: Floats
) -> Floats:
    """Return the completion time in ns (float64) of transfers of `size_bytes` from rank `src` to rank `dst`, each alone.

    NaN if the latency of the network is not known, and for pairs that the network does not have.
    """
    alone_ns = np.full(len(size_bytes), np.nan)
    if network.latency is network.latency.UNKNOWN:
        return alone_ns
    ranks = 1 + max((*network.src_rank, *network.dst_rank, *src.tolist(), *dst.tolist()), default=0)
    pair = np.array(network.src_rank, np.int64) * ranks + np.array(network.dst_rank, np.int64)
    order = np.argsort(pair, kind="stable")
    pair_key = src * ranks + dst
    pair_index = np.searchsorted(pair[order], pair_key)
    is_known = pair_index < len(pair)
    is_known[is_known] = pair[order[pair_index[is_known]]] == pair_key[is_known]
    row = order[pair_index[is_known]]
    way_and_framing = np.array(network.way_set, np.int64)[row] * len(network.framings)
    way_and_framing += np.array(network.framing, np.int64)[row]
    known_transfers = np.flatnonzero(is_known)
    for number in np.unique(way_and_framing).tolist():
        way_set, framing = divmod(number, len(network.framings))
        members = known_transfers[way_and_framing == number]
        times = [
            way_ns(way, network.framings[framing], size_bytes[members]) for way in ways_of(network, way_set)
        ]
        alone_ns[members] = np.min(times, axis=0)
    if network.latency_ns:
        pair_latency_ns = np.array(network.latency_ns, np.float64)[row]
        alone_ns[known_transfers] += np.where(pair_latency_ns < 0, np.nan, pair_latency_ns)
    return alone_ns


def ways_of(network: LoneNetwork, way_set: int) -> tuple[LoneWay, ...]:
    """Return the ways of a set; with latency 0 if latencies are given by pair."""
    ways = network.way_sets[way_set]
    return tuple(replace(way, latency_ns=0) for way in ways) if network.latency_ns else ways


def way_ns(way: LoneWay, framing: Framing, size_bytes: Floats) -> Floats:
    """Return the time of messages over one way in ns, from the first bit sent to the last bit received."""
    message = _split_into_packets(framing, size_bytes)
    chain_ns = _in_order_ns if way.link_bps == way.shared_bps else _spread_ns
    return np.asarray(chain_ns(way, message) + way.latency_ns)


@dataclass(frozen=True, slots=True, eq=False)
class _Message:
    """Packets of each message on the link, in bytes (float64, one value a message)."""

    packets: Floats
    first: Floats
    full: Floats
    """Size of a packet that is neither the first nor the last."""
    last: Floats


def _split_into_packets(framing: Framing, size_bytes: Floats) -> _Message:
    """Return the packets that messages of `size_bytes` are split into."""
    around, ends = framing.around_bytes, framing.first_bytes + framing.last_bytes
    packets = framing.parts * np.maximum(np.ceil(size_bytes / framing.parts / framing.packet_bytes), 1)
    if framing.parts > 1:
        # Packets of equal parts; the extra bytes at the ends of a part are spread evenly over its packets.
        packet_bytes = size_bytes / packets + around + ends * framing.parts / packets
        return _Message(packets, packet_bytes, packet_bytes, packet_bytes)
    rest = size_bytes - (packets - 1) * framing.packet_bytes
    last = np.ceil(rest / framing.word_bytes) * framing.word_bytes + around + framing.last_bytes
    full = np.full(len(size_bytes), float(framing.packet_bytes + around))
    return _Message(packets, np.where(packets == 1, last, full) + framing.first_bytes, full, last)


def _in_order_ns(way: LoneWay, message: _Message) -> Floats:
    """Return the longest chain of transmissions for packets that follow each other over the same links, in ns."""
    packets, last = message.packets, message.last
    byte_ns = 8e9 / np.array(way.link_bps)
    before, behind = np.cumsum(byte_ns), np.cumsum(byte_ns[::-1])[::-1]
    hops = range(len(byte_ns))
    longest = message.first * before[-1]
    for b in hops:
        first_ns = message.first * before[b]
        longest = np.where(packets == TWO, np.maximum(longest, first_ns + last * behind[b]), longest)
        for c in hops[b:]:
            through_ns = message.full * byte_ns[b : c + 1].sum()
            queued_ns = np.maximum(packets - 3, 0) * message.full * byte_ns[b : c + 1].max()
            chain_ns = first_ns + through_ns + queued_ns + last * behind[c]
            longest = np.where(packets > TWO, np.maximum(longest, chain_ns), longest)
    return np.asarray(longest)


def _spread_ns(way: LoneWay, message: _Message) -> Floats:
    """Return a lower bound, in ns, for packets that are spread over several links at a hop, evenly or by their rates.

    Every hop passes the message no faster than its links together, nor faster than the link with most of its packets.
    """
    packets, full, last = message.packets, message.full, message.last
    byte_ns = 8e9 / np.array(way.link_bps)
    shared_ns = 8e9 / np.array(way.shared_bps)
    before, behind = np.cumsum(byte_ns), np.cumsum(byte_ns[::-1])[::-1]
    message_bytes = np.where(packets > 1, message.first + last + np.maximum(packets - TWO, 0) * full, last)
    longest = message.first * before[-1]
    for hop in range(len(byte_ns)):
        links = max(int(way.shared_bps[hop] // way.link_bps[hop]), 1)
        most = np.ceil(packets / links)
        on_one_link = np.where((packets - 1) % links == 0, (most - 1) * full + last, most * full)
        if way.shared_bps[hop] != links * way.link_bps[hop]:
            on_one_link = last
        at_hop_ns = np.maximum(message_bytes * shared_ns[hop], on_one_link * byte_ns[hop])
        reached_ns = message.first * (before[hop] - byte_ns[hop])
        chain_ns = reached_ns + at_hop_ns + last * (behind[hop] - byte_ns[hop])
        longest = np.where(packets > 1, np.maximum(longest, chain_ns), longest)
    return np.asarray(longest)
