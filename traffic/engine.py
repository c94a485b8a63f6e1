"""One agent's engine: the native port loops behind typed values.

Everything that happens per packet, message or op is done in `traffic/native`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import Problem, RigError
from etloop.contract.model.assignment import Assignment, PortSettings
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome, ThreadBytes, TurnaroundPart
from etloop.contract.model.frame_streams import FrameWork
from etloop.contract.model.records import (
    CC_RECORD,
    FLOW_RECORD,
    OP_RECORD,
    PORT_RECORD,
    WAIT_RECORD,
    StreamCount,
)
from etloop.contract.model.switch_counters import rows
from etloop.contract.protocol.messages import QueuePairEnd
from etloop.traffic import _native
from etloop.traffic.capture import CaptureTarget, plan_capture
from etloop.traffic.cc_library import libraries_for
from etloop.traffic.frame_streams import FrameStreams
from etloop.traffic.send_limits import UNLIMITED, SendLimits, loop_limits
from etloop.traffic.threads.loop_threads import ORDINARY, UNPLANNED, LoopThreads, ThreadPlan, plan_threads
from etloop.traffic.threads.port_queues import Spread, gather_counters, spread_queues
from etloop.traffic.udp_streams import UdpStreams

MOST_TAKEN: Final = 1 << 17
"""Maximum records copied from a loop at once (11 MiB). If the controller is slow, further records wait in the loop."""
AMPLE_RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Below this receive buffer size, windows are so small that throughput may suffer."""


class _Verdict(Enum):
    """`ProbeVerdict` of traffic/native/core/packets/probe.h."""

    PENDING = 0
    GOOD = 1
    NO_REPLY = 2
    WRONG_TRAFFIC_CLASS = 3
    TOO_LARGE = 4
    ONLY_SHORT = 5


