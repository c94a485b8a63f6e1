"""Proves a schedule for one byte count: both ends agree, nothing deadlocks, every byte of the result is made once.

For schedules from outside and for tests; its work grows with the number of messages. Cutting is the native cursor's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from contract.errors import PlanError, Problem
from traffic._native import StepTables
from traffic.collectives.columns import to_columns
from traffic.collectives.execution import Execution, LaneKey, Message, step_name
from traffic.collectives.outcome import SUPPORTED, Holding
from traffic.collectives.table import MAX_LANE_BYTES, EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from traffic.collectives.table import Lane, Schedule

MAX_PROBLEMS: Final = 20
"""Mistakes told of one schedule; a wrong table is wrong at most of its positions."""
MAX_CHUNK_BYTES: Final = 1 << 30
MAX_CHUNKS: Final = 1 << 16
MAX_SLICES: Final = 64
MAX_SLOTS: Final = 64
Wrong = tuple[str, str]
"""(where, what)."""


def validate(schedule: Schedule, op_bytes: int, *, contents: bool = True) -> None:
    """Raise `PlanError` if the schedule does not do its collective for `op_bytes`.

    Without `contents` the last stage is left out, for programs whose data was followed by other means, such as scratch
    buffers that no table tells of.

    Every problem names position, lane and entry. Stages build on each other: ranges, then the two sides of every
    connection, then an execution with bounded slots; the first stage with problems reports all it found.
    """
    # Tables may be made anew whenever they are read.
    schedule = replace(schedule, tables=tuple(schedule.tables))
    _refuse(schedule, _outside(schedule), "mend the table's indices")
    messages = _messages(schedule, op_bytes)
    _refuse(
        schedule, _one_sided(schedule, messages), "give every send its receive, in the same order and size"
    )
    holdings = tuple(
        Holding(schedule.collective, schedule.size, p, schedule.splits) for p in range(schedule.size)
    )
    execution = Execution(schedule, messages, holdings)
    execution.run()
    _refuse(schedule, execution.stuck(), "order the entries so that some lane can always move")
    if not contents:
        return
    lacking = (wrong for holding in holdings for wrong in holding.unfinished(op_bytes))
    _refuse(schedule, [*execution.wrong, *lacking], "let every input reach every result exactly once")


def _refuse(schedule: Schedule, wrongs: Iterable[Wrong], remedy: str) -> None:
    found = list(wrongs)
    if not found:
        return
    name = f"{schedule.algorithm} {schedule.collective} of {schedule.size}"
    problems = [Problem(f"{name}: {where}", what, remedy) for where, what in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem(name, f"{len(found) - MAX_PROBLEMS} more problems of this sort", remedy))
    raise PlanError(*problems)


def _outside(schedule: Schedule) -> Iterator[Wrong]:
    """Indices that name nothing, and peers that two lanes share."""
    if schedule.collective not in SUPPORTED:
        yield "collective", f"{schedule.collective!r} is none of {', '.join(sorted(SUPPORTED))}"
    if len(schedule.tables) != schedule.size:
        yield (
            "tables",
            f"there are {len(schedule.tables)}, one for each of {schedule.size} positions is needed",
        )
    sides = {len(schedule.splits), *map(len, schedule.splits)}
    if sides != ({schedule.size} if schedule.collective == "uneven all-to-all" else {0}):
        yield (
            "splits",
            f"a matrix of {schedule.size} by {schedule.size} belongs to an uneven all-to-all alone",
        )
    yield from _outside_cut(schedule)
    for position, table in enumerate(schedule.tables):
        sends_to: set[int] = set()
        receives_from: set[int] = set()
        for index, lane in enumerate(table):
            where = f"position {position}, lane {index}"
            for what in _outside_lane(schedule, position, lane):
                yield where, what
            if lane.send_to in sends_to:
                yield where, f"another lane sends to position {lane.send_to} too"
            if lane.recv_from in receives_from:
                yield where, f"another lane receives from position {lane.recv_from} too"
            sends_to |= {lane.send_to} - {-1}
            receives_from |= {lane.recv_from} - {-1}
            for number, entry in enumerate(lane.entries):
                for what in _outside_entry(schedule, lane, entry.kind, entry.chunk):
                    yield step_name((position, index), number), what


def _outside_cut(schedule: Schedule) -> Iterator[Wrong]:
    for name, value, least, most in (
        ("chunk_bytes", schedule.chunk_bytes, 1, MAX_CHUNK_BYTES),
        ("chunks_per_loop", schedule.chunks_per_loop, 1, MAX_CHUNKS),
        ("slices", schedule.slices, 1, MAX_SLICES),
        ("min_slice_bytes", schedule.min_slice_bytes, 0, MAX_CHUNK_BYTES),
        ("slice_align_bytes", schedule.slice_align_bytes, 1, MAX_CHUNK_BYTES),
        ("slots", schedule.slots, 1, MAX_SLOTS),
    ):
        if value < least:
            yield "cut", f"{name} is {value}, at least {least} is needed"
        elif value > most:
            yield "cut", f"{name} is {value}, at most {most} is possible"


def _outside_lane(schedule: Schedule, position: int, lane: Lane) -> Iterator[str]:
    for peer, verb in ((lane.send_to, "sends to"), (lane.recv_from, "receives from")):
        if peer == position:
            yield f"{verb} itself"
        elif not -1 <= peer < schedule.size:
            yield f"{verb} position {peer}, outside 0 to {schedule.size - 1}"
    if lane.batch < 0:
        yield f"batch {lane.batch} is negative"
    if not 0 <= lane.part < lane.parts:
        yield f"part {lane.part} is not one of {lane.parts}"
    if not -1 <= lane.lane_bytes <= MAX_LANE_BYTES:
        yield f"works on {lane.lane_bytes} bytes, outside 0 to {MAX_LANE_BYTES}"
    if not lane.entries:
        yield "has no entries"


def _outside_entry(schedule: Schedule, lane: Lane, kind: EntryKind, chunk: int) -> Iterator[str]:
    if not kind & (EntryKind.SEND | EntryKind.RECV):
        yield "neither sends nor receives"
    if kind & (EntryKind.REDUCE | EntryKind.COPY) and not kind & EntryKind.RECV:
        yield "reduces or copies without receiving"
    if kind & EntryKind.SEND and lane.send_to < 0:
        yield "sends, but its lane has no peer to send to"
    if kind & EntryKind.RECV and lane.recv_from < 0:
        yield "receives, but its lane has no peer to receive from"
    if not 0 <= chunk < schedule.chunks_per_loop:
        yield f"chunk {chunk} is not one of the {schedule.chunks_per_loop} of a loop"


def _messages(schedule: Schedule, op_bytes: int) -> dict[LaneKey, tuple[Message, ...]]:
    tables = StepTables(to_columns((schedule,)))
    return {
        (position, index): _lane_messages(tables, (position, index), lane, op_bytes)
        for position, table in enumerate(schedule.tables)
        for index, lane in enumerate(table)
    }


def _lane_messages(tables: StepTables, key: LaneKey, lane: Lane, op_bytes: int) -> tuple[Message, ...]:
    kinds, _chunks, loops, sizes = (column.tolist() for column in tables.lane_messages(0, *key, op_bytes))
    if not kinds:
        return ()
    slices = len(kinds) // ((loops[-1] + 1) * len(lane.entries))
    found = []
    for i, (kind, loop, size) in enumerate(zip(kinds, loops, sizes, strict=True)):
        entry = i // slices % len(lane.entries)
        found.append(Message(entry, kind, (lane.entries[entry].block, loop, i % slices), size))
    return tuple(found)


def _one_sided(schedule: Schedule, messages: dict[LaneKey, tuple[Message, ...]]) -> Iterator[Wrong]:
    """Messages whose other side is missing or different; of every connection the first one."""
    sends: dict[tuple[int, int], list[tuple[str, Message]]] = {}
    receives: dict[tuple[int, int], list[tuple[str, Message]]] = {}
    for key, lane_messages in messages.items():
        lane = schedule.tables[key[0]][key[1]]
        for message in lane_messages:
            named = (step_name(key, message.entry), message)
            if message.kind & EntryKind.SEND:
                sends.setdefault((key[0], lane.send_to), []).append(named)
            if message.kind & EntryKind.RECV:
                receives.setdefault((lane.recv_from, key[0]), []).append(named)
    for pair in sorted(sends.keys() | receives.keys()):
        wrong = _first_difference(pair, sends.get(pair, []), receives.get(pair, []))
        if wrong is not None:
            yield wrong


def _first_difference(
    pair: tuple[int, int], sent: list[tuple[str, Message]], received: list[tuple[str, Message]]
) -> Wrong | None:
    for (send_step, send), (recv_step, recv) in zip(sent, received, strict=False):
        if (send.piece, send.message_bytes) != (recv.piece, recv.message_bytes):
            return send_step, (
                f"sends {_named(send)} to position {pair[1]}, which takes it for {_named(recv)} ({recv_step})"
            )
    if len(sent) > len(received):
        step, message = sent[len(received)]
        return step, f"sends {_named(message)} to position {pair[1]}, which does not receive it"
    if len(received) > len(sent):
        step, message = received[len(sent)]
        return step, f"receives {_named(message)} from position {pair[0]}, which does not send it"
    return None


def _named(message: Message) -> str:
    block, loop, slice_index = message.piece
    return f"{message.message_bytes} bytes of block {block} (loop {loop}, slice {slice_index})"
