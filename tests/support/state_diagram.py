"""Transition tables as the diagrams that the documentation shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etloop.contract.protocol.machine import Event, State


def mermaid(table: Mapping[State, Mapping[Event, State]]) -> str:
    """The table as a mermaid state diagram; the first state is where a life begins, states without exits end it."""
    states = list(table)
    lines = ["stateDiagram-v2", f"    [*] --> {states[0].name}"]
    for state, exits in table.items():
        lines += [f"    {state.name} --> {target.name}: {event.name}" for event, target in exits.items()]
        if not exits:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)
