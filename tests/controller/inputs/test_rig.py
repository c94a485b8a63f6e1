"""rig.yaml: agents, ports and addresses, and every mistake told with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import PortBackend
from etloop.controller.inputs.rig import DEFAULT_BIND, Curve, parse_rig
from tests.support.places import ROOT

EXAMPLES = ROOT / "examples"
PORT = "{name: p0, addresses: 10.0.0.1, link: 100Gbps}"


def test_a_rig_is_read_with_its_defaults() -> None:
    rig = parse_rig(
        b"agents: [{name: a, ports: [{name: p0, addresses: [10.0.0.1-10.0.0.3, 10.0.0.9], link: 400Gbps}]}]",
        "r",
        Path(),
    )
    (agent,) = rig.agents
    (port,) = agent.ports
    assert rig.bind == DEFAULT_BIND
    assert not rig.security.insecure
    assert agent.host == "a", "an agent without a host is a host of its own"
    assert port.addresses == ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9")
    assert (port.link_bps, port.udp_port, port.segmentation_offload) == (400 * 10**9, 4791, True)


def test_ipv6_addresses_and_ranges_are_kept_in_their_shortest_form() -> None:
    text = "agents: [{name: a, ports: [{name: p0, addresses: ['fd00:0:0::fffe-fd00::1:1', '2001:db8::1'], link: 1Gbps}]}]"
    (port,) = parse_rig(text.encode(), "r", Path()).agents[0].ports
    assert port.addresses == ("fd00::fffe", "fd00::ffff", "fd00::1:0", "fd00::1:1", "2001:db8::1")


def test_backends_of_ports() -> None:
    text = (
        "agents: [{name: a, ports: [{name: p, addresses: 10.0.0.1, link: 1Gbps}, "
        "{name: q, addresses: 10.0.0.2, link: 1Gbps, backend: packet, interface: eth0.100}, "
        "{name: r, addresses: 10.0.0.3, link: 1Gbps, backend: xdp, queues: 4}]}]"
    )
    ports = parse_rig(text.encode(), "r", Path()).agents[0].ports
    assert [(port.backend, port.interface, port.queues) for port in ports] == [
        (PortBackend.UDP, "", 1),
        (PortBackend.PACKET, "eth0.100", 1),
        (PortBackend.XDP, "", 4),
    ]


def test_a_verbs_port_is_one_of_a_device() -> None:
    text = (
        "agents: [{name: a, ports: [{name: p, addresses: 10.0.0.1-10.0.0.2, link: 1Gbps, backend: verbs, device: mlx5_0}, "
        "{name: q, addresses: 10.0.0.3, link: 1Gbps, backend: verbs, device: mlx5_1, gid_index: 3}]}]"
    )
    ports = parse_rig(text.encode(), "r", Path()).agents[0].ports
    assert [(port.backend, port.device, port.gid_index) for port in ports] == [
        (PortBackend.VERBS, "mlx5_0", -1),
        (PortBackend.VERBS, "mlx5_1", 3),
    ]


def test_every_mistake_of_a_verbs_port_is_told() -> None:
    text = (
        "agents: [{name: a, ports: ["
        "{name: p, addresses: 10.0.0.1, link: 1Gbps, backend: verbs, interface: eth0, udp_port: 4792}, "
        "{name: q, addresses: 10.0.0.2-10.0.0.3, link: 1Gbps, backend: verbs, device: mlx5_0, gid_index: 3}, "
        "{name: r, addresses: 10.0.0.4, link: 1Gbps, device: mlx5_0}]}]"
    )
    with pytest.raises(ConfigError) as caught:
        parse_rig(text.encode(), "r", Path())
    reported = str(caught.value)
    for what in (
        "ports[0].device: is missing: a verbs port needs an RDMA device; name the RDMA device as `rdma link` lists it",
        "ports[0].interface: a verbs port is named by its device",
        "ports[0].udp_port: a network card uses port 4791 and no other; remove it",
        "ports[1].gid_index: one GID for 2 addresses",
        "ports[2].device: only a verbs port has an RDMA device; remove it, or write backend: verbs",
    ):
        assert what in reported


def test_key_files_are_relative_to_the_rig() -> None:
    curve = "security: {curve: {server_key: k/c.key_secret, authorised_keys: k/agents}}"
    text = f"{curve}\nagents: [{{name: a, ports: [{PORT}]}}]"
    rig = parse_rig(text.encode(), "r", Path("lab"))
    assert rig.security.curve == Curve(Path("lab/k/c.key_secret"), Path("lab/k/agents"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("controller: {}", "r.yaml:1: agents: is missing or empty; list the agents with their ports"),
        (
            "agents: [{ports: []}]",
            "r.yaml:1: agents[0].name: is missing; write the --name of the agent's etloop-agent",
        ),
        (
            "agents: [{name: a, ports: []}]",
            "r.yaml:1: agents[0].ports: is missing or empty; list the ports of the agent",
        ),
        (
            "agents:\n- name: a\n  ports:\n  - {name: p0, addresses: 10.0.0.1, link: 400G}",
            'r.yaml:4: agents[0].ports[0].link: "400G" is not a rate; write a rate with its unit, such as "400Gbps"',
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.300, link: 1Gbps}]}]",
            (
                'r.yaml:1: agents[0].ports[0].addresses: "10.0.0.300" is not an IP address; '
                'write an IPv4 or IPv6 address, or a range such as "10.0.1.1-10.0.1.8"'
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.9-10.0.0.1, link: 1Gbps}]}]",
            (
                'r.yaml:1: agents[0].ports[0].addresses: "10.0.0.9-10.0.0.1" holds 0 addresses; '
                "write an ascending range of at most 4096"
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 224.0.0.1, link: 1Gbps}]}]",
            (
                "r.yaml:1: agents[0].ports[0].addresses: 224.0.0.1 is not a unicast address; "
                'write an IPv4 or IPv6 address, or a range such as "10.0.1.1-10.0.1.8"'
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 'fe80::1', link: 1Gbps}]}]",
            (
                "r.yaml:1: agents[0].ports[0].addresses: fe80::1 is a link-local or IPv4-mapped IPv6 address, which is "
                "not valid beyond its link; give the port a routable or unique local address, such as fd00:1::1"
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: '10.0.0.1-fd00::2', link: 1Gbps}]}]",
            (
                'r.yaml:1: agents[0].ports[0].addresses: "10.0.0.1-fd00::2" begins and ends in different address '
                'families; write an IPv4 or IPv6 address, or a range such as "10.0.1.1-10.0.1.8"'
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps, backend: dpdk}]}]",
            (
                'r.yaml:1: agents[0].ports[0].backend: "dpdk" is not one of the choices; '
                "write udp or packet or xdp or verbs"
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps, interface: 'eth0:1', queues: 2}]}]",
            (
                'r.yaml:1: agents[0].ports[0].interface: "eth0:1" is not the name of an interface; '
                "write it as `ip link` lists it"
            ),
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps, receive_ring: true}]}]",
            (
                "r.yaml:1: agents[0].ports[0].receive_ring: only a packet port has a ring; "
                "remove it, or write backend: packet"
            ),
        ),
        (
            (
                "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps, queues: 2, "
                "backend: verbs, device: mlx5_0}]}]"
            ),
            (
                "r.yaml:1: agents[0].ports[0].queues: the network card executes the queue pairs of a verbs "
                "port, and one thread polls its completions; remove it, or write another backend"
            ),
        ),
        (
            f"agents: [{{name: a, ports: [{PORT}]}}, {{name: b, ports: [{PORT}]}}]",
            "r.yaml:1: agents: address 10.0.0.1 is given to a/p0 and to b/p0; give every address to one port, once",
        ),
        (
            f"agents: [{{name: a, ports: [{PORT}]}}, {{name: a, ports: [{PORT}]}}]",
            'r.yaml:1: agents: two agents are called "a"; give every agent its own name',
        ),
        (
            "agents: [{name: a, ports: [{name: p0, addresses: [10.0.0.1, 10.0.0.1], link: 1Gbps}]}]",
            "r.yaml:1: agents: a/p0 lists 1 addresses twice; list every address once",
        ),
        (
            f"controller: {{bind: 'localhost'}}\nagents: [{{name: a, ports: [{PORT}]}}]",
            (
                f'r.yaml:1: controller.bind: "localhost" is not an endpoint; write transport, address and port, such as '
                f'"{DEFAULT_BIND}"'
            ),
        ),
        (
            f"security: {{insecure: yes}}\nagents: [{{name: a, ports: [{PORT}]}}]",
            'r.yaml:1: security.insecure: "yes" is not one of the choices; write true or false',
        ),
        (
            f"security: {{insecure: true, curve: {{server_key: k}}}}\nagents: [{{name: a, ports: [{PORT}]}}]",
            "r.yaml:1: security.curve.authorised_keys: is missing; name the directory with the agents' public key files",
        ),
        (
            "agents: [{name: a/b, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]}]",
            (
                'r.yaml:1: agents[0].name: "a/b" is not a name; write letters, digits, dots, dashes or underscores, '
                "beginning with a letter or digit, at most 64"
            ),
        ),
        (
            (
                "agents: [{name: a, ports: [{name: p, addresses: 10.0.0.1, link: 1Gbps, segmentation_offload: false}, "
                "{name: q, addresses: 10.0.0.2, link: 1Gbps}]}]"
            ),
            (
                "r.yaml:1: agents[0].ports: segmentation_offload differs between the ports of one agent; "
                "set it alike on all of them, or give each port its own agent"
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_place_and_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rig(text.encode(), "r.yaml", Path())
    assert message in str(caught.value).splitlines()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/rig.yaml")), ids=lambda path: path.parent.name)
def test_the_examples_are_rigs(path: Path) -> None:
    parse_rig(path.read_bytes(), path.name, path.parent)


def test_a_topology_is_relative_to_the_rig() -> None:
    text = f"topology: t/device.yaml\nagents: [{{name: a, ports: [{PORT}]}}]"
    assert parse_rig(text.encode(), "r", Path("lab")).topology == Path("lab/t/device.yaml")
