"""What the daemon and the process of one run say to each other over a socket pair, as values and as bytes.

Daemon to run: `Begin`, then `FromAgent` and `Stop`. Run to daemon: `Prepared`, `ToAgent`, `LogLine`, `RunProgress`,
and at last `Ended`. Bodies of agents' messages pass unread: only the run decodes them. Both ends are ours, and still
everything is bounded and typed, so that a broken run cannot hurt the daemon.
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
    """The first frame: what to run and where to leave it."""

    run_id: str
    scenario_text: str
    scenario_root: str
    """Paths of the scenario are relative to this directory and stay below it."""
    rig_text: str
    rig_root: str
    ports: tuple[str, ...]
    """"agent/port" of every port that is leased to the run; the rest of the rig does not exist for it."""
    out_dir: str
    allowed_code: AllowedCode
    busy_threads: dict[str, int]
    """By agent: its engine threads are numbered from here on, for other runs have some of those before."""
    strict: bool
    """Whether what the device's profile contradicts is an error."""
    closing: str = ""
    """Why a run of the past in `out_dir` ended without its results: they are made from what it left, and nothing is run; "" of
    a run that is to be run."""
    traces: str = ""
    """Directory of the uploaded traces, which scenarios name by digest; "" if there is none."""


@dataclass(frozen=True, slots=True)
class FromAgent:
    """A message of an agent whose slot the run has leased."""

    identity: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Wind up: stop the traffic, collect, store, end."""

    reason: str


# ---- run to daemon


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan stands; these agents are wanted."""

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
    """Results are being worked out and written: so many ops of a long run are, or a step begins."""

    ops: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame: how it ended. What is in `out_dir` is not whole if `stored` is false."""

    exit_code: int
    reason: str
    stored: bool
    summary: str
    """summary.json, "" if not stored."""
    again: bool = False
    """Whether results that were not stored can be made from what the run left, once there is room."""
    blamed: dict[str, str] = field(default_factory=dict)
    """What is wrong with ports that could not be prepared, by "agent/port"."""
    held_up: str = ""
    """What of the rack's own, such as its disk, kept the run from beginning: the job may begin when that is over."""


DaemonFrame = Begin | FromAgent | Stop
RunFrame = Prepared | ToAgent | LogLine | RunProgress | TrafficEnded | Storing | Ended

_PROTOCOL: Final = Protocol(
    1,
    "the controller was installed anew while it ran: start it again",
    Rules(text_chars=MAX_FRAME_BYTES, items=MAX_FRAME_BYTES, binary=True),
)
FROM_DAEMON: Final = MessageSet[DaemonFrame](
    _PROTOCOL, DaemonFrame, "the daemon", max_bytes=MAX_FRAME_BYTES, max_values=_MAX_VALUES
)
FROM_RUN: Final = MessageSet[RunFrame](
    _PROTOCOL, RunFrame, "a run", max_bytes=MAX_FRAME_BYTES, max_values=_MAX_VALUES
)
