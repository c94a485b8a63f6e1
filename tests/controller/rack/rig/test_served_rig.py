"""A rig that is read again while the rack serves: other ports, other agents; a wrong one changes nothing and is told."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.protocol.messages import Hello, Refused, Welcome
from etloop.controller.rack.agent_pool import Hub
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.events import AgentForgotten, RackChanged
from etloop.controller.rack.job import JobState
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.startup import open_daemon
from etloop.controller.session.actions import Action, Send
from tests.controller.rack.mqtt.test_rack_mqtt import Broker, broker, mosquitto, rack_with
from tests.controller.rack.test_rack_daemon import SCENARIO, place, serving
from tests.support.first_light.commands import PATIENCE_S, Place, agents

__all__ = ["broker", "mosquitto", "place"]

CONFIG = b"rig: rig.yaml\nstate_dir: state\nscenario_root: traces\n"
BEFORE = """\
agents:
- {name: a, ports: [{name: p0, addresses: 127.0.0.1, link: 100Gbps}]}
- {name: b, ports: [{name: p0, addresses: 127.0.0.2, link: 100Gbps}]}
"""
AFTER = """\
agents:
- name: a
  ports:
  - {name: p0, addresses: 127.0.0.1, link: 100Gbps}
  - {name: p1, addresses: 127.0.0.3, link: 100Gbps}
"""


class Reloading:
    """A rack that is open and not served."""

    def __init__(self, directory: Path) -> None:
        (directory / "traces").mkdir()
        self.rig_file = directory / "rig.yaml"
        self.rig_file.write_text(BEFORE)
        self.stream = io.StringIO()
        config = parse_rack_config(CONFIG, "c.yaml", directory)
        daemon = open_daemon(config, RackLog(LogFormat.JSON, self.stream))
        self.rack, self.hub, self.served = daemon.rack, daemon.hub, daemon.rig
        self._daemon = daemon
        self.subscription = self.rack.subscribe()

    async def reread(self, text: str) -> tuple[Action, ...]:
        """Another rig is read to its end."""
        self.rig_file.write_text(text)
        self.served.ask()
        before = self.stream.getvalue()
        async with asyncio.timeout(PATIENCE_S):
            while self.stream.getvalue() == before:
                actions = self.served.look()
                await asyncio.sleep(0)
        return actions

    async def events(self) -> list[object]:
        """What was told to listeners."""
        found: list[object] = []
        while not self.subscription.is_drained:
            found.append(await self.subscription.next())
        return found

    def close(self) -> None:
        self._daemon.store.close()
        os.close(self._daemon.lock)


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    found = Reloading(tmp_path)
    yield found
    found.close()


async def test_another_rig_is_served_and_everybody_is_told(reloading: Reloading) -> None:
    hub = reloading.hub
    for name in "ab":
        hub.on_message(name.encode(), Hello(name, "here", 1, {}, 0), 0)
    reloading.rack.health.note_unprepared("a/p0", "j1", "no carrier")
    actions = await reloading.reread(AFTER)
    assert [port.label for port in reloading.rack.ports] == ["a/p0", "a/p1"]
    assert reloading.served.text == AFTER
    assert reloading.rack.health.state_of("a/p0").name == "SUSPECT", "what was known of a port stays known"
    said = {each.identity: each.message for each in actions if isinstance(each, Send)}
    assert isinstance(said[b"a"], Welcome)
    assert said[b"a"].slots == 2
    assert isinstance(said[b"b"], Refused)
    assert hub.present() == {"a"}
    assert [type(each) for each in await reloading.events()] == [AgentForgotten, RackChanged]
    (line,) = reloading.rack.store.audit()
    assert (line.who, line.event, line.detail) == ("SIGHUP", "read the rig again", "new: a/p1; gone: b/p0")
    assert reloading.rack.rig.refused == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents: [{name: a}]\n", "rig.yaml:1: agents[0]"),
        ("agents: [", "rig.yaml"),
        ("controller: {bind: 'tcp://127.0.0.1:1'}\n" + BEFORE, "this controller listens at"),
    ],
)
async def test_a_wrong_rig_changes_nothing_and_is_told(reloading: Reloading, text: str, said: str) -> None:
    assert await reloading.reread(text) == ()
    assert [port.label for port in reloading.rack.ports] == ["a/p0", "b/p0"]
    assert said in reloading.rack.rig.refused
    (line,) = reloading.rack.store.audit()
    assert (line.who, line.event) == ("SIGHUP", "refused the rig")
    assert said in line.detail
    assert "rig refused, the old one stays in use" in reloading.stream.getvalue()
    await reloading.reread(AFTER)
    assert reloading.rack.rig.refused == ""


def test_an_agent_is_never_left_asking_for_a_slot_that_it_was_offered() -> None:
    hub = Hub({"a": 2}, 10, 100)
    hub.on_message(b"a0", Hello("a", "here", 1, {}, 0), 0)
    assert hub.serve({"a": 1}) == ()
    (welcome, _) = hub.on_message(b"a1", Hello("a", "here", 1, {}, 1), 0)
    assert isinstance(welcome, Send)
    assert isinstance(welcome.message, Welcome)


async def test_a_job_runs_on_a_port_that_the_rig_has_since_a_signal(place: Place) -> None:
    path = place.directory / "rig.yaml"
    whole = path.read_text()
    path.write_text(
        "\n".join(
            line.partition(", {name: p1")[0] + "]}" if "p1" in line else line for line in whole.splitlines()
        )
    )
    with agents(place):
        async with serving(place) as rack:
            await rack.until(lambda: any(entry["event"] == "ready" for entry in rack.log()))
            path.write_text(whole)
            os.kill(os.getpid(), signal.SIGHUP)
            await rack.until(lambda: len(rack.rack.ports) == 4)
            job = await rack.reaches(rack.submit(SCENARIO, "a/p1", "b/p1"), JobState.FINISHED)
            assert job.leased == ("a/p1", "b/p1")
            assert job.exit_code == 0, job.reason


async def test_clients_are_told_why_a_rig_is_not_served(
    place: Place, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    async with rack_with(place, broker) as (rack, client):
        before = await client.controller()
        assert (before.rig_refused, before.rig_read_at) == ("", rack.rack.rig.read_at)
        (place.directory / "rig.yaml").write_text("agents: [")
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(PATIENCE_S):
            while not (await client.controller()).rig_refused:
                pass
        words = ["rack", "status", "--broker", f"127.0.0.1:{broker.settings.port}"]
        assert await asyncio.to_thread(main, words) == 0
    printed = capsys.readouterr().out
    assert (
        f"rig rejected, still using the rig read at {before.rig_read_at}: {place.directory}/rig.yaml: line"
        in printed
    )
    assert len(printed.splitlines()) == 9, "one line, whatever the mistake has"
