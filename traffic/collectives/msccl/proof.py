"""An MSCCL program as a schedule: proved chunk by chunk, then put into lanes.

A thread block becomes a lane, a step an entry, `depid`/`deps` a wait across lanes. The proof follows every chunk through
input, output and scratch buffers and refuses the step that sends nothing, adds twice, or leaves the result incomplete;
it runs the thread blocks in two opposite orders, and what differs depends on luck. The cut is MSCCL's: the buffer is
`nchunksperloop` equal pieces, of which a loop moves up to one chunk each (microsoft/msccl src/collectives/device).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final, NamedTuple

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.msccl.reader import (
    RECEIVING,
    REDUCING,
    SENDING,
    Algorithm,
    Buffer,
    Gpu,
    Step,
    StepType,
    ThreadBlock,
)

MOST_PROBLEMS: Final = 20


class Chunk(NamedTuple):
    """What lies at a place: a piece of the op's buffer, and whose contributions are in it (a bit a GPU)."""

    piece: int
    """Its number among the `nchunksperloop` pieces."""
    origins: int


class Place(NamedTuple):
    """A chunk of a buffer of a GPU; where input and output are one buffer, OUTPUT stands for both."""

    gpu: int
    buffer: Buffer
    offset: int


StepKey = tuple[int, int, int]
"""(GPU, thread block, step)."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What the proof found: the pieces that every sending or receiving step moves, in order."""

    sent: dict[StepKey, tuple[int, ...]]
    received: dict[StepKey, tuple[int, ...]]
    order: list[StepKey]
    """An order in which all steps can be executed."""


