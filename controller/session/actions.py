"""What a session asks of its surroundings, and how far it says it is: values only."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import ControllerMessage

_LOGGED_REFUSALS: Final = 20


@dataclass(frozen=True, slots=True)
class Send:
    """Send this to that connection."""

    identity: bytes
    message: ControllerMessage


@dataclass(frozen=True, slots=True)
class LogLine:
    """Tell the user."""

    text: str
    kind: str = ""
    """What it is about where others decide how often it is said, see `log_limit`; "": it is bounded by what it tells of."""


Action = Send | LogLine


class RefusalLog:
    """Lines about refused strangers, who cannot fill the user's screen."""

    def __init__(self) -> None:
        self._count = 0

    def lines(self, text: str) -> tuple[LogLine, ...]:
        """Return what is said of one more refusal."""
        self._count += 1
        said: tuple[LogLine, ...] = (LogLine(text),) if self._count <= _LOGGED_REFUSALS else ()
        if self._count == _LOGGED_REFUSALS:
            said += (LogLine("further refusals are not logged"),)
        return said


@dataclass(frozen=True, slots=True)
class PortProgress:
    """What one port moved through the device so far."""

    name: str
    """As "agent/port"."""
    wire_tx_bytes: int
    wire_rx_bytes: int


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the whole run is; totals over all agents."""

    state: RunState
    ops_done: int
    ops_total: int
    wire_tx_bytes: int
    wire_rx_bytes: int
    ports: tuple[PortProgress, ...] = ()
    """Of agents that have said anything."""
    slip_ns: int = -1
    """99th percentile of how late the ops were begun that were last reported; -1: of none yet."""
