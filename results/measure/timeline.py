"""Scheduled link events and their execution, in words: for the printed table, the report and the list of degradations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from etloop.contract.base.units import approximate_duration

if TYPE_CHECKING:
    from etloop.contract.model.run import LinkEvent


def event_words(event: LinkEvent) -> str:
    """Describe one link event: its schedule, and when it happened."""
    schedule_words = f"{event.link} {'up' if event.up else 'down'} at {approximate_duration(event.at_ns)}"
    if event.done_ns < 0:
        return f"{schedule_words}: not done, {event.why}"
    if event.done_ns == event.at_ns:
        return f"{schedule_words}: done"
    late = approximate_duration(abs(event.done_ns - event.at_ns))
    return f"{schedule_words}: done {late} {'after' if event.done_ns >= event.at_ns else 'before'} that"


def missed_events(events: Iterable[LinkEvent]) -> tuple[str, ...]:
    """Return the events that did not happen, in words."""
    return tuple(f"timeline: {event_words(event)}" for event in events if event.done_ns < 0)
