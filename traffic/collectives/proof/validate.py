"""Prove a schedule: both ends agree, there is no deadlock, and every byte of the result is produced once.

Contents are proved for one byte count, which should give every lane two loops; absence of deadlock is proved for every
byte count.

For schedules from outside and for tests; the effort grows with the number of messages. The native cursor cuts the
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.traffic.collectives.core.table import MAX_LANE_BYTES, Entry, EntryKind, Lane, Schedule
from etloop.traffic.collectives.proof.atoms import LaneKey, Message, cut_schedule
from etloop.traffic.collectives.proof.execution import Connection, Execution, Order, step_name
from etloop.traffic.collectives.proof.lane_deadlock import find_wait_cycles
from etloop.traffic.collectives.proof.outcome import SUPPORTED, Holding

MAX_PROBLEMS: Final = 20
"""Mistakes reported per schedule; a wrong table is wrong at most of its positions."""
MAX_CHUNK_BYTES: Final = 1 << 30
MAX_CHUNKS: Final = 1 << 16
MAX_SLICES: Final = 64
MAX_SLOTS: Final = 64
MAX_CHANNELS: Final = 1024
MAX_TRAFFIC_PER_BYTE: Final = 1 << 16
MAX_MESSAGE_BYTES: Final = 1 << 31
"""Limit of one RDMA write."""
_DIRECTION = EntryKind.SEND | EntryKind.RECV
_PIECEMEAL: Final = "wait for an entry of that lane, or give what comes later a lane of its own"
Wrong = tuple[str, str]
"""(where, what)."""
Called = Callable[[str], str]
"""Maps the name of a step (`step_name`) to the source program's name for it; "" if it has none."""


def validate(
    schedule: Schedule, op_bytes: int, *, contents: bool = True, called: Called | None = None
) -> None:
    """Raise `PlanError` if the schedule does not perform its collective for `op_bytes`.

    Without `contents` the last stage is omitted, for programs whose data was checked by other means, such as those with
    scratch buffers that tables do not describe. Every problem names position, lane and entry, and, if `called` knows
    it, the source program's name of the step.

    Stages build on each other: ranges, then the two sides of every connection, then an execution with bounded slots,
    then waits that deadlock in larger ops, then executions in other orders. The first stage with problems reports all
    of them.
    """
    # Lazy tables would be rebuilt on every read.
    schedule = replace(schedule, tables=tuple(schedule.tables))
    refuse = partial(_refuse, schedule, called)
    refuse(_outside(schedule), "fix the table's indices")
    messages, atoms = cut_schedule(schedule, op_bytes)
    refuse(_one_sided(schedule, messages), "give every send its receive, in the same order and size")
    for order in Order:
        holdings = tuple(
            Holding(schedule.collective, schedule.size, position, atoms, schedule.splits)
            for position in range(schedule.size)
        )
        execution = Execution(schedule, messages, holdings)
        execution.run(order)
        refuse(execution.stuck(), "order the entries so that some lane can always move")
        if order is Order.FORWARDS:
            refuse(_standing_still(schedule), _PIECEMEAL)
        if not contents:
            return
        lacking = (gap for holding in holdings for gap in holding.missing_parts(op_bytes))
        remedy = "make every input reach every result exactly once"
        if order is not Order.FORWARDS:
            remedy += ", in any order of arrival: make the entry that forwards a block wait for the entry that receives it"
        refuse([*execution.wrong, *lacking], remedy)


def _refuse(schedule: Schedule, called: Called | None, wrongs: Iterable[Wrong], remedy: str) -> None:
    """Raise `PlanError` for the problems found, if any."""
    problems_found = list(wrongs)
    if not problems_found:
        return
    name = f"{schedule.algorithm} {schedule.collective} of {schedule.size}"
    problems = []
    for where, problem in problems_found[:MAX_PROBLEMS]:
        program_name = called(where) if called is not None else ""
        problems.append(
            Problem(
                f"{name}: {program_name} ({where})" if program_name else f"{name}: {where}", problem, remedy
            )
        )
    if len(problems_found) > MAX_PROBLEMS:
        problems.append(
            Problem(name, f"{len(problems_found) - MAX_PROBLEMS} more problems of this kind", remedy)
        )
    raise PlanError(*problems)


