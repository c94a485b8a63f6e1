"""The example broker of examples/rack/mosquitto as a real Mosquitto with TLS, users and ACL; and secrets, which nobody tells.

Certificates are made for the test by openssl.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import aiomqtt
import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.client.client import RackClient, RackUnreachable, RequestRefused
from etloop.controller.rack.config import RackConfig, parse_rack_config
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobChange
from etloop.controller.rack.mqtt.topics import Topics
from etloop.runtime import broker_connection
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto
from tests.controller.rack.test_rack_daemon import SCENARIO, Serving, place, serving
from tests.support.first_light.commands import PATIENCE_S, Place, agents
from tests.support.places import ROOT

__all__ = ["place"]

PASSWORDS = {
    name: f"secret-of-{name}-0f1e2d3c"
    for name in ("etloop-controller", "automation", "operator", "viewer", "a")
}


@dataclass(frozen=True, slots=True)
class Secured:
    """The example broker under way."""

    directory: Path
    port: int
    mosquitto: Mosquitto

    def settings(self, user: str, **changes: object) -> BrokerSettings:
        """How a user reaches it."""
        settings = BrokerSettings(
            "127.0.0.1",
            self.port,
            username=user,
            password=PASSWORDS.get(user, ""),
            ca_file=self.directory / "ca.pem",
        )
        return replace(settings, **changes)  # type: ignore[arg-type]

    def printed(self) -> str:
        """Its log."""
        return (self.directory.parents[2] / "mosquitto.log").read_text()


def documented() -> list[str]:
    """The commands of docs/deploy.md that set a broker up."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    section = page.split("## A broker with TLS, users and an ACL\n")[1]
    block = re.search(r"^```sh[^\n]*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def set_up(directory: Path) -> Path:
    """Sets a broker up below `directory` as the documentation says; where its files are.

    Only places and the way passwords are entered are the test's.
    """
    files = directory / "etc" / "mosquitto"
    (files / "conf.d").mkdir(parents=True)
    for user, password in PASSWORDS.items():
        (files / f"password.{user}").write_text(password)
    commands = documented()
    assert commands.pop() == "systemctl restart mosquitto"
    script = "\n".join(commands)
    for old, new in (
        ("/etc/mosquitto", str(files)),
        ("IP:192.0.2.10", "IP:127.0.0.1"),
        ("examples/", f"{ROOT}/examples/"),
        ("chown mosquitto", "chown root"),
        (
            "mosquitto_passwd passwords $user",
            'mosquitto_passwd -b passwords $user "$(cat ../password.$user)"',
        ),
    ):
        assert old in script, old
        script = script.replace(old, new)
    subprocess.run(["sh", "-euc", script], check=True, capture_output=True, timeout=60)
    return files / "etloop"


DEBIAN: Final = """
persistence true
persistence_location {places}/
log_dest file {places}/mosquitto.log
include_dir {places}/etc/mosquitto/conf.d
"""
"""/etc/mosquitto/mosquitto.conf of Debian and Ubuntu, which the example is included from."""


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """The example's files, with only its places and its port changed."""
    if not (shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists()):
        pytest.skip("Mosquitto is not installed (Debian package mosquitto)")
    if not (shutil.which("openssl") and shutil.which("mosquitto_passwd")):
        pytest.skip("openssl or mosquitto_passwd is not installed (Debian packages openssl, mosquitto)")
    mosquitto = Mosquitto(tmp_path)
    directory = set_up(tmp_path)
    installed = tmp_path / "etc" / "mosquitto" / "conf.d" / "etloop.conf"
    text = installed.read_text()
    assert "listener 8883" in text
    text = text.replace("listener 8883", f"listener {mosquitto.port} 127.0.0.1")
    installed.write_text(text.replace("/etc/mosquitto/etloop", str(directory)))
    # As root it would become a user that cannot see the test's files.
    (tmp_path / "mosquitto.conf").write_text(DEBIAN.format(places=tmp_path) + "log_type all\nuser root\n")
    other = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other"
    subprocess.run(
        ["openssl", *other.split(), "-keyout", "other-ca.key", "-out", "other-ca.pem"],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=60,
    )
    mosquitto.start()
    yield Secured(directory, mosquitto.port, mosquitto)
    mosquitto.kill()


@contextlib.asynccontextmanager
async def rack_on(place: Place, broker: Secured) -> AsyncIterator[Serving]:
    """A daemon that joined the broker as the user of the example."""
    place.write("broker.password", PASSWORDS["etloop-controller"] + "\n").chmod(0o600)
    path = place.directory / "controller.yaml"
    path.write_text(
        path.read_text()
        + f"rack: rack1\nusers: {ROOT}/examples/rack/users.yaml\n"
        + f"mqtt: {{port: {broker.port}, username: etloop-controller, password_file: broker.password,"
        + f" tls: {{ca: {broker.directory}/ca.pem}}}}\n"
    )
    async with serving(place) as rack:
        await rack.until(lambda: any(entry["event"] == "broker joined" for entry in rack.log()))
        yield rack


async def test_the_example_broker_lets_automation_work_and_others_look(
    place: Place, secured: Secured
) -> None:
    with agents(place):
        async with (
            rack_on(place, secured) as rack,
            RackClient(secured.settings("automation"), "rack1") as client,
        ):
            job = await client.submit(SCENARIO)
            result = await client.result(job.job_id, PATIENCE_S)
            assert (result.exit_code, result.state) == (0, JobState.FINISHED)
            assert [each.job_id for each in await client.jobs()] == [job.job_id]
            assert len((await client.inventory()).agents) == 2

            async with RackClient(secured.settings("operator"), "rack1") as operator:
                assert await operator.pause(paused=True) == "paused by mqtt:operator"
                assert await operator.pause(paused=False) == ""
                (port,) = await operator.service(["a/p0"], in_service=True)
                assert port.out_of_service == ""
                assert await operator.change("nobody", JobChange.HOLD) is None
            with pytest.raises(
                RequestRefused,
                match="is user and may not change other users' jobs, ports or the queue",
            ):
                await client.pause(paused=True)
            with pytest.raises(
                RequestRefused, match="60 is above the highest priority of automation; give at most 50"
            ):
                await client.submit(SCENARIO, priority=60)
            with pytest.raises(RequestRefused, match="10800s is above the limit of automation"):
                await client.submit(SCENARIO, time_limit_ns=3 * 3600 * 10**9)
            assert rack.rack.pause_text() == "", "only operators pause the queue"

            async with RackClient(secured.settings("viewer"), "rack1") as viewer:
                assert (await viewer.result(job.job_id, PATIENCE_S)).exit_code == 0
                assert [(each.job_id, each.owner) for each in await viewer.jobs()] == [
                    (job.job_id, "automation")
                ]
                with pytest.raises(RequestRefused, match='"viewer" is viewer and may not submit jobs'):
                    await viewer.submit(SCENARIO)
                with pytest.raises(RequestRefused, match='"viewer" is viewer and may not change other users'):
                    await viewer.cancel(job.job_id)
            assert len(rack.rack.store.latest(10)) == 1, "what a viewer asks for is not carried out"
            trail = {(line.who, line.event) for line in rack.rack.store.audit()}
            assert ("mqtt:automation", "submitted") in trail
            assert ("mqtt:viewer", "refused SubmitRequest") in trail
            log = "\n".join(map(str, rack.log()))
    for password in PASSWORDS.values():
        assert password not in log + secured.printed()


async def test_nobody_asks_as_somebody_else(place: Place, secured: Secured) -> None:
    request = json.dumps({"paused": True}).encode()
    async with (
        rack_on(place, secured) as rack,
        mqtt_client(secured.settings("automation"), "forger") as forger,
    ):
        for topic in (Topics("rack1", "operator").pause, Topics("rack1").pause):
            await forger.publish(topic, request, qos=1)
        # Asked after the forgeries on the same broker: what would have come is there.
        async with RackClient(secured.settings("operator"), "rack1") as operator:
            assert await operator.jobs() == ()
        assert rack.rack.pause_text() == ""


async def test_nobody_speaks_for_the_controller_or_hears_another_clients_answers(
    place: Place, secured: Secured
) -> None:
    topics = Topics("rack1")
    settings = secured.settings("automation")
    async with rack_on(place, secured), RackClient(secured.settings("viewer"), "rack1") as viewer:
        listening = mqtt_client(settings, "listener")
        async with listening, mqtt_client(settings, "forger") as forger:
            await listening.subscribe(f"{topics.root}/replies/#", qos=1)
            for topic in (topics.controller_status, topics.state("forged"), topics.agent_status("a")):
                await forger.publish(topic, b'{"forged": true}', qos=1, retain=True)
            # Asked after the forgeries on the same broker: what would have come is there.
            assert (await viewer.controller()).state == "ready"
            async with RackClient(settings, "rack1") as client:
                assert await client.jobs() == ()
            await asyncio.sleep(0)
            assert len(listening.messages) == 0


def mqtt_client(settings: BrokerSettings, identifier: str) -> aiomqtt.Client:
    return aiomqtt.Client(
        settings.host,
        settings.port,
        protocol=aiomqtt.ProtocolVersion.V5,
        username=settings.username,
        password=settings.password,
        identifier=identifier,
        tls_params=aiomqtt.TLSParameters(ca_certs=str(settings.ca_file)),
    )


@pytest.mark.parametrize(
    ("sentence", "user", "changes", "expected"),
    [
        ("a wrong password", "automation", {"password": "guess"}, "Not authorized|Bad user name or password"),
        ("nobody in particular", "", {}, "Not authorized|Bad user name or password"),
        ("an unknown user", "stranger", {}, "Not authorized|Bad user name or password"),
        (
            "a broker that our authority did not sign",
            "automation",
            {"ca_file": "other-ca.pem"},
            "certificate verify failed",
        ),
        (
            "a broker whose name is another's",
            "automation",
            {"host": "localhost"},
            "certificate verify failed|Hostname|no broker",
        ),
        ("no TLS", "automation", {"ca_file": None}, "no broker at"),
    ],
)
# paho-mqtt leaves the socket of a failed handshake to the garbage collector, which finds it at any later time.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_who_does_not_belong_is_not_let_in(
    secured: Secured,
    sentence: str,
    user: str,
    changes: dict[str, object],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sentence == "no TLS":  # Such a broker says nothing at all, and the client waits out its time.
        impatient = functools.partial(broker_connection.MqttClient, timeout=1.0)
        monkeypatch.setattr(broker_connection, "MqttClient", impatient)
    if isinstance(changes.get("ca_file"), str):
        changes = changes | {"ca_file": secured.directory / str(changes["ca_file"])}
    with pytest.raises(RackUnreachable, match=expected) as refused:
        async with RackClient(secured.settings(user, **changes), "rack1"):
            raise AssertionError(sentence)
    assert not any(password in str(refused.value) for password in PASSWORDS.values())
    del refused
    gc.collect()  # Now, and not in the middle of another test.


def test_the_command_line_speaks_tls_with_a_password_from_a_file(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    arguments = ["submit", "--list", "--broker", f"127.0.0.1:{secured.port}", "--username", "automation"]
    arguments += ["--password-file", str(password), "--ca", str(secured.directory / "ca.pem")]
    assert main(arguments) == 65
    assert "refuses this client: Not authorized; check user, password" in capsys.readouterr().err
    password.write_text(PASSWORDS["automation"])
    assert main([*arguments, "--rack", "rack1"]) == 65
    printed = capsys.readouterr().err
    assert "no controller of rack 'rack1' answered" in printed, "let in, but nobody serves"


# ---- what is said aloud, and what never is


def config(text: str) -> RackConfig:
    return parse_rack_config(f"rig: r\nstate_dir: s\nscenario_root: t\n{text}".encode(), "c", Path("/x"))


@pytest.mark.parametrize("host", ["broker", "10.0.0.1", "0.0.0.0", "127.0.0.1.example.org", "::1.example"])
def test_mqtt_without_tls_off_this_machine_is_refused_unless_said_aloud(host: str) -> None:
    with pytest.raises(ConfigError, match="crosses the network unencrypted, passwords included; add tls"):
        config(f"mqtt: {{host: '{host}'}}\n")
    assert config(f"mqtt: {{host: '{host}', insecure: true}}\n").broker is not None
    assert config(f"mqtt: {{host: '{host}', tls: {{ca: ca.pem}}}}\n").broker is not None


def test_one_option_makes_the_laptop_example_a_rack_with_its_own_broker() -> None:
    directory = ROOT / "examples" / "laptop"
    text = (directory / "controller.yaml").read_bytes()
    assert parse_rack_config(text, "c", directory).broker is None
    broker = parse_rack_config(text, "c", directory, embedded_broker=True).broker
    assert broker is not None
    assert broker.embedded
    reached = broker.settings
    assert (reached.host, reached.port) == ("127.0.0.1", 1883)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("mqtt: {username: u}\n", "mqtt.username: the embedded broker knows no users"),
        (
            "mqtt: {tls: {ca: ca.pem}}\n",
            "mqtt.tls: the embedded broker is for one machine and does not encrypt",
        ),
    ],
)
def test_an_embedded_broker_refuses_what_it_cannot_do(text: str, printed: str) -> None:
    whole = f"rig: r\nstate_dir: s\nscenario_root: t\n{text}".encode()
    with pytest.raises(ConfigError, match=re.escape(printed)):
        parse_rack_config(whole, "c", Path("/x"), embedded_broker=True)


