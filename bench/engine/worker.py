"""One end of a bench: a process that carries out orders from its standard input, one at a time, and ends with it.

A shell without decisions: it uses only the engine, the bare kernel path and the clock. Started by `workers`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import time
from collections.abc import Iterator
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from etloop.bench.engine.protocol import (
    ORDERS,
    REPLIES,
    BlastExchange,
    BlastReceive,
    BlastSend,
    Collect,
    Counted,
    Done,
    EchoPings,
    Failed,
    Histogram,
    Load,
    Opened,
    Order,
    PortCalls,
    Probe,
    Ran,
    RoundTrips,
    SendPings,
    Start,
    StepTimes,
    TakeSteps,
    Watch,
    Watched,
    WorkerReply,
)
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import EtloopError, ProtocolError, RunAborted
from etloop.contract.model.engine import EnginePhase
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.results.measure.distribution import nearest_rank
from etloop.runtime.clock import monotonic_ns
from etloop.traffic import _native
from etloop.traffic.engine import Engine
from etloop.traffic.threads.loop_threads import REALTIME_PRIORITY, LoopThreads

STDIN: Final = 0
STDOUT: Final = 1
READ_BYTES: Final = 1 << 16
LOOK_EVERY_S: Final = 0.05
"""Poll interval of a running engine: long enough not to take its core; it is part of no figure."""
PROBE_TIMEOUT_NS: Final = 10_000_000_000


def main() -> int:
    """Serve until standard input ends, or until the answers are no longer read; return the exit code."""
    worker = Worker()
    orders = FrameReader(ORDERS)
    with contextlib.suppress(BrokenPipeError):
        while part := os.read(STDIN, READ_BYTES):
            for order in orders.feed(part):
                _write(frame_of(REPLIES, worker.answer(order)))
    return 0


class Worker:
    """Owner of the engine between its orders."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._background: tuple[int, ...] = ()
        """Ranks that the run does not wait for."""
        self._processor_ns = 0
        self._kernel_ns = 0

    def answer(self, order: Order) -> WorkerReply:
        """Carry out one order and return its reply; a failure is the reply `Failed`."""
        try:
            return self._carry_out(order)
        except (EtloopError, RuntimeError) as error:
            self._close()
            return Failed(str(error))

    def _carry_out(self, order: Order) -> WorkerReply:
        match order:
            case Load():
                return self._load(order)
            case Probe():
                return self._probe()
            case Start():
                return self._run(order.start_ns)
            case Watch():
                watch = _native.watch_core(order.core, REALTIME_PRIORITY)
                time.sleep(order.duration_ns / NS_PER_S)
                return Watched(np.array(watch.stop(), "<i8").tobytes())
            case Collect():
                return self._collect(self._require_engine())
            case BlastSend():
                return Counted(
                    *_native.blast_send(
                        order.src_ip,
                        order.dst_ip,
                        order.udp_port,
                        order.duration_ns,
                        backend=order.backend,
                        message_packets=order.message_packets,
                    )
                )
            case BlastExchange():
                place = (order.src_ip, order.dst_ip, order.udp_port)
                return Counted(*_native.blast_exchange(*place, order.duration_ns, order.datagram_bytes))
            case BlastReceive():
                return Counted(
                    *_native.blast_receive(order.ip, order.udp_port, order.duration_ns, order.backend)
                )
            case TakeSteps():
                return _take_steps(order)
            case SendPings():
                times_ns = np.array(
                    _native.ping(
                        order.src_ip, order.dst_ip, order.udp_port, order.count, order.message_bytes
                    ),
                    np.int64,
                )
                return RoundTrips(nearest_rank(times_ns, 50), nearest_rank(times_ns, 99))
            case EchoPings():
                _native.pong(order.ip, order.udp_port, order.count)
                return Done()
            case _:
                assert_never(order)

    def _load(self, order: Load) -> WorkerReply:
        self._close()
        self._background = tuple(rank.rank for rank in order.assignment.ranks if rank.background)
        self._engine = Engine.open(order.assignment, threads=LoopThreads(order.cores, order.realtime))
        return Opened(self._engine.degraded)

    def _probe(self) -> WorkerReply:
        engine = self._require_engine()
        engine.start_probe()
        deadline_ns = monotonic_ns() + PROBE_TIMEOUT_NS
        while (outcomes := engine.probe_outcomes()) is None:
            if monotonic_ns() > deadline_ns:
                raise RunAborted("the probes of the connections did not end")
            _pause()
        unreached = [outcome.problem for outcome in outcomes if not outcome.ok]
        if unreached:
            raise RunAborted(
                f"{len(unreached)} of {len(outcomes)} queue pairs are not reached: {unreached[0]}"
            )
        return Done()

    def _run(self, start_ns: int) -> WorkerReply:
        engine = self._require_engine()
        began_ns, began_kernel_ns = time.process_time_ns(), _kernel_ns()
        engine.start(start_ns)
        while (status := engine.status()).phase in (EnginePhase.READY, EnginePhase.RUNNING):
            _pause()
        self._processor_ns = time.process_time_ns() - began_ns
        self._kernel_ns = _kernel_ns() - began_kernel_ns
        if status.phase is not EnginePhase.DONE:
            raise RunAborted(f"the engine ended {status.phase.name}: {status.failure or 'no reason given'}")
        return Done()

    def _collect(self, engine: Engine) -> Ran:
        engine.stop()  # of a loop that runs, records are taken a part at a time
        records, flows = engine.take_records(), engine.flows()
        is_background = np.isin(records["rank"], self._background)
        ops = records[~is_background]
        turnarounds, sent_series = engine.turnarounds(), _sent_series(engine)
        parts = tuple(
            Histogram(tuple(least for least, _ in part), tuple(count for _, count in part))
            for part in engine.turnaround_parts().values()
        )
        ports = engine.ports()
        timeouts = int(flows["local_ack_timeout_err"].sum())
        lost_packets = int(flows["out_of_sequence"].sum()) + int(ports["receive_overflows"].sum())
        misdirected = int(ports["misdirected_datagrams"].sum())
        moved = ("tx_calls", "tx_datagrams", "rx_calls", "rx_datagrams")
        calls = PortCalls(*(int(ports[name].sum()) for name in moved))
        late = engine.late_turns().astype("<i8").tobytes()
        received = ops[(ops["tx_messages"] == 0) & (ops["rx_messages"] > 0)]
        received = received[np.lexsort((received["op"], received["iteration"]))]
        realtime = engine.realtime
        self._close()
        return Ran(
            ops=len(ops),
            first_issued_ns=int(ops["issued_ns"].min()),
            last_completed_ns=int(ops["completed_ns"].max()),
            wire_tx_bytes=int(ops["wire_tx_bytes"].sum()),
            packets=sum(int(flows[name].sum()) for name in ("tx_packets", "acks_tx", "naks_tx")),
            retransmitted_packets=int(flows["retransmitted_packets"].sum()),
            turnaround_least_ns=tuple(least for least, _ in turnarounds),
            turnaround_counts=tuple(count for _, count in turnarounds),
            received_ns=received["completed_ns"].tobytes(),
            sent=sent_series,
            realtime=realtime,
            late=late,
            processor_ns=self._processor_ns,
            slip_ns=(ops["issued_ns"] - ops["intended_ns"]).astype("<i8").tobytes(),
            carried_bytes=_sent_until(records[is_background], int(ops["completed_ns"].max())),
            misdirected_datagrams=misdirected,
            kernel_ns=self._kernel_ns,
            calls=calls,
            op_ns=_longest_ns(ops).astype("<i8").tobytes(),
            acknowledgements=int(flows["acks_tx"][flows["sends_data"] == 0].sum()),
            parts=parts,
            timeouts=timeouts,
            lost_packets=lost_packets,
        )

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise ProtocolError("an order for an engine came before Load")
        return self._engine

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _sent_until(records: NDArray[np.void], end_ns: int) -> int:
    """Return the bytes of the ops that completed until `end_ns`: a load goes on until its engine is stopped."""
    return int(records["wire_tx_bytes"][records["completed_ns"] <= end_ns].sum())


