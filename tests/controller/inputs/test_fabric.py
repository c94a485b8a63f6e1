"""InfraGraph descriptions: hosts, switches, who sits where, and the rig and mapping that ETLoop itself reads again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from etloop.cli.dut.fabric import mapping_of, rig_of
from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.fabric import Component, Fabric, Link, fabric_of
from etloop.controller.inputs.infragraph import read_infragraph
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario

DESCRIPTION = """
name: two-hosts
devices:
- name: host
  components:
  - {name: xpu, choice: xpu, count: 4}
  - {name: bridge, choice: switch, count: 2}
  - {name: nic, choice: nic, count: 2}
  links: [{name: pcie}]
  edges:
  - {ep1: {component: "xpu[0:2]"}, ep2: {component: "bridge[0]"}, scheme: many2many, link: pcie}
  - {ep1: {component: "xpu[2:4]"}, ep2: {component: "bridge[1]"}, scheme: many2many, link: pcie}
  - {ep1: {component: "nic[0]"}, ep2: {component: "bridge[1]"}, scheme: one2one, link: pcie}
  - {ep1: {component: "nic[1]"}, ep2: {component: "bridge[0]"}, scheme: one2one, link: pcie}
- name: leaf
  components:
  - {name: asic, choice: cpu, count: 1}
  - {name: port, choice: port, count: 4}
  links: [{name: chip}]
  edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: chip}]
instances:
- {name: host, device: host, count: 2}
- {name: leaf, device: leaf, count: 1}
links:
- name: cable
  physical:
    bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}
    latency: {choice: ns, ns: 25}
edges:
- ep1: {instance: "host[0]", component: "nic[0:2]"}
  ep2: {instance: "leaf[0]", component: "port[0:2]"}
  scheme: one2one
  link: cable
- ep1: {instance: "host[1]", component: "nic[0:2]"}
  ep2: {instance: "leaf[0]", component: "port[2:4]"}
  scheme: one2one
  link: cable
