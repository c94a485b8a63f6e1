"""Neighbours of imported switches as links: DEVICE_NEIGHBOR, LLDP in each of its forms, minigraph.xml."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.topology import Topology
from etloop.dut_profiles.reading.profile_file import parse_profile
from etloop.dut_profiles.sonic.lldp import parse_lldp
from etloop.dut_profiles.sonic.minigraph import parse_minigraph
from etloop.dut_profiles.sonic.neighbours import NeighbourKind
from etloop.dut_profiles.sonic_import import Import, NeighbourFile
from etloop.dut_profiles.switch_settings import ModelledSwitch, modelled_switch
from etloop.traffic.topology.topology_file import parse_topology
from tests.support.sonic import HOSTS, UPLINKS, Tables, changed, imported, leaf


def topology(imports: Import) -> Topology:
    def find(name: str) -> ModelledSwitch:
        return modelled_switch(parse_profile(imports.files[name], name))

    return parse_topology(imports.files["topology.yaml"], "topology.yaml", find)


def spine(*leaves: tuple[str, str, str]) -> Tables:
    """Return a spine whose ports lead to leaves: (own port, leaf, port of the leaf)."""
    port = {"speed": "400000", "admin_status": "up", "mtu": "9100"}
    return {
        "DEVICE_METADATA": {"localhost": {"hostname": "spine0"}},
        "PORT": {name: {**port, "alias": f"Eth{name[8:]}/1"} for name, _, _ in leaves},
        "DEVICE_NEIGHBOR": {name: {"name": leaf, "port": far} for name, leaf, far in leaves},
    }


def links_of(network: Topology) -> Iterator[tuple[str, str, int, int]]:
    for link in network.links:
        port = network.port_of(link.a)
        yield network.port_name(link.a), network.port_name(link.b), port.rate_bps, port.delay_ns


def test_hosts_are_attached_and_switches_linked_with_rate_and_delay() -> None:
    network = topology(imported(leaf()))
    assert [switch.name for switch in network.switches] == ["leaf0", "spine0", "spine1"]
    origin = network.switches[0].origin
    assert origin is not None
    assert origin.profile == "leaf0"
    assert [(end.rig_port, network.port_name(end.end)) for end in network.attachments] == [
        (f"host{index}/eth0", f"leaf0/{name}") for index, name in enumerate(HOSTS)
    ]
    assert {network.port_of(end.end).delay_ns for end in network.attachments} == {25}
    assert list(links_of(network)) == [
        ("leaf0/Ethernet16", "spine0/0", 400_000_000_000, 1500),
        ("leaf0/Ethernet20", "spine1/0", 400_000_000_000, 1500),
    ]


def test_imported_switches_are_linked_port_to_port_once() -> None:
    other = changed(("DEVICE_METADATA/localhost/hostname", "leaf1"))
    for index, name in enumerate(HOSTS):
        other["DEVICE_NEIGHBOR"][name]["name"] = f"host{index + 4}"
    other["DEVICE_NEIGHBOR"]["Ethernet16"]["port"] = "Eth4/1"
    middle = spine(("Ethernet0", "leaf0", "Ethernet16"), ("Ethernet4", "leaf1", "etp4"))
    imports = imported(leaf(), other, middle)
    network = topology(imports)
    assert [switch.name for switch in network.switches] == ["leaf0", "leaf1", "spine0", "spine1"]
    assert [link[:2] for link in links_of(network)] == [
        ("leaf0/Ethernet16", "spine0/Ethernet0"),
        ("leaf1/Ethernet16", "spine0/Ethernet4"),
        ("leaf0/Ethernet20", "spine1/0"),
        ("leaf1/Ethernet20", "spine1/1"),
    ]
    assert len(network.attachments) == 8
    assert imports.remarks == ()
    # A spine without QoS cannot be modelled, so it has a preset, which is remarked.
    assert [switch.is_modelled for switch in imports.switches] == [True, True, False]
    assert any("has preset lossless, not its profile" in str(each) for each in imports.switches[2].remarks)


def test_contradicting_ends_are_remarked() -> None:
    middle = spine(("Ethernet0", "leaf7", "Ethernet16"))
    middle["PORT"]["Ethernet0"]["speed"] = "100000"
    imports = imported(leaf(), middle)
    remarks = [str(remark) for remark in imports.switches[0].remarks]
    assert "DEVICE_NEIGHBOR: Ethernet16: spine0/Ethernet0 names leaf7 as its neighbour instead" in remarks
    assert "DEVICE_NEIGHBOR: Ethernet16: spine0/Ethernet0 has another speed; the lower one is used" in remarks
    assert next(links_of(topology(imports)))[2] == 100_000_000_000


def test_without_neighbours_every_port_gets_a_port_of_a_rig() -> None:
    network = topology(imported(changed(("DEVICE_NEIGHBOR", {}), ("PORT/Ethernet12/admin_status", "down"))))
    assert [end.rig_port for end in network.attachments] == [
        f"leaf0-{name}/p0" for name in (*HOSTS, *UPLINKS) if name != "Ethernet12"
    ]


def test_links_to_switches_are_endpoints_where_no_host_is_known() -> None:
    network = topology(imported(changed(*((f"DEVICE_NEIGHBOR/{name}", None) for name in HOSTS))))
    assert [end.rig_port for end in network.attachments] == ["spine0/Ethernet0", "spine1/Ethernet0"]
    assert network.links == ()


def test_neighbours_keyed_by_device_as_in_old_files() -> None:
    old = {
        "ARISTA01T1": {"local_port": "Ethernet16", "port": "Ethernet1", "type": "LeafRouter", "lo_addr": None}
    }
    network = topology(imported(changed(("DEVICE_NEIGHBOR", old))))
    assert [(end.rig_port, network.port_name(end.end)) for end in network.attachments] == [
        ("ARISTA01T1/Ethernet1", "leaf0/Ethernet16")
    ]


LLDP_JSON = {
    "lldp": {
        "interface": [
            {
                "Ethernet16": {
                    "chassis": {"spine9": {"capability": [{"type": "Router", "enabled": True}]}},
                    "port": {"id": {"type": "ifname", "value": "Ethernet8"}},
                }
            },
            {
                "eth0": {
                    "chassis": {"oob": {"capability": {"type": "Bridge", "enabled": True}}},
                    "port": {"id": {"type": "ifname", "value": "1"}},
                }
            },
            {
                "Ethernet0": {
                    "chassis": {"gpu7": {"capability": [{"type": "Station", "enabled": True}]}},
                    "port": {"id": {"type": "mac", "value": "00:11:22:33:44:55"}, "descr": "ens1f0np0"},
                }
            },
        ]
    }
}
LLDP_JSON0 = {
    "lldp": [
        {
            "interface": [
                {
                    "name": name,
                    "chassis": [
                        {"name": [{"value": device}], "capability": [{"type": ability, "enabled": True}]}
                    ],
                    "port": [{"id": [{"type": "mac", "value": port}], "descr": [{"value": description}]}],
                }
                for name, device, ability, port, description in (
                    ("Ethernet16", "spine9", "Router", "Ethernet8", ""),
                    ("Ethernet0", "gpu7", "Station", "00:11:22:33:44:55", "ens1f0np0"),
                )
            ]
        }
    ]
}
LLDP_XML = """<?xml version="1.0" encoding="UTF-8"?>
<lldp label="LLDP neighbors">
 <interface label="Interface" name="Ethernet16" via="LLDP"><chassis label="Chassis"><name label="SysName">spine9</name>
  <capability type="Router" enabled="on"/></chassis><port><id type="ifname">Ethernet8</id></port></interface>
 <interface name="Ethernet0"><chassis><name>gpu7</name><capability type="Router" enabled="off"/></chassis>
  <port><id type="mac">00:11:22:33:44:55</id><descr>ens1f0np0</descr></port></interface>
