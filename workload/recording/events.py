"""Defines the events of a recorded rank, and reads them from the JSON lines that record/capture writes.

An event has the keys of its type; `kind` selects it. Texts that many events share are numbered by `text` events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass

HOST_STREAM: Final = 1
"""The stream of work on tensors of the host, where scripts have a device, too (record/capture/streams.py)."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group that the script made."""

    key: str
    """Name by which this rank's operations refer to it; "" where the rank is not a member."""
    ranks: tuple[int, ...]
    description: str
    place: str
    """Script line that made it."""


@dataclass(frozen=True, slots=True)
class Compute:
    """One operator on the device."""

    operator: str
    """With shapes, such as `aten.mm.default(bfloat16[8,4], bfloat16[4,2])`."""
    flops: int
    moved_bytes: int
    data_type: str
    reads: tuple[int, ...]
    """Numbers of storages."""
    writes: tuple[int, ...]
    stream: int
    module: str


@dataclass(frozen=True, slots=True)
class Communication:
    """One collective, send or receive."""

    number: int
    type: str
    group: str
    input_bytes: int
    elements: int
    data_type: str
    send_splits: tuple[int, ...] | None
    root: int | None
    peer: int | None
    tag: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    stream: int
    module: str
    place: str
    operator: str

    @property
    def is_message(self) -> bool:
        """True for a send or receive."""
        return self.type in ("send", "recv")


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream waits for communication operations."""

    operations: tuple[int, ...]
    stream: int
    module: str


@dataclass(frozen=True, slots=True)
class HostRead:
    """The host waits for a value of a stream, and issues nothing until then."""

    reads: tuple[int, ...]
    stream: int


@dataclass(frozen=True, slots=True)
class StreamWait:
    """A stream waits for all that was issued to another."""

    stream: int
    other: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event is recorded on a stream: it represents all that was issued to the stream before."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class EventWait:
    """A stream waits for the work before the latest record of an event; without a record there is none."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class EventOnHost:
    """The host waits for an event, and issues nothing until then."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class DeviceOnHost:
    """The host waits for everything that was issued, communication operations that nothing waited for included."""

    stream: int


@dataclass(frozen=True, slots=True)
class Storage:
    """A file is written."""

    moved_bytes: int
    name: str
    stream: int


Event = (
    Compute
    | Communication
    | Wait
    | HostRead
    | StreamWait
    | EventRecord
    | EventWait
    | EventOnHost
    | DeviceOnHost
    | Storage
)


@dataclass(frozen=True, slots=True)
class RecordedRank:
    """All that one rank did."""

    rank: int
    world_size: int
    torch: str
    groups: tuple[Group, ...]
    events: tuple[Event, ...]
    answers: tuple[str, ...] = ()
    """Values that the script read on the host and that were not computed: place, value, number of times."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Operators without a formula for their FLOPs, with the number of their calls."""
    notes: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    """Names of the groups that a pipeline's stages were made with."""
    stand_ins: tuple[str, ...] = ()
    """Parts of PyTorch that were replaced, with the versions of PyTorch that each was tried with."""

    @property
    def operations(self) -> tuple[Communication, ...]:
        """Return the communication operations in order of issue."""
        return tuple(event for event in self.events if isinstance(event, Communication))


def read_events(source: str, lines: Iterable[str], *, partial: bool = False) -> RecordedRank:
    """Read the events of a rank; `partial` accepts those of a script that still runs.

    Raises `TraceError` with the script's line if the recording was refused.
    """
    reading = _Reading()
    for line in lines:
        row = json.loads(line)
        reading.take(row["kind"], row)
    if not (reading.is_complete or partial):
        raise TraceError(Problem(source, "ends before the script ended", "record the rank again"))
    return RecordedRank(
        reading.head["rank"],
        reading.head["world_size"],
        reading.head["torch"],
        tuple(reading.groups),
        tuple(reading.events),
        tuple(reading.answers),
        reading.missing,
        tuple(reading.notes),
        tuple(reading.staged),
        tuple(reading.stand_ins),
    )


