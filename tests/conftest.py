"""What all tests share: reproducible random examples, which worker runs what, the wheel, what was left out."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support.built_wheel import build_wheel
from tests.support.skips import kind_of, objection

# A shared machine may stall for a second, and a test that is slow there is not wrong: no deadlines. In continuous
# integration the examples are the same every time, so that a red run is red again. Examples are a third of what tests of
# pure code cost: most properties get 40, and with ETLOOP_FULL=1 as many as Hypothesis gives by itself.
EXAMPLES: Final = 100 if os.environ.get("ETLOOP_FULL") == "1" else 40
settings.register_profile("local", deadline=None, max_examples=EXAMPLES)
settings.register_profile("ci", deadline=None, max_examples=EXAMPLES, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure() -> None:
    """Let no garbage be looked for while tests are collected: all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was collected, objects of some thousand tests, out of every later look for garbage."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts processes begins first: files that take minutes must not be the last that one worker is left with."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


TOGETHER: Final = (
    ("tests/interop/",),
    ("tests/repo/test_wheel.py", "tests/repo/test_agent_root.py"),
)
"""Beginnings of tests' names: those of a row share what is made once in a process, a machine that boots or a wheel."""


class FilesTogether(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist ships no types
    """Gives a file of tests to one worker, and files that share what is made once to the same."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((row[0] for row in TOGETHER if nodeid.startswith(row)), None)
        return shared or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether | None:
    """Of `make test`; every other way to distribute is left to who asked for it."""
    return FilesTogether(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, of the native modules as they were compiled last."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def _reason(report: pytest.TestReport) -> str:
    reported = report.longrepr
    return str(reported[2] if isinstance(reported, tuple) else reported).removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip that nobody accounts for fails."""
    report = yield
    all_installed = bool(os.environ.get("CI")) and os.geteuid() == 0
    if report.skipped and (why := objection(_reason(report), all_installed=all_installed)):
        report.outcome, report.longrepr = "failed", why
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests were left out for which kind of reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    for kind, count in sorted(Counter(kind_of(_reason(report)) for report in skipped).items(), key=str):
        terminalreporter.write_line(f"left out: {count} {kind}")
