"""The files of examples/containerlab describe one network: links, addresses and ports agree, and the twin runs its job."""

from __future__ import annotations

import re
from ipaddress import IPv4Interface, IPv4Network
from itertools import chain
from typing import Any, Final

import yaml

from etloop.cli.main import main
from etloop.controller.inputs.rig import parse_rig
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.traffic.topology.topology_file import parse_topology
from tests.support.places import ROOT

PLACE: Final = ROOT / "examples" / "containerlab"
LAB: Final[dict[str, Any]] = yaml.safe_load((PLACE / "etloop.clab.yml").read_text(encoding="utf-8"))
NODES: Final[dict[str, Any]] = LAB["topology"]["nodes"]
LINKS: Final[list[list[str]]] = [link["endpoints"] for link in LAB["topology"]["links"]]
AGENTS: Final = tuple(name for name, node in NODES.items() if node["kind"] == "linux")


def configured(switch: str) -> dict[str, IPv4Interface]:
    """By port as containerlab calls it: the address that a switch's start-up configuration gives it."""
    text = (PLACE / NODES[switch]["startup-config"]).read_text(encoding="utf-8")
    found = re.findall(r"interface ethernet-1/(\d+) subinterface 0 ipv4 address (\S+)", text)
    return {f"e1-{port}": IPv4Interface(address) for port, address in found}


def given(agent: str) -> IPv4Interface:
    """The address that an agent's node gives its port."""
    (address,) = re.findall(r"ip address add (\S+) dev p0", " ".join(NODES[agent]["exec"]))
    return IPv4Interface(address)


def test_every_end_of_a_link_is_there_once_and_of_a_known_kind() -> None:
    ends = list(chain.from_iterable(LINKS))
    assert len(ends) == len(set(ends))
    assert {end.split(":")[0] for end in ends} == NODES.keys()
    assert {node["kind"] for node in NODES.values()} == LAB["topology"]["kinds"].keys()
    addresses = [node["mgmt-ipv4"] for node in NODES.values()]
    assert len(addresses) == len(set(addresses))
    assert {IPv4Interface(one).ip in IPv4Network(LAB["mgmt"]["ipv4-subnet"]) for one in addresses} == {True}


def test_both_ends_of_a_link_are_in_one_network_and_ports_without_a_link_have_no_address() -> None:
    ports = {switch: configured(switch) for switch in NODES if switch not in AGENTS}
    for a, b in LINKS:
        (left, left_port), (right, right_port) = a.split(":"), b.split(":")
        here = given(left) if left in AGENTS else ports[left].pop(left_port)
        there = ports[right].pop(right_port)
        assert here.network == there.network, (a, b)
        assert here.ip != there.ip
    assert ports == {switch: {} for switch in ports}


def test_every_leaf_has_ways_to_the_agents_of_the_other_over_both_spines() -> None:
    for leaf in ("leaf0", "leaf1"):
        text = (PLACE / NODES[leaf]["startup-config"]).read_text(encoding="utf-8")
        own = {address.network for address in configured(leaf).values()}
        routed = {
            IPv4Network(one) for one in re.findall(r"static-routes route (\S+) next-hop-group spines", text)
        }
        assert routed == {given(agent).network for agent in AGENTS} - own
        hops = re.findall(r"group spines nexthop \d ip-address (\S+)", text)
        spines = {str(address.ip) for spine in ("spine0", "spine1") for address in configured(spine).values()}
        assert len(hops) == 2
        assert set(hops) <= spines


def test_rig_and_topology_are_of_this_network() -> None:
    rig = parse_rig((PLACE / "rig.yaml").read_bytes(), "rig.yaml", PLACE)
    assert {agent.name for agent in rig.agents} == set(AGENTS)
    assert {str(given(name.split("/")[0]).ip) for name in rig.ports} == {
        address for port in rig.ports.values() for address in port.addresses
    }
    assert rig.dut is not None
    beside = {end: other for pair in LINKS for end, other in (pair, pair[::-1])}
    for source in yaml.safe_load((PLACE / "rig.yaml").read_text(encoding="utf-8"))["dut"]["counters"]:
        assert source["address"].split(":")[0] == NODES[source["name"]]["mgmt-ipv4"]
        for port, name in source["ports"].items():
            assert beside[port.replace("/", ":")] == f"{source['name']}:{name.replace('ethernet-1/', 'e1-')}"
    topology = parse_topology((PLACE / "topology.yaml").read_bytes(), "topology.yaml")
    leaf_of = {one.rig_port: topology.switches[one.end.switch].name for one in topology.attachments}
    assert leaf_of == {f"{agent}/p0": beside[f"{agent}:p0"].split(":")[0] for agent in AGENTS}
    joined = {frozenset({a.split("/")[0], b.split("/")[0]}) for a, b in topology.cables()}
    cabled = {frozenset({a.split(":")[0], b.split(":")[0]}) for a, b in LINKS}
    assert joined == {pair for pair in cabled if not pair & set(AGENTS)}
    assert (
        parse_profile((PLACE / "srlinux.profile.yaml").read_bytes(), "srlinux.profile.yaml").name
        == "srlinux-container"
    )


def test_agents_join_the_controller_of_the_rig() -> None:
    rig = yaml.safe_load((PLACE / "rig.yaml").read_text(encoding="utf-8"))
    for agent in AGENTS:
        assert f"--controller {rig['controller']['bind']} --name {agent} " in NODES[agent]["cmd"]


def test_the_twin_runs_the_job() -> None:
    assert main(["twin", str(PLACE / "scenario.yaml"), "--topology", str(PLACE / "topology.yaml")]) == 0
