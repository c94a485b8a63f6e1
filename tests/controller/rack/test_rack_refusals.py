"""What of a controller.yaml and of a command line cannot be used is said before anything starts: where, what, and the remedy."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.cli.rack.submission import wait_for_job
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.config import Retention, parse_rack_config
from etloop.controller.rack.job import JobEvent, JobRequest, PortDemand
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.mqtt.messages import JobStatus, ProgressStatus
from etloop.controller.rack.startup import open_daemon
from etloop.controller.rack.store import artifacts
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.store.retention import Retaining
from etloop.controller.rack.submissions import RackLimits
from etloop.runtime.broker_connection import broker_settings
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.seen_time import SinceBoot
from tests.support.first_light.commands import PATIENCE_S

CONFIG = "rig: rig.yaml\nstate_dir: state\nscenario_root: traces\n"
RIG = """controller: {bind: "tcp://127.0.0.1:7420"}
agents: [{name: a, ports: [{name: p0, addresses: 127.0.1.1-127.0.1.4, link: 1Gbps}]}]
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a controller's files are."""
    (tmp_path / "rig.yaml").write_text(RIG)
    (tmp_path / "traces").mkdir()
    (tmp_path / "text").write_text("secret\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "nothing").write_text("\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (CONFIG + "mqtt: {tls: {ca: none}}\n", "mqtt.tls.ca: {}/none cannot be used: No such file"),
        (CONFIG + "mqtt: {tls: {ca: text}}\n", "mqtt.tls.ca: {}/text cannot be used: no certificate"),
        (CONFIG + "mqtt: {tls: {cert: text, key: text}}\n", "mqtt.tls.cert: {}/text cannot be used: "),
        (CONFIG + "mqtt: {tls: {cert: text}}\n", "c.yaml:4: mqtt.tls: a certificate needs its key"),
        (CONFIG + "mqtt: {tls: {key: text}}\n", "c.yaml:4: mqtt.tls: a certificate needs its key"),
        (CONFIG + "mqtt: {password_file: text}\n", "mqtt.password_file: a password without a username is never sent"),
        (CONFIG + "mqtt: {username: u, password_file: bytes}\n", "{}/bytes: contains no secret"),
        (CONFIG + "mqtt: {username: u, password_file: nothing}\n", "{}/nothing: contains no secret"),
        (CONFIG + 'mqtt: {username: u, password_file: "a\\0b"}\n', "mqtt.password_file: there is a NUL in the text"),
        (CONFIG.replace("state\n", '"a\\0b"\n'), "c.yaml:2: state_dir: there is a NUL in the text"),
        (CONFIG + "otel: {ca: none}\n", "otel.ca: {}/none is not a file"),
        (CONFIG + "mqtt: {embedded: true, username: u}\n", "mqtt.username: the embedded broker knows no users"),
        (CONFIG.replace("state\n", "traces/state\n"), "state_dir: {}/traces/state lies below scenario_root"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_before_a_rack_opens(directory: Path, text: str, printed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_daemon(parse_rack_config(text.encode(), "c.yaml", directory), RackLog(LogFormat.JSON))
    assert printed.format(directory) in str(caught.value)
    assert all(problem.remedy for problem in caught.value.problems)


def test_all_files_of_an_encryption_that_cannot_be_used_are_told_at_once(directory: Path) -> None:
    text = CONFIG + "mqtt: {tls: {ca: text, cert: none, key: text}}\n"
    with pytest.raises(ConfigError) as caught:
        open_daemon(parse_rack_config(text.encode(), "c.yaml", directory), RackLog(LogFormat.JSON))
    assert [problem.where for problem in caught.value.problems] == ["mqtt.tls.ca", "mqtt.tls.cert"]


def test_a_state_directory_is_made_for_its_owner_and_group(directory: Path) -> None:
    daemon = open_daemon(parse_rack_config(CONFIG.encode(), "c.yaml", directory), RackLog(LogFormat.JSON))
    daemon.store.close()
    assert (directory / "state").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("broker", "address"),
    [
        ("broker", ("broker", 1883)),
        ("broker:18", ("broker", 18)),
        ("[::1]", ("::1", 1883)),
        ("[fe80::1%eth0]:18", ("fe80::1%eth0", 18)),
    ],
)
def test_a_broker_is_named_by_host_and_port(broker: str, address: tuple[str, int]) -> None:
    settings = broker_settings(broker)
    assert (settings.host, settings.port) == address


@pytest.mark.parametrize("broker", ["", ":1883", "::1", "h:0", "h:65536", "h:x", "h:", "[::1", "a b", "[]:1"])
def test_what_is_no_broker_is_refused(broker: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"is not a broker address; write HOST or HOST:PORT, an IPv6 address as \[::1\]:1883",
    ):
        broker_settings(broker)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--list", "--rack", "#"], 'rack: "#" is not a name'),
        (["--list", "--ca", "rig.yaml"], "mqtt.tls.ca: rig.yaml cannot be used"),
        (["rig.yaml", "--wait-limit", "5s"], "--wait-limit: needs --wait or --follow; add --wait"),
        (["--cancel", "a/b"], '--cancel: "a/b" is not a job id'),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    printed: str,
) -> None:
    monkeypatch.chdir(directory)
    assert main(["submit", *arguments]) == ExitCode.PREPARATION_FAILED
    assert printed in capsys.readouterr().err


async def test_a_directory_that_takes_long_to_remove_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slowly(directory: Path) -> bool:
        begun.set()
        return goes_on.wait(PATIENCE_S) and directory.name == "j1"

    monkeypatch.setattr(artifacts, "remove", slowly)
    store = JobStore.open(tmp_path / "jobs.sqlite")
    job, _ = store.submit("j1", JobRequest("x", PortDemand()), "test")
    store.advance(job, JobEvent.CANCELLED, "test", run_directory="j1", artifact_bytes=100)
    rack = Rack(store, (), RackLimits(1, 1, 1, 1), ScenarioRules(tmp_path), lambda: "j2")
    retention = Retention(age_ns=NS_PER_S, size_bytes=10, ended_jobs=1, audit_lines=100)
    log = tmp_path / "log"
    with log.open("w") as stream:
        retaining = Retaining(rack, retention, tmp_path, RackLog(LogFormat.JSON, stream))
        async with asyncio.timeout(PATIENCE_S):
            retaining.look(0)
            assert not begun.is_set(), "the first pass removes nothing"
            retaining.look(60 * NS_PER_S)
            await asyncio.to_thread(begun.wait)
            retaining.look(60 * NS_PER_S)
            assert store.artifact_bytes() == 100, "it is not gone yet"
            goes_on.set()
            while store.artifact_bytes():  # noqa: ASYNC110 - a store tells nobody
                await asyncio.sleep(0)
        await retaining.end()
    said = log.read_text()
    assert "1 run directories are above the bounds of retention" in said
    assert "artifacts removed" in said


def test_results_do_not_age_by_a_step_of_the_clock(tmp_path: Path) -> None:
    """The job ended 400 days ago by the wall clock, which was wrong then or is now; the kernel has seen 30 s pass since."""
    day_ns = 86_400 * NS_PER_S
    store = JobStore.open(tmp_path / "jobs.sqlite")
    job, _ = store.submit("j1", JobRequest("x", PortDemand()), "test")
    ended = store.advance(job, JobEvent.CANCELLED, "test", run_directory="j1", artifact_bytes=100)
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as beside, beside:
        beside.execute("UPDATE job SET ended_at = '2020-01-01T00:00:00.000+00:00'")
    rack = Rack(store, (), RackLimits(1, 1, 1, 1), ScenarioRules(tmp_path), lambda: "j2")
    retention = Retention(age_ns=day_ns, size_bytes=1 << 40, ended_jobs=1, audit_lines=100)
    uptime_ns = [5 * day_ns]
    for boot, passed_ns in (("x", 0), ("x", 30 * NS_PER_S), ("y", 400 * day_ns)):
        # Another controller each: the last after a start of the machine, whose time since then is no time of the job's.
        uptime_ns.append(uptime_ns[-1] + passed_ns)
        kernel_time = partial(SinceBoot, boot, uptime_ns[-1])
        retaining = Retaining(rack, retention, tmp_path, RackLog(LogFormat.JSON), kernel_time)
        for number in range(3):
            retaining.look(number * 60 * NS_PER_S)
    assert store.artifact_bytes() == ended.artifact_bytes, "nothing is removed"
    assert store.see(store.seen_time(), ["j1"]) == {"j1": 30 * NS_PER_S}


class Running(RackClient):
    """Of a rack whose job goes on and on."""

    async def follow(self, job_id: str) -> AsyncIterator[JobStatus | ProgressStatus]:
        """Nothing is told."""
        reported: tuple[JobStatus, ...] = ()
        for each in reported:
            yield each
        await asyncio.Event().wait()


async def test_who_stops_waiting_is_told_that_the_job_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    rack = Running(BrokerSettings("127.0.0.1", 1), "rack")
    waiting = asyncio.create_task(wait_for_job(rack, "j1", argparse.Namespace(wait_limit=0, json=False)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert capsys.readouterr().err == (
        "\njob j1 continues: etloop submit --follow j1 waits for it again, etloop submit --cancel j1 cancels it\n"
    )
