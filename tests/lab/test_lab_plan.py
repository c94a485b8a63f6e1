"""What a lab will be, before it is made: names, addresses, the rig file, what it asks of the host, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError, InputError, PlanError
from etloop.contract.model.switch_counters import (
    CARD_COUNTERS,
    GROUP_COUNTERS,
    OVERLOAD_COUNTERS,
    QUEUE_COUNTERS,
    SOFT_PORT_COUNTERS,
    SWITCH_PORT_COUNTERS,
)
from etloop.contract.model.topology import Topology
from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.lab import FROM_LAB, LabStatus
from etloop.contract.protocol.typed_form import FILE_RULES
from etloop.controller.inputs.rig import parse_rig
from etloop.lab.plan import (
    Capacity,
    about_rate,
    check_capacity,
    plan_lab,
    rig_text,
    runs_of,
)
from etloop.lab.relay import endpoint_of
from etloop.lab.request import LabOrder, order_bytes, read_order
from etloop.lab.status import counters_of, description_of, status_text
from etloop.traffic import _native
from etloop.traffic.soft_switch import SoftSnapshot
from etloop.traffic.topology.topology_file import parse_topology

TWO_LEAVES = b"""\
leaf_spine:
  leaves:
    - {ports: [a/p0, a/p1, b/p0]}
    - {ports: [c/p0, d/p0]}
  spines: 2
  rate: 1Gbps