class Engine:
    """The engine of one assignment: open, probe, start, watch, stop, read its counters."""

    def __init__(
        self,
        spread: Spread,
        loops: _native.PortLoops,
        degraded: tuple[str, ...],
        streams: UdpStreams | None = None,
        threads: ThreadPlan = UNPLANNED,
        frames: FrameStreams | None = None,
    ) -> None:
        self._assignment = spread.assignment
        self._port_of = spread.port_of
        self._streams = streams or UdpStreams(())
        self._frames = frames or FrameStreams(FrameWork(), ())
        self._loops = loops
        self._taken = [0] * loops.ports()
        self._waits: list[NDArray[np.void] | None] = []
        self._last: EngineStatus | None = None
        self._stopped = False
        self.degraded = degraded
        self._threads = threads

    @staticmethod
    def open(
        assignment: Assignment,
        capture: CaptureTarget | None = None,
        threads: LoopThreads = ORDINARY,
        limits: SendLimits = UNLIMITED,
    ) -> Engine:
        """Bind the ports' addresses and create all queue pairs.

        `capture` permits packet capture (`plan_capture`); `limits` apply whatever the assignment requests. Raises
        `RigError` if an address is not local, a UDP port is in use, or the assignment is inconsistent.
        """
        rig_ports = assignment.ports
        spread = spread_queues(assignment)
        assignment = spread.assignment
        captures = plan_capture(assignment, capture)
        processors = threads.cores or assignment.threads.cores or tuple(_native.usable_processors())
        loop_ports = _ports_of_loops(assignment)
        thread_plan = plan_threads(threads, assignment.threads, len(loop_ports), processors)
        try:
            libraries = libraries_for(assignment)
            loops = _native.PortLoops(
                assignment, thread_plan, captures, libraries, loop_limits(limits, spread.port_of)
            )
        except (RuntimeError, ValueError, OverflowError) as error:
            problem, _, remedy = str(error).partition("; ")
            raise RigError(
                Problem("engine", problem, remedy or "correct the rig file or free the resource")
            ) from None
        degraded = [
            f"port {port.name}: the receive buffer is {size} bytes, windows are small; "
            f"sysctl -w net.core.rmem_max={64 << 20}"
            for index, port in enumerate(loop_ports)
            if 0 <= (size := loops.receive_buffer_bytes(index)) < AMPLE_RECEIVE_BUFFER_BYTES
        ]
        degraded += [
            f"port {port.name}: {problem}"
            for index, port in enumerate(loop_ports)
            for problem in loops.degraded(index)
        ]
        degraded += captures.degraded
        degraded += [
            f"port {port.name}: {port.engine_threads} queues on {len(processors)} cores share time; "
            f"write queues: {len(processors)} or less"
            for port in rig_ports
            if port.engine_threads > len(processors)
        ]
        degraded += [*thread_plan.degraded, *threads.degraded, *limits.degraded_notes()]
        try:
            streams = UdpStreams(assignment.streams, limits)
            frames = FrameStreams(assignment.frames, rig_ports)
        except RigError:
            loops.close()
            raise
        return Engine(spread, loops, tuple(dict.fromkeys(degraded)), streams, thread_plan, frames)

    @property
    def processors(self) -> tuple[int, ...]:
        """Return the core of each loop; empty if the loops are not pinned."""
        return self._threads.processors

    @property
    def realtime(self) -> bool:
        """Return whether all loops have real-time priority, which has to be requested and permitted."""
        return all(self._loops.realtime(loop) for loop in range(self._loops.ports()))

    @property
    def ends(self) -> tuple[QueuePairEnd, ...]:
        """Return the queue pair ends on NICs; the agents at their other ends need them for `join`."""
        return tuple(QueuePairEnd(*end) for end in self._loops.endpoints())

    def join(self, peers: tuple[QueuePairEnd, ...]) -> None:
        """Connect queue pairs with their peer ends on NICs. Call it before `start_probe` if either end is on a NIC."""
        self._loops.join(
            [
                (end.connection, end.queue_pair, end.sends_data, end.qpn, end.address, end.key, end.closings)
                for end in peers
            ]
        )

    @property
    def joined(self) -> bool:
        """Return whether every port has completed `join`; true if it was not called. A failure shows in `status`."""
        return all(self._loops.joined(loop) for loop in range(self._loops.ports()))

    def start_probe(self) -> None:
        """Start to probe every queue pair that sends data, and every receiver of plain UDP."""
        self._streams.start_probe()
        self._loops.start_probe()

    def probe_outcomes(self) -> tuple[ProbeOutcome, ...] | None:
        """Return one outcome per probed queue pair; None while probes run. `status` shows a failed probe of a stream."""
        if not self._streams.is_answered or any(
            EnginePhase(port[0]) in (EnginePhase.OPEN, EnginePhase.PROBING) for port in self._loops.status()
        ):
            return None
        return tuple(self._probe_outcome(*probe) for probe in self._loops.probes())

    def _probe_outcome(
        self, connection: int, ordinal: int, verdict: int, seen_class: int, round_trip_ns: int
    ) -> ProbeOutcome:
        """Convert one native probe result to a `ProbeOutcome`."""
        transport = self._assignment.transport
        sent_class = self._class_of(connection)
        problems = {
            _Verdict.GOOD: "",
            _Verdict.PENDING: "not probed",
            _Verdict.NO_REPLY: f"no reply to probes of {transport.path_mtu_bytes} payload bytes",
            _Verdict.ONLY_SHORT: (
                f"no reply to probes of {transport.path_mtu_bytes} payload bytes, but to shorter ones: a device on the path "
                "drops frames of full size (MTU)"
            ),
            _Verdict.WRONG_TRAFFIC_CLASS: (
                f"sent with traffic class {sent_class:#04x}, arrived with {seen_class:#04x}"
            ),
            _Verdict.TOO_LARGE: f"the local interface does not carry a path MTU of {transport.path_mtu_bytes} bytes",
        }
        problem = problems[_Verdict(verdict)]
        row = int(self._assignment.connections.qp_offsets[connection]) + ordinal
        return ProbeOutcome(connection, row, problem == "", round_trip_ns, problem)

    def _class_of(self, connection: int) -> int:
        """Return the traffic class of packets sent on a connection."""
        src_rank = int(self._assignment.connections.src_rank[connection])
        rank_class = next(
            (rank.traffic_class for rank in self._assignment.ranks if rank.rank == src_rank), -1
        )
        return rank_class if rank_class >= 0 else self._assignment.transport.traffic_class

    def expect_posts(self, signal_fd: int) -> None:
        """Let the ops of all awaited ranks be posted, and add to an event descriptor whenever some complete; before `start`."""
        self._loops.expect_posts(signal_fd)

    def post(self, posts: NDArray[np.void], *, last: bool) -> None:
        """Begin the SENDs and RECVs of POST_RECORD rows; `last`: no more will follow. Raises `ValueError` for other ops."""
        self._loops.post(posts.tolist(), last)

    def start(self, start_ns: int) -> None:
        """Start all ranks and streams at `start_ns` of this machine's monotonic clock."""
        self._loops.start(start_ns)
        self._streams.start(start_ns)
        self._frames.start(start_ns)

    def status(self) -> EngineStatus:
        """Return the current state of the run; after `stop`, the state in which it was stopped."""
        if self._last is not None:
            return replace(self._last, frames=self._frames.counts())
        ports = self._loops.status()
        phases = [EnginePhase(port[0]) for port in ports]
        failed = next((port for port in ports if EnginePhase(port[0]) is EnginePhase.FAILED), None)
        failure = failed[6] if failed else self._streams.failure or self._frames.failure
        phase = EnginePhase.FAILED if failure or failed else min(phases, key=lambda phase: phase.value)
        last_progress_ns = max(port[5] for port in ports)
        if phase is EnginePhase.DONE and not self._frames.is_done:
            # Frames are sent by the clock, so that a pause between them is not a stall.
            phase, last_progress_ns = EnginePhase.RUNNING, time.monotonic_ns()
        return EngineStatus(
            phase=phase,
            ops_done=sum(port[1] for port in ports),
            ops_total=sum(port[2] for port in ports),
            wire_tx_bytes=sum(port[3] for port in ports),
            wire_rx_bytes=sum(port[4] for port in ports),
            last_progress_ns=last_progress_ns,
            failure=failure,
            threads=tuple(ThreadBytes(port[3], port[4]) for port in ports),
            frames=self._frames.counts(),
        )

    def take_records(self) -> NDArray[np.void]:
        """Return the ops completed since the last call as OP_RECORD rows, and release them in the engine.

        Returns at most `MOST_TAKEN` rows per loop while the engine runs.
        """
        most = 1 << 62 if self._stopped else MOST_TAKEN
        batches = []
        for port, first_row in enumerate(self._taken):
            batch = rows(self._loops.records(port, first_row, most), OP_RECORD)
            self._taken[port] += len(batch)
            batches.append(batch)
        return np.concatenate(batches)

    def request_waits(self) -> None:
        """Request from every loop what its unfinished ops wait for."""
        self._waits = [None] * self._loops.ports()
        self._loops.request_waits()

    def take_waits(self) -> NDArray[np.void] | None:
        """Return the requested waits as WAIT_RECORD rows, or None until every loop has answered (within one turn)."""
        for port, answer in enumerate(self._waits):
            if answer is None and (raw := self._loops.take_waits(port)) is not None:
                self._waits[port] = rows(raw, WAIT_RECORD)
        answered = [waits for waits in self._waits if waits is not None]
        if not answered or len(answered) < len(self._waits):
            return None
        self._waits = []
        return rows(_native.settle_waits(np.concatenate(answered).tobytes()), WAIT_RECORD)

    def flows(self) -> NDArray[np.void]:
        """Return the counters of every queue pair end as FLOW_RECORD rows. Stops the loops."""
        return self._all_rows(self._loops.flows, FLOW_RECORD)

    def ports(self) -> NDArray[np.void]:
        """Return one PORT_RECORD row per port of the rig, summed over its queues. Stops the loops."""
        return gather_counters(self._all_rows(self._loops.counters, PORT_RECORD), self._port_of)

    def _all_rows(self, read: Callable[[int], bytes], layout: np.dtype[np.void]) -> NDArray[np.void]:
        """Stop the loops and return the records of all of them."""
        self.stop()
        return np.concatenate([rows(read(loop), layout) for loop in range(self._loops.ports())])

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Return which optional host features the ports use, such as departure times, and why others are unavailable."""
        return tuple(
            dict.fromkeys(
                f"port {port.name}: {capability}"
                for loop, port in enumerate(_ports_of_loops(self._assignment))
                for capability in self._loops.capabilities(loop)
            )
        )

    def rates(self) -> NDArray[np.void]:
        """Return rates and windows over time as CC_RECORD rows, if the assignment records them. Stops the loops."""
        return self._all_rows(self._loops.rates, CC_RECORD)

    def late_turns(self) -> NDArray[np.int64]:
        """Return late turns of all loops as rows (due time, actual time) in ns: int64, shape (n, 2). Stops the loops."""
        self.stop()
        late = [turn for loop in range(self._loops.ports()) for turn in self._loops.late_turns(loop)]
        return np.array(late, np.int64).reshape(-1, 2)

    def streams(self) -> tuple[StreamCount, ...]:
        """Return the counts of all plain UDP stream ends. Stops the loops."""
        self.stop()
        return self._streams.counts()

    def captures(self) -> dict[int, bytes]:
        """Return the frames received by each captured port, as records of a pcap file. Stops the loops."""
        self.stop()
        return self._frames.captures()

    def turnarounds(self) -> tuple[tuple[int, int], ...]:
        """Return the histogram of turnaround times: (lower bound of the bucket in ns, count). Stops the loops.

        A turnaround lasts from the arrival of a message's last packet at this host to the return of the call that sent
        the first packet of a message it released, in the same op or in one that waited for it.
        """
        self.stop()
        return tuple(self._loops.turnarounds())

    def turnaround_parts(self) -> dict[TurnaroundPart, tuple[tuple[int, int], ...]]:
        """Return the histograms of the parts of turnarounds, as `turnarounds` does. Stops the loops.

        Turnarounds that begin on one queue of a port and end on another have no parts.
        """
        self.stop()
        histograms = self._loops.turnaround_parts()
        return {part: tuple(counts) for part, counts in zip(TurnaroundPart, histograms, strict=True)}

    def stop(self) -> None:
        """Stop the loops and join their threads; may be called again."""
        if self._stopped:
            return
        self._last = self.status()
        self._stopped = True
        self._streams.stop()
        self._frames.stop()
        self._loops.stop()

    def close(self) -> None:
        """Stop the loops and close the sockets; afterwards only `status`, `stop` and `close` may be called."""
        self.stop()
        self._streams.close()
        self._frames.close()
        self._loops.close()


def _ports_of_loops(assignment: Assignment) -> tuple[PortSettings, ...]:
    """Return the port of each loop; for a NIC with several planes, its first port."""
    return tuple(port for port in assignment.ports if port.plane == 0)
