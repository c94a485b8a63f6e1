"""Many agents in one process, as far as their controller can tell: real connections and real lives, engines that send nothing.

python -m tests.support.control_plane.many_agents ENDPOINT FIRST COUNT        agents n0000, n0001, ... from number FIRST on
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

from etloop.agent.service import AgentSettings, serve
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.engine import EnginePhase, EngineStatus
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD
from etloop.workload.trace.program import OpKind
from tests.support.control_plane.fake_engine import Behaviour, FakeEngine

RUN_NS = 2_000_000_000
"""Time in which an engine completes all of its ops, evenly."""


class WholeEngine(FakeEngine):
    """Completes every op of all of its ranks."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment, Behaviour.GOOD)
        parts = []
        for rank in assignment.ranks:
            ops = np.flatnonzero(assignment.programs[rank.program].kind != OpKind.DELAY)
            part = np.zeros(len(ops) * assignment.iterations, OP_RECORD)
            part["rank"] = rank.rank
            part["op"] = np.tile(ops, assignment.iterations)
            part["iteration"] = np.repeat(np.arange(assignment.iterations), len(ops))
            parts.append(part)
        self._ops = np.concatenate(parts)
        self._total = len(self._ops)

    def _done(self) -> int:
        passed_ns = max(0, time.monotonic_ns() - self._start_ns)
        return min(self._total, self._total * passed_ns // RUN_NS)

    def status(self) -> EngineStatus:
        done = self._done() if self._start_ns else 0
        if self._state is EnginePhase.RUNNING and done == self._total:
            self._state = EnginePhase.DONE
        return EngineStatus(self._state, done, self._total, 0, 0, time.monotonic_ns(), "")

    def take_records(self) -> NDArray[np.void]:
        done = self._done() if self._start_ns else 0
        records = self._ops[self._taken : done].copy()
        for name in ("intended_ns", "issued_ns", "first_tx_ns", "completed_ns"):
            records[name] = self._start_ns + (np.arange(self._taken, done) + 1) * RUN_NS // max(
                1, self._total
            )
        self._taken = done
        return records

    def flows(self) -> NDArray[np.void]:
        return np.zeros(len(self._assignment.connections.src_rank), FLOW_RECORD)


async def live(endpoint: str, first: int, count: int) -> None:
    """All of them, until the process is told to end, which the one hears that listened last."""
    names = [f"n{number:04}" for number in range(first, first + count)]
    lives = [asyncio.create_task(serve(AgentSettings(endpoint, name), WholeEngine)) for name in names]
    ended, _ = await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
    broken = [life for life in ended if life.exception() is not None]
    for life in broken:
        life.print_stack()
        sys.stderr.write(f"{life.exception()!r}\n")
    sys.stderr.flush()
    os._exit(1 if broken else 0)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    asyncio.run(live(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
