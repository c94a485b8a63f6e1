"""Which ports of a rack are in service: states, one transition table, and what failures to prepare come to. Pure.

A port that could not be prepared for two jobs, one after the other, is out of service until its host changes: a third job would
fail on it as well. That a port is out of service is kept in the job store (`store.quarantine`); that it is suspect is known for
this controller's life.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from etloop.contract.protocol.machine import advance

if TYPE_CHECKING:
    from etloop.contract.base.errors import Problem

_PORT_WHERE: Final = re.compile(r"agent '(?P<agent>[^']+)': port (?P<port>[^\s:]+)")
_ASKED_OF_IT: Final = "path MTU"
"""What a scenario asks for and one port does not give, while others may be given less."""
_LONGEST_REASON: Final = 500


class PortState(Enum):
    """Where a port stands."""

    IN_SERVICE = auto()
    SUSPECT = auto()
    """It could not be prepared for the last job that had it."""
    QUARANTINED = auto()
    """Nor for the job after that: no job gets it."""


class PortEvent(Enum):
    """What moves it on."""

    PREPARED = auto()
    """Traffic began on it."""
    UNPREPARED = auto()
    """It could not be prepared for a job, another one than before."""
    HOST_CHANGED = auto()
    """Its agent says something else of its host, such as that a link is up."""
    RESTORED = auto()
    """Somebody says that it can be used."""


PORT_TRANSITIONS: Final[Mapping[PortState, Mapping[PortEvent, PortState]]] = {
    PortState.IN_SERVICE: {
        PortEvent.PREPARED: PortState.IN_SERVICE,
        PortEvent.UNPREPARED: PortState.SUSPECT,
        PortEvent.HOST_CHANGED: PortState.IN_SERVICE,
        PortEvent.RESTORED: PortState.IN_SERVICE,
    },
    PortState.SUSPECT: {
        PortEvent.PREPARED: PortState.IN_SERVICE,
        PortEvent.UNPREPARED: PortState.QUARANTINED,
        PortEvent.HOST_CHANGED: PortState.SUSPECT,
        PortEvent.RESTORED: PortState.IN_SERVICE,
    },
    PortState.QUARANTINED: {
        # A job that had it before it was taken out of service.
        PortEvent.PREPARED: PortState.IN_SERVICE,
        PortEvent.UNPREPARED: PortState.QUARANTINED,
        # One job may find out whether that helped; if not, it is the last.
        PortEvent.HOST_CHANGED: PortState.SUSPECT,
        PortEvent.RESTORED: PortState.IN_SERVICE,
    },
}


@dataclass(slots=True)
class _Port:
    state: PortState = PortState.IN_SERVICE
    reason: str = ""
    job_id: str = ""
    """The last for which it could not be prepared."""


class PortHealth:
    """The ports of a rack, by label ("agent/port")."""

    def __init__(self, labels: Iterable[str]) -> None:
        self._ports = {label: _Port() for label in labels}

    def serve(self, labels: Iterable[str]) -> None:
        """The rack has these ports from now on; those it had before stand as they did."""
        self._ports = {label: self._ports.get(label) or _Port() for label in labels}

    def recall(self, reasons: Mapping[str, str]) -> None:
        """These ports were out of service for a controller before this one, for these reasons; others are not known any more."""
        for label, reason in reasons.items():
            if label in self._ports:
                self._ports[label] = _Port(PortState.QUARANTINED, reason)

    def quarantined(self) -> dict[str, str]:
        """Return the ports that could not be prepared for two jobs, with what was wrong."""
        return {
            label: port.reason for label, port in self._ports.items() if port.state is PortState.QUARANTINED
        }

    def out_of_service(self) -> dict[str, str]:
        """Return the ports that no job gets, with the reason."""
        return {label: f"out of service: {reason}" for label, reason in self.quarantined().items()}

    def state_of(self, label: str) -> PortState:
        """Return where a port stands."""
        return self._ports[label].state

    def prepared(self, labels: Iterable[str]) -> None:
        """Traffic began on these."""
        for label in labels:
            self._advance(label, PortEvent.PREPARED)

    def unprepared(self, label: str, job_id: str, reason: str) -> bool:
        """Note that a port could not be prepared for a job; whether that takes it out of service now."""
        port = self._ports.get(label)
        if port is None or port.job_id == job_id:
            return False
        before = port.state
        self._advance(label, PortEvent.UNPREPARED)
        port.job_id, port.reason = job_id, reason[:_LONGEST_REASON]
        return port.state is PortState.QUARANTINED and before is not port.state

    def restored(self, label: str) -> None:
        """Somebody says that a port can be used again."""
        self._advance(label, PortEvent.RESTORED)

    def host_changed(self, agent: str) -> tuple[str, ...]:
        """Note that an agent's host is not what it was; the ports that are back in service for it."""
        back = tuple(label for label in self.out_of_service() if label.partition("/")[0] == agent)
        for label in self._ports:
            if label.partition("/")[0] == agent:
                self._advance(label, PortEvent.HOST_CHANGED)
        return back

    def _advance(self, label: str, event: PortEvent) -> None:
        if (port := self._ports.get(label)) is not None:
            port.state = advance("port", PORT_TRANSITIONS, port.state, event)


def blamed_ports(problems: Iterable[Problem]) -> dict[str, str]:
    """Return the ports ("agent/port") that problems of a preparation are about, with what is wrong with each.

    What only this scenario asks of a port is not among it.
    """
    found: dict[str, str] = {}
    for problem in problems:
        named = _PORT_WHERE.fullmatch(problem.where)
        if named is not None and _ASKED_OF_IT not in problem.what:
            found.setdefault(f"{named['agent']}/{named['port']}", f"{problem.what}; {problem.remedy}")
    return found
