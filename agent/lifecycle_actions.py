"""Actions that an agent's life orders from its connection, engine, process and log; and the results that an engine
hands over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ExitCode
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.frame_streams import FrameCount
from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, PORT_RECORD, StreamCount
from etloop.contract.protocol.messages import AgentMessage, EngineEnd, QueuePairEnd


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send this to the controller."""

    message: AgentMessage


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """Build an engine; answer with `on_opened` or `on_open_failed`."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class JoinEnds:
    """Join the engine's queue pairs with these ends on network cards; answer with `on_paired`."""

    peers: tuple[QueuePairEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class StartProbe:
    """Start the engine's probes; answer with `on_probed`."""


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Start the traffic at this time of the agent's clock; `posted`: its ops are posted, and completed ones reported at once."""

    start_ns: int
    posted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PostOps:
    """Begin these ops (`POST_RECORD`); `last`: no more will follow."""

    posts: NDArray[np.void]
    last: bool


@dataclass(frozen=True, slots=True)
class QueryEngineWaits:
    """Ask the engine what it waits for; answer with `on_waits`."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Stop the engine, take what it measured and close it; answer with `on_handed_over`."""


@dataclass(frozen=True, slots=True)
class CloseEngine:
    """Stop and close the engine; its records are discarded."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Leave the connection and open a new one."""

    linger: bool
    """True if queued messages may still be delivered; False for a controller that timed out."""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the process."""

    code: ExitCode


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the agent's log."""

    text: str


Action = (
    SendMessage
    | OpenEngine
    | JoinEnds
    | StartProbe
    | StartEngine
    | PostOps
    | QueryEngineWaits
    | HandOver
    | CloseEngine
    | Reconnect
    | Leave
    | Log
)


@dataclass(frozen=True, slots=True, eq=False)
class HandedOver:
    """Results that an engine left: how it ended, its records and its counters."""

    end: EngineEnd
    failure: str
    ops: NDArray[np.void] = field(default_factory=lambda: np.empty(0, OP_RECORD))
    flows: NDArray[np.void] = field(default_factory=lambda: np.empty(0, FLOW_RECORD))
    ports: NDArray[np.void] = field(default_factory=lambda: np.empty(0, PORT_RECORD))
    rates: NDArray[np.void] = field(default_factory=lambda: np.empty(0, CC_RECORD))
    streams: tuple[StreamCount, ...] = ()
    frames: tuple[FrameCount, ...] = ()
    captured: Mapping[int, bytes] = field(default_factory=dict)
    """Records of a pcap file by port of the assignment."""
