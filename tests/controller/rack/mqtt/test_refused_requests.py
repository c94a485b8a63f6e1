"""A request that is no request is refused where its sender listens, also if only its broken body says where that is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiomqtt
import msgpack  # type: ignore[import-untyped]
import pytest

from etloop.controller.rack.mqtt.encoding import ContentType, content_type
from etloop.controller.rack.mqtt.return_address import ReturnAddress, return_address
from tests.controller.rack.mqtt.test_rack_mqtt import Broker, broker, mosquitto, rack_with
from tests.controller.rack.test_rack_daemon import SCENARIO, place
from tests.support.first_light.commands import PATIENCE_S, Place

__all__ = ["broker", "mosquitto", "place"]

ADDRESS = {"response_topic": "my/answers", "correlation": "c1"}


def body(**keys: Any) -> bytes:
    """A submission that says where to answer."""
    return json.dumps({"scenario": SCENARIO, **keys, **ADDRESS}).encode()


@pytest.mark.parametrize(
    ("sentence", "sent", "expected"),
    [
        ("a key too many", body(nonsense=1), ReturnAddress("my/answers", "c1")),
        (
            "a control character",
            body(submitter="X").replace(b"X", b"\x1b"),
            ReturnAddress("my/answers", "c1"),
        ),
        ("half of it", b'{"response_topic" : "my/answers", "scen', ReturnAddress("my/answers")),
        ("the address named twice", body() + body(), ReturnAddress("my/answers", "c1")),
        ("two addresses", body() + body().replace(b"my", b"your"), ReturnAddress("", "c1")),
        ("a topic that is too long", b'{"response_topic": "' + b"a" * 1025 + b'"}', ReturnAddress()),
        ("a topic that is no text", b'{"response_topic": "\xff\xfe"}', ReturnAddress()),
        ("a topic with an escape", b'{"response_topic": "a\\u0000"}', ReturnAddress()),
        (
            "msgpack with a key too many",
            msgpack.packb({"x": 1, **ADDRESS}),
            ReturnAddress("my/answers", "c1"),
        ),
        ("msgpack whose topic is a number", msgpack.packb({"response_topic": 5}), ReturnAddress()),
        ("half of msgpack", msgpack.packb({"x": 1, **ADDRESS})[:-1], ReturnAddress()),
        ("a list in msgpack", msgpack.packb([ADDRESS]), ReturnAddress()),
        ("nothing", b"", ReturnAddress()),
    ],
)
def test_an_address_is_made_out(sentence: str, sent: bytes, expected: ReturnAddress) -> None:
    assert return_address(sent, content_type(sent, "")) == expected, sentence


def test_a_list_that_is_stated_to_be_msgpack_has_no_address() -> None:
    assert return_address(msgpack.packb([ADDRESS]), ContentType.MSGPACK) == ReturnAddress()


@pytest.mark.parametrize(
    ("sent", "where", "what"),
    [
        (body(nonsense=1), "nonsense", "is not a key here"),
        (body(submitter="a\x1bb"), "submitter", '"a\\x1bb" has unprintable characters'),
        (
            body(submitter="X").replace(b"X", b"\n"),
            "the message",
            "is not application/json: Invalid control char",
        ),
        (body(priority=1000), "priority", ""),
    ],
)
async def test_a_client_without_properties_hears_what_is_wrong(
    place: Place, broker: Broker, sent: bytes, where: str, what: str
) -> None:
    async with (
        rack_with(place, broker),
        aiomqtt.Client("127.0.0.1", broker.settings.port, protocol=aiomqtt.ProtocolVersion.V311) as client,
    ):
        await client.subscribe("my/answers")
        await client.publish("etloop/v1/rack/jobs/submit", sent, qos=1)
        async with asyncio.timeout(PATIENCE_S):
            message = await anext(client.messages)
        assert isinstance(message.payload, bytes)
        answer = json.loads(message.payload)
        assert (answer["accepted"], answer["correlation"]) == (False, "c1")
        assert answer["problems"][0]["where"] == where
        assert what in answer["problems"][0]["what"]