</lldp>"""
LLDP_TABLE = """Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice    RemotePortID       Capability    RemotePortDescr
-----------  --------------  -----------------  ------------  -----------------
Ethernet16   spine9          Ethernet8          BR
Ethernet0    gpu7            00:11:22:33:44:55  O             ens1f0np0
eth0         oob             1                  B
--------------------------------------------------
Total entries displayed:  3
"""


@pytest.mark.parametrize("written", [json.dumps(LLDP_JSON), json.dumps(LLDP_JSON0), LLDP_XML, LLDP_TABLE])
def test_every_form_of_lldp_gives_the_same_neighbours(written: str) -> None:
    neighbours = parse_lldp(written.encode(), "lldp")
    assert [(each.local_port, each.device, each.port, each.kind) for each in neighbours] == [
        ("Ethernet16", "spine9", "Ethernet8", NeighbourKind.SWITCH),
        ("Ethernet0", "gpu7", "ens1f0np0", NeighbourKind.HOST),
    ]


def test_lldp_replaces_the_configured_neighbour_and_names_the_contradiction() -> None:
    imports = imported(leaf(), neighbours=(NeighbourFile("lldp.txt", LLDP_TABLE.encode()),))
    network = topology(imports)
    assert ("leaf0/Ethernet16", "spine9/0") in {link[:2] for link in links_of(network)}
    assert network.attachments[0].rig_port == "gpu7/ens1f0np0"
    remarks = [str(remark) for remark in imports.switches[0].remarks]
    assert (
        "LLDP: Ethernet16 leads to spine0 by DEVICE_NEIGHBOR, to spine9 by LLDP; the latter is used"
        in remarks
    )


MINIGRAPH = """<DeviceMiniGraph xmlns="Microsoft.Search.Autopilot.Evolution" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
 <PngDec><DeviceInterfaceLinks>
  <DeviceLinkBase i:type="DeviceInterfaceLink"><ElementType>DeviceInterfaceLink</ElementType><Bandwidth>400000</Bandwidth>
   <EndDevice>spine9</EndDevice><EndPort>Ethernet1</EndPort><StartDevice>leaf0</StartDevice><StartPort>etp4</StartPort>
  </DeviceLinkBase>
  <DeviceLinkBase><ElementType>DeviceInterfaceLink</ElementType>
   <StartDevice>gpu7</StartDevice><StartPort>ens1</StartPort><EndDevice>leaf0</EndDevice><EndPort>etp0</EndPort>
  </DeviceLinkBase>
  <DeviceLinkBase><ElementType>DeviceSerialLink</ElementType>
   <StartDevice>console</StartDevice><StartPort>1</StartPort><EndDevice>leaf0</EndDevice><EndPort>console</EndPort>
  </DeviceLinkBase>
 </DeviceInterfaceLinks>
 <Devices><Device i:type="LeafRouter"><Hostname>spine9</Hostname></Device>
  <Device><Hostname>gpu7</Hostname><ElementType>Server</ElementType></Device></Devices>
 </PngDec></DeviceMiniGraph>"""


def test_a_minigraph_names_ports_by_alias_and_ends_in_either_order() -> None:
    tables = changed(("DEVICE_NEIGHBOR", {}), ("DEVICE_NEIGHBOR_METADATA", {}))
    imports = imported(tables, neighbours=(NeighbourFile("minigraph.xml", MINIGRAPH.encode()),))
    network = topology(imports)
    assert [link[:2] for link in links_of(network)] == [("leaf0/Ethernet16", "spine9/0")]
    assert [(end.rig_port, network.port_name(end.end)) for end in network.attachments] == [
        ("gpu7/ens1", "leaf0/Ethernet0")
    ]
    assert any("1 links are not between interfaces" in str(remark) for remark in imports.switches[0].remarks)
    assert parse_minigraph(MINIGRAPH.encode(), "m").devices == ("leaf0", "spine9", "gpu7")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (NeighbourFile("l", LLDP_TABLE.encode(), "leaf7"), 'l: "leaf7" is not imported; write SWITCH=FILE with one of leaf0'),
        (NeighbourFile("l", b"hello"), "l: is neither JSON nor XML nor a table of LLDP neighbours"),
        (NeighbourFile("l", b"{}"), "l: names no LLDP neighbour"),
        (NeighbourFile("l", b'{"lldp"'), "l: is not JSON"),
        (NeighbourFile("l", b"<a>"), "l: is not XML"),
        (NeighbourFile("l", b"\xff\xfe"), "l: byte 0 is not UTF-8"),
        (NeighbourFile("m", b"<DeviceMiniGraph/>"), "m: has no link of leaf0"),
        (NeighbourFile("m", b"<x>DeviceMiniGraph</x>"), "m: its root is x, not DeviceMiniGraph"),
        (NeighbourFile("m", b'<!DOCTYPE d [<!ENTITY a "b">]><DeviceMiniGraph>&a;</DeviceMiniGraph>'),
         "m: has a document type, which may define entities"),
        (NeighbourFile("m", b"<DeviceMiniGraph>" + b"<a>" * 70), "nested more than 64 deep"),
    ],
)  # fmt: skip
def test_a_file_of_neighbours_that_is_refused(file: NeighbourFile, expected: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        imported(leaf(), neighbours=(file,))
    assert expected in str(refusal.value)