def _longest_ns(ops: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the longest time in ns from issue to completion of an op, by iteration."""
    longest_ns = np.zeros(int(ops["iteration"].max()) + 1, np.int64)
    np.maximum.at(longest_ns, ops["iteration"], ops["completed_ns"] - ops["issued_ns"])
    return longest_ns


def _take_steps(order: TakeSteps) -> StepTimes:
    with _run_as_engine(order):
        times_ns = _native.dependent_steps(
            order.src_ip,
            order.dst_ip,
            order.udp_port,
            order.datagram_bytes,
            order.operations,
            order.steps,
            order.waits_acknowledged,
        )
    return StepTimes(np.array(times_ns, "<i8").tobytes())


@contextlib.contextmanager
def _run_as_engine(order: TakeSteps) -> Iterator[None]:
    """Run this thread as an engine's inside the block: on its cores, and real-time if permitted."""
    cores, policy, parameters = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        if order.cores:
            os.sched_setaffinity(0, order.cores)
        if order.realtime:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
        os.sched_setaffinity(0, cores)


def _sent_series(engine: Engine) -> bytes:
    rates = engine.rates()
    if len(rates) == 0:
        return b""
    busiest = rates[rates["local_qpn"] == rates["local_qpn"][np.argmax(rates["tx_packets"])]]
    return np.stack([busiest["time_ns"], busiest["tx_packets"]], axis=1).astype("<i8").tobytes()


def _kernel_ns() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_stime * NS_PER_S)


def _pause() -> None:
    """Wait a moment. Raises `RunAborted` if standard input is readable: the bench sends no second order, so it has
    ended.
    """
    readable, _, _ = select.select([STDIN], [], [], LOOK_EVERY_S)
    if readable:
        raise RunAborted("the bench ended")


def _write(frame: bytes) -> None:
    while frame:
        frame = frame[os.write(STDOUT, frame) :]


if __name__ == "__main__":
    sys.exit(main())
