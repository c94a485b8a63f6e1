"""A port that is out of service stays so over restarts of the controller, until somebody or its host says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.operators import Operators
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.submissions import RackLimits

LABELS = ("a/p0", "b/p0")


class Restarting:
    """One job store under one controller after another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.store = JobStore.open(directory / "jobs.sqlite")

    def rack(self, *labels: str) -> Rack:
        """The next controller's, with these ports."""
        self.store.close()
        self.store = JobStore.open(self._directory / "jobs.sqlite")
        ports = tuple(RackPort(label, label[0], 10**10) for label in labels or LABELS)
        return Rack(
            self.store, ports, RackLimits(9, 9, 1 << 20, 1), ScenarioRules(self._directory), lambda: "j"
        )


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    found = Restarting(tmp_path)
    yield found
    found.store.close()


def broken(rack: Rack) -> None:
    """A port that could not be prepared for two jobs, and one for one."""
    for job_id in ("j1", "j2"):
        rack.note_unprepared(job_id, {"a/p0": "interface p0 is down"})
    rack.note_unprepared("j2", {"b/p0": "no carrier"})
    rack.starts(frozenset())


OUT = {"a/p0": "out of service: interface p0 is down"}


def test_a_restart_puts_no_port_back_into_service(restarting: Restarting) -> None:
    broken(restarting.rack())
    for _ in range(2):
        rack = restarting.rack()
        rack.starts(frozenset())
        assert rack.out_of_service() == OUT
    audit = [(line.who, line.what, line.detail) for line in restarting.store.audit()]
    assert audit == [("controller", "out of service: port a/p0", "interface p0 is down")]


def test_what_an_operator_or_a_host_brought_back_stays_back(restarting: Restarting) -> None:
    broken(restarting.rack())
    rack = restarting.rack()
    Operators(rack).undrain(["a/p0"], "new cable", "ann")
    rack.starts(frozenset())
    assert restarting.rack().out_of_service() == {}
    broken(rack := restarting.rack())
    assert rack.host_changed("a") == ("a/p0",)
    rack.starts(frozenset())
    assert restarting.rack().out_of_service() == {}


def test_of_a_port_that_the_rig_has_no_more_nothing_is_kept(restarting: Restarting) -> None:
    broken(restarting.rack())
    rack = restarting.rack("b/p0")
    rack.starts(frozenset())
    assert rack.out_of_service() == {}
    assert restarting.rack().out_of_service() == {}


def test_what_the_store_did_not_take_is_written_when_it_does(
    restarting: Restarting, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = restarting.rack()

    def full(*_: object) -> None:
        raise StoreFailed("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(restarting.store, "order", full)
        with pytest.raises(StoreFailed):
            broken(rack)
    rack.starts(frozenset())
    assert restarting.rack().out_of_service() == OUT
