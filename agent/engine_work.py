"""Runs the engine of one run: calls that may take long (build, hand over, close) are made on a worker thread.

One state says which of them is under way; the transition table is below. The agent's life decides what is ordered when;
service.py decides when to poll.
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
from numpy.typing import NDArray

from etloop.agent.engine_protocol import Engine
from etloop.agent.lifecycle_actions import HandedOver
from etloop.contract.base.errors import InputError, Problem
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.records import OP_RECORD
from etloop.contract.protocol.machine import advance
from etloop.contract.protocol.messages import EngineEnd
from etloop.runtime.garbage_collection import collect_cycles

T = TypeVar("T")

ENGINE_ERRORS: Final = (Exception,)
"""Exceptions that an engine may raise, at import or later, for failures that it does not report as its state. Any type is
possible, for example after an order of a controller of another build. They fail the run, not the agent."""
_ENDS: Final = {EnginePhase.DONE: EngineEnd.DONE, EnginePhase.FAILED: EngineEnd.FAILED}
_log = logging.getLogger("etloop.agent")


class EngineState(Enum):
    """State of the engine."""

    NONE = auto()
    OPENING = auto()
    """The engine is being built."""
    OPEN = auto()
    """The engine is built; traffic was not started."""
    STARTED = auto()
    HANDING_OVER = auto()
    """The engine is being stopped, emptied and closed."""


class EngineEvent(Enum):
    """Events that change the state of the engine."""

    OPEN_ORDERED = auto()
    OPENED = auto()
    OPEN_FAILED = auto()
    START_ORDERED = auto()
    HAND_OVER_ORDERED = auto()
    HANDED_OVER = auto()
    CLOSE_ORDERED = auto()
    """The engine and its records are discarded; a call that the worker is making ends by itself."""


ENGINE_TRANSITIONS: Final[Mapping[EngineState, Mapping[EngineEvent, EngineState]]] = {
    EngineState.NONE: {
        EngineEvent.OPEN_ORDERED: EngineState.OPENING,
        # The controller also collects from an agent whose engine could not be built; it gets an empty result.
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
        """Set in OPEN and STARTED."""
        self._opening: Future[Engine]
        """Set in OPENING."""
        self._handing: Future[HandedOver]
        """Set in HANDING_OVER."""
        self._closing: set[Future[Any]] = set()
        """Abandoned engines that the worker is still closing."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")

    @property
    def has_engine(self) -> bool:
        """Return whether an engine is built and may be called."""
        return self.state in _WITH_ENGINE

    @property
    def engine(self) -> Engine:
        """Return the engine; asserts that there is one."""
        assert self.has_engine, f"no engine exists in state {self.state.name}"
        return self._engine

    @property
    def is_closing(self) -> bool:
        """Return whether a discarded engine may still hold its ports."""
        self._closing = {job for job in self._closing if not job.done()}
        return bool(self._closing)

    def run(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        """Run a call on the worker, after the calls submitted before it."""
        return self._worker.submit(call, *arguments)

    def open(self, build: Callable[[], Engine]) -> None:
        """Start building an engine on the worker."""
        self._advance(EngineEvent.OPEN_ORDERED)
        self._opening = self.run(build)

    @property
    def is_opened(self) -> bool:
        """Return whether building the engine has ended, with success or failure."""
        return self.state is EngineState.OPENING and self._opening.done()

    def take_opened(self) -> Engine:
        """Return the engine that was built. Raises whatever building it raised."""
        opening = self._opening
        del self._opening
        if opening.exception() is not None:
            self._advance(EngineEvent.OPEN_FAILED)
            return opening.result()
        self._advance(EngineEvent.OPENED)
        self._engine = opening.result()
        return self._engine

    def start(self, start_ns: int, signal_fd: int | None = None) -> None:
        """Start the traffic at `start_ns`; with an event descriptor, ops are posted, and completed ones signalled to it.

        Raises what the engine raises; the state then does not change.
        """
        if signal_fd is not None:
            self.engine.expect_posts(signal_fd)
        self.engine.start(start_ns)
        self._advance(EngineEvent.START_ORDERED)

    def take_records(self) -> NDArray[np.void]:
        """Return the records of ops completed since the last call (dtype `OP_RECORD`); empty before the start."""
        return self.engine.take_records() if self.state is EngineState.STARTED else np.empty(0, OP_RECORD)

    def hand_over(self) -> None:
        """Order the worker to stop the engine, read its records and counters, and close it."""
        if self.has_engine:
            handing = self.run(_hand_over, self._engine, self.state is EngineState.STARTED)
            del self._engine
        else:
            handing = self.run(lambda: _NOTHING_MEASURED)
        self._advance(EngineEvent.HAND_OVER_ORDERED)
        self._handing = handing

    @property
    def is_handed_over(self) -> bool:
        """Return whether the records and counters of the stopped engine can be taken."""
        return self.state is EngineState.HANDING_OVER and self._handing.done()

    def take_handed_over(self) -> HandedOver:
        """Return the records and counters of the stopped engine."""
        handing = self._handing
        del self._handing
        self._advance(EngineEvent.HANDED_OVER)
        return handing.result()

    def close(self) -> None:
        """Abandon the engine in any state; await `closed` for its end."""
        match self.state:
            case EngineState.OPEN | EngineState.STARTED:
                self._closing.add(self.run(self._engine.close))
                del self._engine
            case EngineState.OPENING:
                # The worker is still building it; this call runs next, when the engine exists or building it has failed.
                self._closing.add(self.run(_close_opened, self._opening))
                del self._opening
            case EngineState.HANDING_OVER:
                self._closing.add(self._handing)
                del self._handing
            case EngineState.NONE:
                pass
        self._advance(EngineEvent.CLOSE_ORDERED)
        collect_cycles()

    async def wait_closed(self, timeout_s: float) -> None:
        """Wait until all abandoned engines are closed, at most `timeout_s`."""
        if self._closing:
            await asyncio.wait([asyncio.wrap_future(job) for job in self._closing], timeout=timeout_s)

    async def end(self, timeout_s: float) -> None:
        """Close all engines, waiting at most `timeout_s`, and shut down the worker."""
        self.close()
        await self.wait_closed(timeout_s)
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _advance(self, event: EngineEvent) -> None:
        self.state = advance("engine", ENGINE_TRANSITIONS, self.state, event)


def engine_problem(error: Exception) -> Problem:
    """Return the problem that reports an unforeseen failure of the engine."""
    return Problem(
        "engine",
        f"{type(error).__name__}: {error}",
        "see the agent's log; this is a defect, please report it",
    )


def _close_opened(opening: Future[Engine]) -> None:
    with contextlib.suppress(InputError, *ENGINE_ERRORS):
        opening.result().close()


_NOTHING_MEASURED: Final = HandedOver(EngineEnd.NEVER_STARTED, "")


def _hand_over(engine: Engine, started: bool) -> HandedOver:
    """Stop and close the engine; return its records and counters, empty if it was never started."""
    try:
        if not started:
            return _NOTHING_MEASURED
        status = engine.status()
        outcome = _ENDS.get(status.phase, EngineEnd.STOPPED)
        engine.stop()
        records, counters = engine.take_records(), (engine.flows(), engine.ports(), engine.rates())
        streams, frames = engine.streams(), engine.status().frames
        return HandedOver(outcome, status.failure, records, *counters, streams, frames, engine.captures())
    except ENGINE_ERRORS as error:
        _log.exception("the engine failed while transferring its records")
        return HandedOver(EngineEnd.FAILED, str(engine_problem(error)))
    finally:
        engine.close()
