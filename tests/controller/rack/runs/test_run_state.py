"""A run of a rack: every pair of state and event is legal or loud, and every run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etloop.contract.protocol.machine import IllegalTransition, advance
from etloop.controller.rack.runs.run_state import RACK_RUN_TRANSITIONS, RackRunEvent, RackRunState
from etloop.controller.rack.runs.supervisor import CHILD_TRANSITIONS, ChildState
from tests.support.places import ROOT
from tests.support.state_diagram import mermaid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum


@pytest.mark.parametrize("event", RackRunEvent)
@pytest.mark.parametrize("state", RackRunState)
def test_every_pair_is_legal_or_loud(state: RackRunState, event: RackRunEvent) -> None:
    if event in RACK_RUN_TRANSITIONS[state]:
        assert advance("run", RACK_RUN_TRANSITIONS, state, event) is RACK_RUN_TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"^run got {event.name} while {state.name}; it accepts"):
            advance("run", RACK_RUN_TRANSITIONS, state, event)


@pytest.mark.parametrize(
    ("table", "last"), [(RACK_RUN_TRANSITIONS, RackRunState.STORED), (CHILD_TRANSITIONS, ChildState.GONE)]
)
def test_every_state_is_reached_and_leads_to_the_end(
    table: Mapping[Enum, Mapping[Enum, Enum]], last: Enum
) -> None:
    reached = [next(iter(table))]
    for state in reached:
        reached += [target for target in table[state].values() if target not in reached]
    assert set(reached) == set(table) == set(type(last))
    assert [state for state in table if not table[state]] == [last]


def test_the_page_shows_the_table() -> None:
    table = mermaid(RACK_RUN_TRANSITIONS)
    assert f"```mermaid\n{table}\n```" in (ROOT / "docs" / "rack.md").read_text(), f"put this there:\n{table}"
