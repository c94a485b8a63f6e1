"""The rack API over real brokers: Mosquitto with MQTT 5, and the one that the daemon brings with it (3.1.1)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiomqtt
import jsonschema  # type: ignore[import-untyped]
import msgpack  # type: ignore[import-untyped]
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.json_schema import schema_of
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.rack.client.client import RackClient, RequestRefused
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.encoding import REQUEST_RULES, decode_published
from etloop.controller.rack.mqtt.messages import PUBLISHED as PUBLISHED_KINDS
from etloop.controller.rack.mqtt.messages import (
    REQUESTS,
    CancelResponse,
    JobChange,
    ProgressStatus,
    RackStatus,
    ResultStatus,
)
from etloop.controller.rack.mqtt.publish_schemas import file_name, schema_files
from etloop.runtime.broker_connection import MqttVersion
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, Serving, place, serving
from tests.support.first_light.commands import PATIENCE_S, Place, agents, kill_session
from tests.support.places import ROOT
from tests.support.ports import free_port

__all__ = ["place"]


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the rack API of a test is."""

    settings: BrokerSettings
    config: str
    """The mqtt section of controller.yaml."""
    protocol: MqttVersion = MqttVersion.V5
    """Version of MQTT that it speaks at best."""


class Mosquitto:
    """A broker process that can be killed and started again on its port."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._config = directory / "mosquitto.conf"
        self._config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it and returns when it listens."""
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        self._process = subprocess.Popen(
            [program, "-c", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
        raise AssertionError("Mosquitto does not listen")

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            kill_session(self._process)
            self._process = None


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A Mosquitto of the test's own."""
    if shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists():
        pytest.skip("Mosquitto is not installed (Debian package mosquitto)")
    broker = Mosquitto(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def mosquitto_broker(mosquitto: Mosquitto) -> Broker:
    """Mosquitto as a rack is told of it."""
    port = mosquitto.port
    return Broker(BrokerSettings("127.0.0.1", port), f"mqtt: {{port: {port}, progress_interval: 100ms}}\n")


@pytest.fixture(params=["mosquitto", "embedded"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Either broker."""
    if request.param == "mosquitto":
        return mosquitto_broker(request.getfixturevalue("mosquitto"))
    port = free_port()
    config = f"mqtt: {{port: {port}, embedded: true, progress_interval: 100ms}}\n"
    return Broker(BrokerSettings("127.0.0.1", port), config, MqttVersion.V311)


@contextlib.asynccontextmanager
async def rack_with(place: Place, broker: Broker) -> AsyncIterator[tuple[Serving, RackClient]]:
    """A daemon that serves over a broker, and a client of it."""
    path = place.directory / "controller.yaml"
    base = path.read_text().split("mqtt:")[0]
    path.write_text(base + broker.config)
    async with serving(place) as rack:
        await rack.until(lambda: any(entry["event"] == "broker joined" for entry in rack.log()))
        async with RackClient(broker.settings, "rack") as client:
            yield rack, client


async def test_a_job_is_submitted_followed_and_its_result_told(place: Place, broker: Broker) -> None:
    with agents(place):
        async with rack_with(place, broker) as (_, client):
            assert (await client.controller()).state is RackStatus.READY
            job = await client.submit(SCENARIO, labels={"suite": "first"})
            assert (job.state, job.labels) == (JobState.QUEUED, {"suite": "first"})
            result = await client.result(job.job_id, PATIENCE_S)
            assert (result.exit_code, result.state, result.reason) == (0, JobState.FINISHED, "")
            assert result.summary["state"] == "done"
            assert [each.job_id for each in await client.jobs()] == [job.job_id]
            inventory = await client.inventory()
            assert [port.label for port in inventory.ports] == ["a/p0", "a/p1", "b/p0", "b/p1"]
            assert all(agent.present for agent in inventory.agents)


async def test_two_jobs_on_disjoint_ports_run_at_once(place: Place, broker: Broker) -> None:
    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            jobs = [await client.submit(LONG, ports=[f"a/p{k}", f"b/p{k}"]) for k in (0, 1)]
            await rack.until(lambda: all(rack.job(job.job_id).state is JobState.RUNNING for job in jobs))
            for job in jobs:
                await client.cancel(job.job_id, "test")
                result = await client.result(job.job_id, PATIENCE_S)
                assert (result.state, result.reason) == (
                    JobState.CANCELLED,
                    'cancelled by mqtt (says "test")',
                )


async def test_progress_is_told_while_a_job_runs(place: Place, broker: Broker) -> None:
    with agents(place):
        async with rack_with(place, broker) as (_, client):
            job = await client.submit(LONG)
            async with asyncio.timeout(PATIENCE_S):
                seen = []
                async for reported in client.follow(job.job_id):
                    if isinstance(reported, ProgressStatus) and reported.phase == "RUN":
                        seen.append(reported.ops_done)
                        if len(seen) == 3:
                            break
            assert seen == sorted(seen)
            await client.cancel(job.job_id)
            assert (await client.result(job.job_id, PATIENCE_S)).state is JobState.CANCELLED


async def test_a_job_is_refused_with_everything_that_is_wrong(place: Place, broker: Broker) -> None:
    async with rack_with(place, broker) as (_, client):
        with pytest.raises(RequestRefused) as refused:
            await client.submit("workload: {trace: job, nonsense: 1}\n", ports=["c/p0", "c/p0"], priority=7)
        assert len(refused.value.problems) >= 2
        assert "nonsense" in str(refused.value)


async def test_a_client_key_stands_for_one_job(place: Place, broker: Broker) -> None:
    async with rack_with(place, broker) as (_, client):
        first = await client.submit(SCENARIO, client_key="nightly")
        assert (await client.submit(SCENARIO, client_key="nightly", priority=3)).job_id == first.job_id
        for asked in ({"ports": ["a/p0"]}, {"scenario": SCENARIO + "seed: 2\n"}):
            with pytest.raises(
                RequestRefused, match=f"client_key: is used by job {first.job_id}, which has other"
            ):
                await client.submit(**({"scenario": SCENARIO} | asked), client_key="nightly")
        assert len(await client.jobs()) == 1


async def test_mqtt_5_properties_are_answered_in_kind_and_in_msgpack(
    place: Place, mosquitto: Mosquitto
) -> None:
    broker = Broker(BrokerSettings("127.0.0.1", mosquitto.port), f"mqtt: {{port: {mosquitto.port}}}\n")
    async with (
        rack_with(place, broker),
        aiomqtt.Client("127.0.0.1", mosquitto.port, protocol=aiomqtt.ProtocolVersion.V5) as client,
    ):
        await client.subscribe("my/answers")
        asked = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        asked.ResponseTopic = "my/answers"
        asked.CorrelationData = b"\x00\x01"
        asked.ContentType = "application/msgpack"
        body = msgpack.packb({"scenario": SCENARIO})
        await client.publish("etloop/v1/rack/jobs/submit", body, qos=1, properties=asked)
        async with asyncio.timeout(PATIENCE_S):
            message = await anext(client.messages)
        properties = message.properties.json() if message.properties is not None else {}  # type: ignore[no-untyped-call]
        assert properties["CorrelationData"] == "0001"
        assert properties["ContentType"] == "application/msgpack"
        assert msgpack.unpackb(message.payload)["accepted"] is True


async def test_the_broker_may_die_while_a_job_runs(place: Place, mosquitto: Mosquitto) -> None:
    broker = Broker(BrokerSettings("127.0.0.1", mosquitto.port), f"mqtt: {{port: {mosquitto.port}}}\n")
    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            job = await client.submit(SCENARIO.replace("iterations: 3", "iterations: 30"))
            await rack.reaches(job.job_id, JobState.RUNNING)
            mosquitto.kill()
            done = await rack.reaches(job.job_id, JobState.FINISHED)
            assert done.exit_code == 0
            mosquitto.start()
            await rack.until(lambda: [entry["event"] for entry in rack.log()].count("broker joined") == 2)
            # A broker without persistence has forgotten everything; the rack tells it again.
            async with RackClient(broker.settings, "rack") as again:
                assert (await again.result(job.job_id, PATIENCE_S)).exit_code == 0


HOSTILE = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b'{"scenario": 1}',
    b'{"scenario": "x", "scenario": "y"}',
    b"{" * 100_000,
    b'{"scenario": "x", "ports": [' + b'"a/p0",' * 10_000 + b'"b/p0"]}',
    b'{"scenario": NaN}',
    b"\x81\xa8scenario\xc1",
    b"\xdf\xff\xff\xff\xff",
    # Half of a character: nothing that a store or a broker takes.
    b'{"scenario": "\\ud800"}',
    b'{"client_key": "\\udfff", "scenario": "x"}',
    b'{"correlation": "\\uDFFF", "response_topic": "answers"}',
    b'{"\\udc00": 1, "response_topic": "answers"}',
    # A topic for which a broker ends the connection of whoever publishes on it.
    b'{"response_topic": "an\\u0001swers"}',
    b'{"response_topic": "an\\uffffswers"}',
    b'{"response_topic": "an+swers"}',
)


async def test_hostile_messages_change_nothing(place: Place, broker: Broker) -> None:
    async with rack_with(place, broker) as (rack, client):
        async with aiomqtt.Client(
            broker.settings.host,
            broker.settings.port,
            protocol=aiomqtt.ProtocolVersion(broker.protocol),
        ) as hostile:
            for topic in (
                "jobs/submit",
                "jobs/list",
                "agents/inventory",
                "jobs/x/cancel",
                "jobs/%s/cancel" % ("y" * 200),
            ):
                for body in HOSTILE:
                    await hostile.publish(f"etloop/v1/rack/{topic}", body, qos=1)
        assert await client.jobs() == ()
        assert not [line for line in rack.log() if line["event"] in ("a gateway failed", "broker lost")]
        assert (await client.submit(SCENARIO)).state is JobState.QUEUED


async def test_a_scenario_that_takes_long_to_read_holds_up_nothing_else(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE_S), "the controller's loop waited for it"
        return parse_scenario(*arguments)

    monkeypatch.setattr("etloop.controller.rack.api.parse_scenario", slowly)
    broker = Broker(BrokerSettings("127.0.0.1", mosquitto.port), f"mqtt: {{port: {mosquitto.port}}}\n")
    async with rack_with(place, broker) as (rack, client):
        submitted = asyncio.create_task(client.submit(SCENARIO))
        await rack.until(begun.is_set)
        goes_on.set()
        assert (await submitted).state is JobState.QUEUED


async def test_a_client_speaks_what_the_broker_speaks(place: Place, broker: Broker) -> None:
    async with rack_with(place, broker) as (rack, client):
        assert await client.jobs() == ()
        joined = next(entry for entry in rack.log() if entry["event"] == "broker joined")
        assert joined["mqtt"] == str(broker.protocol)


async def test_who_asks_too_much_is_told_when_to_come_again_and_does(place: Place, broker: Broker) -> None:
    slow = replace(broker, config=broker.config.replace("port:", "requests_per_s: 5, port:"))
    async with rack_with(place, slow) as (rack, client):
        jobs = [await client.submit(SCENARIO, client_key=f"key {k}") for k in range(7)]
        assert len({job.job_id for job in jobs}) == 7
        assert rack.daemon.tallies.dropped_requests > 0
        async with aiomqtt.Client(
            "127.0.0.1", broker.settings.port, protocol=aiomqtt.ProtocolVersion(broker.protocol)
        ) as asker:
            await asker.subscribe("answers", qos=1)
            asked = json.dumps({"response_topic": "answers", "correlation": "mine"})
            for _ in range(30):
                await asker.publish("etloop/v1/rack/jobs/list", asked, qos=1)
            answers = [json.loads(bytes((await anext(aiter(asker.messages))).payload)) for _ in range(6)]
        put_off = next(answer for answer in answers if answer["retry_after_ms"])
        jsonschema.validate(put_off, json.loads((SCHEMAS / "list-response.schema.json").read_text()))
        assert 0 < put_off["retry_after_ms"] <= 1000
        assert (put_off["jobs"], put_off["correlation"]) == ([], "mine")
        assert put_off["problems"][0]["what"] == "takes 5 requests a second; more arrived"


async def test_what_is_too_large_to_be_read_is_refused(place: Place, mosquitto: Mosquitto) -> None:
    config = f"mqtt: {{port: {mosquitto.port}, request: 1KiB}}\n"
    async with rack_with(place, Broker(BrokerSettings("127.0.0.1", mosquitto.port), config)) as (_, client):
        with pytest.raises(RequestRefused, match=r"has [0-9]+ bytes; keep it below 1024 bytes"):
            await client.submit(SCENARIO + 1000 * "#")
        assert await client.jobs() == ()


async def test_a_request_that_is_lost_is_asked_again(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etloop.controller.rack.client.client._RETRY_S", 0.1)
    asked: list[dict[str, str]] = []

    async def deaf_at_first(ready: asyncio.Event) -> None:
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as ears:
            await ears.subscribe("etloop/v1/rack/jobs/list", qos=1)
            ready.set()
            async for message in ears.messages:
                asked.append(json.loads(bytes(message.payload)))
                if len(asked) == 3:
                    answer = {"format": 1, "jobs": [], "problems": [], "correlation": asked[0]["correlation"]}
                    await ears.publish(asked[0]["response_topic"], json.dumps(answer), qos=1)

    ready = asyncio.Event()
    rack = asyncio.create_task(deaf_at_first(ready))
    async with asyncio.timeout(PATIENCE_S):
        await ready.wait()
    async with RackClient(
        BrokerSettings("127.0.0.1", mosquitto.port), "rack", response_timeout_s=PATIENCE_S
    ) as client:
        assert await client.jobs() == ()
    rack.cancel()
    assert len(asked) == 3
    assert len({each["correlation"] for each in asked}) == 1


SCHEMAS = ROOT / "docs" / "rack-api"
ONLY_KNOWN_KEYS = {
    file_name(kind): schema_of(kind, "", REQUEST_RULES) for kind in (*REQUESTS, *PUBLISHED_KINDS)
}


def test_the_published_schemas_are_those_of_the_types() -> None:
    published = {path.name: path.read_text() for path in SCHEMAS.glob("*.schema.json")}
    assert published == schema_files(), (
        "run: python -m etloop.controller.rack.mqtt.publish_schemas docs/rack-api"
    )


ASKED = {
    "jobs/submit": "submit",
    "jobs/list": "list",
    "agents/inventory": "inventory",
    "cancel": "cancel",
    "change": "change",
    "ports/service": "service",
    "ports/reserve": "reserve",
    "ports/unreserve": "unreserve",
    "queue/pause": "pause",
}
ANSWERED = {"reserve": "reservation", "unreserve": "reservation"}
"""Where an answer is not named as its request is."""
PUBLISHED = {
    "controller/status": "controller-status",
    "state": "job-status",
    "progress": "progress-status",
    "result": "result-status",
    "status": "agent-status",
}


def ending(topic: str, kinds: dict[str, str]) -> str | None:
    """What `kinds` has for the end of a topic of the rack."""
    return next((kind for end, kind in kinds.items() if topic.endswith(f"/{end}")), None)


def schemas_of(heard: list[tuple[str, dict[str, object]]]) -> Iterator[tuple[str, dict[str, object]]]:
    """Every message with the name of its schema; what an answer answers is known by its correlation."""
    asked = {value["correlation"]: kind for topic, value in heard if (kind := ending(topic, ASKED))}
    for topic, value in heard:
        if "/replies/" in topic:
            kind = asked[value["correlation"]]
            yield f"{ANSWERED.get(kind, kind)}-response", value
        elif kind := ending(topic, ASKED):
            yield f"{kind}-request", value
        else:
            reported = ending(topic, PUBLISHED)
            assert reported is not None, topic
            yield reported, value


async def test_everything_that_is_said_fits_its_schema(place: Place, broker: Broker) -> None:
    heard: list[tuple[str, dict[str, object]]] = []

    async def listen(ready: asyncio.Event) -> None:
        async with aiomqtt.Client(
            broker.settings.host, broker.settings.port, protocol=aiomqtt.ProtocolVersion(broker.protocol)
        ) as ears:
            await ears.subscribe("etloop/v1/rack/#", qos=1)
            ready.set()
            async for message in ears.messages:
                if isinstance(message.payload, bytes) and message.payload:
                    heard.append((str(message.topic), json.loads(message.payload)))  # noqa: PERF401 - it never ends

    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            ready = asyncio.Event()
            listening = asyncio.create_task(listen(ready))
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            good = await client.submit(LONG)
            await rack.until(lambda: any(topic.endswith("/progress") for topic, _ in heard))
            await client.cancel(good.job_id)
            await client.pause(paused=True)
            bad = await client.submit(SCENARIO.replace("job", "empty"))
            await client.change(bad.job_id, JobChange.HOLD)
            with pytest.raises(RequestRefused):
                await client.submit("nonsense: 1")
            await client.jobs()
            await client.inventory()
            await client.service(["a/p0"], in_service=False)
            await client.service(["a"], in_service=True)
            until = (datetime.now(UTC) + timedelta(days=9)).isoformat()
            made = await client.reserve(
                ["b/p1"], until, begins_at=until.replace("+00:00", "+01:00"), user="ann"
            )
            await client.unreserve(made.reservation_id)
            await client.change(bad.job_id, JobChange.RELEASE)
            await client.pause(paused=False)
            for job in (good, bad):
                await client.result(job.job_id, PATIENCE_S)
            await rack.until(lambda: any(topic.endswith(f"{bad.job_id}/state") for topic, _ in heard))
            listening.cancel()
    seen = set()
    for name, value in schemas_of(heard):
        seen.add(f"{name}.schema.json")
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(value)
        jsonschema.Draft202012Validator(ONLY_KNOWN_KEYS[f"{name}.schema.json"]).validate(value)
    assert seen == schema_files().keys() - {
        "agent-process.schema.json"
    }  # told by agents: test_agent_presence.py


def test_what_the_rack_tells_may_grow_and_what_it_is_asked_may_not() -> None:
    answer = CancelResponse(1, found=False, job=None, problems=(), correlation="mine")
    newer = json.dumps(plain(answer) | {"since": {"when": "tomorrow"}}).encode()
    assert decode_published(CancelResponse, newer) == (answer, ())
    published = json.loads((SCHEMAS / "cancel-response.schema.json").read_text())
    jsonschema.Draft202012Validator(published).validate(json.loads(newer))
    request = json.loads((SCHEMAS / "cancel-request.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match="Additional properties are not allowed"):
        jsonschema.Draft202012Validator(request).validate({"correlation": "mine", "since": "tomorrow"})


def test_a_result_carries_its_summary_as_json() -> None:
    reported = ResultStatus(1, "j", JobState.FINISHED, 0, "", "j", json.loads('{"state": "done"}'))
    assert reported.summary["state"] == "done"
