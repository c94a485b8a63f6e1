"""The pytest plugin of examples/sonic: the lab's switch answers as a SONiC host, and its topology has the tests' queues."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from etloop.contract.model.switch_counters import SWITCH_PORT_COUNTERS
from tests.support.places import ROOT

KIT = ROOT / "examples/sonic"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the plugin, and remove afterwards the modules that it supplies."""
    monkeypatch.setenv("ETLOOP_TOPOLOGY", str(KIT / "topology.yaml"))
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("etloop_sonic", KIT / "etloop_sonic.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in set(sys.modules) - before:
        if name.startswith(("tests.common", "ixnetwork_restpy")):
            del sys.modules[name]


def dut_of(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a DUT of one port, and the counters that it reads."""
    counters = np.zeros(1, SWITCH_PORT_COUNTERS)
    monkeypatch.setattr(plugin.LabDut, "interfaces", ["Ethernet0"])
    monkeypatch.setattr(plugin.LabDut, "_counters", lambda _: {"Ethernet0": counters[0].copy()})
    return plugin.LabDut(), counters


def test_counters_are_those_since_the_last_clear(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    dut, counters = dut_of(plugin, monkeypatch)
    counters["queues"]["packets"][0, 6], counters["pfc_tx"][0, 3] = 5, 2
    for line in ("sonic-clear queuecounters", "sonic-clear pfccounters"):
        dut.command(line)
    counters["queues"]["packets"][0, 6] += 1234
    counters["pfc_tx"][0, 3] += 7
    rows = json.loads(dut.shell("show queue counters --json")["stdout"])
    assert (rows["Ethernet0"]["UC6"]["totalpacket"], rows["Ethernet0"]["UC3"]["totalpacket"]) == (
        "1,234",
        "0",
    )
    lines = dut.shell("show pfc counters")["stdout"].splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["Port", "Rx"],
        ["Ethernet0", "0"],
        ["Port", "Tx"],
        ["Ethernet0", "0"],
    ]
    assert lines[3].split()[4] == "7"


def test_weights_are_those_of_the_topology(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    dut, _ = dut_of(plugin, monkeypatch)
    facts = dut.config_facts()["ansible_facts"]
    assert set(facts["QUEUE"]["Ethernet0"]) == {"0", "1", "2", "3", "4", "7"}
    assert facts["SCHEDULER"]["scheduler.3"]["weight"] == "15"


def test_command_that_a_lab_does_not_have_is_named(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    dut, _ = dut_of(plugin, monkeypatch)
    with pytest.raises(NotImplementedError, match="config reload"):
        dut.shell("config reload")


def test_tests_find_what_they_import(plugin: ModuleType) -> None:
    utilities = sys.modules["tests.common.utilities"]
    assert vars(utilities)["wait_until"](10, 10, 0, lambda: True)
    assert not hasattr(plugin, "pytest_assert")
    assert vars(sys.modules["tests.common.snappi_tests.qos_fixtures"])["prio_dscp_map"]