"""


def described(text: str = DESCRIPTION, annotations: dict[str, dict[str, str]] | None = None) -> Fabric:
    written = None
    if annotations is not None:
        nodes = [
            {
                "name": name,
                "attributes": [{"attribute": key, "value": value} for key, value in values.items()],
            }
            for name, values in annotations.items()
        ]
        written = yaml.safe_dump({"nodes": nodes}).encode()
    return read_infragraph(text.encode(), "f.yaml", written, "notes.yaml")


def refused(text: str = DESCRIPTION, annotations: dict[str, dict[str, str]] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        rig_of(described(text, annotations), "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_hosts_have_accelerators_and_whatever_is_between_them_is_a_switch() -> None:
    fabric = described()
    assert [(each.name, each.ports) for each in fabric.switches] == [("leaf.0", 4)]
    first = fabric.attachments[0]
    assert (first.nic, first.host, first.switch_port) == ("host.0.nic.0", "host.0", "leaf.0.port.0")
    assert (first.link_bps, first.latency_ns) == (400_000_000_000, 25)
    assert fabric.trunks == ()


def test_a_rank_sends_by_the_nic_that_is_nearest_to_it() -> None:
    rank_locations = described().rank_locations
    # The description crosses them: accelerators 0 and 1 share a bridge with NIC 1.
    assert [(location.xpu, location.nic) for location in rank_locations[:4]] == [
        ("host.0.xpu.0", "host.0.nic.1"),
        ("host.0.xpu.1", "host.0.nic.1"),
        ("host.0.xpu.2", "host.0.nic.0"),
        ("host.0.xpu.3", "host.0.nic.0"),
    ]


def test_of_nics_as_near_the_one_with_fewer_ranks_is_taken() -> None:
    text = DESCRIPTION.replace(
        '"nic[1]"}, ep2: {component: "bridge[0]"}', '"nic[1]"}, ep2: {component: "bridge[1]"}'
    )
    text = text.replace(
        '"xpu[0:2]"}, ep2: {component: "bridge[0]"', '"xpu[0:2]"}, ep2: {component: "bridge[1]"'
    )
    assert [location.nic for location in described(text).rank_locations[:4]] == [
        "host.0.nic.0",
        "host.0.nic.1",
    ] * 2


def test_annotated_ranks_addresses_and_profiles_count() -> None:
    ranks = {
        f"host.{host}.xpu.{xpu}": {"rank": str(7 - 4 * host - xpu)} for host in (0, 1) for xpu in range(4)
    }
    fabric = described(annotations=ranks | {"leaf.0.asic.0": {"profile": "generic-400g-switch"}})
    assert [location.xpu for location in fabric.rank_locations][:2] == ["host.1.xpu.3", "host.1.xpu.2"]
    assert fabric.notes == ()
    assert fabric.switches[0].profile == "generic-400g-switch"
    assert parse_rig(yaml.safe_dump(rig_of(fabric, "f")).encode(), "r", Path()).dut is not None


def test_accelerators_without_a_rank_stay_idle_and_that_is_said() -> None:
    fabric = described(annotations={"host.0.xpu.0": {"rank": "0"}, "host.1.xpu.0": {"rank": "1"}})
    assert [location.host for location in fabric.rank_locations] == ["host.0", "host.1"]
    assert fabric.notes == ("6 accelerators have no rank and stay idle",)


def test_rig_and_mapping_are_read_again() -> None:
    fabric = described()
    rig = parse_rig(yaml.safe_dump(rig_of(fabric, "f.yaml")).encode(), "rig.yaml", Path())
    assert [(agent.name, [port.name for port in agent.ports]) for agent in rig.agents] == [
        ("host.0", ["nic.0", "nic.1"]),
        ("host.1", ["nic.0", "nic.1"]),
    ]
    # Each port has an address a rank.
    addresses = [port.addresses for agent in rig.agents for port in agent.ports]
    assert [len(each) for each in addresses] == [2, 2, 2, 2]
    assert len({address for each in addresses for address in each}) == 8
    text = yaml.safe_dump({"workload": {"trace": "x"}, "mapping": mapping_of(fabric)})
    mapping = parse_scenario(text.encode(), "s.yaml", Path()).mapping
    assert mapping.ranks_per_host == 4
    assert dict(mapping.explicit)[2] == "host.0/nic.0"


def test_ranks_dealt_over_hosts_are_not_taken_for_neighbours() -> None:
    ranks = {f"host.{host}.xpu.{xpu}": {"rank": str(2 * xpu + host)} for host in (0, 1) for xpu in range(4)}
    assert mapping_of(described(annotations=ranks))["ranks_per_host"] == 1


@pytest.mark.parametrize(
    ("sentence", "old", "new", "message"),
    [
        ("no bandwidth", "    bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}\n", "",
         ("f.yaml: the link of host.0.nic.0 has no bandwidth in bits or bytes per second; "
         "give it physical.bandwidth.gigabits_per_second")),
        ("no accelerator", "choice: xpu", "choice: cpu", ("f.yaml: no component is an xpu; "
         "describe the accelerators: choice: xpu")),
        ("a device that is not there", "device: leaf,", "device: lief,", "the infragraph package rejects it"),
        ("a name that is no name", "- {name: host, device: host", "- {name: a b, device: host",
         "the infragraph package rejects it"),
        ("a scheme that its schema names and the package does not carry out", "scheme: many2many, link: chip",
         "scheme: ring, link: chip", "the infragraph package rejects it: Edge creation scheme ring is not supported"),
        ("no YAML", "name: two-hosts", "name: [", "f.yaml: line 4: not valid YAML"),
        ("an alias", "name: two-hosts", "name: &a two-hosts", "anchors and aliases (& and *) are not supported"),
        ("a billion", "count: 2}\n- {name: leaf", "count: 1000000000}\n- {name: leaf", "it describes more than 65536 components"),
        ("too many links", "count: 4}\n  - {name: bridge, choice: switch, count: 2}",
         "count: 4}\n  - {name: bridge, choice: switch, count: 20000}", "it may describe more than 1000000 links"),
    ],
)  # fmt: skip
def test_a_description_that_cannot_be_used(sentence: str, old: str, new: str, message: str) -> None:
    assert old in DESCRIPTION
    text = DESCRIPTION.replace(old, new)
    if "links" in sentence:
        text = text.replace('component: "bridge[0]"', "component: bridge").replace('"xpu[0:2]"', "bridge")
    assert any(message in problem for problem in refused(text)), (sentence, refused(text))


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            {"host.0.xpu.0": {"rank": "x"}},
            'f.yaml: the rank of host.0.xpu.0 is "x", expected a number; write a number from 0',
        ),
        (
            {"host.0.xpu.0": {"rank": "0"}, "host.0.xpu.1": {"rank": "0"}},
            "f.yaml: rank 0 is given to 2 accelerators; give every rank once",
        ),
        ({"host.0.xpu.0": {"rank": "3"}}, "f.yaml: rank 0 is given to no accelerator; number ranks from 0"),
        (
            {"host.0.nic.0": {"ipaddress": "10.0.0.1"}},
            "f.yaml: host.0.nic.1 has no ipaddress, others have; annotate all NICs or none",
        ),
        (
            {f"host.{host}.nic.{nic}": {"ipaddress": "ten"} for host in (0, 1) for nic in (0, 1)},
            'f.yaml: the ipaddress of host.0.nic.0, "ten", is not an address; write an IPv4 or IPv6 address',
        ),
        (
            {
                f"host.{host}.nic.{nic}": {"ipaddress": f"10.0.{host}.{nic}"}
                for host in (0, 1)
                for nic in (0, 1)
            },
            (
                "f.yaml: 2 ranks use host.0.nic.0, which has one address; "
                "each rank needs one: leave ipaddress out and give ranges in rig.yaml"
            ),
        ),
        ({"leaf.0.asic.0": {"profile": "nobody"}}, 'profile: "nobody" is not a shipped profile'),
        ({"nowhere.0.xpu.0": {"rank": "0"}}, "notes.yaml: the infragraph package rejects it"),
    ],
)
def test_annotations_that_cannot_be_used(annotations: dict[str, dict[str, str]], message: str) -> None:
    problems = refused(annotations=annotations)
    assert any(message in problem for problem in problems), problems


def test_a_host_that_is_wired_to_a_host_and_a_nic_with_two_cables() -> None:
    parts = [Component(f"h.{host}.{kind}.0", kind, f"h.{host}") for host in (0, 1) for kind in ("xpu", "nic")]
    parts += [Component(f"s.0.port.{port}", "port", "s.0") for port in (0, 1)]
    links = [
        Link("h.0.nic.0", "h.1.nic.0", None, None),
        Link("h.0.nic.0", "s.0.port.0", None, None),
        Link("s.0.port.1", "h.0.nic.0", None, None),
    ]
    with pytest.raises(ConfigError) as caught:
        fabric_of("f", parts, links, "f")
    assert [problem.what for problem in caught.value.problems] == [
        "h.0.nic.0 and h.1.nic.0 are connected without a switch",
        "h.0.nic.0 is connected to 2 switch ports",
    ]


def test_a_clos_of_the_package_itself() -> None:
    from infragraph.blueprints.fabrics.closfabric import ClosFabric

    fabric = described(ClosFabric().serialize(encoding="yaml"))
    assert len(fabric.rank_locations) == 8
    assert len(fabric.switches) == 7
    assert len(fabric.trunks) == 12
    assert {location.nic for location in fabric.rank_locations} == {
        attachment.nic for attachment in fabric.attachments
    }


def test_the_command_tells_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fabric.yaml").write_text(DESCRIPTION)
    command = ["dut", "fabric", f"{tmp_path}/fabric.yaml"]
    assert main([*command, "--out", f"{tmp_path}/made"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("two-hosts: hosts 2, NICs 4, ranks 8, switches 1, links between switches 0\n")
    assert "  rank 0: host.0.xpu.0 by host.0.nic.1 to leaf.0.port.1 at 400Gbps\n" in reported
    assert parse_rig((tmp_path / "made" / "rig.yaml").read_bytes(), "r", tmp_path).agents
    # What is there is not overwritten.
    assert main([*command, "--out", f"{tmp_path}/made"]) == 65
    assert "cannot be written: File exists; name a directory without these files" in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rank_locations"]) == 8
