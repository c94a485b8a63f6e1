"""What a broker keeps for a rack whose controller is away, and what it must not hand to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from etloop.contract.protocol.codec import plain
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.rack.client.client import RackClient, RackUnreachable
from etloop.controller.rack.config import GatewaySettings
from etloop.controller.rack.mqtt.gateway import MqttGateway
from etloop.controller.rack.mqtt.messages import SubmitRequest
from etloop.runtime.broker_connection import MqttVersion
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Broker, Mosquitto, broker, mosquitto, rack_with
from tests.controller.rack.test_rack_daemon import SCENARIO, Serving, place
from tests.support.first_light.commands import PATIENCE_S, Place

__all__ = ["broker", "mosquitto", "place"]

SUBMIT = "etloop/v1/rack/jobs/submit"


def on(mosquitto: Mosquitto, more: str = "") -> Broker:
    """A rack's broker, with more of the section `mqtt`."""
    return Broker(BrokerSettings("127.0.0.1", mosquitto.port), f"mqtt: {{port: {mosquitto.port}{more}}}\n")


def request(key: str) -> str:
    """A submission as automation writes it, which waits for no answer."""
    return json.dumps(plain(SubmitRequest(SCENARIO, client_key=key)))


async def publish(mosquitto: Mosquitto, *keys: str, retain: bool = False) -> None:
    """What `mosquitto_pub -q 1` does, returning when the broker has taken it."""
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as automation:
        for key in keys:
            await automation.publish(SUBMIT, request(key), qos=1, retain=retain)


async def jobs(rack: Serving, count: int) -> int:
    """Jobs of the rack's store once there are so many."""
    await rack.until(lambda: len(rack.rack.store.latest(count)) >= count)
    return len(rack.rack.store.latest(2 * count))


async def test_requests_that_come_while_the_controller_is_away_are_carried_out_when_it_is_back(
    place: Place, mosquitto: Mosquitto
) -> None:
    """More of them than it takes in a second, and each once."""
    slow = on(mosquitto, ", requests_per_s: 5")
    async with rack_with(place, slow):
        pass
    await publish(mosquitto, *(f"key {number}" for number in range(12)))
    async with rack_with(place, slow) as (rack, _):
        assert await jobs(rack, 12) == 12
        assert rack.daemon.tallies.dropped_requests == 0


