"""Decides whether the reason of a job that did not pass names a fault that was inflicted while it ran. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from tests.measure.breaking.faults import Fault

_AFTER_S: Final = 75.0
"""How long after a fault a job may end because of it: a silent agent counts as lost after a minute."""
_AGENT: Final = r"agents? '(?P<agent>[ab])'"
_GONE: Final = r"its connection is closed|no heartbeat|(has not been|was not) heard|left: "
_PAUSED: Final = r"did not run for"
_ENGINE: Final = r"rank \d+|no acknowledgement|gave up|no progress"

REASONS: Final[dict[Fault, str]] = {
    Fault.CONTROLLER_KILLED: r"the controller (stopped|is shutting down)",
    Fault.CONTROLLER_STOPPED: rf"the controller {_PAUSED}",
    Fault.DOOR_KILLED: rf"records? sent|did not|{_AGENT}.*({_GONE})",
    Fault.RUN_KILLED: r"its process was killed by SIGKILL",
    Fault.RUN_STOPPED: rf"the process of the run {_PAUSED}",
    Fault.AGENT_KILLED: rf"{_AGENT}.*({_GONE})",
    Fault.AGENT_STOPPED: rf"{_AGENT}.*({_GONE})",
    Fault.BROKER_KILLED: r"(?!)",
    Fault.BROKER_STOPPED: r"(?!)",
    Fault.ALL_STOPPED: rf"(the controller|the process of the run) {_PAUSED}",
    Fault.CONTROL_CUT: rf"all agents have fallen silent together|control network|{_AGENT}.*({_GONE})",
    Fault.DATA_SILENT: _ENGINE,
    Fault.ADDRESS_LOST: rf"Network is unreachable|not on |{_ENGINE}",
    Fault.DISK_FULL: r"No space left on device|free space|disk",
    Fault.CLOCK_STEPPED: r"(?!)",
    Fault.DESCRIPTORS_GONE: r"Too many open files|descriptor",
}
"""Fault -> pattern of the reasons that it may give a job; (?!): it must not end one."""
SOUND_REASONS: Final = r"w\.0\.et|damaged|cannot be read as"
"""Reasons that need no fault: one of the scenarios names a damaged trace."""


@dataclass(frozen=True, slots=True)
class Inflicted:
    """One fault, when it began and ended, and which agent it hit."""

    fault: Fault
    begin_s: float
    end_s: float
    agent: str = ""


def is_caused(reason: str, ended_s: float, inflicted: Iterable[Inflicted]) -> bool:
    """Return whether a job that was found ended at this time gives a fault before it as its reason, and the agent that it hit."""
    if re.search(SOUND_REASONS, reason):
        return True
    for event in inflicted:
        if not event.begin_s <= ended_s <= event.end_s + _AFTER_S:
            continue
        match = re.search(REASONS[event.fault], reason, re.DOTALL)
        if match is None:
            continue
        named = match.groupdict().get("agent")
        if named is None or not event.agent or named == event.agent:
            return True
    return False


def wrong_causes(ends: Sequence[tuple[str, str, float]], inflicted: Sequence[Inflicted]) -> tuple[str, ...]:
    """Return the jobs with a wrong cause, in words; `ends` are (job, reason, end) of those that did not pass."""
    return tuple(
        f"{job_id} gives a wrong cause: {reason.splitlines()[0] if reason else 'none'} (faults before: "
        + ", ".join(
            f"{event.fault.value} {event.agent}".strip()
            for event in inflicted
            if event.begin_s <= ended_s <= event.end_s + _AFTER_S
        )
        + ")"
        for job_id, reason, ended_s in ends
        if not is_caused(reason, ended_s, inflicted)
    )
