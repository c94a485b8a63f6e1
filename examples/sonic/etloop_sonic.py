"""pytest plugin: sonic-mgmt's RoCEv2 tests, unmodified, against `etloop otg serve` over a lab switch.

    pytest -p etloop_sonic --noconftest --etloop-rig rig.yaml tests/snappi_tests/rocev2

Supplies what those tests import from sonic-mgmt and IxNetwork: fixtures, assertions, and a DUT whose queue and PFC counters are
those of the lab's switch. Its CONFIG_DB has the scheduler weights and WRED profiles of the topology. The switch keeps its
profiles: a test that removes one fails, and needs a topology whose queues do not mark.

Environment: OTG_API (default https://127.0.0.1:8443), ETLOOP_LAB (name of the lab, default lab), ETLOOP_TOPOLOGY (topology.yaml),
ETLOOP_LATENCY_NS (latency that the tests accept instead of 5,000 ns).
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import types
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.contract.model.topology import SwitchSettings
from etloop.contract.protocol.lab import LabAgentStatus, LabPortStatus
from etloop.lab.client import lab_counters, lab_status
from etloop.traffic.topology.topology_file import parse_topology

URL: Final = os.environ.get("OTG_API", "https://127.0.0.1:8443")
LAB: Final = os.environ.get("ETLOOP_LAB", "lab")
TOPOLOGY: Final = Path(os.environ.get("ETLOOP_TOPOLOGY", "topology.yaml"))
PRIORITIES: Final = range(8)
DSCPS_OF_PRIORITY: Final = {0: [8], 1: [0], 2: [5], 3: [3], 4: [4], 5: [46], 6: [48], 7: [49]}
_WRED_PROFILE: Final = re.compile(
    r'sonic-db-cli CONFIG_DB hget "QUEUE\|Ethernet\d+\|(?P<queue>[0-7])" wred_profile'
)


class LabDut:
    """The lab's switch in the place of a SONiC host. Counters are those since the last sonic-clear."""

    hostname = "dut"

    def __init__(self) -> None:
        self._queues_base: dict[str, Any] = {}
        self._pfc_base: dict[str, Any] = {}

    @cached_property
    def _agents(self) -> tuple[LabAgentStatus, ...]:
        return lab_status(LAB).agents

    @property
    def ports(self) -> list[LabPortStatus]:
        """Return the ports of the rig."""
        return [port for agent in self._agents for port in agent.ports]

    @property
    def locations(self) -> list[str]:
        """Return the ports of the rig as "agent/port"."""
        return [f"{agent.name}/{port.port}" for agent in self._agents for port in agent.ports]

    @property
    def interfaces(self) -> list[str]:
        """Return the names of the switch's ports, in the order of the rig's."""
        return [port.end.partition("/")[2] for port in self.ports]

    @cached_property
    def _settings(self) -> SwitchSettings:
        (switch,) = parse_topology(TOPOLOGY.read_bytes(), str(TOPOLOGY)).switches
        return switch

    def _counters(self) -> dict[str, Any]:
        """Return the counters of each port of the switch."""
        (switch,) = lab_counters(LAB).switches
        return {port.name.rpartition("/")[2]: port.counters for port in switch.ports}

    def command(self, line: str, **_: object) -> dict[str, Any]:
        """Carry out a command of SONiC."""
        return self.shell(line)

    def shell(self, line: str, **_: object) -> dict[str, Any]:
        """Carry out a command of SONiC. Raise `NotImplementedError` for those that the RoCEv2 tests do not give."""
        output = ""
        if line == "sonic-clear queuecounters":
            self._queues_base = self._counters()
        elif line == "sonic-clear pfccounters":
            self._pfc_base = self._counters()
        elif line == "show pfc counters":
            output = self._pfc_table()
        elif line == "show queue counters --json":
            output = json.dumps(self._queue_rows())
        elif query := _WRED_PROFILE.fullmatch(line):
            is_marking = self._settings.queues[int(query["queue"])].marking is not None
            output = f"wred.{query['queue']}" if is_marking else ""
        else:
            raise NotImplementedError(f"the lab's switch has no command {line}")
        return {"stdout": output, "rc": 0}

    def _pfc_table(self) -> str:
        now = self._counters()
        lines: list[str] = []
        for word, name in (("Rx", "pfc_rx"), ("Tx", "pfc_tx")):
            lines.append(f"Port {word}  " + "  ".join(f"PFC{priority}" for priority in PRIORITIES))
            for interface in self.interfaces:
                base = self._pfc_base[interface][name] if self._pfc_base else [0] * len(PRIORITIES)
                counts = [
                    int(value) - int(old) for value, old in zip(now[interface][name], base, strict=True)
                ]
                lines.append(f"{interface}  " + "  ".join(f"{count:,}" for count in counts))
        return "\n".join(lines)

    def _queue_rows(self) -> dict[str, Any]:
        columns = {
            "totalpacket": "packets",
            "totalbytes": "bytes",
            "droppacket": "dropped_packets",
            "dropbytes": "dropped_bytes",
        }
        now = self._counters()
        rows: dict[str, Any] = {}
        for interface in self.interfaces:
            rows[interface] = {"time": "now"}
            for queue in PRIORITIES:
                counts = now[interface]["queues"][queue]
                base = self._queues_base[interface]["queues"][queue] if self._queues_base else None
                rows[interface][f"UC{queue}"] = {
                    column: f"{int(counts[name]) - (int(base[name]) if base is not None else 0):,}"
                    for column, name in columns.items()
                }
        return rows

    def config_facts(self, **_: object) -> dict[str, Any]:
        """Return QUEUE and SCHEDULER of CONFIG_DB, as the topology has them."""
        weights = {
            number: queue.weight
            for number, queue in enumerate(self._settings.queues[: len(PRIORITIES)])
            if not queue.strict
        }
        queues = {str(queue): {"scheduler": f"scheduler.{queue}"} for queue in weights}
        schedulers = {
            f"scheduler.{queue}": {"type": "DWRR", "weight": str(weight)} for queue, weight in weights.items()
        }
        facts = {"QUEUE": dict.fromkeys(self.interfaces, queues), "SCHEDULER": schedulers}
        return {"ansible_facts": facts}