def _outside(schedule: Schedule) -> Iterator[Wrong]:
    """Yield indices that are out of range, and peers that two lanes share."""
    if schedule.collective not in SUPPORTED:
        yield "collective", f"{schedule.collective!r} is not one of {', '.join(sorted(SUPPORTED))}"
    if len(schedule.tables) != schedule.size:
        yield (
            "tables",
            f"there are {len(schedule.tables)}, one for each of {schedule.size} positions is needed",
        )
    sides = {len(schedule.splits), *map(len, schedule.splits)}
    if sides != ({schedule.size} if schedule.collective == "uneven all-to-all" else {0}):
        yield (
            "splits",
            f"a matrix of {schedule.size} by {schedule.size} is allowed only for an uneven all-to-all",
        )
    yield from _outside_cut(schedule)
    for position, table in enumerate(schedule.tables):
        sends_to: set[tuple[int, int]] = set()
        receives_from: set[tuple[int, int]] = set()
        for index, lane in enumerate(table):
            where = f"position {position}, lane {index}"
            for problem in _outside_lane(schedule, position, lane):
                yield where, problem
            on_channel = f" on channel {lane.channel}" if schedule.channels > 1 else ""
            if (lane.send_to, lane.channel) in sends_to:
                yield where, f"another lane sends to position {lane.send_to} too{on_channel}"
            if (lane.recv_from, lane.channel) in receives_from:
                yield where, f"another lane receives from position {lane.recv_from} too{on_channel}"
            sends_to |= {(lane.send_to, lane.channel)} - {(-1, lane.channel)}
            receives_from |= {(lane.recv_from, lane.channel)} - {(-1, lane.channel)}
            for number, entry in enumerate(lane.entries):
                following = lane.entries[number + 1] if number + 1 < len(lane.entries) else None
                for problem in (
                    *_outside_entry(schedule, lane, entry.kind, entry.chunk),
                    *_outside_gathered(entry, following),
                    *_outside_wait(table, index, entry),
                ):
                    yield step_name((position, index), number), problem


def _outside_cut(schedule: Schedule) -> Iterator[Wrong]:
    """Yield values of the cut that are out of range."""
    for name, value, least, most in (
        ("chunk_bytes", schedule.chunk_bytes, 1, MAX_CHUNK_BYTES),
        ("chunks_per_loop", schedule.chunks_per_loop, 1, MAX_CHUNKS),
        ("slices", schedule.slices, 1, MAX_SLICES),
        ("min_slice_bytes", schedule.min_slice_bytes, 0, MAX_CHUNK_BYTES),
        ("slice_align_bytes", schedule.slice_align_bytes, 1, MAX_CHUNK_BYTES),
        ("slots", schedule.slots, 1, MAX_SLOTS),
        ("channels", schedule.channels, 1, MAX_CHANNELS),
        ("traffic_per_byte", schedule.traffic_per_byte, 1, MAX_TRAFFIC_PER_BYTE),
    ):
        if value < least:
            yield "cut", f"{name} is {value}, at least {least} is needed"
        elif value > most:
            yield "cut", f"{name} is {value}, at most {most} is possible"


def _outside_lane(schedule: Schedule, position: int, lane: Lane) -> Iterator[str]:
    """Yield indices and bytes of a lane that are out of range."""
    for peer, verb in ((lane.send_to, "sends to"), (lane.recv_from, "receives from")):
        if peer == position:
            yield f"{verb} itself"
        elif not -1 <= peer < schedule.size:
            yield f"{verb} position {peer}, outside 0 to {schedule.size - 1}"
    if lane.batch < 0:
        yield f"batch {lane.batch} is negative"
    # If every position contributes a block, a lane may work on the blocks of several positions.
    blocks = schedule.size if schedule.collective in ("all-gather", "gather") else 1
    if not 0 <= lane.part < lane.parts * blocks:
        yield f"part {lane.part} is not one of {lane.parts * blocks}"
    elif not 1 <= lane.span <= lane.parts * blocks - lane.part:
        yield f"spans {lane.span} parts from {lane.part} on, and there are {lane.parts * blocks}"
    if not 0 <= lane.share < lane.shares:
        yield f"share {lane.share} is not one of {lane.shares}"
    if not 0 <= lane.channel < schedule.channels:
        yield f"channel {lane.channel} is not one of {schedule.channels}"
    if not -1 <= lane.lane_bytes <= MAX_LANE_BYTES:
        yield f"works on {lane.lane_bytes} bytes, outside 0 to {MAX_LANE_BYTES}"
    if not lane.entries:
        yield "has no entries"


def _outside_entry(schedule: Schedule, lane: Lane, kind: EntryKind, chunk: int) -> Iterator[str]:
    """Yield mistakes of an entry's kind and chunk."""
    if not kind & _DIRECTION and kind:
        yield "neither sends nor receives"
    if kind & (EntryKind.REDUCE | EntryKind.COPY) and not kind & EntryKind.RECV:
        yield "reduces or copies without receiving"
    if kind & EntryKind.IN_TURN and not kind & EntryKind.RECV:
        yield "receives in order without receiving"
    if kind & EntryKind.SEND and lane.send_to < 0:
        yield "sends, but its lane has no peer to send to"
    if kind & EntryKind.RECV and lane.recv_from < 0:
        yield "receives, but its lane has no peer to receive from"
    if not 0 <= chunk < schedule.chunks_per_loop:
        yield f"chunk {chunk} is not one of the {schedule.chunks_per_loop} of a loop"


