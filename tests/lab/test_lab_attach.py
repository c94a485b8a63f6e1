"""A switch between interfaces instead of namespaces of its own: which it takes, whom it learns, and cables plugged into it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyroute2 import IPRoute

from etloop.contract.base.errors import ConfigError, InputError, RigError
from etloop.contract.model.topology import Topology
from etloop.contract.protocol.lab import LabStatus
from etloop.lab.attach import serve_attached
from etloop.lab.client import lab_counters, lab_exec
from etloop.lab.namespaces import inside, new_namespace
from etloop.lab.plan import LabPlan, plan_lab
from etloop.lab.plug import plug
from etloop.lab.request import LabOrder
from etloop.lab.setup import lab_place
from etloop.lab.wiring import agent_named, cables, others, wire
from etloop.runtime.lab_directory import lab_directory
from etloop.traffic.soft_switch import SoftLimits, SoftPort, SoftSwitch
from etloop.traffic.topology.topology_file import parse_topology
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import PATIENCE_S
from tests.support.places import ROOT

THREE: Final = "single:\n  rate: 1Gbps\n  ports: [a/p0, b/p0, c/p0]\n"
TWO_PORTS_EACH: Final = "single:\n  rate: 1Gbps\n  ports: [a/p0, a/p1, b/p0, b/p1]\n"
EXPERIMENTAL: Final = b"\x88\xb5"
"""EtherType for local experiments (IEEE 802)."""
ALL: Final = "ff:ff:ff:ff:ff:ff"
LLDP: Final = "01:80:c2:00:00:0e"
MULTICAST: Final = "01:80:c2:00:00:10"
"""The first address after those that end at a switch."""

for_root = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)


def topology_of(text: str) -> Topology:
    return parse_topology(text.encode(), "t.yaml")


# ---- which interface is which port


def test_ports_get_the_interfaces_that_are_named_in_any_order() -> None:
    topology = topology_of(THREE)
    wiring = wire(topology, plan_lab(topology), ["c/p0=eth3", "a/p0=eth1", "b/p0=eth2.100"])
    assert wiring.interfaces == ("eth1", "eth2.100", "eth3")
    assert [port.switch_interface for port in wiring.plan.ports] == ["eth1", "eth2.100", "eth3"]
    assert wiring.learns
    assert {port.mac for port in wiring.ports} == {bytes(6)}
    assert {port.addresses for port in wiring.ports} == {()}, "addresses that nobody stated are not believed"


def test_addresses_that_the_topology_file_states_are_believed() -> None:
    text = "switches: [{name: s0}]\nattach: [{port: a/p0, to: s0, rate: 1Gbps, addresses: 10.0.0.1-10.0.0.2},"
    topology = topology_of(text + "{port: b/p0, to: s0, rate: 1Gbps}]\n")
    wiring = wire(topology, plan_lab(topology), ["a/p0=eth1", "b/p0=eth2"])
    assert [port.addresses for port in wiring.ports] == [("10.0.0.1", "10.0.0.2"), ()]


def test_of_cables_it_is_known_who_is_behind_them() -> None:
    plan = plan_lab(topology_of(THREE), addresses=2)
    wiring = cables(plan)
    assert not wiring.learns
    assert wiring.interfaces == ("sw0", "sw1", "sw2")
    assert wiring.ports[1] == SoftPort("sw1", bytes.fromhex("02e700000001"), ("198.18.2.1", "198.18.2.2"))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["a/p0"], r'--port: "a/p0" is not AGENT/PORT=INTERFACE; write agent/port=interface'),
        (["a/p0="], r'--port: "a/p0=" is not AGENT/PORT=INTERFACE'),
        (["a/p0=an-interface-x16"], r"names of interfaces have 1 to 15 characters"),
        (["z/p0=eth0"], r'--port: the topology attaches no "z/p0"; choose one of a/p0, b/p0, c/p0'),
        (["a/p0=eth0", "a/p0=eth1"], r"--port: a/p0 is listed twice; give every port one interface"),
        (["a/p0=eth0", "b/p0=eth0"], r"--port: eth0 is listed twice; give every port its own interface"),
        (["a/p0=eth0"], r"--port: no interface is given for b/p0, c/p0; give the interface of every port"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_that_name_no_wiring_are_refused(words: list[str], printed: str) -> None:
    topology = topology_of(THREE)
    with pytest.raises(ConfigError, match=printed):
        wire(topology, plan_lab(topology), words)


def test_all_mistakes_of_the_words_are_told_together() -> None:
    topology = topology_of(THREE)
    with pytest.raises(ConfigError) as caught:
        wire(topology, plan_lab(topology), ["a", "z/p0=eth0", "b/p0=eth1", "c/p0=eth1"])
    assert len(caught.value.problems) == 3


def test_an_agent_reaches_the_ports_of_others_and_an_unknown_one_is_refused() -> None:
    plan = plan_lab(topology_of(TWO_PORTS_EACH), addresses=1)
    assert others(plan, agent_named(plan, "a")) == (
        ("198.18.3.1", "02:e7:00:00:00:02"),
        ("198.18.4.1", "02:e7:00:00:00:03"),
    )
    with pytest.raises(ConfigError, match='lab plug: the topology has no agent "z"; name one of a, b'):
        agent_named(plan, "z")


# ---- whom it learns


@dataclass(frozen=True, slots=True)
class Hosts:
    """Three hosts that a switch does not know, and the switch."""

    plan: LabPlan
    namespaces: dict[str, int]
    switch: SoftSwitch

    def mac(self, host: str) -> str:
        return agent_named(self.plan, host).ports[0].mac

    def send(self, host: str, to: str, source: str = "") -> list[str]:
        """Sends one frame; the hosts that got it, once the switch is done with it."""
        content = _mac(to) + _mac(source or self.mac(host)) + EXPERIMENTAL

        def hand_over() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind(("p0", 0))
                raw.send(content.ljust(60, b"\0"))

        before = self.switch.snapshot().ports
        inside(self.namespaces[host], hand_over)
        clock = threading.Event()
        for _ in range(PATIENCE_S * 50):
            taken = self.switch.snapshot()
            taken_in = int(taken.ports["rx_frames"].sum() - before["rx_frames"].sum())
            if taken_in == 1 and taken.frames_inside == 0:
                # Frames that left the model are handed to the kernel in the same turn or a later one.
                given = int((taken.ports["tx_frames"] + taken.ports["send_failed_frames"]).sum())
                if given == int(taken.cards["delivered_frames"].sum()):
                    break
            clock.wait(0.02)
        got = taken.ports["tx_frames"] - before["tx_frames"]
        return [agent.name for agent, frames in zip(self.plan.agents, got, strict=True) if frames]


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


@pytest.fixture
def strangers() -> Iterator[Hosts]:
    topology = topology_of(THREE)
    plan = plan_lab(topology, addresses=1)
    with lab_place(plan) as place:
        ports = tuple(SoftPort(port.switch_interface, bytes(6), ()) for port in plan.ports)
        switch = inside(place.switch, partial(SoftSwitch, topology, ports, SoftLimits(learns=True)))
        try:
            yield Hosts(plan, place.agents, switch)
        finally:
            switch.stop()


@for_root
def test_a_learning_switch_sends_frames_where_their_station_last_spoke(strangers: Hosts) -> None:
    a, b = strangers.mac("a"), strangers.mac("b")
    assert strangers.send("a", b) == ["b", "c"], "nobody knows b yet"
    assert strangers.send("b", a) == ["a"], "a has spoken"
    assert strangers.send("a", b) == ["b"], "and so has b now"
    assert strangers.send("c", ALL) == ["a", "b"]
    assert strangers.send("c", MULTICAST) == ["a", "b"]
    assert strangers.send("c", a, source=b) == ["a"]
    assert strangers.send("a", b) == ["c"], "b has moved"
    assert strangers.send("c", b) == [], "who is behind the port that it came from needs no switch"
    assert strangers.send("b", a, source=ALL) == ["a"]
    assert strangers.send("a", ALL) == ["b", "c"], "nobody is a group"


@for_root
def test_frames_for_switches_themselves_go_no_further(strangers: Hosts) -> None:
    assert strangers.send("a", LLDP) == []
    assert int(strangers.switch.snapshot().ports["unknown_destination_frames"][0]) == 1


# ---- interfaces that it takes


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabOrder:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return LabOrder("lab", THREE, "t.yaml", measure=False)


@for_root
@pytest.mark.parametrize(
    ("words", "mtu_bytes", "printed"),
    [
        (
            ("a/p0=sw0", "b/p0=no1", "c/p0=no2"),
            4200,
            (
                r"interface no1: is not in this network namespace; give an interface that `ip link` shows to --port,"
                r" or create it with etloop lab plug\ninterface no2: is not"
            ),
        ),
        (
            ("a/p0=sw0", "b/p0=sw1", "c/p0=sw2"),
            9000,
            (
                r"interface sw0: has an MTU of 4200 bytes, the lab needs 9000;"
                r" ip link set sw0 mtu 9000, or --mtu 4200B\ninterface sw1: has an MTU"
            ),
        ),
    ],
    ids=["interfaces that are not there", "interfaces that carry too little"],
)
def test_interfaces_that_are_not_fit_are_refused_all_at_once(
    order: LabOrder, words: tuple[str, ...], mtu_bytes: int, printed: str
) -> None:
    asked = LabOrder(order.name, order.topology, order.source, mtu_bytes=mtu_bytes, measure=False)
    with lab_place(plan_lab(topology_of(THREE))) as place, pytest.raises(RigError, match=printed):
        inside(place.switch, partial(serve_attached, asked, words, 0.0, _heard))
    assert not lab_directory("lab").exists(), "nothing is left of it"


def _heard(status: LabStatus) -> None:
    raise AssertionError(f"it came up: {status}")


# ---- cables


@dataclass(frozen=True, slots=True)
class Room:
    """A namespace for a switch with a process in it, and one for each agent."""

    switch: int
    process: subprocess.Popen[bytes]
    agents: dict[str, int]


@pytest.fixture
def room() -> Iterator[Room]:
    with ExitStack() as stack:

        def namespace() -> int:
            made = new_namespace()
            stack.callback(os.close, made)
            return made

        switch = namespace()
        process = inside(switch, lambda: subprocess.Popen(["sleep", "600"]))
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield Room(switch, process, {name: namespace() for name in "abc"})


def interfaces(namespace: int) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        with IPRoute() as kernel:
            return {link.get("ifname"): link for link in kernel.get_links()}

    return inside(namespace, look)


@for_root
def test_a_cable_gives_a_namespace_a_port_and_takes_nothing_from_it(room: Room) -> None:
    plan = plan_lab(topology_of(THREE), addresses=2)
    printed = inside(room.agents["a"], partial(plug, plan, agent_named(plan, "a"), room.process.pid))
    assert printed == ("port a/p0: p0, 2 addresses from 198.18.1.1",)
    assert interfaces(room.agents["a"])["p0"].get("address") == plan.ports[0].mac
    assert interfaces(room.switch)["sw0"]["state"] == "down", "until the switch has it"

    def destinations() -> set[str | None]:
        with IPRoute() as kernel:
            return {route.get("dst") for route in kernel.get_routes(family=socket.AF_INET, table=254)}

    assert inside(room.agents["a"], destinations) == {
        f"198.18.{side}.{host}" for side in (2, 3) for host in (1, 2)
    }
    again = inside(room.agents["a"], partial(plug, plan, agent_named(plan, "a"), room.process.pid))
    assert again == ("port a/p0: p0 is already plugged in",)


@for_root
def test_what_cannot_be_plugged_in_is_refused_and_leaves_nothing(room: Room) -> None:
    plan = plan_lab(topology_of(THREE), addresses=2)
    a = agent_named(plan, "a")
    pid = room.process.pid
    with pytest.raises(ConfigError, match="--into: no process 4194305 exists; give the PID of etloop lab"):
        inside(room.agents["a"], partial(plug, plan, a, 4194305))
    with pytest.raises(ConfigError, match=f"--into: process {pid} is in this network namespace"):
        inside(room.switch, partial(plug, plan, a, pid))
    inside(room.agents["a"], partial(plug, plan, a, pid))
    with pytest.raises(
        RigError,
        match="port a/p0: the kernel rejected it: File exists; the switch already has an interface of",
    ):
        inside(room.agents["b"], partial(plug, plan, a, pid))
    assert set(interfaces(room.agents["b"])) == {"lo"}
    with pytest.raises(RigError, match="interface p0: an interface p0 already exists; remove it, or rename"):
        inside(room.agents["a"], partial(plug, plan, agent_named(plan, "b"), pid))


@for_root
def test_a_second_port_needs_loose_paths(room: Room) -> None:
    plan = plan_lab(topology_of(TWO_PORTS_EACH), addresses=1)
    a = agent_named(plan, "a")

    def strictly() -> None:
        Path("/proc/sys/net/ipv4/conf/all/rp_filter").write_text("1")
        plug(plan, a, room.process.pid)

    with pytest.raises(RigError, match="rp_filter=1: drops packets that arrive at an agent's second port"):
        inside(room.agents["a"], strictly)

    def loosely() -> tuple[str, ...]:
        for which in ("all", "default"):
            Path(f"/proc/sys/net/ipv4/conf/{which}/rp_filter").write_text("0")
        return plug(plan, a, room.process.pid)

    assert len(inside(room.agents["a"], loosely)) == 2


@for_root
@pytest.mark.e2e
def test_a_switch_waits_for_its_cables_carries_and_ends_when_one_is_pulled(
    room: Room, order: LabOrder, tmp_path: Path
) -> None:
    topology = tmp_path / "t.yaml"
    topology.write_text(THREE)
    command = [sys.executable, "-P", "-m", "etloop.cli.main", "lab", "attach", str(topology)]
    options = ["--addresses", "2", "--unmeasured", "--wait", f"{PATIENCE_S}s"]
    log = (tmp_path / "switch.log").open("w")
    with log:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*command, *options],
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        process = inside(room.switch, start)
    try:
        plan = plan_lab(topology_of(THREE), addresses=2)
        for agent in plan.agents:
            inside(room.agents[agent.name], partial(plug, plan, agent, process.pid))
        _until_it_answers(process)

        def listen() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.settimeout(PATIENCE_S)
            made.bind(("198.18.2.2", 4791))
            return made

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind(("198.18.1.2", 0))
                sender.sendto(b"through", ("198.18.2.2", 4791))

        with inside(room.agents["b"], listen) as sink:
            inside(room.agents["a"], send)
            assert sink.recv(100) == b"through"
        second = LabOrder("second", THREE, "t.yaml", measure=False)
        with pytest.raises(RigError, match="interface sw0: is used by the switch of another lab"):
            inside(room.switch, partial(serve_attached, second, (), 0.0, _heard))
        rows = [port.counters for port in lab_counters("lab").switches[0].ports]
        assert [row["rx_packets"] for row in rows] == [1, 0, 0], "and nobody said a word beside"
        assert [row["tx_packets"] for row in rows] == [0, 1, 0]
        with pytest.raises(
            InputError, match="the lab has no namespaces: its switch is attached to interfaces"
        ):
            lab_exec("lab", "a", ("true",))

        def pull() -> None:
            with IPRoute() as kernel:
                kernel.link("del", ifname="p0")

        inside(room.agents["c"], pull)
        assert process.wait(PATIENCE_S) == 65
    finally:
        process.kill()
        process.wait()
    printed = (tmp_path / "switch.log").read_text()
    assert re.search(r"lab attach: the switch ended: sw2 disappeared; start it again", printed), printed
    assert not lab_directory("lab").exists()


def _until_it_answers(process: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE_S * 20):
        try:
            lab_counters("lab")
        except RigError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        return
    pytest.fail("the switch does not answer")
