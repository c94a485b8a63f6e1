"""Whether a job's packets left the device by the queues that its profile's maps name for their DSCP. Pure.

Decides by counting: what an agent received of a class at a port must have left by that port's queue of the class. A queue also
carries other packets, so only too few are wrong; where they went instead, the other queues of the port show.
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
    """Packets of a job that may have marks of their own."""

    DATA = "data"
    """And every other kind that has no marks of its own."""
    ANSWERS = "acknowledgements"
    """And NAKs."""
    GRANTS = "clear to send"
    NOTIFICATIONS = "notifications"


@dataclass(frozen=True, slots=True)
class ExpectedClass:
    """One class of the job's packets, and where the profile's maps put it."""

    dscp: int
    queue: int | None
    """None where the maps do not say."""
    kind: PacketKind


@dataclass(frozen=True, slots=True)
class ReceivedClasses:
    """What one agent received at one port."""

    port: str
    packets: Mapping[PacketKind, int]
    """By kind, at least so many."""


@dataclass(frozen=True, slots=True)
class ClassQueue:
    """One queue of one port that classes of the job are to leave by."""

    port: str
    device_port: str
    source: str
    dscp: int
    """Of the class with the most packets, where several share the queue."""
    carries: str
    """Its kinds of packets."""
    expected_queue: int
    agent_packets: int
    queue_packets: int | None
    missing_packets: int | None
    missing_share: float | None
    found_queue: int | None
    """The other queue that moved most, where packets are missing in this one."""
    found_packets: int | None


def class_queues(
    received: Sequence[ReceivedClasses], sources: Sequence[IndexedSource], expected: Sequence[ExpectedClass]
) -> tuple[ClassQueue, ...]:
    """A row for every port that leads to the rig and every queue that packets of the job should have left by."""
    of_port = {one.port: one for one in received}
    rows = []
    for source in sources:
        if source.source.is_host_side:
            continue
        for device_port, port in source.source.peers:
            if port not in of_port:
                continue
            packets = _queue_packets(source, device_port)
            if packets:
                rows += _of_port(of_port[port], source.source.name, device_port, packets, expected)
    return tuple(rows)


def _queue_packets(source: IndexedSource, port: str) -> dict[int, int | None]:
    """What left by every queue of a port that the source tells of."""
    return {
        at.number: source.increase(at, counter)
        for at, counter in source.numbers
        if at == CountedObject(CounterObject.QUEUE, port, at.number) and counter == "packets"
    }


def _of_port(
    received: ReceivedClasses,
    source: str,
    device_port: str,
    packets: Mapping[int, int | None],
    expected: Sequence[ExpectedClass],
) -> list[ClassQueue]:
    wanted: dict[int, dict[int, int]] = {}
    carried: dict[int, set[PacketKind]] = {}
    for one in expected:
        count = received.packets.get(one.kind, 0)
        if count and one.queue is not None:
            classes = wanted.setdefault(one.queue, {})
            classes[one.dscp] = classes.get(one.dscp, 0) + count
            carried.setdefault(one.queue, set()).add(one.kind)
    rows = []
    for queue, classes in sorted(wanted.items()):
        count = sum(classes.values())
        left = packets.get(queue)
        missing = None if left is None else max(count - left, 0)
        found = _busiest_other(packets, wanted.keys()) if missing else None
        rows.append(
            ClassQueue(
                received.port,
                device_port,
                source,
                max(classes, key=lambda dscp: (classes[dscp], -dscp)),
                ", ".join(kind for kind in PacketKind if kind in carried[queue]),
                queue,
                count,
                left,
                missing,
                None if missing is None else missing / count,
                found[0] if found else None,
                found[1] if found else None,
            )
        )
    return rows


def _busiest_other(packets: Mapping[int, int | None], wanted: Collection[int]) -> tuple[int, int] | None:
    """Of the queues that no class should have left by, and if none of them moved, of all."""
    moved = {queue: count for queue, count in packets.items() if count}
    others = {queue: count for queue, count in moved.items() if queue not in wanted} or moved
    return max(others.items(), key=lambda item: (item[1], -item[0]), default=None)
