"""One message of every type, and the bytes that they have in this version of the protocol.

`python -m tests.support.control_plane.protocol_golden` writes the bytes anew, for a new `PROTOCOL_VERSION`.
"""

from __future__ import annotations

import json
import zlib
from typing import Final

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np

from etloop.contract.base.errors import Problem
from etloop.contract.model.frame_streams import FrameCount
from etloop.contract.model.records import (
    CC_RECORD,
    FLOW_RECORD,
    OP_RECORD,
    PORT_RECORD,
    POST_RECORD,
    PROBE_RECORD,
    WAIT_RECORD,
)
from etloop.contract.protocol.messages import (
    PROTOCOL_VERSION,
    AgentMessage,
    Arm,
    Armed,
    Assign,
    Bye,
    Captured,
    Collect,
    ControllerMessage,
    Dismissed,
    EngineEnd,
    Faulted,
    Finished,
    Flows,
    Hello,
    Loaded,
    LoadFailed,
    Pair,
    Paired,
    Ping,
    Pong,
    Post,
    Probe,
    Probed,
    ProbeFailure,
    Progress,
    QueryWaits,
    QueuePairEnd,
    Rates,
    Refused,
    Report,
    Start,
    Started,
    Waits,
    Welcome,
)
from etloop.contract.protocol.wire import encode
from tests.support.control_plane.control_plane_by_hand import ring_assignments
from tests.support.places import ROOT

FILE: Final = ROOT / "tests" / "data" / "protocol.json"
FRAMES: Final = (FrameCount(1, 0, sends=True, frames=2, frame_bytes=3, first_ns=4, last_ns=5, is_over=True),)
PROGRESS: Final = Progress(1, 2, 3, 4, 5, frames=FRAMES)

FROM_AGENT: list[AgentMessage] = [
    Hello("a", "host", 1, {"python": "3.11"}),
    Pong(1, -2, 3, 1 << 62),
    Loaded("r", ("small buffers",), (QueuePairEnd(3, 1, True, 17, 0x7F00_0000_0000, 752),)),
    LoadFailed("r", (Problem("where", "what", "remedy"),)),
    Paired("r"),
    Probed("r", 2, 1, (ProbeFailure(0, 1, "10.0.0.1", "10.0.0.2", "no reply"),), np.zeros(2, PROBE_RECORD)),
    Armed("r"),
    Started("r", -5),
    Report("r", PROGRESS, True, np.zeros(3, OP_RECORD)),
    Faulted("r", "it broke"),
    Waits("r", 1, True, np.zeros(2, WAIT_RECORD)),
    Flows("r", np.zeros(2, FLOW_RECORD)),
    Rates("r", np.zeros(2, CC_RECORD)),
    Captured("r", 1, b"frame"),
    Finished("r", EngineEnd.FAILED, "why", 3, 2, np.zeros(1, PORT_RECORD), 7),
    Bye("Ctrl-C"),
]
FROM_CONTROLLER: list[ControllerMessage] = [
    Welcome(1, 2),
    Refused("no"),
    Ping(1, 2),
    Assign(ring_assignments("a", "b")["a"]),
    Pair("r", (QueuePairEnd(3, 1, False, 17, 0x7FFF_0000_0000_0000, 752, 0x7FFF_0000_0000_2000),)),
    Probe("r"),
    Arm("r"),
    Start("r", 1, True),
    Post("r", np.zeros(2, POST_RECORD), True),
    QueryWaits("r", 1),
    Collect("r"),
    Dismissed("r", True, "why"),
]


def whole_bytes(message: AgentMessage | ControllerMessage) -> bytes:
    """Return the bytes of a message with its fields inflated where they travel deflated: not every zlib deflates alike."""
    body = encode(message)
    version, name, fields = msgpack.unpackb(body)
    if not isinstance(fields, bytes):
        return body
    head: bytes = msgpack.packb([version, name, {}])
    return head[:-1] + zlib.decompress(fields)


def golden() -> dict[str, bytes]:
    """Return message name -> its bytes; none if the file is of another version."""
    stored = json.loads(FILE.read_text())
    return (
        {}
        if stored.pop("version") != PROTOCOL_VERSION
        else {name: bytes.fromhex(text) for name, text in stored.items()}
    )


if __name__ == "__main__":
    written = {
        type(message).__name__: whole_bytes(message).hex() for message in (*FROM_AGENT, *FROM_CONTROLLER)
    }
    FILE.write_text(json.dumps({"version": PROTOCOL_VERSION} | written, indent=0) + "\n")
