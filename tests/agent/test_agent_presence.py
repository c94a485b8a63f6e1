"""An agent's process tells a real Mosquitto that it lives; the broker says its last will; nothing depends on the broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import jsonschema  # type: ignore[import-untyped]
import pytest

from etloop.agent.cli import main
from etloop.agent.presence import PresenceSettings, presence_published
from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.json_schema import schema_of
from etloop.contract.protocol.presence import AgentProcess, ProcessState, process_topic
from etloop.contract.protocol.typed_form import JSON_RULES
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import place, serving
from tests.e2e.rack.test_rack_security import Secured, secured
from tests.support.first_light.commands import PATIENCE_S, Place, free_place, running
from tests.support.places import ROOT
from tests.support.ports import free_port

__all__ = ["mosquitto", "place", "secured"]

SCHEMA = json.loads((ROOT / "docs" / "rack-api" / "agent-process.schema.json").read_text())
ONLY_KNOWN_KEYS = schema_of(AgentProcess, "", JSON_RULES)


@asynccontextmanager
async def listening(
    client: aiomqtt.Client, rack: str = "rack1"
) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
    """What is told of agent a, as it comes; each fits its schema."""
    reported: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def listen() -> None:
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            process = json.loads(message.payload)
            for schema in (SCHEMA, ONLY_KNOWN_KEYS):
                jsonschema.Draft202012Validator(schema).validate(process)
            reported.put_nowait(process)

    async with client:
        await client.subscribe(process_topic(rack, "a"), qos=1)
        task = asyncio.create_task(listen())
        try:
            yield reported
        finally:
            task.cancel()


async def state_in(reported: asyncio.Queue[dict[str, Any]]) -> str:
    """The next state that is told."""
    async with asyncio.timeout(PATIENCE_S):
        return str((await reported.get())["state"])


def command(place: Place, port: int) -> tuple[str, ...]:
    """Of an agent whose controller is not there."""
    where = ("--controller", place.endpoint, "--name", "a")
    return ("etloop.agent.cli", "run", *where, "--mqtt", f"127.0.0.1:{port}", "--rack", "rack1")


@pytest.mark.e2e
async def test_a_process_is_alive_stopped_or_lost(tmp_path: Path, mosquitto: Mosquitto) -> None:
    place = free_place(tmp_path)
    async with listening(aiomqtt.Client("127.0.0.1", mosquitto.port)) as reported:
        with running(place, *command(place, mosquitto.port)) as live:
            async with asyncio.timeout(PATIENCE_S):
                alive = await reported.get()
            assert (alive["state"], alive["name"], alive["process_id"]) == ("alive", "a", live.process.pid)
            live.process.terminate()
            assert await state_in(reported) == ProcessState.STOPPED
            await asyncio.to_thread(live.ended)
            assert reported.empty(), "a goodbye takes the will back"
        with running(place, *command(place, mosquitto.port)) as live:
            assert await state_in(reported) == ProcessState.ALIVE
            os.kill(live.process.pid, signal.SIGKILL)
            assert await state_in(reported) == ProcessState.LOST
    async with listening(aiomqtt.Client("127.0.0.1", mosquitto.port)) as reported:
        assert await state_in(reported) == ProcessState.LOST, "retained, for those who come later"


@pytest.mark.e2e
async def test_a_second_process_of_the_name_is_alive_whatever_became_of_the_first(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    place = free_place(tmp_path)
    with running(place, *command(place, mosquitto.port)) as first:
        async with listening(aiomqtt.Client("127.0.0.1", mosquitto.port)) as reported:
            assert await state_in(reported) == ProcessState.ALIVE
            first.process.send_signal(signal.SIGSTOP)
            with running(place, *command(place, mosquitto.port)):
                assert await state_in(reported) == ProcessState.LOST
                assert await state_in(reported) == ProcessState.ALIVE
            first.process.send_signal(signal.SIGCONT)


async def test_the_broker_may_come_later_and_go(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    mosquitto.kill()
    settings = PresenceSettings(BrokerSettings("127.0.0.1", mosquitto.port), "rack1")
    async with presence_published(settings, "a"):
        async with asyncio.timeout(PATIENCE_S):
            while "cannot publish to broker" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0)
        for _ in range(2):
            mosquitto.start()
            async with listening(aiomqtt.Client("127.0.0.1", mosquitto.port)) as reported:
                assert await state_in(reported) == ProcessState.ALIVE
            mosquitto.kill()
    assert len([record for record in caplog.records if "cannot publish to broker" in record.message]) <= 3, (
        "once each time"
    )


async def test_the_example_acl_lets_an_agent_speak_for_itself_only(secured: Secured) -> None:
    """User a under the name a is heard, under the name b not; both over TLS."""
    own = secured.settings("a")
    presence = PresenceSettings(own, "rack1")
    viewer = secured.settings("viewer")
    client = aiomqtt.Client(
        "127.0.0.1",
        secured.port,
        username="viewer",
        password=viewer.password,
        tls_params=aiomqtt.TLSParameters(ca_certs=str(viewer.ca_file)),
    )
    assert own.password not in repr(presence)
    async with listening(client) as reported:
        async with presence_published(presence, "b"), presence_published(presence, "a"):
            assert await state_in(reported) == ProcessState.ALIVE
            async with asyncio.timeout(PATIENCE_S):
                denied = "Denied PUBLISH from etloop-agent-rack1-b"
                while denied not in secured.printed():  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(0)
        assert await state_in(reported) == ProcessState.STOPPED
        assert reported.empty()


async def test_the_embedded_broker_is_told_too(place: Place) -> None:
    """It refuses MQTT 5; nobody has to say so."""
    port = free_port()
    config = place.directory / "controller.yaml"
    config.write_text(config.read_text() + f"mqtt: {{port: {port}, embedded: true}}\n")
    ears = aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V311)
    async with serving(place) as rack:
        await rack.until(lambda: any(entry["event"] == "broker joined" for entry in rack.log()))
        async with listening(ears, "rack") as reported:
            async with presence_published(PresenceSettings(BrokerSettings("127.0.0.1", port), "rack"), "a"):
                assert await state_in(reported) == ProcessState.ALIVE
            assert await state_in(reported) == ProcessState.STOPPED


REFUSED = {
    "no broker": (["--mqtt", ":1883"], "is not a broker address; write HOST or HOST:PORT"),
    "a port that is none": (["--mqtt", "h:70000"], "is not a broker address"),
    "off this machine in the clear": (["--mqtt", "10.0.0.1"], "would be sent unencrypted"),
    "a rack with a slash": (["--mqtt", "127.0.0.1", "--rack", "a/b"], "--rack: "),
    "a password that is not there": (
        ["--mqtt", "127.0.0.1", "--mqtt-password-file", "/does/not/exist"],
        "cannot be read",
    ),
    "an authority that is not there": (
        ["--mqtt", "10.0.0.1", "--mqtt-ca", "/does/not/exist"],
        "cannot be used",
    ),
}


@pytest.mark.parametrize(("arguments", "printed"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["run", "--controller", f"tcp://127.0.0.1:{free_port()}", "--name", "a", *arguments])
    assert code is ExitCode.PREPARATION_FAILED
    assert printed in capsys.readouterr().err
