"""A network of packets for a simulator outside ETLoop: a twin that waits in a thread until the client moves time. A shell.

The twin's source is called at the time that the client asked for, and then waits for the next one: only one of the two threads
works at a time, so the same requests have the same answers. The twin is one nanosecond ahead of the client, so that everything
that arrived until the client's time has been reported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import Topology
from etloop.controller.inputs.scenario.mapping import Mapping as RankMapping
from etloop.controller.inputs.scenario.mapping import PlacementRule
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.job_set import JobSet, only
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.plan.transfer_jobs import planned_pairs, transfer_job
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.execution import SilentWatcher
from etloop.controller.run.prepare import (
    InputFile,
    Prepared,
    PrepareOptions,
    RunInputs,
    prepare,
    read_device_file,
)
from etloop.controller.run.twin import TwinExecution
from etloop.controller.transfers.protocol import LATEST_NS, NetworkFailure, ServedNetwork
from etloop.traffic.message_transfers import MessageTransfers
from etloop.traffic.topology.routes import routes
from etloop.traffic.transfer_values import Done, Transfer, TransferFigures, TransferId
from etloop.traffic.twin import TwinSettings

MOST_ENDPOINTS: Final = 128
"""Most endpoints: each ordered pair has a queue pair."""
_SCENARIO: Final = b"""
workload: {incast: {senders: 1, size: 1KiB}}
collectives: {shaping: plain, send_recv: {channels: 1}}
"""
"""A scenario with the defaults of `etloop twin`; its workload is replaced by the pairs of endpoints."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """The twin waits at the client's time, or has ended."""

    failure: str = ""
    """Why it ended; "" while it waits."""
    error: Exception | None = None
    """Exception that ended it."""


