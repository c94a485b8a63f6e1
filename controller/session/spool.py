"""Records of a run's agents on disk as they arrive, so that they outlive the session and its process. A shell: files.

A spool is a directory:

    begun.json   the agents that measure and their clock offsets, from the start order on
    NUMBER.ops   op records of some iterations as they arrived, with the agent's number in the field `reserved`
    outside.ops  op records of no planned iteration
    messages     other messages that results are made of: number of the agent, length, message
    ended.json   how the session ended, once it has
    reserve      disk space reserved for the tables that are made of all this

The files are not flushed to disk before the end: a killed process loses nothing that it had written, a power cut loses what
the kernel had not written yet. A spool that a crash cut off within a record is read up to there.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ProtocolError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.records import OP_RECORD
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.contract.protocol.codec import codec_of
from etloop.contract.protocol.messages import Finished, Flows, Hello, Rates
from etloop.contract.protocol.serialization import Unreadable, parse_json
from etloop.contract.protocol.typed_form import FILE_RULES, Misfit
from etloop.contract.protocol.wire import decode_from_agent, encode
from etloop.controller.session.clock_map import ClockOffset
from etloop.controller.session.records import RecordKeeper, RecordSink, SpoolFailed

PART_OPS: Final = 1 << 18
"""Records per part, approximately (22 MiB), unless one iteration has more: the amount in memory while it is read."""
_MOST_OPEN: Final = 4
"""Part files open at a time, enough for the iterations that ranks are in."""
_FIRST_RESERVE_BYTES: Final = 32 << 20
"""Room for plan, pages and key figures."""
_RESERVE_STEP_BYTES: Final = 8 << 20
_MESSAGE: Final = struct.Struct(">II")
_BEGUN_FILE: Final = "begun.json"
_ENDED_FILE: Final = "ended.json"
_MESSAGES_FILE: Final = "messages"
_RESERVE_FILE: Final = "reserve"
_OUTSIDE: Final = "outside"


@dataclass(frozen=True, slots=True)
class BegunAgent:
    """An agent that got its start order."""

    name: str
    host: str
    versions: dict[str, str]
    clock_offset_ns: int
    clock_error_ns: int
    degraded: tuple[str, ...]
    capabilities: tuple[str, ...]
    limits: dict[str, int]
    """Record kind -> highest number of records."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Content of begun.json."""

    run_id: str
    started_at: str
    start_ns: int
    iterations_each: int
    agents: tuple[BegunAgent, ...]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Content of ended.json."""

    state: RunEnd
    reason: str


_BEGUN: Final = codec_of(Begun, FILE_RULES)
_ENDED: Final = codec_of(_Ended, FILE_RULES)


class Spool(RecordKeeper, Protocol):
    """Destination of a session's records."""

    iterations_each: int
    started_at: str

    def begin(self, begun: Begun) -> None:
        """Keep which agents measure. Raises `SpoolFailed`."""


def begin_spool(
    spool: Spool | None,
    run_id: str,
    start_ns: int,
    measuring: Iterable[tuple[RecordSink, Hello, ClockOffset]],
) -> str:
    """Keep which agents measure, in the order of their numbers.

    Returns why that failed; "" if it succeeded or there is no spool.
    """
    if spool is None:
        return ""
    agents = tuple(
        BegunAgent(
            sink.agent,
            hello.host,
            hello.versions,
            offset.offset_ns,
            offset.error_ns,
            sink.degraded,
            sink.capabilities,
            dict(sink.limits),
        )
        for sink, hello, offset in measuring
    )
    try:
        spool.begin(Begun(run_id, spool.started_at, start_ns, spool.iterations_each, agents))
    except SpoolFailed as error:
        return str(error)
    return ""