DUT: Final = LabDut()


class Api:
    """snappi's api, with the calls of IxNetwork that the helper makes; they are answered from the configuration."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._config: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def set_config(self, config: Any) -> Any:
        """Set the configuration and keep it."""
        self._config = config
        return self._api.set_config(config)

    @property
    def _ixnetwork(self) -> Any:
        flows = [
            flow
            for group in self._config.stateful_flows.rocev2
            for port in group.tx_ports
            for flow in port.transmit_type.target_line_rate.flows
        ]
        dscps = {
            queue_pair.qp_name: queue_pair.connection_type.reliable_connection.dscp
            for device in self._config.devices
            for interface in device.rocev2.ipv4_interfaces
            for peer in interface.peers
            for queue_pair in peer.qps
        }
        streams = [types.SimpleNamespace(Name=flow.name, IpDscp=dscps[flow.tx_endpoint]) for flow in flows]
        stream = types.SimpleNamespace(find=lambda: streams)
        traffic = types.SimpleNamespace(find=lambda: types.SimpleNamespace(RoceV2Stream=stream))
        root = types.SimpleNamespace(find=lambda: types.SimpleNamespace(RoceV2Traffic=traffic))
        return types.SimpleNamespace(SaveConfig=lambda **_: None, Traffic=root)


class PortStatistics:
    """IxNetwork's view of that name: pauses that the generator's ports received, which the switch sent."""

    ColumnHeaders: Final = ["Port", *(f"Rx Pause Priority Group {queue} Frames" for queue in PRIORITIES)]

    def __init__(self, _: object, __: str) -> None:
        rows = DUT.shell("show pfc counters")["stdout"].splitlines()
        sent = rows[len(rows) // 2 + 1 :]
        self.Rows = types.SimpleNamespace(RawData=[row.replace(",", "").split() for row in sent])


def pytest_require(condition: object, message: str = "") -> None:
    """Skip a test without its requirements."""
    if not condition:
        pytest.skip(message)


def pytest_assert(condition: object, message: str = "") -> None:
    """Fail a test."""
    assert condition, message


def wait(seconds: float, message: str = "") -> None:
    """Wait."""
    del message
    time.sleep(seconds)


def wait_until(
    timeout: float, interval: float, delay: float, condition: Callable[..., bool], *values: Any, **named: Any
) -> bool:
    """Return whether a condition holds before the timeout, asked at an interval."""
    time.sleep(delay)
    for _ in range(int(timeout // interval) + 1):
        if condition(*values, **named):
            return True
        time.sleep(interval)
    return False


@pytest.fixture
def nothing() -> dict[str, Any]:
    """Return no facts: those of a testbed that a lab does not have."""
    return {}


@pytest.fixture
def snappi_api() -> Api:
    """Return the api of the server."""
    return Api(import_module("snappi").api(location=URL))


@pytest.fixture
def duthosts() -> list[LabDut]:
    """Return the lab's switch."""
    return [DUT]


