"""Fixtures for test suites: `etloop_twin`, `etloop_lab` and `etloop_rig` run jobs; `etloop_job` runs them on `etloop_rack`.

    def test_the_switch_marks_before_it_drops(etloop_twin):
        run = etloop_twin("scenario.yaml", topology="topology.yaml", seed=7)
        assert run.kpis["lost_share"] == 0

    pytest --etloop-rig rig.yaml --etloop-out runs --junitxml results.xml

pytest loads this plugin by itself if ETLoop is installed; it imports nothing more until a fixture is used (docs/pytest.md).
Decides where runs are kept, which runs belong to a test, and which tests are skipped; `pytest_evidence` decides how a failing
test shows its runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import etloop

if TYPE_CHECKING:
    from etloop.controller.rack.client.blocking import BlockingRack
    from etloop.controller.rack.mqtt.messages import ResultStatus
    from etloop.input_files import FileOrValues
    from etloop.runs import Run

_NO_BROKER: Final = "no rack: give --etloop-broker HOST[:PORT], or set ETLOOP_BROKER"
_NO_RIG: Final = "no rig: give --etloop-rig FILE, or set ETLOOP_RIG"
_LONGEST_LABEL: Final = 1024
_LONGEST_NAME: Final = 120
_MOST_RUNS: Final = 10_000
"""Most runs of one test below one directory, earlier sessions included."""
_PROBE_S: Final = 30
_CURRENT: Final = pytest.StashKey[pytest.Item]()
_RESULTS: Final = pytest.StashKey["list[Run | ResultStatus]"]()
_SHOWN: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a rig, a rack and the directory of runs; those of a rack are the same as of `etloop submit`."""
    group = parser.getgroup("etloop", "runs of ETLoop in a twin, in a lab, on a rig or on a rack")
    group.addoption("--etloop-rig", metavar="FILE", help="rig whose agents run (or ETLOOP_RIG)")
    group.addoption(
        "--etloop-out",
        type=Path,
        metavar="DIR",
        help="keep runs in DIR/TEST/NUMBER (default: pytest's temporary directory)",
    )
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
        help="if no rig or no rack is given, fail the tests that need one instead of skipping them",
    )
    group.addoption(
        "--etloop-skip-lab",
        action="store_true",
        help="skip the tests that need a lab on a host without network namespaces, instead of failing them",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note which test is running: fixtures of a whole session attribute their runs to it."""
    item.config.stash[_CURRENT] = item
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the runs of a failing test to its reports, once: those made during the test, and the values of its fixtures."""
    report = yield
    if not report.failed or item.stash.get(_SHOWN, False):
        return report
    for value in getattr(item, "funcargs", {}).values():
        if "etloop.runs" in sys.modules and isinstance(value, etloop.Run):
            _attribute(item, value)
    if results := item.stash.get(_RESULTS, []):
        from etloop.pytest_evidence import show_evidence

        item.stash[_SHOWN] = True
        show_evidence(report, item.config, results)
    return report


class RunsOfTests:
    """Runs jobs for tests; each run has a directory of its own, and belongs to the test that is running."""

    def __init__(self, run: Callable[..., Run], config: pytest.Config, base: Path) -> None:
        self._run = run
        self._config = config
        self._base = base

    def __repr__(self) -> str:
        """Return the directory of the runs."""
        return f"<{type(self).__name__} below {str(self._base)!r}>"

    def __call__(self, scenario: FileOrValues, *inputs: FileOrValues, **named: Any) -> Run:
        """Run a scenario and return the run. Further arguments and errors are those of `etloop.run_twin`, `etloop.run_lab` or
        `etloop.run_rig`; without `out_dir` the run gets a new directory.
        """
        __tracebackhide__ = True
        item = self._config.stash[_CURRENT]
        made = None if "out_dir" in named else _new_directory(self._base, item.nodeid)
        try:
            run = self._run(scenario, *inputs, **{"out_dir": made} | named)
        except etloop.EtloopError as error:
            if made is not None:
                with contextlib.suppress(OSError):  # It holds what the run has written before it broke off.
                    made.rmdir()
                    made.parent.rmdir()
            # The caller's mistakes, in words; the frames of ETLoop would hide them.
            raise error.with_traceback(None) from None
        _attribute(item, run)
        return run


def _new_directory(base: Path, nodeid: str) -> Path:
    """Create and return the next directory of a test: its name without special characters, and a number."""
    parent = base / re.sub(r"[^\w.-]+", "-", nodeid).strip("-.")[-_LONGEST_NAME:]
    for number in range(1, _MOST_RUNS + 1):
        with contextlib.suppress(FileExistsError):
            (parent / str(number)).mkdir(parents=True)
            return parent / str(number)
    pytest.fail(f"{parent}: has {_MOST_RUNS} runs; give another --etloop-out", pytrace=False)


def _attribute(item: pytest.Item, result: Run | ResultStatus) -> None:
    """Attribute a run or a job to a test, once, and note it among the properties of its JUnit report."""
    results = item.stash.setdefault(_RESULTS, [])
    if not any(result is known for known in results):
        from etloop.pytest_evidence import properties_of

        results.append(result)
        item.user_properties.extend(properties_of(result))


def _runs_below(request: pytest.FixtureRequest, run: Callable[..., Run]) -> RunsOfTests:
    base = request.config.getoption("--etloop-out")
    if base is None:
        base = request.getfixturevalue("tmp_path_factory").getbasetemp() / "etloop"
    return RunsOfTests(run, request.config, base.absolute())


@pytest.fixture(scope="session")
def etloop_twin(request: pytest.FixtureRequest) -> RunsOfTests:
    """Return a callable that runs scenarios in virtual time; arguments as of `etloop.run_twin`."""
    return _runs_below(request, etloop.run_twin)


@pytest.fixture(scope="session")
def etloop_lab(request: pytest.FixtureRequest) -> RunsOfTests:
    """Return a callable that runs scenarios in labs of this host; arguments as of `etloop.run_lab`."""
    if request.config.getoption("--etloop-skip-lab") and (refusal := lab_refusal()):
        pytest.skip(f"no lab on this host: {refusal}")
    return _runs_below(request, etloop.run_lab)


def lab_refusal() -> str:
    """Return why this host has no namespaces for a lab; "" if it has. They are tried in a process of one thread."""
    code = "from etloop.lab.namespaces import become_root, new_namespace; become_root(); new_namespace()"
    tried = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=False, timeout=_PROBE_S
    )
    lines = tried.stderr.strip().splitlines() or ["the attempt ended without a message"]
    return "" if tried.returncode == 0 else lines[-1].partition("RigError: ")[2] or lines[-1]


