"""Decides which ports of a rack are in service: states, one transition table, the effect of failed preparations. Pure.

A port whose preparation failed for two jobs in a row is out of service until its host changes: a third job would fail
on it too. The job store keeps which ports are out of service (`store.quarantine`); suspects are known for this
controller's life only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from etloop.contract.protocol.machine import advance

if TYPE_CHECKING:
    from etloop.contract.base.errors import Problem

_PORT_WHERE: Final = re.compile(r"agent '(?P<agent>[^']+)': port (?P<port>[^\s:]+)")
_ASKED_OF_IT: Final = "path MTU"
"""Problem of a scenario's request that one port cannot meet, while other scenarios may request less."""
_LONGEST_REASON: Final = 500
NOT_ON: Final = "not on"
"""Part of the problem of an address that its host does not have (`agent.host_fit`)."""


class PortState(Enum):
    """State of a port."""

    IN_SERVICE = auto()
    SUSPECT = auto()
    """The port's preparation failed for the last job that had it."""
    QUARANTINED = auto()
    """The port's preparation failed for two jobs in a row: no job gets it."""


class PortEvent(Enum):
    """Events that change a port's state."""

    PREPARED = auto()
    """Traffic began on it."""
    UNPREPARED = auto()
    """The port's preparation failed for another job than before."""
    HOST_CHANGED = auto()
    """The port's agent reports another host state, such as a link that is up."""
    RESTORED = auto()
    """An operator returned it to service."""


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
        # A job that got the port before it was quarantined.
        PortEvent.PREPARED: PortState.IN_SERVICE,
        PortEvent.UNPREPARED: PortState.QUARANTINED,
        # One more job may try it; if that fails too, the port is quarantined again.
        PortEvent.HOST_CHANGED: PortState.SUSPECT,
        PortEvent.RESTORED: PortState.IN_SERVICE,
    },
}


@dataclass(slots=True)
class _Port:
    state: PortState = PortState.IN_SERVICE
    reason: str = ""
    job_id: str = ""
    """The last job for which its preparation failed."""


class PortHealth:
    """The states of a rack's ports, by label ("agent/port")."""

    def __init__(self, labels: Iterable[str]) -> None:
        self._ports = {label: _Port() for label in labels}
        self._without_address: dict[str, str] = {}
        """Port of which an address is not on its host -> the reason, which needs no failed job."""

    def serve(self, labels: Iterable[str]) -> None:
        """Replace the rack's ports; those it had before keep their state."""
        self._ports = {label: self._ports.get(label) or _Port() for label in labels}

    def note_addresses(self, missing: Mapping[str, str]) -> tuple[str, ...]:
        """Replace the ports whose addresses are not on their hosts (label -> reason); return those that were not known."""
        new_labels = tuple(label for label in missing if label not in self._without_address)
        self._without_address = dict(missing)
        return new_labels

    def recall(self, reasons: Mapping[str, str]) -> None:
        """Restore the state of ports that an earlier controller had quarantined, with its reasons. Ignores unknown ports."""
        for label, reason in reasons.items():
            if label in self._ports:
                self._ports[label] = _Port(PortState.QUARANTINED, reason)

    def quarantine_reasons(self) -> dict[str, str]:
        """Return the quarantined ports, each with the problem of its last preparation."""
        return {
            label: port.reason for label, port in self._ports.items() if port.state is PortState.QUARANTINED
        }

    def out_of_service(self) -> dict[str, str]:
        """Return the ports that no job gets, each with the reason."""
        reasons = self.quarantine_reasons() | self._without_address
        return {label: f"out of service: {reason}" for label, reason in reasons.items()}

    def state_of(self, label: str) -> PortState:
        """Return the state of a port."""
        return self._ports[label].state

    def note_prepared(self, labels: Iterable[str]) -> None:
        """Note that traffic began on these ports."""
        for label in labels:
            self._advance(label, PortEvent.PREPARED)

    def note_unprepared(self, label: str, job_id: str, reason: str) -> bool:
        """Note that a port's preparation failed for a job; return whether this quarantines it."""
        port = self._ports.get(label)
        if port is None or port.job_id == job_id:
            return False
        earlier_state = port.state
        self._advance(label, PortEvent.UNPREPARED)
        port.job_id, port.reason = job_id, reason[:_LONGEST_REASON]
        return port.state is PortState.QUARANTINED and earlier_state is not port.state

    def restore(self, label: str) -> None:
        """Note that an operator returned a port to service."""
        self._advance(label, PortEvent.RESTORED)

    def host_changed(self, agent: str) -> tuple[str, ...]:
        """Note that an agent's host changed; return its ports that are back in service."""
        restored_ports = tuple(
            label for label in self.quarantine_reasons() if label.partition("/")[0] == agent
        )
        for label in self._ports:
            if label.partition("/")[0] == agent:
                self._advance(label, PortEvent.HOST_CHANGED)
        return restored_ports

    def _advance(self, label: str, event: PortEvent) -> None:
        if (port := self._ports.get(label)) is not None:
            port.state = advance("port", PORT_TRANSITIONS, port.state, event)


def lacks_addresses(blamed: Mapping[str, str]) -> bool:
    """Return whether all problems of a preparation, by port, are addresses that hosts do not have: jobs wait for them."""
    return bool(blamed) and all(f" {NOT_ON} " in problem for problem in blamed.values())


def address_problem(agent: str, host_name: str, missing: Sequence[str]) -> str:
    """Return the problem of a port of which addresses are not on the host of its agent, with the remedy."""
    more_text = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return (
        f"address {missing[0]}{more_text} {'are' if more_text else 'is'} {NOT_ON} {host_name} (agent '{agent}'); "
        f"on {host_name}: ip address add {missing[0]}/24 dev INTERFACE; or correct the port's addresses in the rig"
    )


def blamed_ports(problems: Iterable[Problem]) -> dict[str, str]:
    """Return port ("agent/port") -> its problem, for the problems of a preparation that concern a port.

    Leaves out problems of requests that only this scenario makes of the port.
    """
    problem_of_port: dict[str, str] = {}
    for problem in problems:
        match = _PORT_WHERE.fullmatch(problem.where)
        if match is not None and _ASKED_OF_IT not in problem.what:
            problem_of_port.setdefault(
                f"{match['agent']}/{match['port']}", f"{problem.what}; {problem.remedy}"
            )
    return problem_of_port
