"""The transition tables: every pair is legal or loud, and the documentation shows what they say."""

from __future__ import annotations

import pytest

from etloop.contract.protocol.machine import (
    AGENT_TRANSITIONS,
    RUN_TRANSITIONS,
    AgentEvent,
    AgentState,
    IllegalTransition,
    RunEvent,
    RunState,
    advance_agent,
    advance_run,
)
from tests.support.places import ROOT
from tests.support.state_diagram import mermaid

PAGE = ROOT / "docs" / "control-plane.md"


@pytest.mark.parametrize("event", RunEvent)
@pytest.mark.parametrize("state", RunState)
def test_every_pair_of_a_run_is_legal_or_loud(state: RunState, event: RunEvent) -> None:
    if event in RUN_TRANSITIONS[state]:
        assert advance_run(state, event) is RUN_TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"^run got {event.name} while {state.name}; it accepts"):
            advance_run(state, event)


@pytest.mark.parametrize("event", AgentEvent)
@pytest.mark.parametrize("state", AgentState)
def test_every_pair_of_an_agent_is_legal_or_loud(state: AgentState, event: AgentEvent) -> None:
    if event in AGENT_TRANSITIONS[state]:
        assert advance_agent(state, event) is AGENT_TRANSITIONS[state][event]
    else:
        with pytest.raises(
            IllegalTransition, match=f"^agent got {event.name} while {state.name}; it accepts"
        ):
            advance_agent(state, event)


def test_the_tables_know_every_state() -> None:
    assert set(RUN_TRANSITIONS) == set(RunState)
    assert set(AGENT_TRANSITIONS) == set(AgentState)


def test_an_illegal_move_says_what_is_accepted() -> None:
    with pytest.raises(IllegalTransition) as caught:
        advance_run(RunState.GATHER, RunEvent.COLLECTED)
    assert str(caught.value) == "run got COLLECTED while GATHER; it accepts ALL_JOINED, BROKEN there"
    with pytest.raises(IllegalTransition, match="it accepts nothing there"):
        advance_run(RunState.DONE, RunEvent.BROKEN)


def reachable_runs() -> set[RunState]:
    seen, front = {RunState.GATHER}, [RunState.GATHER]
    while front:
        front = [
            target for state in front for target in RUN_TRANSITIONS[state].values() if target not in seen
        ]
        seen.update(front)
    return seen


def test_every_state_of_a_run_is_reached_and_every_run_ends() -> None:
    assert reachable_runs() == set(RunState)
    ends = {state for state in RunState if not RUN_TRANSITIONS[state]}
    assert ends == {RunState.DONE, RunState.ABORTED}


def test_an_agent_can_always_part_from_its_controller() -> None:
    for state in set(AgentState) - {AgentState.JOINING}:
        assert advance_agent(state, AgentEvent.PARTED) is AgentState.JOINING


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text()
    for table in (mermaid(RUN_TRANSITIONS), mermaid(AGENT_TRANSITIONS)):
        assert f"```mermaid\n{table}\n```" in page, f"{PAGE.name}: put this diagram there:\n{table}"