class _Wrong(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(slots=True)
class _Run:
    """One execution of all thread blocks."""

    algorithm: Algorithm
    memory: dict[Place, Chunk] = field(default_factory=dict)
    moves: Moves = field(default_factory=lambda: Moves({}, {}, []))
    written: dict[Place, StepKey] = field(default_factory=dict)
    """The last step that put something there."""
    _queues: dict[tuple[int, int, int], deque[tuple[Chunk, ...]]] = field(default_factory=dict)
    _done: dict[tuple[int, int], int] = field(default_factory=dict)

    def run(self, blocks: Iterable[tuple[Gpu, ThreadBlock]]) -> Iterator[tuple[StepKey, str]]:
        """(step, what is wrong) of everything found on the way; ends when nothing moves."""
        self.memory = dict(_inputs(self.algorithm))
        ordered = list(blocks)
        self._done = {(gpu.number, block.number): 0 for gpu, block in ordered}
        moving = True
        while moving:
            moving = False
            for gpu, block in ordered:
                while self._done[gpu.number, block.number] < len(block.steps):
                    at = self._done[gpu.number, block.number]
                    if self._waits_for(gpu, block, block.steps[at]):
                        break
                    try:
                        self._execute((gpu.number, block.number, at), block, block.steps[at])
                    except _Wrong as wrong:
                        yield (gpu.number, block.number, at), wrong.what
                        return
                    self.moves.order.append((gpu.number, block.number, at))
                    self._done[gpu.number, block.number] += 1
                    moving = True
        for gpu, block in ordered:
            at = self._done[gpu.number, block.number]
            if at < len(block.steps):
                yield (gpu.number, block.number, at), self._waits_for(gpu, block, block.steps[at])

    def left_over(self) -> Iterator[str]:
        """Messages that nobody received."""
        for (src, dst, channel), queue in self._queues.items():
            if queue:
                yield f"GPU {src} sends {len(queue)} messages to GPU {dst} on channel {channel} that it does not receive"

    def _waits_for(self, gpu: Gpu, block: ThreadBlock, step: Step) -> str:
        if step.after_block >= 0 and self._done[gpu.number, step.after_block] <= step.after_step:
            return f"waits for step {step.after_step} of thread block {step.after_block}"
        if step.kind in RECEIVING and not self._queue(block.recv_from, gpu.number, block.channel):
            return f"waits for a message from GPU {block.recv_from}"
        return ""

    def _queue(self, src: int, dst: int, channel: int) -> deque[tuple[Chunk, ...]]:
        return self._queues.setdefault((src, dst, channel), deque())

    def _execute(self, key: StepKey, block: ThreadBlock, step: Step) -> None:
        gpu = key[0]
        if step.kind is StepType.NOP:
            return
        if step.kind in RECEIVING:
            chunks = self._queue(block.recv_from, gpu, block.channel).popleft()
            self.moves.received[key] = tuple(chunk.piece for chunk in chunks)
            if len(chunks) != step.count:
                raise _Wrong(
                    f"receives {step.count} chunks, GPU {block.recv_from} sends {len(chunks)} at this point"
                )
        else:
            chunks = tuple(self._at(gpu, step.src, step.src_offset + i) for i in range(step.count))
        if step.kind in REDUCING:
            # A local reduction adds to its target; one of a message to what the step names as its source.
            buffer, first = (
                (step.dst, step.dst_offset) if step.kind is StepType.REDUCE else (step.src, step.src_offset)
            )
            chunks = tuple(_sum(chunk, self._at(gpu, buffer, first + i)) for i, chunk in enumerate(chunks))
        if step.kind not in (StepType.SEND, StepType.RECV_REDUCE_SEND):
            for i, chunk in enumerate(chunks):
                place = self._place(gpu, step.dst, step.dst_offset + i)
                self.memory[place] = chunk
                self.written[place] = key
        if step.kind in SENDING:
            self.moves.sent[key] = tuple(chunk.piece for chunk in chunks)
            self._queue(gpu, block.send_to, block.channel).append(chunks)

    def _place(self, gpu: int, buffer: Buffer, offset: int) -> Place:
        return _place(self.algorithm, gpu, buffer, offset)

    def _at(self, gpu: int, buffer: Buffer, offset: int) -> Chunk:
        chunk = self.memory.get(self._place(gpu, buffer, offset))
        if chunk is None:
            raise _Wrong(f"reads chunk {offset} of buffer {buffer}, where nothing is")
        return chunk


def _sum(first: Chunk, second: Chunk) -> Chunk:
    if first.piece != second.piece:
        raise _Wrong(f"adds piece {first.piece} to piece {second.piece}")
    if first.origins & second.origins:
        twice = (first.origins & second.origins).bit_length() - 1
        raise _Wrong(f"adds the contribution of GPU {twice} to piece {first.piece} a second time")
    return Chunk(first.piece, first.origins | second.origins)


def _share(algorithm: Algorithm) -> int:
    """Pieces of one rank where a buffer has those of all ranks."""
    return algorithm.chunks_per_loop // len(algorithm.gpus)


def _place(algorithm: Algorithm, gpu: int, buffer: Buffer, offset: int) -> Place:
    """Where a chunk lies. In place, the smaller of input and output is a part of the larger one."""
    if buffer is Buffer.SCRATCH or not algorithm.in_place:
        return Place(gpu, buffer, offset)
    own = gpu * _share(algorithm)
    if algorithm.collective == "all-gather" and buffer is Buffer.INPUT:
        offset += own
    if algorithm.collective == "reduce-scatter" and buffer is Buffer.OUTPUT:
        offset += own
    return Place(gpu, Buffer.OUTPUT, offset)


def _inputs(algorithm: Algorithm) -> Iterator[tuple[Place, Chunk]]:
    """What every GPU has at the beginning."""
    share = _share(algorithm)
    for gpu in range(len(algorithm.gpus)):
        match algorithm.collective:
            case "all-gather":
                pieces = range(gpu * share, (gpu + 1) * share)
            case "broadcast":
                pieces = range(algorithm.chunks_per_loop if gpu == 0 else 0)
            case _:
                pieces = range(algorithm.chunks_per_loop)
        for offset, piece in enumerate(pieces):
            yield _place(algorithm, gpu, Buffer.INPUT, offset), Chunk(_named(algorithm, gpu, piece), 1 << gpu)


def _named(algorithm: Algorithm, gpu: int, piece: int) -> int:
    """The number of a piece of input: of an all-to-all those of different GPUs are different data."""
    return gpu * algorithm.chunks_per_loop + piece if algorithm.collective == "all-to-all" else piece


def _wanted(algorithm: Algorithm) -> Iterator[tuple[Place, Chunk]]:
    """What every GPU must have in the end."""
    gpus, share = len(algorithm.gpus), _share(algorithm)
    everyone = (1 << gpus) - 1
    for gpu in range(gpus):
        for offset, chunk in _wanted_of(algorithm, gpu, gpus, share, everyone):
            yield _place(algorithm, gpu, Buffer.OUTPUT, offset), chunk


def _wanted_of(
    algorithm: Algorithm, gpu: int, gpus: int, share: int, everyone: int
) -> Iterator[tuple[int, Chunk]]:
    pieces = range(algorithm.chunks_per_loop)
    match algorithm.collective:
        case "all-reduce":
            yield from ((piece, Chunk(piece, everyone)) for piece in pieces)
        case "reduce":
            yield from ((piece, Chunk(piece, everyone)) for piece in pieces if gpu == 0)
        case "broadcast":
            yield from ((piece, Chunk(piece, 1)) for piece in pieces)
        case "all-gather":
            yield from ((piece, Chunk(piece, 1 << piece // share)) for piece in pieces)
        case "reduce-scatter":
            yield from ((offset, Chunk(gpu * share + offset, everyone)) for offset in range(share))
        case _:
            for source in range(gpus):
                for offset in range(share):
                    piece = _named(algorithm, source, gpu * share + offset)
                    yield source * share + offset, Chunk(piece, 1 << source)


def prove(algorithm: Algorithm, source: str) -> Moves:
    """Executes the program and returns what each step moves; `source` names the file in messages.

    Raises `PlanError` naming GPU, thread block and step of what is wrong.
    """
    _refuse_broken(algorithm, source)
    blocks = [(gpu, block) for gpu in algorithm.gpus for block in gpu.blocks]
    forward, backward = _Run(algorithm), _Run(algorithm)
    wrongs = [_named_step(algorithm, *wrong) for wrong in forward.run(blocks)]
    _refuse(
        source, wrongs, "order the steps, or let them wait (depid, deps), so that each finds what it needs"
    )
    _refuse(source, list(forward.left_over()), "give every send its receive")
    _refuse(source, list(_lacking(algorithm, forward)), "let every input reach every result exactly once")
    wrongs = [_named_step(algorithm, *wrong) for wrong in backward.run(reversed(blocks))]
    if not wrongs:
        luck = "moves other data when thread blocks run in another order"
        wrongs = [_named_step(algorithm, key, luck) for key in _differing(forward.moves, backward.moves)]
    wrongs += _lacking(algorithm, backward) if not wrongs else []
    _refuse(source, wrongs, "let the step wait (depid, deps) for the one that it depends on")
    return forward.moves


def _differing(first: Moves, second: Moves) -> Iterator[StepKey]:
    for one, other in ((first.sent, second.sent), (first.received, second.received)):
        yield from (key for key in one if one[key] != other.get(key))


def _lacking(algorithm: Algorithm, run: _Run) -> Iterator[str]:
    for place, chunk in _wanted(algorithm):
        found = run.memory.get(place)
        if found == chunk:
            continue
        missing = chunk.origins & ~found.origins if found is not None and found.piece == chunk.piece else 0
        what = "nothing" if found is None else f"piece {found.piece}"
        lacks = f" without the contribution of GPU {missing.bit_length() - 1}" if missing else ""
        ends = (
            f"GPU {place.gpu} ends with {what}{lacks} at output {place.offset}, piece {chunk.piece} is wanted"
        )
        writer = run.written.get(place)
        yield (
            ends if writer is None else _named_step(algorithm, writer, f"is the last to write there: {ends}")
        )


def _refuse(source: str, wrongs: list[str], remedy: str) -> None:
    if wrongs:
        more = [f"{len(wrongs) - MOST_PROBLEMS} more of this sort"] if len(wrongs) > MOST_PROBLEMS else []
        raise PlanError(*(Problem(source, wrong, remedy) for wrong in [*wrongs[:MOST_PROBLEMS], *more]))


def name_of_step(algorithm: Algorithm, key: StepKey) -> str:
    """How an error names a step of the file."""
    gpu, block, step = key
    line = algorithm.gpus[gpu].blocks[block].steps[step].line
    return f"line {line}: GPU {gpu}, thread block {block}, step {step}"


def _named_step(algorithm: Algorithm, key: StepKey, what: str) -> str:
    return f"{name_of_step(algorithm, key)} {what}"


def _refuse_broken(algorithm: Algorithm, source: str) -> None:
    """References that name nothing, and sizes that do not fit the collective."""
    gpus = len(algorithm.gpus)
    wrongs = []
    split = algorithm.collective in ("all-gather", "reduce-scatter", "all-to-all")
    if split and algorithm.chunks_per_loop % gpus:
        wrongs.append(
            f"nchunksperloop is {algorithm.chunks_per_loop}, and the {algorithm.collective} needs a multiple of {gpus}"
        )
    for gpu in algorithm.gpus:
        senders: dict[tuple[int, int], int] = {}
        receivers: dict[tuple[int, int], int] = {}
        for block in gpu.blocks:
            where = f"line {block.line}: GPU {gpu.number}, thread block {block.number}"
            wrongs += [f"{where} {what}" for what in _block_mistakes(gpu, block, gpus)]
            if block.channel >= algorithm.channels:
                wrongs.append(f"{where} is on channel {block.channel} of {algorithm.channels}")
            for peer, verb, taken in (
                (block.send_to, "sends to", senders),
                (block.recv_from, "receives from", receivers),
            ):
                other = taken.setdefault((peer, block.channel), block.number)
                if peer >= 0 and other != block.number:
                    wrongs.append(
                        f"{where} {verb} GPU {peer} on channel {block.channel}, as thread block {other} does"
                    )
            for at, step in enumerate(block.steps):
                wrongs += [
                    _named_step(algorithm, (gpu.number, block.number, at), what)
                    for what in _step_mistakes(algorithm, gpu, block, step)
                ]
    _refuse(source, wrongs, "fix what it names")


def _block_mistakes(gpu: Gpu, block: ThreadBlock, gpus: int) -> Iterator[str]:
    for peer, verb in ((block.send_to, "sends to"), (block.recv_from, "receives from")):
        if peer == gpu.number:
            yield f"{verb} its own GPU"
        elif peer >= gpus:
            yield f"{verb} GPU {peer}, there are {gpus}"


def _step_mistakes(algorithm: Algorithm, gpu: Gpu, block: ThreadBlock, step: Step) -> Iterator[str]:
    if step.kind in SENDING and block.send_to < 0:
        yield "sends, but its thread block has no peer to send to"
    if step.kind in RECEIVING and block.recv_from < 0:
        yield "receives, but its thread block has no peer to receive from"
    if step.after_block >= len(gpu.blocks):
        yield f"waits for thread block {step.after_block}, there are {len(gpu.blocks)}"
    elif step.after_block >= 0:
        steps = len(gpu.blocks[step.after_block].steps)
        if not 0 <= step.after_step < steps:
            yield f"waits for step {step.after_step} of thread block {step.after_block}, which has {steps}"
    if step.kind is StepType.NOP:
        return
    if step.count < 1:
        yield "moves no chunk"
    uses: list[tuple[Buffer, int]] = []
    if step.kind not in RECEIVING or step.kind in REDUCING:
        uses.append((step.src, step.src_offset))
    if step.kind not in (StepType.SEND, StepType.RECV_REDUCE_SEND):
        uses.append((step.dst, step.dst_offset))
    for buffer, offset in uses:
        chunks = _chunks(algorithm, gpu, buffer)
        if not 0 <= offset <= chunks - step.count:
            yield f"uses chunks {offset} to {offset + step.count - 1} of buffer {buffer}, which has {chunks}"


def _chunks(algorithm: Algorithm, gpu: Gpu, buffer: Buffer) -> int:
    """Chunks of a buffer: scratch as stated, the others as the collective has them."""
    share, pieces = _share(algorithm), algorithm.chunks_per_loop
    match buffer:
        case Buffer.SCRATCH:
            return gpu.scratch_chunks
        case Buffer.INPUT:
            return share if algorithm.collective == "all-gather" else pieces
        case Buffer.OUTPUT:
            return share if algorithm.collective == "reduce-scatter" else pieces
