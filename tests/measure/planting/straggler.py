"""Writes a trace in which every rank computes before each all-reduce, one of them for longer."""

from __future__ import annotations

import random
from typing import Final

from etloop.workload.chakra.encoder import EtAttribute, EtNode, ValueCase, encode_trace
from etloop.workload.trace.trace import CollectiveKind, NodeKind

ALL_REDUCES: Final = 24
COMPUTE_US: Final = 200
JITTER: Final = 0.03


def straggler_files(rng: random.Random, ranks: int, slow: int, share: float) -> dict[str, bytes]:
    """Return the files of the trace by name; rank `slow` computes longer by `share`, all others vary by a few percent.

    `slow` -1: no rank does.
    """
    files = {}
    for rank in range(ranks):
        factor = 1 + share if rank == slow else 1.0
        nodes = []
        for step in range(ALL_REDUCES):
            duration_us = round(COMPUTE_US * factor * rng.uniform(1 - JITTER, 1 + JITTER))
            before = (2 * step - 1,) if step else ()
            nodes.append(EtNode(2 * step, f"layer {step}", NodeKind.COMP, before, duration_us=duration_us))
            attributes = (
                EtAttribute("comm_type", ValueCase.INT64, CollectiveKind.ALL_REDUCE),
                EtAttribute("comm_size", ValueCase.INT64, 1 << 20),
            )
            nodes.append(
                EtNode(
                    2 * step + 1, f"all_reduce {step}", NodeKind.COMM_COLL, (2 * step,), attributes=attributes
                )
            )
        files[f"trace/w.{rank}.et"] = b"".join(encode_trace(nodes))
    return files