async def test_a_controller_that_is_connected_has_subscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for `broker joined` or /metrics may submit: the broker drops a request without a subscriber."""
    settings = GatewaySettings("rack", BrokerSettings("127.0.0.1", 1))
    log = SimpleNamespace(rack=lambda *_, **__: None)
    nothing = cast("Any", None)
    gateway = MqttGateway(nothing, tuple, str, settings, cast("Any", log), nothing)
    seen: list[bool] = []

    async def subscribe(*_: object, **__: object) -> None:
        seen.append(gateway.connected)

    async def serve(*_: object) -> None:
        seen.append(gateway.connected)
        raise asyncio.CancelledError

    @contextlib.asynccontextmanager
    async def connection(_: MqttGateway) -> AsyncIterator[tuple[object, MqttVersion]]:
        yield SimpleNamespace(subscribe=subscribe), MqttVersion.V5

    monkeypatch.setattr(MqttGateway, "_connection", connection)
    monkeypatch.setattr(MqttGateway, "_serve", serve)
    with pytest.raises(asyncio.CancelledError):
        await gateway.serve()
    assert len(seen) > 1
    assert seen == [False] * (len(seen) - 1) + [True]
    assert not gateway.connected


async def test_a_request_that_was_not_answered_yet_comes_again(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a controller dies over it."""
    respond, failures = MqttGateway._respond, iter([True])  # noqa: SLF001  # where it dies

    async def dying(self: MqttGateway, *words: object) -> None:
        if next(failures, False):
            raise aiomqtt.MqttError("the connection broke just now")
        await respond(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(MqttGateway, "_respond", dying)
    async with rack_with(place, on(mosquitto)) as (rack, _):
        await publish(mosquitto, "once")
        assert await jobs(rack, 1) == 1
        assert next(failures, None) is None, "it did not die"


async def test_a_retained_request_is_ignored_also_while_the_controller_listens(
    place: Place, mosquitto: Mosquitto
) -> None:
    async with rack_with(place, on(mosquitto)) as (rack, client):
        await publish(mosquitto, "retained", retain=True)
        await publish(mosquitto, "not")
        assert await jobs(rack, 1) == 1
        assert [job.request.client_key for job in rack.rack.store.latest(2)] == ["not"]
        assert len(await client.jobs()) == 1


async def test_long_requests_are_read_beside_the_others_and_so_many_at_most(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is read every other question is answered; who sends more than may wait is told when to come again."""
    goes_on = threading.Event()

    def slowly(*arguments: Any) -> Any:
        assert goes_on.wait(PATIENCE_S), "the test waited for it"
        return parse_scenario(*arguments)

    monkeypatch.setattr("etloop.controller.rack.api.parse_scenario", slowly)
    long = SCENARIO + "# " + "x" * (32 << 10)
    async with rack_with(place, on(mosquitto)) as (rack, client):
        async with aiomqtt.Client(
            "127.0.0.1", mosquitto.port, protocol=aiomqtt.ProtocolVersion.V5
        ) as automation:
            await automation.subscribe("answers", qos=1)
            for number in range(20):
                body = plain(
                    SubmitRequest(long, client_key=f"key {number}", response_topic="answers", correlation="c")
                )
                await automation.publish(SUBMIT, json.dumps(body), qos=1)
            async with asyncio.timeout(PATIENCE_S):
                answers = [
                    json.loads(bytes((await anext(aiter(automation.messages))).payload)) for _ in range(3)
                ]
                assert await client.jobs() == (), "nobody waits for what is read"
        assert {answer["problems"][0]["what"] for answer in answers} == {
            "reads 16 long requests of an account at a time; more arrived"
        }
        assert all(0 < answer["retry_after_ms"] <= 1000 for answer in answers)
        goes_on.set()
        assert await jobs(rack, 17) == 17


async def test_what_its_asker_has_given_up_is_not_carried_out_later(mosquitto: Mosquitto) -> None:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, protocol=aiomqtt.ProtocolVersion.V5) as ears:
        await ears.subscribe(SUBMIT, qos=1)
        settings = BrokerSettings("127.0.0.1", mosquitto.port)
        async with RackClient(settings, "rack", response_timeout_s=1.2) as client:
            with pytest.raises(RackUnreachable, match="no controller of rack 'rack' answered"):
                await client.submit(SCENARIO)
        async with asyncio.timeout(PATIENCE_S):
            message = await anext(aiter(ears.messages))
    assert isinstance(message.properties, Properties)
    assert message.properties.packetType == PacketTypes.PUBLISH
    assert getattr(message.properties, "MessageExpiryInterval", None) in (1, 2)


async def test_nobody_is_sent_what_is_retained_for_others(
    place: Place, broker: Broker, tmp_path: Path
) -> None:
    """Whoever waits for the answer to a request would take the state of a job for it."""
    status = "etloop/v1/rack/controller/status"
    async with rack_with(place, broker) as (_, client):
        job = await client.submit(SCENARIO)
        assert [each.job_id for each in await client.jobs()] == [job.job_id]
        async with (
            asyncio.timeout(PATIENCE_S),
            aiomqtt.Client(
                "127.0.0.1", broker.settings.port, protocol=aiomqtt.ProtocolVersion(broker.protocol)
            ) as stranger,
        ):
            await stranger.subscribe("nothing/at/all", qos=1)
            await stranger.subscribe(status, qos=1)
            first = await anext(aiter(stranger.messages))
    assert str(first.topic) == status
