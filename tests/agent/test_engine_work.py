"""What an engine goes through in an agent: every pair of state and event is legal or loud, and its ports are always closed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.agent.engine_work import ENGINE_TRANSITIONS, EngineEvent, EngineState, EngineWork
from etloop.agent.slots import SLOT_TRANSITIONS, SlotState
from etloop.contract.model.engine import EnginePhase
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.protocol.machine import IllegalTransition, advance
from etloop.contract.protocol.messages import EngineEnd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from enum import Enum

    from etloop.agent.engine_protocol import Engine

PATIENCE_S = 10


class Recorded:
    """An engine that records its calls, and fails at the one named."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self.may_stop = threading.Event()
        self.may_stop.set()
        self._failing = failing

    def __getattr__(self, name: str) -> object:
        def call(*_: object) -> object:
            self.calls.append(name)
            if name == self._failing:
                raise RuntimeError(name)
            if name == "stop":
                assert self.may_stop.wait(PATIENCE_S)
            return {
                "take_records": np.zeros(2, OP_RECORD),
                "flows": np.zeros(0, FLOW_RECORD),
                "ports": np.zeros(0, PORT_RECORD),
                "status": Status(),
                "streams": (),
                "captures": {},
            }.get(name)

        return call


class Status:
    """Of an engine at work."""

    phase = EnginePhase.RUNNING
    failure = ""
    frames = ()


@pytest.fixture
async def work() -> AsyncIterator[EngineWork]:
    work = EngineWork()
    yield work
    await work.end(PATIENCE_S)


async def opened(work: EngineWork, engine: Recorded) -> None:
    work.open(lambda: engine)  # type: ignore[arg-type, return-value]
    async with asyncio.timeout(PATIENCE_S):
        while not work.is_opened:  # noqa: ASYNC110 - it is looked at, as an agent's loop does
            await asyncio.sleep(0)
    work.take_opened()


async def left(work: EngineWork) -> tuple[EngineEnd, int]:
    async with asyncio.timeout(PATIENCE_S):
        while not work.is_handed_over:  # noqa: ASYNC110
            await asyncio.sleep(0)
    found = work.take_handed_over()
    return found.end, len(found.ops)


@pytest.mark.parametrize("event", EngineEvent)
@pytest.mark.parametrize("state", EngineState)
def test_every_pair_is_legal_or_loud(state: EngineState, event: EngineEvent) -> None:
    if event in ENGINE_TRANSITIONS[state]:
        assert advance("engine", ENGINE_TRANSITIONS, state, event) is ENGINE_TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"^engine got {event.name} while {state.name}"):
            advance("engine", ENGINE_TRANSITIONS, state, event)


@pytest.mark.parametrize("table", [ENGINE_TRANSITIONS, SLOT_TRANSITIONS])
def test_every_state_is_reached(table: Mapping[Enum, Mapping[Enum, Enum]]) -> None:
    reached = [next(iter(table))]
    for state in reached:
        reached += [target for target in table[state].values() if target not in reached]
    assert set(reached) == set(table)
    assert [state for state in SLOT_TRANSITIONS if not SLOT_TRANSITIONS[state]] == [SlotState.ENDED]


async def test_what_a_started_engine_measured_is_handed_over(
    work: EngineWork,
) -> None:
    engine = Recorded()
    await opened(work, engine)
    assert len(work.take_records()) == 0, "nothing is taken before traffic is ordered"
    work.start(7)
    assert len(work.take_records()) == 2
    work.hand_over()
    assert not work.has_engine
    assert await left(work) == (EngineEnd.STOPPED, 2)
    assert engine.calls[-1] == "close"
    assert work.state is EngineState.NONE


async def test_an_engine_that_never_started_measured_nothing_and_is_closed(work: EngineWork) -> None:
    engine = Recorded("start")
    await opened(work, engine)
    with pytest.raises(RuntimeError, match="start"):
        work.start(7)
    work.hand_over()
    assert await left(work) == (EngineEnd.NEVER_STARTED, 0)
    assert engine.calls == ["start", "close"]


async def test_an_engine_that_breaks_while_it_hands_over_is_closed_and_told(work: EngineWork) -> None:
    engine = Recorded("status")
    await opened(work, engine)
    work.start(7)
    work.hand_over()
    assert await left(work) == (EngineEnd.FAILED, 0)
    assert engine.calls == ["start", "status", "close"]


async def test_of_an_engine_that_was_never_built_there_is_nothing(work: EngineWork) -> None:
    def fail() -> Engine:
        raise OSError("no card")

    work.open(fail)
    async with asyncio.timeout(PATIENCE_S):
        while not work.is_opened:  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(OSError, match="no card"):
        work.take_opened()
    work.hand_over()
    assert await left(work) == (EngineEnd.NEVER_STARTED, 0)


async def test_an_engine_that_nobody_wants_while_it_is_built_is_closed_once_it_is_there(
    work: EngineWork,
) -> None:
    engine, may_build = Recorded(), threading.Event()

    def build() -> Engine:
        assert may_build.wait(PATIENCE_S)
        return engine  # type: ignore[return-value]

    work.open(build)
    work.close()
    assert work.is_closing
    may_build.set()
    await work.wait_closed(PATIENCE_S)
    assert engine.calls == ["close"]
    assert not work.is_closing


async def test_ports_are_not_free_before_an_engine_that_hands_over_is_closed(
    work: EngineWork,
) -> None:
    engine = Recorded()
    engine.may_stop.clear()
    await opened(work, engine)
    work.start(7)
    work.hand_over()
    work.close()
    assert work.state is EngineState.NONE
    assert work.is_closing, "the controller went away, and its card is still in use"
    engine.may_stop.set()
    await work.wait_closed(PATIENCE_S)
    assert engine.calls[-1] == "close"