@pytest.fixture(scope="session")
def etloop_rig(request: pytest.FixtureRequest) -> RunsOfTests:
    """Return a callable that runs scenarios by the agents of the rig that the command line names; arguments as of
    `etloop.run_rig`, without the rig.
    """
    rig = request.config.getoption("--etloop-rig") or os.environ.get("ETLOOP_RIG", "")
    if not rig:
        _leave_out(request.config, _NO_RIG)
    if not Path(rig).is_file():
        pytest.fail(f"--etloop-rig: {rig} does not exist; name the rig.yaml of running agents", pytrace=False)
    return _runs_below(request, partial(etloop.run_rig, rig=Path(rig).absolute()))


def _leave_out(config: pytest.Config, reason: str) -> None:
    """Skip what needs a rig or a rack that the command line does not name, or fail it with `--etloop-required`."""
    if config.getoption("--etloop-required"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


class JobOfTest:
    """Runs jobs on the rack for one test."""

    def __init__(self, rack: BlockingRack, test: pytest.Item) -> None:
        self._rack = rack
        self._test = test
        self._open: list[str] = []

    def __repr__(self) -> str:
        """Return the jobs that have not ended."""
        return f"<{type(self).__name__}: {len(self._open)} jobs under way>"

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
        _attribute(self._test, result)
        return result

    def cancel_open(self) -> None:
        """Cancel the jobs that have not ended."""
        for job_id in self._open:
            with contextlib.suppress(etloop.EtloopError):  # The test already has its outcome.
                self._rack.cancel(job_id, "the end of its test")


@pytest.fixture(scope="session")
def etloop_rack(request: pytest.FixtureRequest) -> Iterator[BlockingRack]:
    """Yield a connection to the rack that the command line names."""
    config = request.config
    broker = config.getoption("--etloop-broker") or os.environ.get("ETLOOP_BROKER", "")
    if not broker:
        _leave_out(config, _NO_BROKER)
    stack = contextlib.ExitStack()
    try:
        from etloop.contract.base.units import parse_at, parse_name
        from etloop.runtime.broker_connection import broker_settings

        settings = broker_settings(
            broker,
            username=config.getoption("--etloop-username"),
            password_file=config.getoption("--etloop-password-file"),
            ca=config.getoption("--etloop-ca"),
        )
        name = config.getoption("--etloop-rack") or os.environ.get("ETLOOP_RACK", "rack")
        rack = stack.enter_context(etloop.BlockingRack(settings, parse_at("rack", parse_name, name)))
    except etloop.EtloopError as error:
        pytest.fail(str(error), pytrace=False)
    with stack:
        yield rack


@pytest.fixture
def etloop_job(etloop_rack: BlockingRack, request: pytest.FixtureRequest) -> Iterator[JobOfTest]:
    """Yield a callable that runs jobs of this test, and cancel those still running after it."""
    jobs = JobOfTest(etloop_rack, request.node)
    yield jobs
    jobs.cancel_open()