class RunSpool:
    """The spool of a run in progress; `plan_ops` is the number of ops per iteration over all agents."""

    def __init__(self, directory: Path, plan_ops: int, iterations: int, started_at: str) -> None:
        self.iterations_each = max(1, PART_OPS // max(plan_ops, 1))
        self.started_at = started_at
        self._directory = directory
        self._iterations = iterations
        self._most_of_part = self.iterations_each * plan_ops
        self._received: dict[str, int] = {}
        """Records received, by part."""
        self._open: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._reserved = 0

    def open(self) -> None:
        """Make the directory and reserve disk space. Raises `SpoolFailed`."""
        with _raising_spool_failed(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._reserve(_FIRST_RESERVE_BYTES)

    def close(self) -> None:
        """Close the files; their content stays."""
        while self._open:
            os.close(self._open.popitem()[1])

    def begin(self, begun: Begun) -> None:
        """Keep which agents measure. See `Spool`."""
        with _raising_spool_failed(self._directory):
            _write_whole(self._directory / _BEGUN_FILE, json.dumps(_BEGUN.write(begun)))

    def end(self, state: RunEnd, reason: str) -> None:
        """Keep how the session ended, and free the reserved disk space. Raises `SpoolFailed`."""
        with _raising_spool_failed(self._directory):
            free_reserve(self._directory)
            _write_whole(self._directory / _ENDED_FILE, json.dumps(_ENDED.write(_Ended(state, reason))))

    def spooled_ops(self, agents: int) -> SpooledOps:
        """Return the op records kept of `agents` agents."""
        return SpooledOps(self._directory, self.iterations_each, agents)

    def keep_ops(self, agent: int, ops: NDArray[np.void]) -> None:
        """Append op records to their parts. See `RecordKeeper`."""
        ops = ops.copy()
        ops["reserved"] = agent
        iteration = ops["iteration"]
        is_planned = (iteration >= 0) & (iteration < self._iterations)
        part = np.where(is_planned, iteration // self.iterations_each, -1)
        for number in np.unique(part).tolist():
            of_part = ops if number == part[0] and (part == number).all() else ops[part == number]
            name = f"{number:06d}" if number >= 0 else _OUTSIDE
            received = self._received[name] = self._received.get(name, 0) + len(of_part)
            if number >= 0 and received > self._most_of_part:
                raise ProtocolError(f"{received} op records of iterations that have {self._most_of_part}")
            self._append(f"{name}.ops", of_part.tobytes(), of_part.nbytes)

    def keep_message(self, agent: int, message: Flows | Rates | Finished) -> None:
        """Append a message to `messages`. See `RecordKeeper`."""
        body = encode(message)
        # Flows may be sent compressed; their tables need room for all rows.
        whole_bytes = message.flows.nbytes if isinstance(message, Flows) else len(body)
        self._append(_MESSAGES_FILE, _MESSAGE.pack(agent, len(body)) + body, whole_bytes)

    def _append(self, name: str, content: bytes, whole_bytes: int) -> None:
        with _raising_spool_failed(self._directory):
            self._reserve(_FIRST_RESERVE_BYTES + (self._bytes + whole_bytes) // 2)
            descriptor = self._descriptor(name)
            before_bytes = os.fstat(descriptor).st_size
            try:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[os.write(descriptor, remaining) :]
            except OSError:
                # Cut off the partial record, so that later appends begin at a record boundary.
                os.ftruncate(descriptor, before_bytes)
                raise
            self._bytes += whole_bytes

    def _descriptor(self, name: str) -> int:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        while len(self._open) >= _MOST_OPEN:
            os.close(self._open.popitem(last=False)[1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._open[name] = os.open(self._directory / name, flags, 0o640)
        return self._open[name]

    def _reserve(self, wanted_bytes: int) -> None:
        """Reserve disk space up to `wanted_bytes`.

        Tables take less than half as much as the records, so the disk is full for records while tables still have room.
        """
        if wanted_bytes <= self._reserved:
            return
        steps = -(-(wanted_bytes - self._reserved) // _RESERVE_STEP_BYTES)
        descriptor = os.open(self._directory / _RESERVE_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.posix_fallocate(descriptor, self._reserved, steps * _RESERVE_STEP_BYTES)
        finally:
            os.close(descriptor)
        self._reserved += steps * _RESERVE_STEP_BYTES


class SpooledOps:
    """The op records of a spool. A `contract.model.run.KeptOps`."""

    def __init__(self, directory: Path, iterations_each: int, agents: int) -> None:
        self.iterations_each = iterations_each
        self._directory = directory
        self._agents = agents

    @property
    def parts(self) -> int:
        """Return the number of parts. See `KeptOps`."""
        return max((int(name) + 1 for name in self._names() if name != _OUTSIDE), default=0)

    @property
    def records(self) -> int:
        """Return the number of op records. See `KeptOps`."""
        return sum(self._count(name) for name in self._names())

    @property
    def outside(self) -> int:
        """Return the number of op records of no planned iteration. See `KeptOps`."""
        return self._count(_OUTSIDE)

    def part(self, number: int) -> tuple[NDArray[np.void], ...]:
        """Return the op records of one part, one array (`OP_RECORD`) per agent. See `KeptOps`."""
        path = self._directory / f"{number:06d}.ops"
        ops = np.fromfile(path, OP_RECORD) if path.exists() else np.empty(0, OP_RECORD)
        agent = ops["reserved"].copy()
        ops["reserved"] = 0
        if self._agents == 1 and not agent.any():
            return (ops,)
        return tuple(ops[agent == agent_number] for agent_number in range(self._agents))

    def by_agent(self) -> list[int]:
        """Return the number of op records of each agent, over all iterations and outside of them."""
        counts = np.zeros(self._agents, np.int64)
        for name in self._names():
            agent = np.fromfile(self._directory / f"{name}.ops", OP_RECORD)["reserved"]
            is_known = (agent >= 0) & (agent < self._agents)
            counts += np.bincount(agent[is_known], minlength=self._agents)
        return [int(count) for count in counts]

    def _names(self) -> list[str]:
        names = (path.stem for path in self._directory.glob("*.ops"))
        return sorted(name for name in names if name == _OUTSIDE or name.isdecimal())

    def _count(self, name: str) -> int:
        try:
            return (self._directory / f"{name}.ops").stat().st_size // OP_RECORD.itemsize
        except FileNotFoundError:
            return 0


def read_spool(directory: Path, reason: str) -> RunOutcome | None:
    """Return what a session that is over left in its spool; None if it never got to its start order.

    `reason` is used as the run's reason if the session did not record its own end.

    Raises:
        SpoolFailed: the spool cannot be read, or is not in this version's format.
    """
    with _raising_spool_failed(directory, "read"):
        if not has_begun(directory):
            return None
        begun = _BEGUN.read(parse_json((directory / _BEGUN_FILE).read_text(), None))
        ended = _Ended(RunEnd.ABORTED, reason)
        if (directory / _ENDED_FILE).exists():
            ended = _ENDED.read(parse_json((directory / _ENDED_FILE).read_text(), None))
        kept = SpooledOps(directory, begun.iterations_each, len(begun.agents))
        sinks = [RecordSink(agent.name, agent.limits) for agent in begun.agents]
        for sink, count in zip(sinks, kept.by_agent(), strict=True):
            sink.count_kept(count)
        for number, message in _messages(directory / _MESSAGES_FILE, len(sinks)):
            if isinstance(message, Finished):
                sinks[number].take_finished(message)
            elif isinstance(message, Flows | Rates):
                sinks[number].take(message)
    agents = []
    for sink, agent in zip(sinks, begun.agents, strict=True):
        sink.degraded, sink.capabilities = agent.degraded, agent.capabilities
        hello = Hello(agent.name, agent.host, 0, agent.versions)
        agents.append(sink.records(hello, ClockOffset(agent.clock_offset_ns, agent.clock_error_ns)))
    return RunOutcome(
        begun.run_id,
        ended.state,
        ended.reason,
        begun.started_at,
        begun.start_ns,
        tuple(agents),
        kept_ops=kept,
    )


def has_begun(directory: Path) -> bool:
    """Return whether the session of a spool got to its start order: from then on it may have measured something."""
    return (directory / _BEGUN_FILE).exists()


def free_reserve(directory: Path) -> None:
    """Free the disk space that a spool reserved for the tables of its run. Raises `OSError`: the tables may not fit then."""
    (directory / _RESERVE_FILE).unlink(missing_ok=True)


def _messages(path: Path, agents: int) -> Iterator[tuple[int, object]]:
    """Yield (agent number, message) up to the place where the file was cut off."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while len(head := file.read(_MESSAGE.size)) == _MESSAGE.size:
            agent, length = _MESSAGE.unpack(head)
            body = file.read(length)
            if len(body) < length:
                return
            if agent >= agents:
                raise ProtocolError(f"a message of agent {agent}, but the run has {agents} agents")
            yield agent, decode_from_agent(body)


def _write_whole(path: Path, text: str) -> None:
    """Write a file atomically: via a temporary name."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


@contextlib.contextmanager
def _raising_spool_failed(directory: Path, verb: str = "written") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolFailed(f"{directory} cannot be {verb}: {error.strerror or error}") from error
    except (Misfit, Unreadable, ProtocolError) as error:
        if verb == "written":
            raise
        raise SpoolFailed(f"{directory} is not a valid spool of this version: {error}") from error
