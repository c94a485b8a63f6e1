"""An engine that sends nothing: completes ops on a schedule, or misbehaves as told. Also a program: an agent with it.

python tests/support/control_plane/fake_engine.py BEHAVIOUR AGENT-ARGUMENTS...
"""

from __future__ import annotations

import sys
import time
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from etloop.agent.cli import main
from etloop.contract.base.errors import ExitCode, Problem, RigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome
from etloop.contract.model.records import (
    CC_RECORD,
    FLOW_RECORD,
    OP_RECORD,
    PORT_RECORD,
    WAIT_RECORD,
    StreamCount,
    WaitKind,
)
from etloop.contract.protocol.messages import QueuePairEnd

OP_NS = 20_000_000
"""Time one op takes."""


class Behaviour(Enum):
    GOOD = "good"
    STALL = "stall"
    """Half of the ops complete, the next one waits for an acknowledgement for ever."""
    FAIL = "fail"
    """Fails after half of the ops."""
    NO_PROBE = "no-probe"
    NO_OPEN = "no-open"
    CRASH = "crash"
    """Raises what native code would when it is asked to start."""


class FakeEngine:
    degraded = ("it is a fake",)
    capabilities = ("it can be anything",)
    ends: tuple[QueuePairEnd, ...] = ()

    def __init__(self, assignment: Assignment, behaviour: Behaviour) -> None:
        if behaviour is Behaviour.NO_OPEN:
            raise RigError(
                Problem("address 10.0.0.9", "is not on this host", "correct the rig file"),
                Problem("port 4791", "is taken", "stop the other agent"),
            )
        self._assignment = assignment
        self._behaviour = behaviour
        self._state = EnginePhase.OPEN
        self._start_ns = 0
        self._taken = 0
        self._per_iteration = len(assignment.programs[0].kind)
        self._total = assignment.iterations * self._per_iteration

    def join(self, peers: tuple[QueuePairEnd, ...]) -> None:
        raise AssertionError(f"a fake has no ends on cards: {peers}")

    @property
    def joined(self) -> bool:
        return True

    def start_probe(self) -> None:
        self._state = EnginePhase.PROBING

    def probe_outcomes(self) -> tuple[ProbeOutcome, ...] | None:
        self._state = EnginePhase.READY
        good = self._behaviour is not Behaviour.NO_PROBE
        problem = "" if good else "no reply to 5 probes of 4096 bytes"
        return (ProbeOutcome(0, 0, good, 12_000, problem), ProbeOutcome(1, 1, True, 9_000, ""))

    def expect_posts(self, signal_fd: int) -> None:
        raise AssertionError(f"a fake executes its program and signals nothing to {signal_fd}")

    def post(self, posts: NDArray[np.void], *, last: bool) -> None:
        raise AssertionError(f"a fake executes its program: {len(posts)} posts, last {last}")

    def start(self, start_ns: int) -> None:
        if self._behaviour is Behaviour.CRASH:
            raise RuntimeError("bad_alloc")
        self._state = EnginePhase.RUNNING
        self._start_ns = start_ns

    def _done(self) -> int:
        passed = max(0, (time.monotonic_ns() - self._start_ns) // OP_NS)
        limit = self._total if self._behaviour is Behaviour.GOOD else self._total // 2
        return min(limit, passed)

    def status(self) -> EngineStatus:
        done = self._done() if self._start_ns else 0
        if self._state is EnginePhase.RUNNING and done == self._total:
            self._state = EnginePhase.DONE
        failing = self._behaviour is Behaviour.FAIL and done == self._total // 2
        if self._state is EnginePhase.RUNNING and failing:
            self._state = EnginePhase.FAILED
        failure = ""
        if self._state is EnginePhase.FAILED:
            failure = "queue pair 0x100 of rank 0 -> rank 1: no acknowledgement after 7 retries"
        progress_ns = self._start_ns + done * OP_NS
        return EngineStatus(self._state, done, self._total, done * 4096, done * 4096, progress_ns, failure)

    def take_records(self) -> NDArray[np.void]:
        done = self._done()
        records = np.zeros(done - self._taken, OP_RECORD)
        number = np.arange(self._taken, done)
        records["op"] = number % self._per_iteration
        records["iteration"] = number // self._per_iteration
        records["rank"] = self._assignment.ranks[0].rank
        records["completed_ns"] = self._start_ns + (number + 1) * OP_NS
        self._taken = done
        return records

    def request_waits(self) -> None:
        pass

    def take_waits(self) -> NDArray[np.void] | None:
        waits = np.zeros(1, WAIT_RECORD)
        rank, op = self._assignment.ranks[0].rank, self._done() % self._per_iteration
        # Rank 0 alone sees the broken link; the others wait for their predecessor in the ring.
        kind = WaitKind.ACKNOWLEDGEMENT if rank == 0 else WaitKind.DATA
        connections = self._assignment.connections
        peer_column, own_column = (
            (connections.dst_rank, connections.src_rank)
            if rank == 0
            else (connections.src_rank, connections.dst_rank)
        )
        row = int(np.flatnonzero(own_column == rank)[0])
        waits[0] = (rank, op, 0, kind, peer_column[row], -1, row, 1, 4, 17)
        return waits

    def flows(self) -> NDArray[np.void]:
        flows = np.zeros(2, FLOW_RECORD)
        flows["tx_messages"] = self._done()
        return flows

    def ports(self) -> NDArray[np.void]:
        return np.zeros(1, PORT_RECORD)

    def streams(self) -> tuple[StreamCount, ...]:
        return ()

    def captures(self) -> dict[int, bytes]:
        return {}

    def rates(self) -> NDArray[np.void]:
        return np.empty(0, CC_RECORD)

    def stop(self) -> None:
        if self._state is not EnginePhase.FAILED:
            self._state = EnginePhase.STOPPED

    def close(self) -> None:
        self.stop()


def run(arguments: list[str]) -> ExitCode:
    behaviour = Behaviour(arguments[0])
    return main(arguments[1:], open_engine=lambda assignment: FakeEngine(assignment, behaviour))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
