"""The protocol's edge: every message survives the trip, everything else is refused by name, nothing else is raised."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from etloop.contract.base.errors import Problem, ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, PORT_RECORD, WAIT_RECORD
from etloop.contract.protocol import messages
from etloop.contract.protocol.codec import (
    MessageTooLarge,
    VersionMismatch,
    decode_from_agent,
    decode_from_controller,
    encode,
)
from etloop.contract.protocol.messages import (
    MAX_TEXT_CHARS,
    PROTOCOL_VERSION,
    AgentMessage,
    Arm,
    Armed,
    Assign,
    Bye,
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
    Ping,
    Pong,
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
    clipped,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.control_plane.control_plane_by_hand import ring_assignments

PROGRESS = Progress(1, 2, 3, 4, 5)

FROM_AGENT: list[AgentMessage] = [
    Hello("a", "host", 1, {"python": "3.11"}),
    Pong(1, -2, 3, 1 << 62),
    Loaded("r", ("small buffers",), (QueuePairEnd(3, 1, True, 17, 0x7F00_0000_0000, 752),)),
    LoadFailed("r", (Problem("where", "what", "remedy"),)),
    Probed("r", 2, 1, (ProbeFailure(0, 1, "10.0.0.1", "10.0.0.2", "no reply"),), 7),
    Armed("r"),
    Started("r", -5),
    Report("r", PROGRESS, True, np.zeros(3, OP_RECORD)),
    Faulted("r", "it broke"),
    Waits("r", 1, True, np.zeros(2, WAIT_RECORD)),
    Flows("r", np.zeros(2, FLOW_RECORD)),
    Rates("r", np.zeros(2, CC_RECORD)),
    Finished("r", EngineEnd.FAILED, "why", 3, 2, np.zeros(1, PORT_RECORD), 7),
    Bye("Ctrl-C"),
]
FROM_CONTROLLER: list[ControllerMessage] = [
    Welcome(1, 2),
    Refused("no"),
    Ping(1, 2),
    Assign(ring_assignments("a", "b")["a"]),
    Probe("r", (QueuePairEnd(3, 1, False, 17, 0x7FFF_0000_0000_0000, 752, 0x7FFF_0000_0000_2000),)),
    Arm("r"),
    Start("r", 1),
    QueryWaits("r", 1),
    Collect("r"),
    Dismissed("r", True, "why"),
]


def same(left: object, right: object) -> bool:
    """Equality that looks into arrays."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if dataclasses.is_dataclass(left):
        names = (field.name for field in dataclasses.fields(left))
        return type(left) is type(right) and all(same(getattr(left, n), getattr(right, n)) for n in names)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return left == right


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: type(message).__name__)
def test_what_an_agent_says_arrives(message: AgentMessage) -> None:
    assert same(decode_from_agent(encode(message)), message)


@pytest.mark.parametrize("message", FROM_CONTROLLER, ids=lambda message: type(message).__name__)
def test_what_a_controller_says_arrives(message: ControllerMessage) -> None:
    assert same(decode_from_controller(encode(message)), message)


def test_no_message_is_left_out_here() -> None:
    assert {type(message) for message in FROM_AGENT} == set(messages.AgentMessage.__args__)
    assert {type(message) for message in FROM_CONTROLLER} == set(messages.ControllerMessage.__args__)


def test_directions_are_kept_apart() -> None:
    with pytest.raises(ProtocolError, match="'Welcome' is no message that an agent sends"):
        decode_from_agent(encode(Welcome(1, 2)))
    with pytest.raises(ProtocolError, match="'Hello' is no message that a controller sends"):
        decode_from_controller(encode(Hello("a", "h", 1, {})))


def body(name: object, fields: object, version: tuple[object, object] = PROTOCOL_VERSION) -> bytes:
    packed: bytes = msgpack.packb([*version, name, fields])
    return packed


OPS = np.zeros(2, OP_RECORD).tobytes()
REPORT: dict[str, Any] = {
    "run_id": "r",
    "progress": {"ops_done": 0, "ops_total": 0, "wire_tx_bytes": 0, "wire_rx_bytes": 0, "quiet_ns": 0},
    "completed": False,
    "ops": ["op record", [2], OPS],
}
FINISHED: dict[str, Any] = {
    "run_id": "r",
    "end": "DONE",
    "rates_sent": 0,
    "streams": [],
    "failure": "",
    "ops_sent": 0,
    "flows_sent": 0,
    "ports": ["port record", [0], b""],
}

