"""Defines the events of a recorded rank, and reads them from the JSON lines that record/capture writes.

An event has the keys of its type; `kind` selects it. Texts that many events share are numbered by `text` events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """A process group that the script made."""

    key: str
    """Name by which this rank's operations refer to it; "" where the rank is no member."""
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
class Storage:
    """A file is written."""

    moved_bytes: int
    name: str
    stream: int


Event = Compute | Communication | Wait | HostRead | StreamWait | Storage


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

    @property
    def operations(self) -> tuple[Communication, ...]:
        """Return the communication operations in order of issue."""
        return tuple(event for event in self.events if isinstance(event, Communication))


_REMEDY: Final = "record the rank again"


def read_events(source: str, lines: Iterable[str], *, partial: bool = False) -> RecordedRank:
    """Read the events of a rank; `partial` accepts those of a script that still runs.

    Raises `TraceError` with the script's line if the recording was refused.
    """
    head: dict[str, Any] = {}
    texts: dict[int, str] = {}
    groups: list[Group] = []
    events: list[Event] = []
    answers: list[str] = []
    missing: dict[str, int] = {}
    notes: list[str] = []
    staged: dict[str, None] = {}
    is_complete = partial
    for line in lines:
        row = json.loads(line)
        kind = row["kind"]
        if kind == "text":
            texts[row["number"]] = row["text"]
        elif kind == "compute":
            events.append(_compute(row, texts))
        elif kind == "comm":
            events.append(_communication(row, texts))
        elif kind == "wait":
            events.append(Wait(tuple(row["operations"]), row["stream"], texts[row["module"]]))
        elif kind == "host":
            events.append(HostRead(tuple(row["reads"]), row["stream"]))
        elif kind == "stream-wait":
            events.append(StreamWait(row["stream"], row["other"]))
        elif kind == "storage":
            events.append(Storage(row["bytes"], row["name"], row["stream"]))
        elif kind == "group":
            groups.append(Group(row["key"], tuple(row["ranks"]), row["description"], row["place"]))
        elif kind == "staged":
            staged[row["group"]] = None
        elif kind == "answer":
            answers.append(f"{row['place']}: {row['value']} ({row['count']} times)")
        elif kind == "missing":
            missing[row["operator"]] = row["count"]
        elif kind == "note":
            notes.append(row["text"])
        elif kind == "refusal":
            raise TraceError(Problem(row["place"], row["what"], row["remedy"]))
        elif kind == "begin":
            head = row
        elif kind == "end":
            is_complete = True
    if not is_complete:
        raise TraceError(Problem(source, "ends before the script ended", "see its output above; " + _REMEDY))
    return RecordedRank(
        head["rank"],
        head["world_size"],
        head["torch"],
        tuple(groups),
        tuple(events),
        tuple(answers),
        missing,
        tuple(notes),
        tuple(staged),
    )


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