def test_a_password_is_in_no_repr() -> None:
    settings = BrokerSettings("h", 1, username="u", password="secret-0f1e")
    for text in (repr(settings), str(settings), f"{[settings]}", f"{replace(settings, port=2)}"):
        assert "secret" not in text
        assert "user u" in text


def test_a_response_topic_may_not_borrow_the_controllers_voice() -> None:
    topics = Topics("rack1")
    for mine in ("etloop/v1/rack1/replies/me", "my/answers", "suite/7"):
        assert topics.may_respond_on(mine)
    for other in (
        topics.controller_status,
        topics.state("j"),
        topics.submit,
        "etloop/v1/other/jobs/submit",
        "etloop/v1/other/replies/x",
        "etloop/v1/rack1/replies/+",
        "$SYS/broker",
        "",
        "x" * 2000,
        "a\0b",
    ):
        assert not topics.may_respond_on(other), other


# ---- privileges


@pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="setpriv is not installed (Debian package util-linux)"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up")
async def test_agents_that_have_given_up_every_capability_carry_a_job(place: Place) -> None:
    bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", sys.executable, "-P", "-m")
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(  # noqa: ASYNC220 - it is only started here
                    [*bare, "etloop.agent.cli", "run", "--controller", place.endpoint, "--name", name],
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                    stderr=subprocess.DEVNULL,
                )
            )
            for name in "ab"
        ]
        try:
            async with serving(place) as rack:
                job = await rack.reaches(rack.submit(SCENARIO), JobState.FINISHED)
                assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
            for process in processes:
                status = Path(f"/proc/{process.pid}/status").read_text()  # noqa: ASYNC240 - of the kernel
                assert "CapEff:\t0000000000000000" in status
                assert "CapBnd:\t0000000000000000" in status
        finally:
            for process in processes:
                process.kill()
