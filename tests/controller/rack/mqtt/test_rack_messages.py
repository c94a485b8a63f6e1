"""Bodies of requests: what is refused before anything is made of it."""

from __future__ import annotations

import json

import msgpack  # type: ignore[import-untyped]
import pytest

from etloop.contract.protocol.serialization import MAX_VALUES
from etloop.controller.rack.mqtt.encoding import ContentType, decode_published, decode_request
from etloop.controller.rack.mqtt.messages import ListResponse, SubmitRequest
from etloop.controller.rack.mqtt.topics import Topics

MANY = MAX_VALUES + 1
TOO_MANY = (
    ("numbers in a list", b'{"ports": [' + b"0," * MANY + b"0]}", ContentType.JSON),
    ("lists in a list", b'{"ports": [' + b"[]," * MANY + b"0]}", ContentType.JSON),
    ("keys", json.dumps({str(k): 0 for k in range(MANY)}).encode(), ContentType.JSON),
    ("texts that never end", b'{"ports": ["' + b'\\"' * MANY * 3, ContentType.JSON),
    (
        "lists in lists",
        b"\x81\xa5ports\xdc\x00\x10" + 16 * (b"\xdc\xff\xff" + b"\x90" * 65535),
        ContentType.MSGPACK,
    ),
    ("keys", msgpack.packb({str(k): 0 for k in range(MANY)}), ContentType.MSGPACK),
)


@pytest.mark.parametrize(
    ("body", "form"), [each[1:] for each in TOO_MANY], ids=[f"{each[2].name}-{each[0]}" for each in TOO_MANY]
)
def test_no_request_is_read_that_has_more_values_than_any_of_ours(body: bytes, form: ContentType) -> None:
    request, problems = decode_request(SubmitRequest, body, form)
    assert request is None
    (problem,) = problems
    assert problem.what.startswith(f"is not {form}: ")
    assert str(MAX_VALUES) in problem.what or "Unterminated string" in problem.what


def test_a_long_text_full_of_marks_is_one_value() -> None:
    text = '{"a": [1, 2, "\\\\"]},' * 50_000
    request, problems = decode_request(
        SubmitRequest, json.dumps({"scenario": text}).encode(), ContentType.JSON
    )
    assert problems == ()
    assert request is not None
    assert request.scenario == text


def test_what_a_rack_tells_may_be_longer() -> None:
    reported = {"format": 1, "jobs": [], "problems": [], "correlation": "", "new": list(range(MANY))}
    answer, problems = decode_published(ListResponse, json.dumps(reported).encode())
    assert problems == ()
    assert answer is not None


def test_of_many_unknown_keys_the_first_are_told() -> None:
    _, problems = decode_request(
        SubmitRequest, json.dumps({f"k{k}": 0 for k in range(5000)}).encode(), ContentType.JSON
    )
    assert len(problems) == 64
    assert str(problems[0]).startswith("k0: is not a key here; the keys are scenario")


@pytest.mark.parametrize("escape", ["\\ud800", "\\uDFFF", "x\\uDc00y"])
def test_half_a_character_is_no_text(escape: str) -> None:
    for body in (
        f'{{"scenario": "{escape}"}}',
        f'{{"scenario": "x", "labels": {{"{escape}": "y"}}}}',
        f'{{"{escape}": 1}}',
    ):
        request, problems = decode_request(SubmitRequest, body.encode(), ContentType.JSON)
        assert request is None
        assert "half of a character" in problems[0].what


def test_a_whole_pair_of_escapes_is_a_text() -> None:
    request, _ = decode_request(SubmitRequest, b'{"scenario": "\\ud83d\\ude00"}', ContentType.JSON)
    assert request is not None
    assert request.scenario == "\U0001f600"


@pytest.mark.parametrize(
    "mark", ["\x00", "\x01", "\x1f", "\x7f", "\x9f", "\ufdd0", "\uffff", "\U0010fffe", "+", "#"]
)
def test_no_answer_goes_where_a_broker_would_end_the_connection(mark: str) -> None:
    assert not Topics("rack1").may_respond_on(f"clients/{mark}/answers")
    assert not Topics("rack1").may_respond_on(f"etloop/v1/rack1/replies/{mark}")
    assert Topics("rack1").may_respond_on("clients/\u00e4/answers")