class _Reading:
    """Contents of the lines so far."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.groups: list[Group] = []
        self.events: list[Event] = []
        self.answers: list[str] = []
        self.missing: dict[str, int] = {}
        self.notes: list[str] = []
        self.staged: dict[str, None] = {}
        self.stand_ins: list[str] = []
        self.is_complete = False
        self._texts: dict[int, str] = {}

    def take(self, kind: str, row: Mapping[str, Any]) -> None:
        """Add one line. Raises `TraceError` for a refusal."""
        if kind in _EVENTS:
            self.events.append(_EVENTS[kind](row, self._texts))
        elif kind == "text":
            self._texts[row["number"]] = row["text"]
        elif kind == "group":
            self.groups.append(Group(row["key"], tuple(row["ranks"]), row["description"], row["place"]))
        elif kind == "staged":
            self.staged[row["group"]] = None
        elif kind == "replaced":
            self.stand_ins.append(f"{row['name']} (torch {', '.join(row['tested'])})")
        elif kind == "answer":
            self.answers.append(f"{row['place']}: {row['value']} ({row['count']} times)")
        elif kind == "missing":
            self.missing[row["operator"]] = row["count"]
        elif kind == "note":
            self.notes.append(row["text"])
        elif kind == "refusal":
            raise TraceError(Problem(row["place"], row["what"], row["remedy"]))
        elif kind == "begin":
            self.head = dict(row)
        elif kind == "end":
            self.is_complete = True


def _compute(row: Mapping[str, Any], texts: Mapping[int, str]) -> Compute:
    return Compute(
        texts[row["operator"]],
        row["flops"],
        row["bytes"],
        row["dtype"],
        tuple(row["reads"]),
        tuple(row["writes"]),
        row["stream"],
        texts[row["module"]],
    )


def _communication(row: Mapping[str, Any], texts: Mapping[int, str]) -> Communication:
    return Communication(
        row["number"],
        row["type"],
        row["group"],
        row["bytes"],
        row["elements"],
        row["dtype"],
        None if row["splits"] is None else tuple(row["splits"]),
        row["root"],
        row["peer"],
        row["tag"],
        tuple(row["reads"]),
        tuple(row["writes"]),
        row["stream"],
        texts[row["module"]],
        texts[row["place"]],
        texts[row["operator"]],
    )


def _wait(row: Mapping[str, Any], texts: Mapping[int, str]) -> Wait:
    return Wait(tuple(row["operations"]), row["stream"], texts[row["module"]])


def _host_read(row: Mapping[str, Any], _: Mapping[int, str]) -> HostRead:
    return HostRead(tuple(row["reads"]), row["stream"])


def _stream_wait(row: Mapping[str, Any], _: Mapping[int, str]) -> StreamWait:
    return StreamWait(row["stream"], row["other"])


def _event_record(row: Mapping[str, Any], _: Mapping[int, str]) -> EventRecord:
    return EventRecord(row["event"], row["stream"])


def _event_wait(row: Mapping[str, Any], _: Mapping[int, str]) -> EventWait:
    return EventWait(row["event"], row["stream"])


def _event_on_host(row: Mapping[str, Any], _: Mapping[int, str]) -> EventOnHost:
    return EventOnHost(row["event"], row["stream"])


def _device_on_host(row: Mapping[str, Any], _: Mapping[int, str]) -> DeviceOnHost:
    return DeviceOnHost(row["stream"])


def _storage(row: Mapping[str, Any], _: Mapping[int, str]) -> Storage:
    return Storage(row["bytes"], row["name"], row["stream"])


_EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[int, str]], Event]]] = {
    "compute": _compute,
    "comm": _communication,
    "wait": _wait,
    "host": _host_read,
    "stream-wait": _stream_wait,
    "event-record": _event_record,
    "event-wait": _event_wait,
    "event-on-host": _event_on_host,
    "device-on-host": _device_on_host,
    "storage": _storage,
}
