"""Define what a session asks of its surroundings and how it reports progress: values only."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import ControllerMessage

_LOGGED_REFUSALS: Final = 20


@dataclass(frozen=True, slots=True)
class Send:
    """A message to send to the agent on one connection."""

    identity: bytes
    message: ControllerMessage


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the user's log."""

    text: str
    kind: str = ""
    """Kind by which `log_limit` bounds repeated lines; "" for a line whose number is bounded by the events it reports."""


Action = Send | LogLine


class RefusalLog:
    """The log lines about refused connections, bounded so that unknown peers cannot flood the user's screen."""

    def __init__(self) -> None:
        self._count = 0

    def lines(self, text: str) -> tuple[LogLine, ...]:
        """Return the log lines for one more refusal: () once the limit is reached."""
        self._count += 1
        log_lines: tuple[LogLine, ...] = (LogLine(text),) if self._count <= _LOGGED_REFUSALS else ()
        if self._count == _LOGGED_REFUSALS:
            log_lines += (LogLine("further refusals are not logged"),)
        return log_lines


@dataclass(frozen=True, slots=True)
class PortProgress:
    """Bytes that one port has sent and received through the device so far."""

    name: str
    """As "agent/port"."""
    wire_tx_bytes: int
    wire_rx_bytes: int


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of the whole run; totals over all agents."""

    state: RunState
    ops_done: int
    ops_total: int
    wire_tx_bytes: int
    wire_rx_bytes: int
    ports: tuple[PortProgress, ...] = ()
    """One entry for each port whose agent has reported."""
    slip_ns: int = -1
    """99th percentile of the issue delay (issued minus intended) of the ops reported last; -1 before the first report."""
    missing_agents: tuple[str, ...] = ()
    """Agents of the rig that have not joined."""