REFUSED = {
    "an array of three": (msgpack.packb([1, 0, "Bye"]), "not a message: expected an array of version"),
    "a version of text": (body("Bye", {}, ("1", 0)), "the protocol version is not two integers"),
    "a name that is a number": (body(7, {}), "its name is int, expected text"),
    "an unknown message": (body("Launch", {}), "'Launch' is no message that an agent sends"),
    "fields as an array": (body("Bye", ["x"]), "Bye: expected the fields of Bye as a map, got an array"),
    "an unknown field": (body("Bye", {"reason": "x", "force": 1}), "Bye: unknown field 'force'"),
    "a missing field": (
        body("Pong", {"sequence": 1}),
        "Pong: missing field controller_ns, receive_ns, send_ns",
    ),
    "text for a number": (
        body("Started", {"run_id": "r", "margin_ns": "5"}),
        "Started.margin_ns: expected an integer, got text",
    ),
    "a truth value for a number": (
        body("Started", {"run_id": "r", "margin_ns": True}),
        "Started.margin_ns: expected an integer, got bool",
    ),
    "a number beyond 64 bits with sign": (
        body("Started", {"run_id": "r", "margin_ns": 1 << 63}),
        "does not fit in 64 bits with sign",
    ),
    "a number for text": (body("Armed", {"run_id": 5}), "Armed.run_id: expected text, got int"),
    "too long a text": (
        body("Armed", {"run_id": "x" * (MAX_TEXT_CHARS + 1)}),
        "Armed.run_id: text of 4097 characters; at most 4096 are allowed",
    ),
    "a number for a truth value": (
        body("Report", REPORT | {"completed": 1}),
        "Report.completed: expected true or",
    ),
    "an enumeration's stranger": (
        body("Finished", FINISHED | {"end": "LOST"}),
        "Finished.end: 'LOST' is none of DONE, FAILED, STOPPED, NEVER_STARTED",
    ),
    "a mistake deep inside": (
        body(
            "LoadFailed", {"run_id": "r", "problems": [{"where": "", "what": "", "remedy": ""}, {"where": 1}]}
        ),
        "LoadFailed.problems[1]: missing field remedy, what",
    ),
    "a tuple that is no array": (
        body("Loaded", {"run_id": "r", "ends": [], "degraded": "ab", "capabilities": []}),
        "Loaded.degraded: expected an array, got text",
    ),
    "a map that is none": (
        body("Hello", {"name": "a", "host": "h", "pid": 1, "versions": 3}, (2, 0)),
        "Hello.versions: expected a map of at most 64 texts, got int",
    ),
    "a column that is no column": (
        body("Report", REPORT | {"ops": 5}),
        "Report.ops: expected a column as type name",
    ),
    "records of another sort": (
        body("Report", REPORT | {"ops": ["flow record", [0], b""]}),
        "Report.ops: expected a column of op record, got 'flow record'",
    ),
    "objects for records": (
        body("Report", REPORT | {"ops": ["O", [0], b""]}),
        "Report.ops: expected a column of op record, got 'O'",
    ),
    "two dimensions": (
        body("Report", REPORT | {"ops": ["op record", [1, 2], OPS]}),
        "Report.ops: expected a shape of one length",
    ),
    "a negative length": (
        body("Report", REPORT | {"ops": ["op record", [-1], OPS]}),
        "Report.ops: expected a shape of one length",
    ),
    "fewer bytes than told": (
        body("Report", REPORT | {"ops": ["op record", [3], OPS]}),
        "Report.ops: 3 x op record take 264 bytes, got 176",
    ),
    "bytes as text": (
        body("Report", REPORT | {"ops": ["op record", [0], ""]}),
        "Report.ops: expected the column's bytes as binary, got text",
    ),
    "a field twice": (
        bytes.fromhex("94 01 00 a3 427965 82 a6 726561736f6e a1 78 a6 726561736f6e a1 79"),
        "not a message: a field stands twice",
    ),
    "a length that promises more than comes": (bytes.fromhex("94 01 00 dd ffffffff"), "not a message"),
    "an extension type": (bytes.fromhex("94 01 00 a3 427965 d4 01 00"), "not a message"),
    "nothing": (b"", "not a message"),
}


@pytest.mark.parametrize(("received", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_name(received: bytes, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_from_agent(received)
    assert expected in str(caught.value)


def test_another_version_is_refused_before_anything_is_looked_at() -> None:
    with pytest.raises(VersionMismatch) as caught:
        decode_from_agent(body("Hello from the future", [1, 2, 3], (2, 9)))
    assert str(caught.value) == (
        "the peer speaks protocol 2.9, this side 2.0 to 2.4; install the same etloop on the controller and on every agent"
    )


def test_our_own_mistakes_are_refused_before_they_leave() -> None:
    with pytest.raises(
        ProtocolError, match=r"Report\.ops: expected a column of op record, got float64 of shape"
    ):
        encode(Report("r", PROGRESS, True, np.zeros(3)))  # type: ignore[arg-type]
    with pytest.raises(
        MessageTooLarge, match=r"Flows: .* bytes; a message of this direction has at most 8388608"
    ):
        encode(Flows("r", np.zeros(60_000, FLOW_RECORD)))


def test_long_texts_are_cut_visibly() -> None:
    assert clipped("short") == "short"
    assert len(clipped("x" * 9999)) == MAX_TEXT_CHARS
    assert clipped("x" * 9999).endswith("x ...")


def test_decoded_columns_cannot_be_written() -> None:
    decoded = decode_from_controller(encode(FROM_CONTROLLER[3]))
    assert isinstance(decoded, Assign)
    assert isinstance(decoded.assignment, Assignment)
    assert not decoded.assignment.programs[0].kind.flags.writeable


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
NAMES = st.sampled_from([type(message).__name__ for message in (*FROM_AGENT, *FROM_CONTROLLER)])


def refuses_or_accepts(received: bytes) -> None:
    for decode in (decode_from_agent, decode_from_controller):
        try:
            decode(received)
        except ProtocolError:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(received: bytes) -> None:
    refuses_or_accepts(received)


@given(NAMES, JSONISH)
def test_any_fields_are_a_message_or_refused(name: str, fields: object) -> None:
    refuses_or_accepts(body(name, fields))


ENCODED = [encode(message) for message in (*FROM_AGENT, *FROM_CONTROLLER)]


@given(st.sampled_from(ENCODED), st.data())
def test_damaged_messages_are_a_message_or_refused(encoded: bytes, data: st.DataObject) -> None:
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    refuses_or_accepts(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
