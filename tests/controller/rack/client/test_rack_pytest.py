"""The fixtures for rack suites, in suites of their own that pytest runs against a real rack; and the client without a loop."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from etloop.controller.rack.client.blocking import BlockingRack
from etloop.controller.rack.client.client import RackUnreachable, RequestRefused
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.messages import RackStatus
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place
from tests.support.first_light.commands import PATIENCE_S, Place, agents
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.rack.rack_under_faults import Broken

pytest_plugins = ["pytester"]
__all__ = ["mosquitto", "place"]

SUITE = f"""
import pytest
from etloop.controller.rack.client.client import RackUnreachable, RequestRefused

def test_passes(etloop_job):
    result = etloop_job({SCENARIO!r}, ports=["a/p0", "b/p0"], limit_s=90, labels={{"suite": "own"}})
    assert result.exit_code == 0, result.reason
    assert result.summary["state"] == "done"

def test_fails_by_its_verdict(etloop_job):
    result = etloop_job({SCENARIO.replace("job", "empty")!r}, limit_s=90)
    assert result.exit_code == 0, result.reason

def test_refused(etloop_job):
    with pytest.raises(RequestRefused, match="c/p9"):
        etloop_job({SCENARIO!r}, ports=["c/p9"])

def test_ends_before_its_job_does(etloop_job):
    with pytest.raises(RackUnreachable, match="did not end within"):
        etloop_job({LONG!r}, limit_s=0.5)

def test_the_rack_itself(etloop_rack):
    assert [port.label for port in etloop_rack.inventory().ports] == ["a/p0", "a/p1", "b/p0", "b/p1"]
"""


@contextmanager
def rack_up(place: Place, mosquitto: Mosquitto) -> Iterator[Broken]:
    """A rack under way, its agents with it."""
    broken = Broken(place, mosquitto)
    with agents(place), broken.controller():
        yield broken


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite has our plugin because it names it, whether ETLoop is installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.e2e
def test_a_suite_of_its_own_runs_jobs_and_leaves_none(
    place: Place, mosquitto: Mosquitto, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(monkeypatch)
    pytester.makepyfile(test_own=SUITE)
    with rack_up(place, mosquitto) as rack:
        try:
            result = pytester.runpytest_subprocess(
                *("-p", "etloop.pytest_plugin", "--junitxml", "report.xml"),
                *("--etloop-broker", f"127.0.0.1:{mosquitto.port}", "--etloop-required"),
                timeout=0.8 * PATIENCE_S,
            )
        except pytester.TimeoutExpired:
            pytest.fail(f"the suite did not end; it printed {(pytester.path / 'stdout').read_text()}")
        result.assert_outcomes(passed=4, failed=1)
        assert "none" in result.stdout.str(), "why the job failed is in the report of its test"
        by_test = {dict(job.request.labels)["test"].rpartition("::")[2]: job for job in rack.jobs()}
        open_job = by_test["test_ends_before_its_job_does"]
        with BlockingRack(BrokerSettings("127.0.0.1", mosquitto.port), "rack") as client:
            ended = client.result(open_job.job_id, 60)
    assert (ended.state, ended.reason) == (
        JobState.CANCELLED,
        'cancelled by mqtt (says "the end of its test")',
    )
    assert dict(by_test["test_passes"].request.labels)["suite"] == "own"
    report = ET.parse(pytester.path / "report.xml")
    noted = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in report.iter("testcase")
    }
    assert noted["test_passes"] == {"etloop.job": by_test["test_passes"].job_id, "etloop.exit_code": "0"}
    assert noted["test_fails_by_its_verdict"]["etloop.exit_code"] == "65"


@pytest.mark.parametrize(
    ("arguments", "outcome", "printed"),
    [
        ([], {"skipped": 1}, "no rack: give --etloop-broker"),
        (["--etloop-required"], {"errors": 1}, "no rack: give --etloop-broker"),
        (["--etloop-broker", ":x"], {"errors": 1}, "is not a broker address; write HOST or HOST:PORT"),
        (["--etloop-broker", "127.0.0.1:PORT"], {"errors": 1}, "no broker at 127.0.0.1:"),
    ],
    ids=["none named", "none named but required", "no address", "nobody there"],
)
def test_without_a_rack_it_is_said(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    outcome: dict[str, int],
    printed: str,
) -> None:
    alone(monkeypatch)
    pytester.makepyfile("def test_it(etloop_job): pass")
    given = [argument.replace("PORT", str(free_port())) for argument in arguments]
    result = pytester.runpytest_subprocess("-p", "etloop.pytest_plugin", "-rs", *given)
    result.assert_outcomes(**outcome)
    assert printed in result.stdout.str()


@pytest.mark.e2e
def test_a_client_without_a_loop(place: Place, mosquitto: Mosquitto) -> None:
    with rack_up(place, mosquitto), BlockingRack(BrokerSettings("127.0.0.1", mosquitto.port), "rack") as rack:
        assert rack.controller().state is RackStatus.READY
        assert rack.run(SCENARIO, limit_s=90, client_key="one").exit_code == 0
        assert rack.run(SCENARIO, limit_s=90, client_key="one").exit_code == 0
        assert len(rack.jobs()) == 1
        with pytest.raises(RequestRefused):
            rack.submit("nonsense: 1")
        with pytest.raises(RackUnreachable, match="did not end within"):
            rack.run(LONG, limit_s=0.3)
        (long, _) = rack.jobs()
        assert rack.result(long.job_id, 60).state in ENDED, "a run that took too long was cancelled"


def test_a_client_without_a_loop_leaves_no_thread_when_nobody_is_there() -> None:
    import threading

    before = threading.active_count()
    rack = BlockingRack(BrokerSettings("127.0.0.1", free_port()), "rack")
    assert repr(rack).startswith(
        "<BlockingRack by <RackClient of 'etloop/v1/rack' at BrokerSettings(127.0.0.1:"
    )
    with pytest.raises(RackUnreachable, match="no broker at"):
        rack.__enter__()
    assert threading.active_count() == before
