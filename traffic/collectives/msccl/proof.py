"""An MSCCL program proved chunk by chunk, before it is turned into lanes.

The proof follows every chunk through input, output and scratch buffers, and rejects a step that sends nothing, adds a
contribution twice, or leaves the result incomplete. It runs the thread blocks in two opposite orders; a difference is a
race. The cut is MSCCL's: the buffer is `nchunksperloop` equal pieces, of which a loop moves up to one chunk each
(microsoft/msccl src/collectives/device).
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
    """Content of a place: a piece of the op's buffer, and the GPUs whose contributions are in it (one bit per GPU)."""

    piece: int
    """Number of the piece among the `nchunksperloop` pieces."""
    origins: int


class Place(NamedTuple):
    """A chunk of a buffer of a GPU. If input and output are the same buffer, OUTPUT is used for both."""

    gpu: int
    buffer: Buffer
    offset: int


StepKey = tuple[int, int, int]
"""(GPU, thread block, step)."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Result of the proof: the pieces that every sending or receiving step moves, in order."""

    sent: dict[StepKey, tuple[int, ...]]
    received: dict[StepKey, tuple[int, ...]]
    order: list[StepKey]
    """An order in which all steps can be executed."""


class _Wrong(Exception):
    """A mistake of the program at the current step."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(slots=True)
class _Run:
    """One execution of all thread blocks."""

    algorithm: Algorithm
    memory: dict[Place, Chunk] = field(default_factory=dict)
    moves: Moves = field(default_factory=lambda: Moves({}, {}, []))
    written: dict[Place, StepKey] = field(default_factory=dict)
    """The step that wrote to a place last."""
    _queues: dict[tuple[int, int, int], deque[tuple[Chunk, ...]]] = field(default_factory=dict)
    _done: dict[tuple[int, int], int] = field(default_factory=dict)

    def run(self, blocks: Iterable[tuple[Gpu, ThreadBlock]]) -> Iterator[tuple[StepKey, str]]:
        """Execute until no step can run; yield (step, what is wrong) for every problem."""
        self.memory = dict(_inputs(self.algorithm))
        ordered = list(blocks)
        self._done = {(gpu.number, block.number): 0 for gpu, block in ordered}
        progressed = True
        while progressed:
            progressed = False
            for gpu, block in ordered:
                while self._done[gpu.number, block.number] < len(block.steps):
                    step_index = self._done[gpu.number, block.number]
                    if self._waits_for(gpu, block, block.steps[step_index]):
                        break
                    try:
                        self._execute((gpu.number, block.number, step_index), block, block.steps[step_index])
                    except _Wrong as wrong:
                        yield (gpu.number, block.number, step_index), wrong.problem
                        return
                    self.moves.order.append((gpu.number, block.number, step_index))
                    self._done[gpu.number, block.number] += 1
                    progressed = True
        for gpu, block in ordered:
            step_index = self._done[gpu.number, block.number]
            if step_index < len(block.steps):
                yield (
                    (gpu.number, block.number, step_index),
                    self._waits_for(gpu, block, block.steps[step_index]),
                )

    def left_over(self) -> Iterator[str]:
        """Yield a description of messages that are never received."""
        for (src, dst, channel), queue in self._queues.items():
            if queue:
                yield f"GPU {src} sends {len(queue)} messages to GPU {dst} on channel {channel} that it does not receive"

    def _waits_for(self, gpu: Gpu, block: ThreadBlock, step: Step) -> str:
        """Return what a step waits for, "" if it can run."""
        if step.after_block >= 0 and self._done[gpu.number, step.after_block] <= step.after_step:
            return f"waits for step {step.after_step} of thread block {step.after_block}"
        if step.kind in RECEIVING and not self._queue(block.recv_from, gpu.number, block.channel):
            return f"waits for a message from GPU {block.recv_from}"
        return ""

    def _queue(self, src: int, dst: int, channel: int) -> deque[tuple[Chunk, ...]]:
        """Return the queue of messages between two GPUs on a channel."""
        return self._queues.setdefault((src, dst, channel), deque())

    def _execute(self, key: StepKey, block: ThreadBlock, step: Step) -> None:
        """Execute a step: receive, combine, store and send its chunks. Raises `_Wrong`."""
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
            # A local reduction adds to its target; a received message is added to the step's source.
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
        """Return the place of a chunk."""
        return _place(self.algorithm, gpu, buffer, offset)

    def _at(self, gpu: int, buffer: Buffer, offset: int) -> Chunk:
        """Return the chunk at an offset of a buffer. Raises `_Wrong` if it is empty."""
        chunk = self.memory.get(self._place(gpu, buffer, offset))
        if chunk is None:
            raise _Wrong(f"reads chunk {offset} of buffer {buffer}, which holds no data")
        return chunk


def _sum(first: Chunk, second: Chunk) -> Chunk:
    """Add two chunks. Raises `_Wrong` if they are different pieces or share a contribution."""
    if first.piece != second.piece:
        raise _Wrong(f"adds piece {first.piece} to piece {second.piece}")
    if first.origins & second.origins:
        repeated_gpu = (first.origins & second.origins).bit_length() - 1
        raise _Wrong(f"adds the contribution of GPU {repeated_gpu} to piece {first.piece} a second time")
    return Chunk(first.piece, first.origins | second.origins)


def _share(algorithm: Algorithm) -> int:
    """Return the pieces per rank of a buffer that holds those of all ranks."""
    return algorithm.chunks_per_loop // len(algorithm.gpus)


def _place(algorithm: Algorithm, gpu: int, buffer: Buffer, offset: int) -> Place:
    """Return the place of a chunk. In place, the smaller of input and output is part of the larger one."""
    if buffer is Buffer.SCRATCH or not algorithm.in_place:
        return Place(gpu, buffer, offset)
    first_piece = gpu * _share(algorithm)
    if algorithm.collective == "all-gather" and buffer is Buffer.INPUT:
        offset += first_piece
    if algorithm.collective == "reduce-scatter" and buffer is Buffer.OUTPUT:
        offset += first_piece
    return Place(gpu, Buffer.OUTPUT, offset)


def _inputs(algorithm: Algorithm) -> Iterator[tuple[Place, Chunk]]:
    """Yield the chunks that every GPU has at the beginning."""
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
            yield (
                _place(algorithm, gpu, Buffer.INPUT, offset),
                Chunk(_piece_number(algorithm, gpu, piece), 1 << gpu),
            )


def _piece_number(algorithm: Algorithm, gpu: int, piece: int) -> int:
    """Return the number of an input piece: in an all-to-all, pieces of different GPUs are different data."""
    return gpu * algorithm.chunks_per_loop + piece if algorithm.collective == "all-to-all" else piece


def _wanted_chunks(algorithm: Algorithm) -> Iterator[tuple[Place, Chunk]]:
    """Yield the chunks that every GPU must have at the end."""
    gpus, share = len(algorithm.gpus), _share(algorithm)
    all_origins = (1 << gpus) - 1
    for gpu in range(gpus):
        for offset, chunk in _wanted_of(algorithm, gpu, gpus, share, all_origins):
            yield _place(algorithm, gpu, Buffer.OUTPUT, offset), chunk


def _wanted_of(
    algorithm: Algorithm, gpu: int, gpus: int, share: int, everyone: int
) -> Iterator[tuple[int, Chunk]]:
    """Yield (output offset, chunk) that a GPU must have at the end."""
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
                    piece = _piece_number(algorithm, source, gpu * share + offset)
                    yield source * share + offset, Chunk(piece, 1 << source)


def prove(algorithm: Algorithm, source: str) -> Moves:
    """Execute the program and return the pieces that each step moves; `source` names the file in messages.

    Raises `PlanError` naming GPU, thread block and step of a problem.
    """
    _refuse_broken(algorithm, source)
    blocks = [(gpu, block) for gpu in algorithm.gpus for block in gpu.blocks]
    forward, backward = _Run(algorithm), _Run(algorithm)
    mistakes = [_with_step(algorithm, *mistake) for mistake in forward.run(blocks)]
    _refuse(source, mistakes, "reorder the steps, or add waits (depid, deps), so that each step has its data")
    _refuse(source, list(forward.left_over()), "give every send its receive")
    _refuse(source, list(_lacking(algorithm, forward)), "make every input reach every result exactly once")
    mistakes = [_with_step(algorithm, *mistake) for mistake in backward.run(reversed(blocks))]
    if not mistakes:
        race = "moves different data if thread blocks run in another order"
        mistakes = [_with_step(algorithm, key, race) for key in _differing(forward.moves, backward.moves)]
    mistakes += _lacking(algorithm, backward) if not mistakes else []
    _refuse(source, mistakes, "make the step wait (depid, deps) for the step that it depends on")
    return forward.moves


def _differing(first: Moves, second: Moves) -> Iterator[StepKey]:
    """Yield the steps that move different pieces in two runs."""
    for first_pieces, second_pieces in ((first.sent, second.sent), (first.received, second.received)):
        yield from (key for key in first_pieces if first_pieces[key] != second_pieces.get(key))


def _lacking(algorithm: Algorithm, run: _Run) -> Iterator[str]:
    """Yield a description of every output chunk that is not as required."""
    for place, chunk in _wanted_chunks(algorithm):
        result = run.memory.get(place)
        if result == chunk:
            continue
        missing = chunk.origins & ~result.origins if result is not None and result.piece == chunk.piece else 0
        content = "nothing" if result is None else f"piece {result.piece}"
        missing_note = f" without the contribution of GPU {missing.bit_length() - 1}" if missing else ""
        description = f"GPU {place.gpu} ends with {content}{missing_note} at output {place.offset}, expected piece {chunk.piece}"
        writer = run.written.get(place)
        yield (
            description
            if writer is None
            else _with_step(algorithm, writer, f"is the last to write there: {description}")
        )


def _refuse(source: str, wrongs: list[str], remedy: str) -> None:
    """Raise `PlanError` if there are mistakes."""
    if wrongs:
        more = [f"{len(wrongs) - MOST_PROBLEMS} more of this kind"] if len(wrongs) > MOST_PROBLEMS else []
        raise PlanError(*(Problem(source, mistake, remedy) for mistake in [*wrongs[:MOST_PROBLEMS], *more]))


def name_of_step(algorithm: Algorithm, key: StepKey) -> str:
    """Return the name of a step of the file for error messages."""
    gpu, block, step = key
    line = algorithm.gpus[gpu].blocks[block].steps[step].line
    return f"line {line}: GPU {gpu}, thread block {block}, step {step}"


def _with_step(algorithm: Algorithm, key: StepKey, problem: str) -> str:
    """Return a mistake with the name of its step."""
    return f"{name_of_step(algorithm, key)} {problem}"


def _refuse_broken(algorithm: Algorithm, source: str) -> None:
    """Raise `PlanError` for references that do not exist, and for sizes that do not fit the collective."""
    gpus = len(algorithm.gpus)
    mistakes = []
    is_split = algorithm.collective in ("all-gather", "reduce-scatter", "all-to-all")
    if is_split and algorithm.chunks_per_loop % gpus:
        mistakes.append(
            f"nchunksperloop is {algorithm.chunks_per_loop}, and the {algorithm.collective} needs a multiple of {gpus}"
        )
    for gpu in algorithm.gpus:
        senders: dict[tuple[int, int], int] = {}
        receivers: dict[tuple[int, int], int] = {}
        for block in gpu.blocks:
            where = f"line {block.line}: GPU {gpu.number}, thread block {block.number}"
            mistakes += [f"{where} {mistake}" for mistake in _block_mistakes(gpu, block, gpus)]
            if block.channel >= algorithm.channels:
                mistakes.append(f"{where} is on channel {block.channel} of {algorithm.channels}")
            for peer, verb, block_by_peer in (
                (block.send_to, "sends to", senders),
                (block.recv_from, "receives from", receivers),
            ):
                other_block = block_by_peer.setdefault((peer, block.channel), block.number)
                if peer >= 0 and other_block != block.number:
                    mistakes.append(
                        f"{where} {verb} GPU {peer} on channel {block.channel}, as thread block {other_block} does"
                    )
            for step_index, step in enumerate(block.steps):
                mistakes += [
                    _with_step(algorithm, (gpu.number, block.number, step_index), mistake)
                    for mistake in _step_mistakes(algorithm, gpu, block, step)
                ]
    _refuse(source, mistakes, "fix what it names")


def _block_mistakes(gpu: Gpu, block: ThreadBlock, gpus: int) -> Iterator[str]:
    """Yield the mistakes in a thread block's peers."""
    for peer, verb in ((block.send_to, "sends to"), (block.recv_from, "receives from")):
        if peer == gpu.number:
            yield f"{verb} its own GPU"
        elif peer >= gpus:
            yield f"{verb} GPU {peer}, there are {gpus}"


def _step_mistakes(algorithm: Algorithm, gpu: Gpu, block: ThreadBlock, step: Step) -> Iterator[str]:
    """Yield the mistakes in a step's peers, waits and chunks."""
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
    """Return the number of chunks of a buffer: scratch as stated, input and output by the collective."""
    share, pieces = _share(algorithm), algorithm.chunks_per_loop
    match buffer:
        case Buffer.SCRATCH:
            return gpu.scratch_chunks
        case Buffer.INPUT:
            return share if algorithm.collective == "all-gather" else pieces
        case Buffer.OUTPUT:
            return share if algorithm.collective == "reduce-scatter" else pieces
