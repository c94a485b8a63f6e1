"""Every message between a controller and an agent, as a type.

The fields are the protocol: `wire` derives its bytes from the annotations and refuses whatever does not fit them. Any change
of a field, of `Assignment`, of a record layout or of the meaning of a number in them changes `PROTOCOL_VERSION`. `machine`
decides which messages are allowed when.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.capabilities import UNKNOWN, Capabilities
from etloop.contract.model.engine import ThreadBytes
from etloop.contract.model.frame_streams import FrameCount
from etloop.contract.model.records import (
    CC_RECORD,
    FLOW_RECORD,
    OP_RECORD,
    PORT_RECORD,
    POST_RECORD,
    PROBE_RECORD,
    WAIT_RECORD,
    StreamCount,
)

PROTOCOL_VERSION: Final = 26
"""Both sides must have the same version; otherwise they refuse each other with an error that names both."""

MAX_TO_AGENT_BYTES: Final = 256 << 20
"""Largest message to an agent. An assignment shares its connection with heartbeats: at 1 Gbit/s this takes 2.1 s,
less than the silence after which a controller counts as gone."""
MAX_TO_CONTROLLER_BYTES: Final = 8 << 20
"""Largest message to a controller: one batch and its envelope, with room."""
MAX_BATCH_BYTES: Final = 4 << 20
"""Most record bytes in one message, so that pongs are never far behind."""
CLOSED_AFTER_NS: Final = 3 * NS_PER_S
"""Time after the end of a connection within which the peer may come back on a new one; then it counts as lost."""
REPORT_NS: Final = 100 * NS_PER_MS
"""Report interval with a few agents: short enough for a live display."""
MAX_TEXT_CHARS: Final = 4096
"""Longest text inside a message; see `clip`."""

OpRecords: TypeAlias = Annotated[NDArray[np.void], OP_RECORD, "op record"]
FlowRecords: TypeAlias = Annotated[NDArray[np.void], FLOW_RECORD, "flow record"]
CcRecords: TypeAlias = Annotated[NDArray[np.void], CC_RECORD, "rate record"]
PortRecords: TypeAlias = Annotated[NDArray[np.void], PORT_RECORD, "port record"]
ProbeRecords: TypeAlias = Annotated[NDArray[np.void], PROBE_RECORD, "probe record"]
PostRecords: TypeAlias = Annotated[NDArray[np.void], POST_RECORD, "posted op"]
WaitRecords: TypeAlias = Annotated[NDArray[np.void], WAIT_RECORD, "wait record"]


def clip(text: str) -> str:
    """Return `text` cut to the length that a message may carry, with a mark where it was cut."""
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 4] + " ..."


class EngineEnd(Enum):
    """State of an agent's engine when it handed over its results."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """The engine was ordered to stop before its work was complete."""
    NEVER_STARTED = "never started"


# ---- agent to controller


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of an agent."""

    name: str
    host: str
    pid: int
    versions: dict[str, str]
    """Versions by component: etloop, python, kernel ..."""
    slot: int = 0
    """Slot of this connection, counted from 0: a process takes part in as many runs at once as it has connections, each with a
    slot of its own."""
    capabilities: Capabilities = UNKNOWN
    """Capabilities of the host; Hello is sent again whenever they change."""
    process: str = ""
    """Random identifier of the process: distinguishes two with the same name and process number on hosts of the same name."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to a `Ping`: its two numbers, and when it came and left on the agent's clock."""

    sequence: int
    controller_ns: int
    receive_ns: int
    send_ns: int


@dataclass(frozen=True, slots=True)
class QueuePairEnd:
    """One end of a queue pair on a network card, which assigns its own numbers; the plan has those of the engine's transport."""

    connection: int
    """Row of the connections of the agent that sends or receives this."""
    queue_pair: int
    """Number of the queue pair within the connection, from 0."""
    sends_data: bool
    qpn: int
    address: int
    """Address of its memory, used with the remote key: for grants at a sending end, for writes without a grant at a receiving
    end."""
    key: int
    closings: int = 0
    """Address, with the same key, of the words by which a receiving end closes one-sided operations; 0: none."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine is open: sockets are bound, memory is taken."""

    run_id: str
    degraded: tuple[str, ...]
    """Settings that the engine cannot meet."""
    ends: tuple[QueuePairEnd, ...] = ()
    """Queue pair ends of the agent on network cards."""
    capabilities: tuple[str, ...] = ()
    """Optional host features that its ports have, such as departure times, and reasons for missing ones."""


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The engine could not be opened, with every reason found."""

    run_id: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """Every queue pair that has an end on a network card is ready to receive and to send at this agent."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """One queue pair that a probe did not get through."""

    src_rank: int
    dst_rank: int
    src_address: str
    dst_address: str
    problem: str


@dataclass(frozen=True, slots=True)
class Probed:
    """All connections that this agent sends on were probed. `failures` holds the first few of `failed`."""

    run_id: str
    queue_pairs: int
    failed: int
    failures: tuple[ProbeFailure, ...]
    round_trips: ProbeRecords
    """Least round trip of each connection that answered, by connection; no more than fit into one batch."""


@dataclass(frozen=True, slots=True)
class Armed:
    """Ready for the start order."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Started:
    """The start order arrived `margin_ns` before the start. Negative: it arrived too late, and the engine was not started."""

    run_id: str
    margin_ns: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an engine is."""

    ops_done: int
    ops_total: int
    wire_tx_bytes: int
    wire_rx_bytes: int
    quiet_ns: int
    """Time since an operation, message or packet last made progress."""
    threads: tuple[ThreadBytes, ...] = ()
    """One entry per thread, in the order of the assignment's ports, `engine_threads` of each."""
    frames: tuple[FrameCount, ...] = ()
    """Streams of frames so far."""