@pytest.fixture
def prio_dscp_map() -> dict[int, list[int]]:
    """Return the DSCPs of each priority."""
    return DSCPS_OF_PRIORITY


@pytest.fixture
def get_snappi_ports() -> list[dict[str, Any]]:
    """Return the rig's ports with the switch's ports that they are on."""
    return [
        {"peer_port": interface, "location": location, "duthost": DUT, "snappi_port_id": number}
        for number, (interface, location) in enumerate(zip(DUT.interfaces, DUT.locations, strict=True))
    ]


def snappi_dut_base_config(_: object, ports: list[dict[str, Any]], api: Any) -> tuple[Any, list[Any], Any]:
    """Return a configuration of ports and devices, the settings of each port, and the ports."""
    config, settings = api.config(), []
    for number, port in enumerate(ports):
        port["port_id"] = number
        config.ports.port(name=f"Port {number}", location=port["location"])
        device = config.devices.device(name=f"Device Port {number}")[-1]
        ethernet = device.ethernets.ethernet(name=f"Ethernet Port {number}")[-1]
        ethernet.connection.port_name = f"Port {number}"
        ethernet.mac = f"00:11:22:33:44:{number:02x}"
        address, gateway = DUT.ports[number].addresses[0], DUT.ports[number - 1].addresses[0]
        ethernet.ipv4_addresses.ipv4(name=f"Ipv4 Port {number}", address=address, gateway=gateway, prefix=24)
        settings.append(types.SimpleNamespace(id=number, ip=address, peer_port=port["peer_port"]))
    return config, settings, ports


def add_module(name: str, **members: Any) -> None:
    """Put a module and its parents into sys.modules, unless they are there."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        if path not in sys.modules:
            module = types.ModuleType(path)
            module.__path__ = []
            sys.modules[path] = module
            if count > 1:
                setattr(sys.modules[".".join(parts[: count - 1])], parts[count - 1], module)
    vars(sys.modules[name]).update(members)


add_module("tests.common.helpers.assertions", pytest_require=pytest_require, pytest_assert=pytest_assert)
add_module("tests.common.utilities", wait=wait, wait_until=wait_until)
add_module(
    "tests.common.fixtures.conn_graph_facts",
    conn_graph_facts=nothing,
    fanout_graph_facts=nothing,
    fanout_graph_facts_multidut=nothing,
)
add_module(
    "tests.common.snappi_tests.snappi_fixtures",
    snappi_api_serv_ip=nothing,
    snappi_api_serv_port=nothing,
    snappi_api=snappi_api,
    snappi_testbed_config=nothing,
    get_snappi_ports_single_dut=get_snappi_ports,
    get_snappi_ports_multi_dut=get_snappi_ports,
    get_snappi_ports=get_snappi_ports,
    snappi_dut_base_config=snappi_dut_base_config,
)
add_module("tests.common.snappi_tests.qos_fixtures", prio_dscp_map=prio_dscp_map)
add_module("ixnetwork_restpy.assistants.statistics.statviewassistant", StatViewAssistant=PortStatistics)
# A plugin's own functions of these names would be taken for hooks.
del pytest_require, pytest_assert


def pytest_runtest_setup(item: Any) -> None:
    """Accept the latency of ETLOOP_LATENCY_NS, if it is set; the report names it."""
    latency = os.environ.get("ETLOOP_LATENCY_NS")
    if latency is None:
        return
    for profile in item.module.LATENCY_PROFILES.values():
        profile["avg_latency_max"] = int(latency)
    item.user_properties.append(("etloop.latency_max_ns", latency))
