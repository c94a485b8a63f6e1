"""What a transfer takes alone in an empty network: the divisor of its slowdown.

Decides the formula. Packets are stored and forwarded at every hop, in order. Then the last one arrives after the longest chain of
sendings, each of which waits for the one before it on its link and for its own arrival: the first packet over hops 1 to b, all
but first and last over hops b to c, those after the second by the slowest of these hops, the last packet over hops c to the end.
The least over the ways counts (docs/metrics.md). No time of the run under judgement is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from etloop.contract.model.empty_network import Framing, LoneNetwork, LoneWay
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def lone_flow_ns(
    network: LoneNetwork, src: NDArray[np.int64], dst: NDArray[np.int64], size_bytes: Floats
) -> Floats:
    """Return the completion time of transfers of `size_bytes` from rank `src` to rank `dst`, each alone.

    NaN where the latency of the network is not known, and for pairs that the network does not have.
    """
    alone_ns = np.full(len(size_bytes), np.nan)
    if network.latency is network.latency.UNKNOWN:
        return alone_ns
    ranks = 1 + max((*network.src_rank, *network.dst_rank, *src.tolist(), *dst.tolist()), default=0)
    pair = np.array(network.src_rank, np.int64) * ranks + np.array(network.dst_rank, np.int64)
    order = np.argsort(pair, kind="stable")
    wanted = src * ranks + dst
    at = np.searchsorted(pair[order], wanted)
    known = at < len(pair)
    known[known] = pair[order[at[known]]] == wanted[known]
    row = order[at[known]]
    sort = np.array(network.way_set, np.int64)[row] * len(network.framings)
    sort += np.array(network.framing, np.int64)[row]
    own = np.flatnonzero(known)
    for one in np.unique(sort).tolist():
        way_set, framing = divmod(one, len(network.framings))
        members = own[sort == one]
        times = [
            way_ns(way, network.framings[framing], size_bytes[members]) for way in network.way_sets[way_set]
        ]
        alone_ns[members] = np.min(times, axis=0)
    return alone_ns


def way_ns(way: LoneWay, framing: Framing, size_bytes: Floats) -> Floats:
    """Return what messages take over one way, from the first bit sent to the last received."""
    packets = np.maximum(np.ceil(size_bytes / framing.packet_bytes), 1)
    rest = size_bytes - (packets - 1) * framing.packet_bytes
    last = np.ceil(rest / framing.word_bytes) * framing.word_bytes + framing.around_bytes + framing.last_bytes
    only = last + framing.first_bytes
    full = framing.packet_bytes + framing.around_bytes
    # Of one byte at every hop: at the rate of a link, and of all links that the packets have there together.
    byte_ns = 8e9 / np.array(way.link_bps)
    shared_ns = 8e9 / np.array(way.shared_bps)
    before, behind = np.cumsum(byte_ns), np.cumsum(byte_ns[::-1])[::-1]
    hops = range(len(byte_ns))
    longest = np.zeros(len(size_bytes))
    for b in hops:
        first_ns = (full + framing.first_bytes) * before[b]
        two_ns = first_ns + last * behind[b]
        longest = np.where(packets == 2, np.maximum(longest, two_ns), longest)
        for c in hops[b:]:
            through_ns = full * byte_ns[b : c + 1].sum()
            queued_ns = np.maximum(packets - 3, 0) * full * shared_ns[b : c + 1].max()
            chain_ns = first_ns + through_ns + queued_ns + last * behind[c]
            longest = np.where(packets > 2, np.maximum(longest, chain_ns), longest)
    longest = np.where(packets == 1, only * behind[0], longest)
    return np.asarray(longest + way.latency_ns)
