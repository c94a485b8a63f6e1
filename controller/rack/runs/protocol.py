"""Messages between the daemon and the process of one run over a socket pair, as values and as bytes.

Daemon to run: `Begin`, then `FromAgent`, `ConnectionClosed`, `ControllerPaused` and `Stop`.
Run to daemon: `Prepared`, `ToAgent`, `LogLine`, `RunProgress`, and
finally `Ended`. Bodies of agents' messages are forwarded undecoded: only the run decodes them. Both ends are ETLoop's;
still everything is bounded and typed, so that a broken run cannot harm the daemon.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.message_set import MessageSet, Protocol
from etloop.contract.protocol.messages import MAX_TO_AGENT_BYTES
from etloop.contract.protocol.typed_form import Rules
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.session.actions import LogLine, RunProgress

MAX_FRAME_BYTES: Final = MAX_TO_AGENT_BYTES + (1 << 16)
_MAX_VALUES: Final = 1 << 20


# ---- daemon to run


@dataclass(frozen=True, slots=True)
class Begin:
    """The first frame: what to run, and where to store the results."""

    run_id: str
    scenario_text: str
    scenario_root: str
    """Directory to which the scenario's paths are relative, and which they must not leave."""
    rig_text: str
    rig_root: str
    ports: tuple[str, ...]
    """"agent/port" of every port leased to the run; it does not see the rest of the rig."""
    out_dir: str
    allowed_code: AllowedCode
    busy_threads: dict[str, int]
    """Agent -> first number of its engine threads: lower numbers are used by other runs."""
    strict: bool
    """Whether a contradiction to the device's profile is an error."""
    closing: str = ""
    """Why an earlier run in `out_dir` ended without results, which are now made from its spool; "" for a run to be run."""
    traces: str = ""
    """Directory of uploaded traces, which scenarios name by digest; "" if there is none."""


@dataclass(frozen=True, slots=True)
class FromAgent:
    """A message of an agent whose slot the run has leased."""

    identity: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A message for an agent could not be sent, because its connection does not exist any more."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class ControllerPaused:
    """The daemon did not run for this time: agents' messages arrive late, and those to agents have left late."""

    pause_ns: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Order to stop the traffic, collect, store and end."""

    reason: str


# ---- run to daemon


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan is complete; the run needs these agents."""

    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToAgent:
    """A message to an agent."""

    identity: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class TrafficEnded:
    """The agents are dismissed; results are being written."""


@dataclass(frozen=True, slots=True)
class Storing:
    """Results are being computed and written: the number of ops so far, or 0 at the beginning of a step."""

    ops: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame: how the run ended. If `stored` is false, the content of `out_dir` is incomplete."""

    exit_code: int
    reason: str
    stored: bool
    summary: str
    """summary.json; "" if not stored."""
    again: bool = False
    """Whether results that could not be stored can be made from the spool once there is disk space."""
    blamed: dict[str, str] = field(default_factory=dict)
    """Port ("agent/port") -> the problem that kept it from being prepared."""
    held_up: str = ""
    """Fault of the rack, such as a full disk, that kept the run from beginning: the job may start once it is over; else ""."""


DaemonFrame = Begin | FromAgent | ConnectionClosed | ControllerPaused | Stop
RunFrame = Prepared | ToAgent | LogLine | RunProgress | TrafficEnded | Storing | Ended

_PROTOCOL: Final = Protocol(
    1,
    "another version was installed while the controller ran: restart it",
    Rules(text_chars=MAX_FRAME_BYTES, items=MAX_FRAME_BYTES, binary=True),
)
FROM_DAEMON: Final = MessageSet[DaemonFrame](
    _PROTOCOL, DaemonFrame, "the daemon", max_bytes=MAX_FRAME_BYTES, max_values=_MAX_VALUES
)
FROM_RUN: Final = MessageSet[RunFrame](
    _PROTOCOL, RunFrame, "a run", max_bytes=MAX_FRAME_BYTES, max_values=_MAX_VALUES
)
