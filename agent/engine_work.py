"""The engine of one run, and the calls into it that may take long: built, handed over and closed on a worker thread.

One state says which of them is under way; the transition table is below. What is ordered when is the life's to decide, and
when to look is service.py's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, Final, TypeVar

import numpy as np
from etloop.agent.engine_protocol import Engine
from etloop.agent.lifecycle_actions import HandedOver
from etloop.contract.base.errors import InputError, Problem
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.records import OP_RECORD
from etloop.contract.protocol.machine import advance
from etloop.contract.protocol.messages import EngineEnd
from etloop.runtime.garbage_collection import collect_cycles
from numpy.typing import NDArray

T = TypeVar("T")

ENGINE_ERRORS: Final = (Exception,)
"""What an engine raises, at its import or later, when something fails that it does not report as its state: anything, such as
what a controller of another build asks of it. It ends a run by name, and not the agent."""
_ENDS: Final = {EnginePhase.DONE: EngineEnd.DONE, EnginePhase.FAILED: EngineEnd.FAILED}
_log = logging.getLogger("etloop.agent")


class EngineState(Enum):
    """Where the engine stands."""

    NONE = auto()
    OPENING = auto()
    """It is being built."""
    OPEN = auto()
    """It is there, and no traffic was ordered."""
    STARTED = auto()
    HANDING_OVER = auto()
    """It is being stopped, emptied and closed."""


class EngineEvent(Enum):
    """What moves it on."""

    OPEN_ORDERED = auto()
    OPENED = auto()
    OPEN_FAILED = auto()
    START_ORDERED = auto()
    HAND_OVER_ORDERED = auto()
    HANDED_OVER = auto()
    CLOSE_ORDERED = auto()
    """Nobody wants it or what it measured; what the worker is at ends by itself."""


ENGINE_TRANSITIONS: Final[Mapping[EngineState, Mapping[EngineEvent, EngineState]]] = {
    EngineState.NONE: {
        EngineEvent.OPEN_ORDERED: EngineState.OPENING,
        # Of a run whose engine could not be built the controller still collects that there is nothing.
        EngineEvent.HAND_OVER_ORDERED: EngineState.HANDING_OVER,
        EngineEvent.CLOSE_ORDERED: EngineState.NONE,
    },
    EngineState.OPENING: {
        EngineEvent.OPENED: EngineState.OPEN,
        EngineEvent.OPEN_FAILED: EngineState.NONE,
        EngineEvent.CLOSE_ORDERED: EngineState.NONE,
    },
    EngineState.OPEN: {
        EngineEvent.START_ORDERED: EngineState.STARTED,
        EngineEvent.HAND_OVER_ORDERED: EngineState.HANDING_OVER,
        EngineEvent.CLOSE_ORDERED: EngineState.NONE,
    },
    EngineState.STARTED: {
        EngineEvent.HAND_OVER_ORDERED: EngineState.HANDING_OVER,
        EngineEvent.CLOSE_ORDERED: EngineState.NONE,
    },
    EngineState.HANDING_OVER: {
        EngineEvent.HANDED_OVER: EngineState.NONE,
        EngineEvent.CLOSE_ORDERED: EngineState.NONE,
    },
}
_WITH_ENGINE: Final = frozenset({EngineState.OPEN, EngineState.STARTED})


class EngineWork:
    """The engine of a slot, if it has one."""

    def __init__(self) -> None:
        self.state = EngineState.NONE
        self._engine: Engine
        """In OPEN and STARTED."""
        self._opening: Future[Engine]
        """In OPENING."""
        self._handing: Future[HandedOver]
        """In HANDING_OVER."""
        self._closing: set[Future[Any]] = set()
        """What the worker still closes, of runs that nobody waits for."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")

    @property
    def has_engine(self) -> bool:
        """Whether there is one to be asked."""
        return self.state in _WITH_ENGINE

    @property
    def engine(self) -> Engine:
        """The engine, where there is one."""
        assert self.has_engine, f"there is no engine while {self.state.name}"
        return self._engine

    @property
    def is_closing(self) -> bool:
        """Whether an engine that nobody waits for may still hold its ports."""
        self._closing = {job for job in self._closing if not job.done()}
        return bool(self._closing)

    def run(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        """Runs a call on the worker, after those before it."""
        return self._worker.submit(call, *arguments)

    def open(self, build: Callable[[], Engine]) -> None:
        """Has an engine built."""
        self._advance(EngineEvent.OPEN_ORDERED)
        self._opening = self.run(build)

    @property
    def is_opened(self) -> bool:
        """Whether building it has ended, for good or ill."""
        return self.state is EngineState.OPENING and self._opening.done()

    def take_opened(self) -> Engine:
        """The engine that was built. Raises what building it raised."""
        opening = self._opening
        del self._opening
        if opening.exception() is not None:
            self._advance(EngineEvent.OPEN_FAILED)
            return opening.result()
        self._advance(EngineEvent.OPENED)
        self._engine = opening.result()
        return self._engine

    def start(self, start_ns: int) -> None:
        """Starts its traffic. Raises what the engine raises, which then is as it was."""
        self.engine.start(start_ns)
        self._advance(EngineEvent.START_ORDERED)

    def take_records(self) -> NDArray[np.void]:
        """Ops completed since the last call."""
        return self.engine.take_records() if self.state is EngineState.STARTED else np.empty(0, OP_RECORD)

    def hand_over(self) -> None:
        """Has it stopped, emptied and closed."""
        if self.has_engine:
            handing = self.run(_hand_over, self._engine, self.state is EngineState.STARTED)
            del self._engine
        else:
            handing = self.run(lambda: _NOTHING_MEASURED)
        self._advance(EngineEvent.HAND_OVER_ORDERED)
        self._handing = handing

    @property
    def is_handed_over(self) -> bool:
        """Whether what it left is there."""
        return self.state is EngineState.HANDING_OVER and self._handing.done()

    def take_handed_over(self) -> HandedOver:
        """What it left."""
        handing = self._handing
        del self._handing
        self._advance(EngineEvent.HANDED_OVER)
        return handing.result()

    def close(self) -> None:
        """Gives it up, whatever it is at; `closed` tells when it is gone."""
        match self.state:
            case EngineState.OPEN | EngineState.STARTED:
                self._closing.add(self.run(self._engine.close))
                del self._engine
            case EngineState.OPENING:
                # The worker is busy with it; this runs right after, when the engine exists or has failed to.
                self._closing.add(self.run(_close_opened, self._opening))
                del self._opening
            case EngineState.HANDING_OVER:
                self._closing.add(self._handing)
                del self._handing
            case EngineState.NONE:
                pass
        self._advance(EngineEvent.CLOSE_ORDERED)
        collect_cycles()

    async def closed(self, timeout_s: float) -> None:
        """Waits for what is being closed."""
        if self._closing:
            await asyncio.wait([asyncio.wrap_future(job) for job in self._closing], timeout=timeout_s)

    async def end(self, timeout_s: float) -> None:
        """Closes all, and the worker."""
        self.close()
        await self.closed(timeout_s)
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _advance(self, event: EngineEvent) -> None:
        self.state = advance("engine", ENGINE_TRANSITIONS, self.state, event)


def engine_problem(error: Exception) -> Problem:
    """An engine that failed in an unforeseen way."""
    return Problem("engine", f"{type(error).__name__}: {error}", "see the agent's log and report it")


def _close_opened(opening: Future[Engine]) -> None:
    with contextlib.suppress(InputError, *ENGINE_ERRORS):
        opening.result().close()


_NOTHING_MEASURED: Final = HandedOver(EngineEnd.NEVER_STARTED, "")


def _hand_over(engine: Engine, started: bool) -> HandedOver:
    """Stops and closes the engine; what it measured, if it ever started."""
    try:
        if not started:
            return _NOTHING_MEASURED
        status = engine.status()
        end = _ENDS.get(status.phase, EngineEnd.STOPPED)
        engine.stop()
        records, counters = engine.take_records(), (engine.flows(), engine.ports(), engine.rates())
        return HandedOver(end, status.failure, records, *counters, engine.streams())
    except ENGINE_ERRORS as error:
        _log.exception("the engine failed while handing over")
        return HandedOver(EngineEnd.FAILED, str(engine_problem(error)))
    finally:
        engine.close()
