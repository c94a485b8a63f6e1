"""The protocol's edge: every message survives the trip, everything else is refused by name, nothing else is raised."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD
from etloop.contract.protocol import messages
from etloop.contract.protocol.message_set import MessageTooLarge, VersionMismatch
from etloop.contract.protocol.messages import (
    MAX_TEXT_CHARS,
    MAX_TO_CONTROLLER_BYTES,
    PROTOCOL_VERSION,
    AgentMessage,
    Assign,
    ControllerMessage,
    Flows,
    Hello,
    Report,
    Welcome,
    clip,
)
from etloop.contract.protocol.wire import decode_from_agent, decode_from_controller, encode
from tests.support.control_plane.protocol_golden import (
    FROM_AGENT,
    FROM_CONTROLLER,
    PROGRESS,
    golden,
    whole_bytes,
)


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


def test_the_bytes_of_every_message_are_those_of_its_version() -> None:
    """Else `PROTOCOL_VERSION` changes, and `python -m tests.support.control_plane.protocol_golden` writes the file."""
    assert {
        type(message).__name__: whole_bytes(message) for message in (*FROM_AGENT, *FROM_CONTROLLER)
    } == golden()


def test_no_message_is_left_out_here() -> None:
    assert {type(message) for message in FROM_AGENT} == set(messages.AgentMessage.__args__)
    assert {type(message) for message in FROM_CONTROLLER} == set(messages.ControllerMessage.__args__)


def test_directions_are_kept_apart() -> None:
    with pytest.raises(ProtocolError, match='an agent does not send "Welcome"'):
        decode_from_agent(encode(Welcome(1, 2)))
    with pytest.raises(ProtocolError, match='a controller does not send "Hello"'):
        decode_from_controller(encode(Hello("a", "h", 1, {})))


def body(name: object, fields: object, version: object = PROTOCOL_VERSION) -> bytes:
    packed: bytes = msgpack.packb([version, name, fields])
    return packed


OPS = np.zeros(2, OP_RECORD).tobytes()
REPORT: dict[str, Any] = {
    "run_id": "r",
    "progress": {"ops_done": 0, "ops_total": 0, "wire_tx_bytes": 0, "wire_rx_bytes": 0, "quiet_ns": 0},
    "completed": False,
    "ops": ["op record", 2, OPS],
}
FINISHED: dict[str, Any] = {
    "run_id": "r",
    "end": "DONE",
    "rates_sent": 0,
    "streams": [],
    "failure": "",
    "ops_sent": 0,
    "flows_sent": 0,
    "ports": ["port record", 0, b""],
}

FLOWS: dict[str, Any] = {"run_id": "r", "flows": ["flow record", 0, b""]}


def deflated(fields: object) -> bytes:
    return zlib.compress(msgpack.packb(fields))


ENVELOPE = msgpack.packb([PROTOCOL_VERSION, "Bye", {}])[:2]
"""The head of a list of three, and the version."""
BYE = bytes.fromhex("a3 427965")

REFUSED = {
    "a list of two": (msgpack.packb([PROTOCOL_VERSION, "Bye"]), "not a message: expected a list of version"),
    "an object": (msgpack.packb({"Bye": 1}), "not a message: expected a list of version"),
    "a version of text": (body("Bye", {}, "1"), "not a message: expected a list of version"),
    "a version that is true": (body("Bye", {}, True), "not a message: expected a list of version"),
    "a name that is a number": (body(7, {}), "an agent does not send 7"),
    "an unknown message": (body("Launch", {}), 'an agent does not send "Launch"'),
    "fields as a list": (body("Bye", ["x"]), "Bye: expected an object, got a list of 1"),
    "an unknown field": (body("Bye", {"reason": "x", "force": 1}), "Bye.force: is not a key here"),
    "missing fields": (
        body("Pong", {"sequence": 1}),
        "Pong.controller_ns: is missing; Pong.receive_ns: is missing; Pong.send_ns: is missing",
    ),
    "several mistakes": (
        body("Started", {"run_id": 1, "margin_ns": None, "why": ""}),
        (
            "Started.why: is not a key here; Started.run_id: expected text, got 1; "
            "Started.margin_ns: expected an integer, got null"
        ),
    ),
    "more mistakes than anybody reads": (
        body("Loaded", {"run_id": "r", "degraded": [1] * 1000}),
        "Loaded.degraded[7]: expected text, got 1; and 56 more",
    ),
    "text for a number": (
        body("Started", {"run_id": "r", "margin_ns": "5"}),
        'Started.margin_ns: expected an integer, got "5"',
    ),
    "a truth value for a number": (
        body("Started", {"run_id": "r", "margin_ns": True}),
        "Started.margin_ns: expected an integer, got true",
    ),
    "a number beyond 64 bits with sign": (
        body("Started", {"run_id": "r", "margin_ns": 1 << 63}),
        "Started.margin_ns: expected an integer of -9223372036854775808 to 9223372036854775807, got 9223372036854775808",
    ),
    "a number for text": (body("Armed", {"run_id": 5}), "Armed.run_id: expected text, got 5"),
    "too long a text": (
        body("Armed", {"run_id": "x" * (MAX_TEXT_CHARS + 1)}),
        "Armed.run_id: expected at most 4096 characters, got 4097",
    ),
    "a number for a truth value": (
        body("Report", REPORT | {"completed": 1}),
        "Report.completed: expected true or false, got 1",
    ),
    "an enumeration's stranger": (
        body("Finished", FINISHED | {"end": "LOST"}),
        'Finished.end: expected one of DONE, FAILED, STOPPED, NEVER_STARTED, got "LOST"',
    ),
    "mistakes deep inside": (
        body(
            "LoadFailed", {"run_id": "r", "problems": [{"where": "", "what": "", "remedy": ""}, {"where": 1}]}
        ),
        (
            "LoadFailed.problems[1].where: expected text, got 1; LoadFailed.problems[1].what: is missing; "
            "LoadFailed.problems[1].remedy: is missing"
        ),
    ),
    "a tuple that is no list": (
        body("Loaded", {"run_id": "r", "ends": [], "degraded": "ab", "capabilities": []}),
        'Loaded.degraded: expected a list, got "ab"',
    ),
    "a map that is none": (
        body("Hello", {"name": "a", "host": "h", "pid": 1, "versions": 3}),
        "Hello.versions: expected an object, got 3",
    ),
    "a map of something else": (
        body("Hello", {"name": "a", "host": "h", "pid": 1, "versions": {"python": 3}}),
        "Hello.versions.python: expected text, got 3",
    ),
    "a column that is no column": (
        body("Report", REPORT | {"ops": 5}),
        "Report.ops: expected a column as type name, length and bytes, got 5",
    ),
    "records of another sort": (
        body("Report", REPORT | {"ops": ["flow record", 0, b""]}),
        'Report.ops: expected a column of op record, got "flow record"',
    ),
    "objects for records": (
        body("Report", REPORT | {"ops": ["O", 0, b""]}),
        'Report.ops: expected a column of op record, got "O"',
    ),
    "two dimensions": (
        body("Report", REPORT | {"ops": ["op record", [1, 2], OPS]}),
        "Report.ops: expected the length of a column, got a list of 2",
    ),
    "a negative length": (
        body("Report", REPORT | {"ops": ["op record", -1, OPS]}),
        "Report.ops: expected the length of a column, got -1",
    ),
    "fewer bytes than told": (
        body("Report", REPORT | {"ops": ["op record", 3, OPS]}),
        f"Report.ops: expected 3 x op record in {3 * OP_RECORD.itemsize} bytes, got {2 * OP_RECORD.itemsize} bytes",
    ),
    "bytes as text": (
        body("Report", REPORT | {"ops": ["op record", 0, ""]}),
        'Report.ops: expected the bytes of a column, got ""',
    ),
    "a field twice": (
        ENVELOPE + BYE + bytes.fromhex("82 a6 726561736f6e a1 78 a6 726561736f6e a1 79"),
        "not a message: a key is repeated",
    ),
    "a length that promises more than comes": (ENVELOPE + bytes.fromhex("dd ffffffff"), "not a message"),
    "an extension type": (ENVELOPE + BYE + bytes.fromhex("d4 01 00"), "not a message"),
    "lists in lists without end": (ENVELOPE + b"\x91" * 5000, "not a message"),
    "more values than any message has": (
        ENVELOPE + BYE + b"\xdd\x00\x10\x00\x01" + b"\x90" * ((1 << 20) + 1),
        "not a message",
    ),
    "nothing": (b"", "not a message"),
    "fields that are to be deflated, as they are": (
        body("Flows", FLOWS),
        "Flows: expected its fields deflated, got an object of 2 keys",
    ),
    "fields deflated as something else": (
        body("Flows", b"PK\x03\x04"),
        "Flows: expected its fields deflated (RFC 1950): ",
    ),
    "fields deflated in part": (
        body("Flows", deflated(FLOWS)[:-5]),
        "Flows: the deflated data is cut off",
    ),
    "more after what is deflated": (
        body("Flows", deflated(FLOWS) + b"x"),
        "Flows: the deflated data goes on after its end",
    ),
    "a little that inflates to more than a message": (
        body("Flows", zlib.compress(bytes(MAX_TO_CONTROLLER_BYTES + 1))),
        f"Flows: inflates to more than the {MAX_TO_CONTROLLER_BYTES} bytes of a message",
    ),
    "no fields in what is deflated": (
        body("Flows", zlib.compress(b"\xc1")),
        "Flows: not the fields of a message: ",
    ),
    "deflated: fewer bytes than told": (
        body("Flows", deflated(FLOWS | {"flows": ["flow record", 3, bytes(2 * FLOW_RECORD.itemsize)]})),
        (
            f"Flows.flows: expected 3 x flow record in {3 * FLOW_RECORD.itemsize} bytes, "
            f"got {2 * FLOW_RECORD.itemsize} bytes"
        ),
    ),
    "deflated: more values than any message has": (
        body("Flows", zlib.compress(b"\xdd\x00\x10\x00\x01" + b"\x90" * ((1 << 20) + 1))),
        "Flows: not the fields of a message: ",
    ),
}


@pytest.mark.parametrize(("received", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_name(received: bytes, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_from_agent(received)
    assert expected in str(caught.value)


def test_another_version_is_refused_before_anything_is_looked_at() -> None:
    with pytest.raises(VersionMismatch) as caught:
        decode_from_agent(body("Hello from the future", [1, 2, 3], PROTOCOL_VERSION + 1))
    assert str(caught.value) == (
        f"the peer speaks protocol {PROTOCOL_VERSION + 1}, this side {PROTOCOL_VERSION}; "
        "install the same etloop on the controller and on every agent"
    )
    assert caught.value.theirs == PROTOCOL_VERSION + 1
    with pytest.raises(VersionMismatch, match="the peer speaks protocol 2, this side"):
        decode_from_controller(msgpack.packb([2, 4, "Refused", {"reason": "an envelope of another shape"}]))


def test_our_own_mistakes_are_refused_before_they_leave() -> None:
    with pytest.raises(
        ProtocolError, match=r"Report\.ops: expected a column of op record, got float64 of shape"
    ):
        encode(Report("r", PROGRESS, True, np.zeros(3)))  # type: ignore[arg-type]
    with pytest.raises(MessageTooLarge, match=r"Flows: .* bytes; an agent sends at most 8388608"):
        encode(Flows("r", np.zeros(60_000, FLOW_RECORD)))


def test_counters_that_are_mostly_zeros_travel_as_a_few_bytes() -> None:
    flows = np.zeros(10_000, FLOW_RECORD)
    flows["local_qpn"], flows["tx_packets"] = np.arange(10_000), np.arange(10_000) % 991
    encoded = encode(Flows("r", flows))
    assert len(encoded) < flows.nbytes // 10
    assert same(decode_from_agent(encoded), Flows("r", flows))


def test_long_texts_are_cut_visibly() -> None:
    assert clip("short") == "short"
    assert len(clip("x" * 9999)) == MAX_TEXT_CHARS
    assert clip("x" * 9999).endswith("x ...")


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


@given(JSONISH, st.binary(max_size=9))
def test_any_fields_that_are_deflated_are_a_message_or_refused(fields: object, after: bytes) -> None:
    refuses_or_accepts(body("Flows", deflated(fields) + after))


ENCODED = [encode(message) for message in (*FROM_AGENT, *FROM_CONTROLLER)]


@given(st.sampled_from(ENCODED), st.data())
def test_damaged_messages_are_a_message_or_refused(encoded: bytes, data: st.DataObject) -> None:
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    refuses_or_accepts(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
