"""Fixtures for test suites that use a rack: `etloop_rack`, the rack itself, and `etloop_job`, which runs jobs of a test.

    def test_the_switch_carries_an_all_reduce(etloop_job):
        result = etloop_job(Path("all_reduce.yaml").read_text(), ports=["a/p0", "b/p0"], limit_s=600)
        assert result.exit_code == 0, result.reason

    pytest --etloop-broker rack-broker:8883 --etloop-rack rack1 --etloop-ca ca.pem --etloop-username automation \
           --etloop-password-file secret --junitxml results.xml

pytest loads this plugin by itself if ETLoop is installed. Decides the properties of a test's job: labelled with the
test's name, noted in the JUnit report, and cancelled if the test ends before it does. Without a broker, tests that use
a rack are skipped, or fail with `--etloop-required`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from etloop.contract.base.errors import EtloopError

if TYPE_CHECKING:
    from etloop.controller.rack.client.blocking import BlockingRack
    from etloop.controller.rack.mqtt.messages import ResultStatus

_NO_BROKER: Final = "no rack: give --etloop-broker HOST[:PORT], or set ETLOOP_BROKER"
_LONGEST_LABEL: Final = 1024


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a rack; the same as those of `etloop submit`."""
    group = parser.getgroup("etloop", "a rack of ETLoop")
    group.addoption(
        "--etloop-broker", metavar="HOST[:PORT]", help="MQTT broker of the rack (or ETLOOP_BROKER)"
    )
    group.addoption("--etloop-rack", metavar="NAME", help="name of the rack (or ETLOOP_RACK; default rack)")
    group.addoption("--etloop-username", default="", metavar="USER", help="of the broker")
    group.addoption("--etloop-password-file", type=Path, metavar="FILE", help="holds the password")
    group.addoption("--etloop-ca", type=Path, metavar="FILE", help="authority of the broker's certificate")
    group.addoption(
        "--etloop-required",
        action="store_true",
        help="if no rack is given, fail the tests that need one instead of skipping them",
    )


class JobOfTest:
    """Runs jobs on the rack for one test."""

    def __init__(self, rack: BlockingRack, test: pytest.Item) -> None:
        self._rack = rack
        self._test = test
        self._open: list[str] = []

    def __call__(self, scenario: str, *, limit_s: float | None = None, **request: Any) -> ResultStatus:
        """Submit a job, wait for it, and return its result; keywords as in `RackClient.submit`.

        Raises `RequestRefused` with all problems, `RackUnreachable` after `limit_s`, and then the job is cancelled.
        """
        test = self._test.nodeid
        labels = {"test": test[-_LONGEST_LABEL:]} | dict(request.pop("labels", {}))
        # One job per call, however often the request is delivered; repeating the test makes another job.
        request.setdefault("client_key", f"pytest-{secrets.token_hex(12)}")
        job = self._rack.submit(scenario, labels=labels, **request)
        self._open.append(job.job_id)
        self._test.user_properties.append(("etloop.job", job.job_id))
        result = self._rack.result(job.job_id, limit_s)
        self._open.remove(job.job_id)
        self._test.user_properties.append(("etloop.exit_code", result.exit_code))
        if result.exit_code:
            self._test.add_report_section("call", "etloop", f"job {job.job_id}: {result.reason}")
        return result

    def cancel_open(self) -> None:
        """Cancel the jobs that have not ended."""
        for job_id in self._open:
            with contextlib.suppress(EtloopError):  # The test already has its outcome.
                self._rack.cancel(job_id, "the end of its test")


@pytest.fixture(scope="session")
def etloop_rack(request: pytest.FixtureRequest) -> Iterator[BlockingRack]:
    """Yield a connection to the rack that the command line names."""
    config = request.config
    broker = config.getoption("--etloop-broker") or os.environ.get("ETLOOP_BROKER", "")
    if not broker:
        if config.getoption("--etloop-required"):
            pytest.fail(_NO_BROKER, pytrace=False)
        pytest.skip(_NO_BROKER)
    # Imported late: most test runs on a machine with ETLoop installed do not use a rack.
    from etloop.contract.base.units import parse_at, parse_name
    from etloop.controller.rack.client.blocking import BlockingRack
    from etloop.runtime.broker_connection import broker_settings

    stack = contextlib.ExitStack()
    try:
        settings = broker_settings(
            broker,
            username=config.getoption("--etloop-username"),
            password_file=config.getoption("--etloop-password-file"),
            ca=config.getoption("--etloop-ca"),
        )
        name = config.getoption("--etloop-rack") or os.environ.get("ETLOOP_RACK", "rack")
        rack = stack.enter_context(BlockingRack(settings, parse_at("rack", parse_name, name)))
    except EtloopError as error:
        pytest.fail(str(error), pytrace=False)
    with stack:
        yield rack


@pytest.fixture
def etloop_job(etloop_rack: BlockingRack, request: pytest.FixtureRequest) -> Iterator[JobOfTest]:
    """Yield a callable that runs jobs of this test, and cancel those still running after it."""
    jobs = JobOfTest(etloop_rack, request.node)
    yield jobs
    jobs.cancel_open()