"""


def single(*ports: str, rate: str = "100Mbps", keys: str = "") -> Topology:
    text = f"single:\n  rate: {rate}\n  ports: [{', '.join(ports)}]\n{keys}"
    return parse_topology(text.encode(), "t.yaml")


def test_every_attachment_gets_a_cable_and_addresses_of_its_own() -> None:
    plan = plan_lab(single("a/p0", "a/p1", "b/p0"), addresses=3)
    assert [agent.name for agent in plan.agents] == ["a", "b"]
    assert [port.interface for port in plan.agents[0].ports] == ["p0", "p1"]
    assert len({port.mac for port in plan.ports}) == len({port.switch_interface for port in plan.ports}) == 3
    addresses = [address for port in plan.ports for address in port.addresses]
    assert len(addresses) == len(set(addresses)) == 9
    assert addresses[:3] == ["198.18.1.1", "198.18.1.2", "198.18.1.3"]


def test_an_interface_has_the_name_of_its_port_where_the_kernel_takes_it() -> None:
    plan = plan_lab(single("a/lo", "a/a-name-that-is-too-long", "a/p0"))
    assert [port.interface for port in plan.agents[0].ports] == ["port0", "port1", "p0"]


@pytest.mark.parametrize("backend", ["udp", "packet"])
def test_its_rig_file_is_one(backend: str) -> None:
    plan = plan_lab(single("a/p0", "a/p1", "b/p0"), bind="tcp://127.0.0.1:7555")
    rig = parse_rig(rig_text(plan, backend=backend, topology="my nets/t.yaml").encode(), "rig.yaml", Path())
    assert rig.topology == Path("my nets/t.yaml")
    assert rig.bind == "tcp://127.0.0.1:7555"
    assert [(agent.name, [port.name for port in agent.ports]) for agent in rig.agents] == [
        ("a", ["p0", "p1"]),
        ("b", ["p0"]),
    ]
    assert [port.addresses for agent in rig.agents for port in agent.ports] == [
        port.addresses for port in plan.ports
    ]
    assert {port.link_bps for agent in rig.agents for port in agent.ports} == {100_000_000}
    assert {port.backend.name.lower() for agent in rig.agents for port in agent.ports} == {backend}


def test_rates_beyond_what_was_measured_are_refused_with_those_that_are_not() -> None:
    plan = plan_lab(single("a/p0", "b/p0", rate="10Gbps"))
    with pytest.raises(PlanError) as refused:
        check_capacity(plan, Capacity(100_000, 4200))
    assert str(refused.value) == (
        "topology: its 2 attachments need 20Gbps in total; this host sustains 1600Mbps in frames of 4200 bytes (measured just "
        "now); lower the rates to about 840Mbps each, or give --allow-overcommit to start it anyway"
    )
    check_capacity(plan, Capacity(2_000_000, 4200))
    slow = plan_lab(single("a/p0", "b/p0", rate="500Mbps"))
    check_capacity(slow, Capacity(100_000, 4200))


@pytest.mark.parametrize(
    ("rate_bps", "text"), [(0, "1bps"), (7, "7bps"), (1_694_999_999, "1600Mbps"), (94_700_000, "94Mbps")]
)
def test_rates_for_people_are_rounded_down(rate_bps: int, text: str) -> None:
    assert about_rate(rate_bps) == text


@pytest.mark.parametrize(
    ("what", "keys", "error"),
    [
        ("more addresses than a network has", {"addresses": 300}, "--addresses: 300 addresses of a port"),
        ("packets that are too long for a veth pair's", {"mtu_bytes": 60_000}, "--mtu: 60000 bytes"),
        ("packets that IPv6 does not allow", {"mtu_bytes": 600}, "--mtu: 600 bytes"),
    ],
)
def test_options_out_of_range_are_refused(what: str, keys: dict[str, int], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        plan_lab(single("a/p0", "b/p0"), **keys)  # type: ignore[arg-type]


def test_a_topology_too_large_for_one_host_is_refused() -> None:
    ports = [f"a{number}/p0" for number in range(65)]
    with pytest.raises(PlanError, match="65 attachments; a lab on one host has at most 64"):
        plan_lab(single(*ports))


def test_addresses_of_the_file_that_the_lab_would_give_as_well_are_refused() -> None:
    topology = single("a/p0", "b/p0")
    first, second = topology.attachments
    clashing = replace(topology, attachments=(first, replace(second, addresses=("198.18.1.1",))))
    with pytest.raises(ConfigError, match=r"attachment b/p0: 198\.18\.1\.1 is also an address of a/p0"):
        plan_lab(clashing)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1", "169.254.0.1"])
def test_addresses_that_never_leave_their_host_are_refused(address: str) -> None:
    topology = single("a/p0", "b/p0")
    first, second = topology.attachments
    kept = replace(topology, attachments=(first, replace(second, addresses=(address,))))
    with pytest.raises(
        ConfigError, match=f"attachment b/p0: packets to {address} would not leave their host"
    ):
        plan_lab(kept)


def test_addresses_of_any_kind_are_told_as_they_run() -> None:
    addresses = ("fd00::1", "fd00::2", "10.9.0.1", "10.9.0.3", "10.9.0.4")
    assert runs_of(addresses) == [("fd00::1", "fd00::2"), ("10.9.0.1", "10.9.0.1"), ("10.9.0.3", "10.9.0.4")]


@pytest.mark.parametrize(
    "bind", ["tcp://*:7420", "tcp://10.0.0.1:7420", "tcp://127.0.0.1:0", "ipc://x", "tcp://127.0.0.999:1"]
)
def test_a_controller_elsewhere_is_refused(bind: str) -> None:
    with pytest.raises(InputError, match="loopback address"):
        endpoint_of(bind)
    assert endpoint_of("tcp://127.0.0.1:7420") == ("127.0.0.1", 7420)


def test_an_order_survives_its_file() -> None:
    order = LabOrder("x", "single: {}\n", "t.yaml", agents=True, bind="tcp://127.0.0.1:1")
    assert read_order(order_bytes(order)) == order


# ---- counters


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("queue", QUEUE_COUNTERS),
        ("group", GROUP_COUNTERS),
        ("switch_port", SWITCH_PORT_COUNTERS),
        ("card", CARD_COUNTERS),
        ("soft_port", SOFT_PORT_COUNTERS),
    ],
)
def test_rows_are_as_long_as_native_code_writes_them(name: str, layout: np.dtype[np.void]) -> None:
    assert _native.counter_sizes[name] == layout.itemsize


def snapshot_of(topology: Topology) -> SoftSnapshot:
    ports = tuple(np.zeros(len(one.ports), SWITCH_PORT_COUNTERS) for one in topology.switches)
    cards = np.zeros(len(topology.attachments), CARD_COUNTERS)
    soft = np.zeros(len(topology.attachments), SOFT_PORT_COUNTERS)
    pools = tuple((0, 0) for _ in topology.switches)
    down = frozenset({(1, 0)})
    late = ((1000, 98), (4096, 2))
    return SoftSnapshot(
        65_000_000_000, 2_000_000_000, ports, down, pools, cards, soft, late, 5000, 1, 2, 0, True
    )


def test_lateness_is_read_off_its_buckets() -> None:
    snapshot = snapshot_of(parse_topology(TWO_LEAVES, "t.yaml"))
    assert [snapshot.lateness_ns(percent) for percent in (0, 50, 98, 99, 100)] == [
        1000,
        1000,
        1000,
        4096,
        4096,
    ]
    assert replace(snapshot, lateness=()).lateness_ns(99) == 0


def test_overload_is_every_frame_that_the_model_did_not_lose() -> None:
    snapshot = snapshot_of(parse_topology(TWO_LEAVES, "t.yaml"))
    for number, name in enumerate(OVERLOAD_COUNTERS):
        snapshot.ports[name][number % 2] = 1 << number
    snapshot.ports["late_frames"][0] = 1000
    assert snapshot.overload_frames == (1 << len(OVERLOAD_COUNTERS)) - 1


def test_status_says_the_same_to_people_and_programs() -> None:
    topology = parse_topology(TWO_LEAVES, "t.yaml")
    plan = plan_lab(topology, addresses=2)
    snapshot = snapshot_of(topology)
    snapshot.switch_ports[0]["queues"]["ecn_marked_packets"][1, 3] = 7
    snapshot.switch_ports[0]["pfc_tx"][0, 3] = 5
    snapshot.ports["socket_dropped_frames"][3] = 11
    described = description_of(plan, Capacity(100_000, 4200))
    status = LabStatus(
        **{each.name: getattr(described, each.name) for each in fields(described)},
        name="lab",
        pid=4711,
        namespaces={"a": 7},
        processes={"a": "running, process 4712"},
        directory="",
        gnmi=None,
        counters=counters_of(topology, snapshot),
    )
    received = FROM_LAB.decode(FROM_LAB.encode(status))
    assert isinstance(received, LabStatus)
    assert received.counters.switches[0].ports[1].counters["queues"][3]["ecn_marked_packets"] == 7
    assert plain(received, FILE_RULES) == plain(status, FILE_RULES)
    text = status_text(received)
    assert text.startswith(
        "lab lab: process 4711, up for 63s, frames to 4200 bytes; OVERCOMMITTED: this host holds 1.70 Gbps"
    )
    assert "agent a: running, process 4712\n" in text
    assert "  p0  p0  198.18.1.1 to 198.18.1.2  1Gbps  on leaf0/0\n" in text
    assert "\ndown: leaf1/0\n" in text
    assert [port.up for port in received.counters.switches[1].ports][:2] == [False, True]
    assert "agent b: no agent started by the lab\n" in text
    assert "soft switch: 11 frames lost to its own overload" in text
    assert "OVERLOAD at c/p0: 11 socket dropped" in text
    name = topology.switches[0].name
    (marked,) = (
        line
        for line in text.splitlines()
        if line.lstrip().startswith(f"{name}/{topology.switches[0].ports[1].name} ")
    )
    assert marked.split()[4] == "7"