@dataclass(frozen=True, slots=True)
class Report:
    """Operations completed since the last report, and how far the engine is; sent about ten times a second."""

    run_id: str
    progress: Progress
    completed: bool
    """True if all operations of this agent are complete."""
    ops: OpRecords


@dataclass(frozen=True, slots=True)
class Faulted:
    """The engine failed, or an order came that the agent's state does not accept."""

    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of every unfinished operation; `last` closes the answer to the `QueryWaits` of that query."""

    run_id: str
    query: int
    last: bool
    waits: WaitRecords


@dataclass(frozen=True, slots=True)
class Flows:
    """Counters of some queue pairs, after the engine stopped."""

    run_id: str
    flows: FlowRecords


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates and windows over time, after the engine stopped; where the assignment asks for them."""

    run_id: str
    rates: CcRecords


@dataclass(frozen=True, slots=True)
class Captured:
    """Frames that a port received, after the engine stopped; a part of them."""

    run_id: str
    port: int
    """Index into the ports of the assignment."""
    records: bytes
    """Bytes of a pcap file behind its header: several messages of a port make whole records."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Closes the results that an agent hands over. The counts let the controller check that they are complete."""

    run_id: str
    end: EngineEnd
    failure: str
    ops_sent: int
    flows_sent: int
    ports: PortRecords
    rates_sent: int = 0
    streams: tuple[StreamCount, ...] = ()
    frames: tuple[FrameCount, ...] = ()


@dataclass(frozen=True, slots=True)
class Bye:
    """The agent leaves on its own account, such as on Ctrl-C."""

    reason: str


# ---- controller to agent


@dataclass(frozen=True, slots=True)
class Welcome:
    """The agent belongs to the rig. Silence longer than `lost_after_ns` means that the controller is gone."""

    heartbeat_ns: int
    lost_after_ns: int
    slots: int = 1
    """Number of runs at once that the controller may assign to this agent. While all its slots are taken, an agent with fewer
    connections opens one more, so that one of them waits idle."""
    report_ns: int = REPORT_NS
    """Least time between two of the agent's reports in a run; more where many agents report to one controller."""


class RefusalCause(Enum):
    """Why an agent may not join."""

    MISTAKE = "mistake"
    """A mistake in its command line or in the rig: it ends and reports the mistake to its user."""
    PROTOCOL = "protocol"
    """The agent violates the protocol, or has another version of it: it ends likewise."""
    NAME_TAKEN = "name_taken"
    """Another process of that name is connected. This cause and those below may vanish without the agent: it tries again."""
    KEY_OF_ANOTHER = "key_of_another"
    """The agent's key is that of an agent of another name."""
    KEY_REVOKED = "key_revoked"
    NOT_NAMED = "not_named"
    """The rig of a rack does not name it; the rig is read again while the rack serves."""


LASTING_REFUSALS: Final = frozenset({RefusalCause.MISTAKE, RefusalCause.PROTOCOL})


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent may not join; it reports the reason to its user, and ends if the cause lasts."""

    reason: str
    cause: RefusalCause = RefusalCause.MISTAKE


@dataclass(frozen=True, slots=True)
class Ping:
    """Heartbeat of the controller, and a question for the agent's clock."""

    sequence: int
    controller_ns: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Open an engine for this."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Pair:
    """Join your queue pairs with their ends on network cards; no agent sends a packet before all have."""

    run_id: str
    peers: tuple[QueuePairEnd, ...] = ()
    """Ends on network cards that the agent's queue pairs have as their peers."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe every connection you send on."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Arm:
    """Stand ready for `Start`."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Start:
    """Begin at `start_ns` of the agent's own monotonic clock."""

    run_id: str
    start_ns: int
    posted: bool = False
    """True: programs only describe ops; `Post` begins those of the awaited ranks, and every completed op is reported at once."""


@dataclass(frozen=True, slots=True)
class Post:
    """Begin these ops, in this order; `last`: no more will follow, and the engine ends when they are complete."""

    run_id: str
    posts: PostRecords
    last: bool = False


@dataclass(frozen=True, slots=True)
class QueryWaits:
    """Say what every unfinished operation waits for. Inquiries of a run are counted from 1."""

    run_id: str
    query: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Stop the engine and hand over what it measured."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The session is over; the agent is free for the next controller."""

    run_id: str
    aborted: bool
    reason: str


AgentMessage: TypeAlias = (
    Hello
    | Pong
    | Loaded
    | LoadFailed
    | Paired
    | Probed
    | Armed
    | Started
    | Report
    | Faulted
    | Waits
    | Flows
    | Rates
    | Captured
    | Finished
    | Bye
)
"""Messages that an agent may send."""

ControllerMessage: TypeAlias = (
    Welcome | Refused | Ping | Assign | Pair | Probe | Arm | Start | Post | QueryWaits | Collect | Dismissed
)
"""Messages that a controller may send."""
