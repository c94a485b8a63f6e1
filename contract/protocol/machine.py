"""The state machines of a run and of an agent: every state, every event, and one transition table each.

All rules about the order of events are in this file; the controller and the agent only report events to it. An
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
    """State of a run, as the controller sees it."""

    GATHER = auto()
    """Waiting for every agent that the rig names."""
    ASSIGN = auto()
    """Agents load their part and open their sockets."""
    PAIR = auto()
    """Ends on network cards receive the numbers of their peers and become ready; skipped in a run without cards."""
    CONNECT = auto()
    """Every connection is probed through the device under test."""
    ARM = auto()
    """Clocks are compared, agents become ready."""
    RUN = auto()
    """Traffic flows, from the common start time."""
    COLLECT = auto()
    """Engines are stopped and hand over their records."""
    ABORTING = auto()
    """As COLLECT, after a failure: the controller waits for the remaining records, but only briefly."""
    DONE = auto()
    ABORTED = auto()


PREPARING: Final = frozenset(
    {RunState.GATHER, RunState.ASSIGN, RunState.PAIR, RunState.CONNECT, RunState.ARM}
)
"""States before any traffic of the job."""


class RunEvent(Enum):
    """Events that change the state of a run."""

    ALL_JOINED = auto()
    ALL_LOADED = auto()
    CARDS_LOADED = auto()
    """All are loaded, and some have ends on network cards."""
    ALL_PAIRED = auto()
    ALL_CONNECTED = auto()
    ALL_ARMED = auto()
    START_MISSED = auto()
    """The start orders arrived too late everywhere, so that no engine has started."""
    ALL_COMPLETED = auto()
    BROKEN = auto()
    """Something that the run needs failed, or a user stopped it."""
    COLLECTED = auto()
    GAVE_UP = auto()
    """An agent did not hand over in time."""


class AgentState(Enum):
    """State of an agent."""

    JOINING = auto()
    """No controller has welcomed it yet."""
    IDLE = auto()
    LOADING = auto()
    """The engine is being built."""
    LOADED = auto()
    """Sockets are open and answer probes of other agents."""
    PAIRING = auto()
    """The agent's queue pairs are joined with those of network cards; then it is LOADED again."""
    PROBING = auto()
    CONNECTED = auto()
    ARMED = auto()
    RUNNING = auto()
    FINISHED = auto()
    """The agent's own operations are complete; the engine still acknowledges retransmissions of its peers."""
    FAULTED = auto()
    """The engine has failed; its records can still be collected."""
    COLLECTING = auto()


class AgentEvent(Enum):
    """Events that change the state of an agent."""

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
    RunState.RUN: {
        RunEvent.START_MISSED: RunState.ARM,
        RunEvent.ALL_COMPLETED: RunState.COLLECT,
        RunEvent.BROKEN: RunState.ABORTING,
    },
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
    """Return the state of a run after `event`. Raises `IllegalTransition` if the table has no entry."""
    return advance("run", RUN_TRANSITIONS, state, event)


def advance_agent(state: AgentState, event: AgentEvent) -> AgentState:
    """Return the state of an agent after `event`. Raises `IllegalTransition` if the table has no entry."""
    return advance("agent", AGENT_TRANSITIONS, state, event)


def advance(who: str, table: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """Return the state after `event` by `table`; `who` names its owner in errors. Raises `IllegalTransition` if it has
    no entry.
    """
    try:
        return table[state][event]
    except KeyError:
        accepted = ", ".join(legal_event.name for legal_event in table[state]) or "nothing"
        raise IllegalTransition(
            f"{who} got {event.name} while {state.name}; it accepts {accepted} there"
        ) from None