def _outside_gathered(entry: Entry, following: Entry | None) -> Iterator[str]:
    """Yield mistakes of an entry whose message continues with the following entry."""
    if not entry.kind & EntryKind.MORE:
        return
    if following is None:
        yield "its message goes on, but it is the last entry of its lane"
    elif (entry.kind ^ following.kind) & _DIRECTION:
        yield "its message goes on with an entry of another direction"
    elif following.after_lane >= 0:
        yield "its message goes on with an entry that waits for another lane"


def _outside_wait(table: Sequence[Lane], index: int, entry: Entry) -> Iterator[str]:
    """Yield mistakes of an entry's wait."""
    after = entry.after_lane
    if after == -1:
        if not entry.kind:
            yield "neither sends nor receives nor waits"
        if entry.after_entry != -1:
            yield f"waits for entry {entry.after_entry} without a lane"
    elif not 0 <= after < len(table):
        yield f"waits for lane {after}, outside 0 to {len(table) - 1}"
    elif after == index:
        yield "waits for its own lane"
    elif table[after].channel == table[index].channel and table[after].batch > table[index].batch:
        yield f"waits for lane {after}, which is in a later batch"
    elif not -1 <= entry.after_entry < len(table[after].entries):
        yield f"waits for entry {entry.after_entry} of lane {after}, which has {len(table[after].entries)}"


def _one_sided(schedule: Schedule, messages: dict[LaneKey, tuple[Message, ...]]) -> Iterator[Wrong]:
    """Yield messages over 2 GiB, and per connection the first message whose other side is missing or different."""
    sends: dict[Connection, list[tuple[LaneKey, Message]]] = {}
    receives: dict[Connection, list[tuple[LaneKey, Message]]] = {}
    for key, lane_messages in messages.items():
        lane = schedule.tables[key[0]][key[1]]
        for message in lane_messages:
            if message.message_bytes > MAX_MESSAGE_BYTES:
                yield step_name(key, message.entry), f"a message of {message.message_bytes} bytes, over 2 GiB"
            if message.kind & EntryKind.SEND:
                sends.setdefault((key[0], lane.send_to, lane.channel), []).append((key, message))
            if message.kind & EntryKind.RECV:
                receives.setdefault((lane.recv_from, key[0], lane.channel), []).append((key, message))
    for pair in sorted(sends.keys() | receives.keys()):
        difference = _first_difference(pair, sends.get(pair, []), receives.get(pair, []))
        if difference is not None:
            yield difference


def _standing_still(schedule: Schedule) -> Iterator[Wrong]:
    """Yield the waits for whole lanes that deadlock if an op has several chunks."""
    for (waiting, number, awaited), way in find_wait_cycles(schedule):
        by_way_of = ", ".join(f"position {position}, lane {lane}" for position, lane in way[1:-1])
        need = f"which needs this one to go on{f' (by way of {by_way_of})' if by_way_of else ''}"
        if number < 0:
            batch = schedule.tables[awaited[0]][awaited[1]].batch
            where = f"position {waiting[0]}, lane {waiting[1]}"
            yield (
                where,
                f"begins after batch {batch} with lane {awaited[1]}, {need} when an op has several chunks",
            )
        else:
            yield (
                step_name(waiting, number),
                f"waits for all of lane {awaited[1]}, {need} when an op has several chunks",
            )


def _first_difference(
    pair: Connection, sent: list[tuple[LaneKey, Message]], received: list[tuple[LaneKey, Message]]
) -> Wrong | None:
    """Return the first difference between the sends and the receives of a connection; None if they agree."""
    for (send_key, send), (recv_key, recv) in zip(sent, received, strict=False):
        if (send.message_bytes, _content(send)) != (recv.message_bytes, _content(recv)):
            return step_name(send_key, send.entry), (
                f"sends {_describe(send)} to position {pair[1]}, which expects {_describe(recv)} "
                f"({step_name(recv_key, recv.entry)})"
            )
    if len(sent) > len(received):
        key, message = sent[len(received)]
        problem = f"sends {_describe(message)} to position {pair[1]}, which does not receive it"
        return step_name(key, message.entry), problem
    if len(received) > len(sent):
        key, message = received[len(sent)]
        problem = f"receives {_describe(message)} from position {pair[0]}, which does not send it"
        return step_name(key, message.entry), problem
    return None


def _content(message: Message) -> list[int]:
    """Return the atoms of a message in order."""
    return [atom for move in message.moves for atom in move.atoms]


def _describe(message: Message) -> str:
    """Describe a message in words."""
    blocks = list(dict.fromkeys(move.block for move in message.moves))
    description = (
        f"block {blocks[0]}"
        if len(blocks) == 1
        else f"{len(blocks)} blocks from {blocks[0]} on"
        if blocks
        else "nothing"
    )
    return (
        f"{message.message_bytes} bytes of {description} (loop {message.loop}, slice {message.slice_index})"
    )
