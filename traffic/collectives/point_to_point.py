"""One send and its receive, cut as NCCL cuts a grouped send/recv over the network: position 0 sends, position 1 receives.

Source: NCCL enqueue.cc addP2pToPlan. An empty send is one empty message.
"""

from __future__ import annotations

from typing import Final

from traffic.collectives.steps import recv, send
from traffic.collectives.table import ChunkRule, Lane, Schedule

CHUNK_BYTES: Final = 128 << 10
"""The largest chunk of `ChunkRule.P2P` (NCCL_P2P_NET_CHUNKSIZE)."""
MIN_SLICE_BYTES: Final = 16 << 10
SLOTS: Final = 8
SLICE_ALIGN_BYTES: Final = 16


def point_to_point() -> Schedule:
    """The schedule of every send and receive."""
    sender = Lane(batch=0, send_to=1, recv_from=-1, part=0, parts=1, entries=(send(0, 0),))
    receiver = Lane(batch=0, send_to=-1, recv_from=0, part=0, parts=1, entries=(recv(0, 0),))
    return p2p_schedule("point-to-point", ((sender,), (receiver,)), empty_message=True)


def p2p_schedule(collective: str, tables: tuple[tuple[Lane, ...], ...], *, empty_message: bool) -> Schedule:
    """A schedule of send-only and receive-only lanes with the send/recv cut."""
    return Schedule(
        collective=collective,
        algorithm="p2p",
        size=len(tables),
        tables=tables,
        chunk_rule=ChunkRule.P2P,
        chunk_bytes=CHUNK_BYTES,
        chunks_per_loop=1,
        shrink_last=False,
        slices=1,
        min_slice_bytes=MIN_SLICE_BYTES,
        slots=SLOTS,
        empty_message=empty_message,
        slice_align_bytes=SLICE_ALIGN_BYTES,
    )
