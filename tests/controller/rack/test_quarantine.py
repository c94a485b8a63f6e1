"""A port that is out of service stays so over restarts of the controller, until somebody or its host says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etloop.contract.model.capabilities import Capabilities, Interface
from etloop.contract.protocol.messages import Hello
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.operators import Operators
from etloop.controller.rack.port_health import lacks_addresses
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
        ports = tuple(
            RackPort(label, label[0], 10**10, addresses=("10.0.0.1",)) for label in labels or LABELS
        )
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
    audit = [(line.who, line.event, line.detail) for line in restarting.store.audit()]
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


def host(agent: str, *addresses: str) -> Hello:
    """What an agent reports of a host with these addresses."""
    interface = Interface("eth0", addresses, 0, 1500, "", up=True)
    return Hello(agent, "host", 1, {}, capabilities=Capabilities(interfaces=(interface,), complete=True))


def test_a_port_whose_address_its_host_does_not_have_gets_no_job_until_it_has(restarting: Restarting) -> None:
    rack = restarting.rack()
    assert rack.note_host(host("a", "10.0.0.1")) == ()
    (reason,) = rack.note_host(host("b", "10.0.0.7"))
    assert reason == (
        "b/p0: address 10.0.0.1 is not on host (agent 'b'); on host: ip address add 10.0.0.1/24 dev INTERFACE; "
        "or correct the port's addresses in the rig"
    )
    assert list(rack.out_of_service()) == ["b/p0"]
    assert rack.note_host(host("b", "10.0.0.7")) == (), "reported once"
    assert restarting.rack().out_of_service() == {}, "the next controller asks the hosts itself"
    assert rack.note_host(host("b", "10.0.0.1", "10.0.0.7")) == ()
    assert rack.out_of_service() == {}


@pytest.mark.parametrize(
    ("problems", "waits"),
    [
        ({"b/p0": "address 10.0.0.1 is not on host, which has no addresses; on host: ip address add"}, True),
        ({"b/p0": "addresses 10.0.0.1, 10.0.0.2 are not on host, which has"}, True),
        ({"b/p0": "interface eth0 is down"}, False),
        ({"a/p0": "address 10.0.0.1 is not on host", "b/p0": "interface eth0 is down"}, False),
        ({}, False),
    ],
)
def test_a_job_waits_for_addresses_and_for_nothing_else(problems: dict[str, str], waits: bool) -> None:
    assert lacks_addresses(problems) is waits


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
