"""Messages of a job and the order of operations on every rank, as values that other simulators can be given."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from etloop.contract.base.late_dataclass import dataclass

MOST_NODES: Final = 1 << 20
"""Most operations of all ranks: text of some hundred MB."""


class NodeKind(IntEnum):
    """Operation of a rank."""

    SEND = 0
    RECV = 1
    WAIT = 2
    """Computes for its duration; 0: joins the nodes that it waits for."""


class Node(NamedTuple):
    """One operation of a rank; `after` are numbers of nodes of the same rank."""

    kind: NodeKind
    after: tuple[int, ...]
    message: int = -1
    duration_ns: int = 0


class Message(NamedTuple):
    """One message from rank to rank."""

    source: int
    target: int
    payload_bytes: int
    iteration: int
    source_op: int
    """Op of the source's program, as in ops.parquet."""
    target_op: int


@dataclass(frozen=True, slots=True)
class MessageGraph:
    """All operations of a job, rank by rank."""

    ranks: tuple[tuple[Node, ...], ...]
    messages: tuple[Message, ...]
    left_out: tuple[str, ...]
    """Features of the plan that no message graph shows."""
