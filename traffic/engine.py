"""One agent's engine: the native port loops behind typed values. Leaves everything that happens per packet, message or op
to `traffic/native`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import numpy as np
from etloop.contract.base.errors import Problem, RigError
from etloop.contract.model.assignment import Assignment, PortSettings
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome, ThreadBytes
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
from etloop.traffic.send_limits import UNLIMITED, SendLimits, loop_limits
from etloop.traffic.threads.loop_threads import ORDINARY, UNPLANNED, LoopThreads, ThreadPlan, plan_threads
from etloop.traffic.threads.port_queues import Spread, gather_counters, spread_queues
from etloop.traffic.udp_streams import UdpStreams
from numpy.typing import NDArray

MOST_TAKEN: Final = 1 << 17
"""Records that a look at a loop copies at most (11 MiB): of an agent whose controller is slow the others wait in the loop."""
AMPLE_RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Below this, windows shrink so much that the rate may suffer."""


class _Verdict(Enum):
    """`ProbeVerdict` of traffic/native/core/packets/probe.h."""

    PENDING = 0
    GOOD = 1
    NO_REPLY = 2
    WRONG_TRAFFIC_CLASS = 3
    TOO_LARGE = 4


class Engine:
    """The engine of one assignment: open, probe, start, watch, stop, read what it counted."""

    def __init__(
        self,
        spread: Spread,
        loops: _native.PortLoops,
        degraded: tuple[str, ...],
        streams: UdpStreams | None = None,
        threads: ThreadPlan = UNPLANNED,
    ) -> None:
        self._assignment = spread.assignment
        self._port_of = spread.port_of
        self._streams = streams or UdpStreams(())
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
        """Binds the ports' addresses and builds all queue pairs. `capture` allows packets to be kept (`plan_capture`),
        and `limits` hold whatever the assignment asks for.

        Raises RigError if an address is not here, a UDP port is taken, or the assignment does not hold together.
        """
        asked = assignment.ports
        spread = spread_queues(assignment)
        assignment = spread.assignment
        kept = plan_capture(assignment, capture)
        processors = threads.cores or assignment.threads.cores or tuple(_native.usable_processors())
        carried = _carried(assignment)
        planned = plan_threads(threads, assignment.threads, len(carried), processors)
        try:
            libraries = libraries_for(assignment)
            loops = _native.PortLoops(
                assignment, planned, kept, libraries, loop_limits(limits, spread.port_of)
            )
        except (RuntimeError, ValueError, OverflowError) as error:
            what, _, remedy = str(error).partition("; ")
            raise RigError(
                Problem("engine", what, remedy or "correct the rig file or free the resource")
            ) from None
        degraded = [
            f"port {port.name}: the receive buffer is {size} bytes, windows are small; "
            f"sysctl -w net.core.rmem_max={64 << 20}"
            for index, port in enumerate(carried)
            if 0 <= (size := loops.receive_buffer_bytes(index)) < AMPLE_RECEIVE_BUFFER_BYTES
        ]
        degraded += [
            f"port {port.name}: {what}"
            for index, port in enumerate(carried)
            for what in loops.degraded(index)
        ]
        degraded += kept.degraded
        degraded += [
            f"port {port.name}: {port.engine_threads} queues on {len(processors)} cores take turns; "
            f"write queues: {len(processors)} or less"
            for port in asked
            if port.engine_threads > len(processors)
        ]
        degraded += [*planned.degraded, *threads.degraded, *limits.degraded()]
        try:
            streams = UdpStreams(assignment.streams, limits)
        except RigError:
            loops.close()
            raise
        return Engine(spread, loops, tuple(dict.fromkeys(degraded)), streams, planned)

    @property
    def processors(self) -> tuple[int, ...]:
        """Of each loop; none where they are not held on any."""
        return self._threads.processors

    @property
    def realtime(self) -> bool:
        """Whether the loops are real-time, every one of them: it was asked for and permitted."""
        return all(self._loops.realtime(loop) for loop in range(self._loops.ports()))

    @property
    def ends(self) -> tuple[QueuePairEnd, ...]:
        """Queue pair ends on network cards, which the agents at their other ends must be told of."""
        return tuple(QueuePairEnd(*end) for end in self._loops.endpoints())

    def join(self, peers: tuple[QueuePairEnd, ...]) -> None:
        """Tells of the peers that are on network cards; before `start_probe`, where either end is on one."""
        self._loops.join(
            [
                (end.connection, end.queue_pair, end.sends_data, end.qpn, end.address, end.key, end.closings)
                for end in peers
            ]
        )

    @property
    def joined(self) -> bool:
        """Whether every port has done what `join` asked for; true where it was not asked. A failure shows in `status`."""
        return all(self._loops.joined(loop) for loop in range(self._loops.ports()))

    def start_probe(self) -> None:
        """Begins probing every queue pair that sends data, and every receiver of plain UDP."""
        self._streams.start_probe()
        self._loops.start_probe()

    def probe_outcomes(self) -> tuple[ProbeOutcome, ...] | None:
        """One outcome per probed queue pair, None while probes are under way; a stream's that fails shows in `status`."""
        if not self._streams.is_answered or any(
            EnginePhase(port[0]) in (EnginePhase.OPEN, EnginePhase.PROBING) for port in self._loops.status()
        ):
            return None
        return tuple(self._probe_outcome(*probe) for probe in self._loops.probes())

    def _probe_outcome(
        self, connection: int, ordinal: int, verdict: int, seen_class: int, round_trip_ns: int
    ) -> ProbeOutcome:
        transport = self._assignment.transport
        sent_class = self._class_of(connection)
        problems = {
            _Verdict.GOOD: "",
            _Verdict.PENDING: "not probed",
            _Verdict.NO_REPLY: f"no reply to probes of {transport.path_mtu_bytes} payload bytes",
            _Verdict.WRONG_TRAFFIC_CLASS: (
                f"sent with traffic class {sent_class:#04x}, arrived with {seen_class:#04x}"
            ),
            _Verdict.TOO_LARGE: f"the local interface does not carry a path MTU of {transport.path_mtu_bytes} bytes",
        }
        problem = problems[_Verdict(verdict)]
        row = int(self._assignment.connections.qp_offsets[connection]) + ordinal
        return ProbeOutcome(connection, row, problem == "", round_trip_ns, problem)

    def _class_of(self, connection: int) -> int:
        """Traffic class of what is sent on a connection."""
        src_rank = int(self._assignment.connections.src_rank[connection])
        own = next((rank.traffic_class for rank in self._assignment.ranks if rank.rank == src_rank), -1)
        return own if own >= 0 else self._assignment.transport.traffic_class

    def start(self, start_ns: int) -> None:
        """Lets every rank begin at `start_ns` of this machine's monotonic clock."""
        self._loops.start(start_ns)
        self._streams.start(start_ns)

    def status(self) -> EngineStatus:
        """The state of the run now; after `stop` the state it was stopped in."""
        if self._last is not None:
            return self._last
        ports = self._loops.status()
        phases = [EnginePhase(port[0]) for port in ports]
        failed = next((port for port in ports if EnginePhase(port[0]) is EnginePhase.FAILED), None)
        failure = failed[6] if failed else self._streams.failure
        phase = EnginePhase.FAILED if failure or failed else min(phases, key=lambda each: each.value)
        return EngineStatus(
            phase=phase,
            ops_done=sum(port[1] for port in ports),
            ops_total=sum(port[2] for port in ports),
            wire_tx_bytes=sum(port[3] for port in ports),
            wire_rx_bytes=sum(port[4] for port in ports),
            last_progress_ns=max(port[5] for port in ports),
            failure=failure,
            threads=tuple(ThreadBytes(port[3], port[4]) for port in ports),
        )

    def take_records(self) -> NDArray[np.void]:
        """Ops completed since the last call, as OP_RECORD rows; the engine lets go of them.

        Of a loop that runs `MOST_TAKEN` at most.
        """
        most = 1 << 62 if self._stopped else MOST_TAKEN
        batches = []
        for port, taken in enumerate(self._taken):
            batch = rows(self._loops.records(port, taken, most), OP_RECORD)
            self._taken[port] += len(batch)
            batches.append(batch)
        return np.concatenate(batches)

    def request_waits(self) -> None:
        """Asks every loop what its unfinished ops wait for."""
        self._waits = [None] * self._loops.ports()
        self._loops.request_waits()

    def take_waits(self) -> NDArray[np.void] | None:
        """The answer as WAIT_RECORD rows, None until every loop has given it (within one turn)."""
        for port, known in enumerate(self._waits):
            if known is None and (raw := self._loops.take_waits(port)) is not None:
                self._waits[port] = rows(raw, WAIT_RECORD)
        answered = [waits for waits in self._waits if waits is not None]
        if not answered or len(answered) < len(self._waits):
            return None
        self._waits = []
        return rows(_native.settle_waits(np.concatenate(answered).tobytes()), WAIT_RECORD)

    def flows(self) -> NDArray[np.void]:
        """Counters of every queue pair end as FLOW_RECORD rows. Stops the loops."""
        return self._all_rows(self._loops.flows, FLOW_RECORD)

    def ports(self) -> NDArray[np.void]:
        """One PORT_RECORD row per port of the rig, its queues added up. Stops the loops."""
        return gather_counters(self._all_rows(self._loops.counters, PORT_RECORD), self._port_of)

    def _all_rows(self, read: Callable[[int], bytes], layout: np.dtype[np.void]) -> NDArray[np.void]:
        """Records of all loops, which are stopped."""
        self.stop()
        return np.concatenate([rows(read(loop), layout) for loop in range(self._loops.ports())])

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the ports have of what a host may offer or not, such as departure times, and why not."""
        return tuple(
            dict.fromkeys(
                f"port {port.name}: {what}"
                for loop, port in enumerate(_carried(self._assignment))
                for what in self._loops.capabilities(loop)
            )
        )

    def rates(self) -> NDArray[np.void]:
        """Rates and windows over time as CC_RECORD rows, where the assignment asks for them. Stops the loops."""
        return self._all_rows(self._loops.rates, CC_RECORD)

    def late_turns(self) -> NDArray[np.int64]:
        """When a loop would have taken a turn and did not, and when it did: rows of both, by loop. Stops the loops."""
        self.stop()
        late = [turn for loop in range(self._loops.ports()) for turn in self._loops.late_turns(loop)]
        return np.array(late, np.int64).reshape(-1, 2)

    def streams(self) -> tuple[StreamCount, ...]:
        """What the ends of plain UDP counted. Stops the loops."""
        self.stop()
        return self._streams.counts()

    def turnarounds(self) -> tuple[tuple[int, int], ...]:
        """Histogram of turnaround times: (least nanoseconds of the bucket, count). Stops the loops.

        A turnaround lasts from the arrival of a message's last packet at this host to the return of the call that sent
        the first packet of a message it released, in the same op or in one that waited for it.
        """
        self.stop()
        return tuple(self._loops.turnarounds())

    def stop(self) -> None:
        """Ends the loops and joins their threads; may be called again."""
        if self._stopped:
            return
        self._last = self.status()
        self._stopped = True
        self._streams.stop()
        self._loops.stop()

    def close(self) -> None:
        """Stops and gives the sockets back; only `status`, `stop` and `close` answer after."""
        self.stop()
        self._streams.close()
        self._loops.close()


def _carried(assignment: Assignment) -> tuple[PortSettings, ...]:
    """The port of each loop; of a card with several planes its first."""
    return tuple(port for port in assignment.ports if port.plane == 0)
