"""The life of a run and the life of an agent: every state, every event, and one transition table each.

All rules about what may follow what stand in this file; the controller and the agent only report events to it. An
event that a state does not accept raises `IllegalTransition` and changes nothing. docs/control-plane.md
shows these tables as diagrams, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeVar

from etloop.contract.base.errors import ProtocolError


class IllegalTransition(ProtocolError):
    """An event came in a state that does not accept it."""


class RunState(Enum):
    """Where a run stands, as the controller sees it."""

    GATHER = auto()
    """Waiting for every agent that the rig names."""
    ASSIGN = auto()
    """Agents load their part and open their sockets."""
    PAIR = auto()
    """Ends on network cards learn the numbers of their peers and become ready; a run without cards passes it over."""
    CONNECT = auto()
    """Every connection is probed through the device under test."""
    ARM = auto()
    """Clocks are compared, agents stand ready."""
    RUN = auto()
    """Traffic flows from the common start on."""
    COLLECT = auto()
    """Engines are stopped and hand over what they measured."""
    ABORTING = auto()
    """The same after a break: what there is of the records is worth waiting for, but not for long."""
    DONE = auto()
    ABORTED = auto()


PREPARING: Final = frozenset(
    {RunState.GATHER, RunState.ASSIGN, RunState.PAIR, RunState.CONNECT, RunState.ARM}
)
"""Before any traffic of the job."""


class RunEvent(Enum):
    """What moves a run on."""

    ALL_JOINED = auto()
    ALL_LOADED = auto()
    CARDS_LOADED = auto()
    """All are loaded, and some have ends on network cards."""
    ALL_PAIRED = auto()
    ALL_CONNECTED = auto()
    ALL_ARMED = auto()
    ALL_COMPLETED = auto()
    BROKEN = auto()
    """Something that the run needs failed, or somebody stopped it."""
    COLLECTED = auto()
    GAVE_UP = auto()
    """Somebody did not hand over in time."""


class AgentState(Enum):
    """Where an agent stands."""

    JOINING = auto()
    """No controller has welcomed it yet."""
    IDLE = auto()
    LOADING = auto()
    """Its engine is being built."""
    LOADED = auto()
    """Sockets are open and answer probes of others."""
    PAIRING = auto()
    """Its queue pairs are joined with those of network cards; then it is LOADED again."""
    PROBING = auto()
    CONNECTED = auto()
    ARMED = auto()
    RUNNING = auto()
    FINISHED = auto()
    """Its own operations are complete; the engine still acknowledges what others repeat."""
    FAULTED = auto()
    """The engine cannot go on; what it measured can still be collected."""
    COLLECTING = auto()


class AgentEvent(Enum):
    """What moves an agent on."""

    WELCOMED = auto()
    ASSIGNED = auto()
    OPENED = auto()
    PAIR_ORDERED = auto()
    PAIRED = auto()
    PROBE_ORDERED = auto()
    PROBED = auto()
    ARM_ORDERED = auto()
    START_ORDERED = auto()
    COMPLETED = auto()
    FAULT = auto()
    COLLECT_ORDERED = auto()
    HANDED_OVER = auto()
    PARTED = auto()
    """The controller fell silent, dismissed the agent, or sent what the protocol does not allow."""


RUN_TRANSITIONS: Final[Mapping[RunState, Mapping[RunEvent, RunState]]] = {
    RunState.GATHER: {RunEvent.ALL_JOINED: RunState.ASSIGN, RunEvent.BROKEN: RunState.ABORTED},
    RunState.ASSIGN: {
        RunEvent.ALL_LOADED: RunState.CONNECT,
        RunEvent.CARDS_LOADED: RunState.PAIR,
        RunEvent.BROKEN: RunState.ABORTING,
    },
    RunState.PAIR: {RunEvent.ALL_PAIRED: RunState.CONNECT, RunEvent.BROKEN: RunState.ABORTING},
    RunState.CONNECT: {RunEvent.ALL_CONNECTED: RunState.ARM, RunEvent.BROKEN: RunState.ABORTING},
    RunState.ARM: {RunEvent.ALL_ARMED: RunState.RUN, RunEvent.BROKEN: RunState.ABORTING},
    RunState.RUN: {RunEvent.ALL_COMPLETED: RunState.COLLECT, RunEvent.BROKEN: RunState.ABORTING},
    RunState.COLLECT: {
        RunEvent.COLLECTED: RunState.DONE,
        RunEvent.BROKEN: RunState.ABORTING,
        RunEvent.GAVE_UP: RunState.ABORTED,
    },
    RunState.ABORTING: {RunEvent.COLLECTED: RunState.ABORTED, RunEvent.GAVE_UP: RunState.ABORTED},
    RunState.DONE: {},
    RunState.ABORTED: {},
}

AGENT_TRANSITIONS: Final[Mapping[AgentState, Mapping[AgentEvent, AgentState]]] = {
    AgentState.JOINING: {AgentEvent.WELCOMED: AgentState.IDLE},
    AgentState.IDLE: {
        AgentEvent.ASSIGNED: AgentState.LOADING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.LOADING: {
        AgentEvent.OPENED: AgentState.LOADED,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.LOADED: {
        AgentEvent.PAIR_ORDERED: AgentState.PAIRING,
        AgentEvent.PROBE_ORDERED: AgentState.PROBING,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.PAIRING: {
        AgentEvent.PAIRED: AgentState.LOADED,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.PROBING: {
        AgentEvent.PROBED: AgentState.CONNECTED,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.CONNECTED: {
        AgentEvent.ARM_ORDERED: AgentState.ARMED,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.ARMED: {
        AgentEvent.START_ORDERED: AgentState.RUNNING,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.RUNNING: {
        AgentEvent.COMPLETED: AgentState.FINISHED,
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.FINISHED: {
        AgentEvent.FAULT: AgentState.FAULTED,
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.FAULTED: {
        AgentEvent.COLLECT_ORDERED: AgentState.COLLECTING,
        AgentEvent.PARTED: AgentState.JOINING,
    },
    AgentState.COLLECTING: {
        AgentEvent.HANDED_OVER: AgentState.IDLE,
        AgentEvent.PARTED: AgentState.JOINING,
    },
}

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def advance_run(state: RunState, event: RunEvent) -> RunState:
    """The state after `event`. Raises `IllegalTransition` where the table has no entry."""
    return advance("run", RUN_TRANSITIONS, state, event)


def advance_agent(state: AgentState, event: AgentEvent) -> AgentState:
    """The state after `event`. Raises `IllegalTransition` where the table has no entry."""
    return advance("agent", AGENT_TRANSITIONS, state, event)


def advance(who: str, table: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """Return the state after `event` by a table of `who`. Raises `IllegalTransition` where it has no entry."""
    try:
        return table[state][event]
    except KeyError:
        accepted = ", ".join(each.name for each in table[state]) or "nothing"
        raise IllegalTransition(
            f"{who} got {event.name} while {state.name}; it accepts {accepted} there"
        ) from None
