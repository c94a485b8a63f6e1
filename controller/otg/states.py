"""States of the test that an OTG server holds: one table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.protocol.machine import IllegalTransition, advance


class TestState(Enum):
    """State of the test."""

    __test__ = False  # pytest takes names that begin with Test for tests

    EMPTY = auto()
    """No configuration."""
    LOADED = auto()
    """A configuration; its queue pairs are down."""
    CONNECTED = auto()
    """A message went over every queue pair with a flow."""
    SENDING = auto()
    """A run goes on, or has sent all its messages and was not stopped yet."""


class TestEvent(Enum):
    """A request that was carried out, or the failure of a run."""

    __test__ = False

    CONFIGURED = auto()
    CONNECTED = auto()
    DISCONNECTED = auto()
    STARTED = auto()
    STOPPED = auto()
    FAILED = auto()


TRANSITIONS: Final[Mapping[TestState, Mapping[TestEvent, TestState]]] = {
    TestState.EMPTY: {
        TestEvent.CONFIGURED: TestState.LOADED,
        TestEvent.DISCONNECTED: TestState.EMPTY,
        TestEvent.STOPPED: TestState.EMPTY,
    },
    TestState.LOADED: {
        TestEvent.CONFIGURED: TestState.LOADED,
        TestEvent.CONNECTED: TestState.CONNECTED,
        TestEvent.DISCONNECTED: TestState.LOADED,
        TestEvent.STARTED: TestState.SENDING,
        TestEvent.STOPPED: TestState.LOADED,
        TestEvent.FAILED: TestState.LOADED,
    },
    TestState.CONNECTED: {
        TestEvent.CONFIGURED: TestState.LOADED,
        TestEvent.CONNECTED: TestState.CONNECTED,
        TestEvent.DISCONNECTED: TestState.LOADED,
        TestEvent.STARTED: TestState.SENDING,
        TestEvent.STOPPED: TestState.CONNECTED,
        TestEvent.FAILED: TestState.LOADED,
    },
    TestState.SENDING: {
        TestEvent.CONFIGURED: TestState.LOADED,
        TestEvent.DISCONNECTED: TestState.LOADED,
        TestEvent.STARTED: TestState.SENDING,
        TestEvent.STOPPED: TestState.CONNECTED,
        TestEvent.FAILED: TestState.LOADED,
    },
}


def after(state: TestState, event: TestEvent) -> TestState:
    """Return the state after an event. Raise `ConfigError` for a request that the state does not allow."""
    try:
        return advance("test", TRANSITIONS, state, event)
    except IllegalTransition:
        problem = f"cannot be {event.name.lower()} while it is {state.name.lower()}"
        remedy = "POST /config first" if state is TestState.EMPTY else "stop the traffic first"
        raise ConfigError(Problem("the test", problem, remedy)) from None
