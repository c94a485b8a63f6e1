"""Checks whether a job's packets left the device through the queues that the profile's maps assign to their DSCP. Pure.

Decides by counting: the packets of a class that an agent received at a port must have left through that port's queue of
the class. A queue also carries other packets, so only too few are a mismatch; the other queues of the port show where
they went instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CountedObject, CounterObject

if TYPE_CHECKING:
    from etloop.results.device.index import IndexedSource


class PacketKind(StrEnum):
    """Kinds of packets of a job that may have a DSCP of their own."""

    DATA = "data"
    """Also every other kind without a DSCP of its own."""
    ANSWERS = "acknowledgements"
    """Also NAKs."""
    GRANTS = "clear to send"
    NOTIFICATIONS = "notifications"


@dataclass(frozen=True, slots=True)
class ExpectedClass:
    """One class of the job's packets and the queue that the profile's maps assign to it."""

    dscp: int
    queue: int | None
    """None if the maps do not assign one."""
    kind: PacketKind


@dataclass(frozen=True, slots=True)
class ReceivedClasses:
    """Packets that one agent received at one port."""

    port: str
    packets: Mapping[PacketKind, int]
    """Lower bound of the packets, by kind."""


@dataclass(frozen=True, slots=True)
class ClassQueue:
    """One queue of one port through which classes of the job should leave."""

    port: str
    device_port: str
    source: str
    dscp: int
    """DSCP of the class with the most packets, if several share the queue."""
    carries: str
    """Kinds of packets in the queue, comma-separated."""
    expected_queue: int
    agent_packets: int
    queue_packets: int | None
    missing_packets: int | None
    missing_share: float | None
    found_queue: int | None
    """The other queue that sent most, if packets are missing in this one."""
    found_packets: int | None


def class_queues(
    received: Sequence[ReceivedClasses], sources: Sequence[IndexedSource], expected: Sequence[ExpectedClass]
) -> tuple[ClassQueue, ...]:
    """Return a row for every port connected to the rig and every queue through which packets of the job should have left."""
    received_at = {ports.port: ports for ports in received}
    rows = []
    for source in sources:
        if source.source.is_host_side:
            continue
        for device_port, port in source.source.peers:
            if port not in received_at:
                continue
            packets = _queue_packets(source, device_port)
            if packets:
                rows += _rows_of_port(received_at[port], source.source.name, device_port, packets, expected)
    return tuple(rows)


def _queue_packets(source: IndexedSource, port: str) -> dict[int, int | None]:
    """Return the packets that left through each queue of a port that the source reports, by queue; None if not known."""
    return {
        counted.number: source.increase(counted, counter)
        for counted, counter in source.numbers
        if counted == CountedObject(CounterObject.QUEUE, port, counted.number) and counter == "packets"
    }


def _rows_of_port(
    received: ReceivedClasses,
    source: str,
    device_port: str,
    packets: Mapping[int, int | None],
    expected: Sequence[ExpectedClass],
) -> list[ClassQueue]:
    """Return the rows of one port, by queue."""
    expected_packets: dict[int, dict[int, int]] = {}
    kinds_by_queue: dict[int, set[PacketKind]] = {}
    for expected_class in expected:
        count = received.packets.get(expected_class.kind, 0)
        if count and expected_class.queue is not None:
            classes = expected_packets.setdefault(expected_class.queue, {})
            classes[expected_class.dscp] = classes.get(expected_class.dscp, 0) + count
            kinds_by_queue.setdefault(expected_class.queue, set()).add(expected_class.kind)
    rows = []
    for queue, classes in sorted(expected_packets.items()):
        count = sum(classes.values())
        queue_packets = packets.get(queue)
        missing = None if queue_packets is None else max(count - queue_packets, 0)
        other_queue = _busiest_other(packets, expected_packets.keys()) if missing else None
        rows.append(
            ClassQueue(
                received.port,
                device_port,
                source,
                max(classes, key=lambda dscp: (classes[dscp], -dscp)),
                ", ".join(kind for kind in PacketKind if kind in kinds_by_queue[queue]),
                queue,
                count,
                queue_packets,
                missing,
                None if missing is None else missing / count,
                other_queue[0] if other_queue else None,
                other_queue[1] if other_queue else None,
            )
        )
    return rows


def _busiest_other(packets: Mapping[int, int | None], wanted: Collection[int]) -> tuple[int, int] | None:
    """Return queue and packets of the busiest queue that no class should use; if none of them sent a packet, of all queues."""
    busy_queues = {queue: count for queue, count in packets.items() if count}
    candidates = {queue: count for queue, count in busy_queues.items() if queue not in wanted} or busy_queues
    return max(candidates.items(), key=lambda item: (item[1], -item[0]), default=None)