class _Source:
    """The twin's source of transfers, see `TransferSource`. It waits for the client at the client's time."""

    def __init__(self, transfers: MessageTransfers, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs: Sequence[tuple[int, int, int, int]] = ()
        """Set before the twin starts; see `attach`."""
        self.first_ns = 0
        self.over = False
        self.orders = Queue[int | None](2)
        """When to wait next; None: end. Another may lie in it when the client ends."""
        self.turns = Queue[_Turn](2)
        self._transfers = transfers
        self._ranks = pairs
        self._until_ns = 0

    def attach(self, assignment: Assignment) -> _Source:
        """Find the ops of the pairs in the assignment of the twin."""
        self.pairs = planned_pairs(self._ranks, (assignment,))
        return self

    def act(
        self, now_ns: int, arrived: Sequence[tuple[int, int]]
    ) -> tuple[Sequence[tuple[int, int, int]], int | None]:
        for number, at_ns in arrived:
            self._transfers.arrive(number, at_ns)
        if now_ns >= self._until_ns:
            self.turns.put(_Turn())
            order = self.orders.get()
            if order is None:
                self.over = True
                return (), None
            self._until_ns = order
        return self._transfers.take_messages(), self._until_ns


class PacketNetwork:
    """See `protocol.TransferNetwork`."""

    def __init__(self, transfers: MessageTransfers, source: _Source) -> None:
        self._transfers = transfers
        self._source = source
        self._failure = ""
        self.now_ns = 0
        self._reached_ns = 0
        """Time of the twin, one nanosecond after `now_ns` once that has moved."""

    @property
    def under_way(self) -> int:
        """Return the number of transfers under way."""
        return self._transfers.under_way

    def is_under_way(self, transfer_id: TransferId) -> bool:
        """Return whether a transfer has begun and is neither done nor cancelled."""
        return self._transfers.is_under_way(transfer_id)

    def start(self, transfers: Sequence[Transfer]) -> None:
        """Begin transfers now."""
        self._transfers.start(transfers, self._reached_ns)

    def advance(self, at_ns: int) -> list[Done]:
        """Move time forward; return the transfers that were done until then. Raises `NetworkFailure` if the twin ended."""
        if self._failure:
            raise NetworkFailure(self._failure)
        if at_ns >= self._reached_ns:
            self._source.orders.put(at_ns + 1)
            self._failure = _failure_of(self._source.turns.get())
            if self._failure:
                raise NetworkFailure(self._failure)
            self._reached_ns = at_ns + 1
        self.now_ns = at_ns
        return self._transfers.take_done()

    def next_ns(self) -> int | None:
        """Return a time before which no transfer is done if none begins; None without transfers."""
        return self._transfers.next_ns(self.now_ns)

    def cancel(self, transfer_id: TransferId) -> int:
        """End a transfer; return the bytes that were in no message yet."""
        return self._transfers.cancel(transfer_id)

    def figures(self) -> TransferFigures:
        """Return the counts since the beginning."""
        return self._transfers.figures()


@contextmanager
def packet_network(
    file: InputFile, device: str, seed: int | None
) -> Iterator[tuple[ServedNetwork, PacketNetwork]]:
    """Run a twin of a topology's attachments while the context lasts.

    Raises an `InputError` for a topology that the twin does not model, or that has too many attachments.
    """
    topology = read_device_file(file, device).topology
    count = len(topology.attachments)
    if count > MOST_ENDPOINTS:
        problem = f"{count} attachments, between which packets would need {count * (count - 1)} queue pairs"
        raise PlanError(
            Problem(file.source, problem, f"keep them within {MOST_ENDPOINTS}, or use --level flow")
        )
    pairs = _pairs_of(topology)
    inputs = RunInputs(InputFile(Path("scenario.yaml"), _SCENARIO), derived_rig(file, device), file, TWIN_ID)
    places = tuple((rank, attachment.rig_port) for rank, attachment in enumerate(topology.attachments))

    def jobs(scenario: Scenario) -> JobSet:
        mapping = RankMapping(rule=PlacementRule.EXPLICIT, explicit=places)
        return only(transfer_job(pairs, count, "transfers"), mapping, scenario.collectives.settings)

    prepared = prepare(inputs, PrepareOptions(device=device, jobs=jobs, keeps_case=False))
    rates_bps = [topology.port_of(attachment.end).rate_bps for attachment in topology.attachments]
    pair_of = {pair: number for number, pair in enumerate(pairs)}
    transfers = MessageTransfers(rates_bps, pair_of)
    source = _Source(transfers, pairs)
    settings = TwinSettings(seed=seed, limit_ns=2 * LATEST_NS)
    execution = TwinExecution(settings, source_of=source.attach)
    thread = threading.Thread(
        target=_run, args=(execution, prepared, source), name="etloop-twin", daemon=True
    )
    thread.start()
    if failure := _failure_of(source.turns.get()):
        raise PlanError(Problem(file.source, failure, "use --level flow"))
    names = tuple(attachment.rig_port for attachment in topology.attachments)
    yield (
        ServedNetwork(names, (), "packet", lambda src, dst: (src, dst) in pair_of),
        PacketNetwork(transfers, source),
    )
    # After an interruption the twin may still be on its way; it ends with the process.
    source.orders.put(None)
    thread.join()


def _run(execution: TwinExecution, prepared: Prepared, source: _Source) -> None:
    try:
        executed = execution.execute(prepared, "", SilentWatcher(), None)
    except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
        source.turns.put(_Turn(error=error))
        return
    assert executed.twin is not None
    source.turns.put(_Turn(executed.twin.failure or "the twin has ended"))


def _failure_of(turn: _Turn) -> str:
    if turn.error is not None:
        raise turn.error
    return turn.failure


def _pairs_of(topology: Topology) -> tuple[tuple[int, int], ...]:
    """Return the ordered pairs of attachments that reach each other."""
    table, count = routes(topology), len(topology.attachments)

    def reaches(src: int, dst: int) -> bool:
        return bool(table[topology.attachments[src].end.switch][dst])

    return tuple(
        (src, dst)
        for src in range(count)
        for dst in range(count)
        if src != dst and reaches(src, dst) and reaches(dst, src)
    )
