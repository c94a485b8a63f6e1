"""What an agent is willing to send whatever its controller asks for, and what it says of the rest."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from etloop.agent.guard import Guard, forbidden_parts, own_networks, read_guard
from etloop.agent.own_prefixes import own_prefixes
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import Assignment, PortBackend, UdpStream
from etloop.contract.model.capabilities import Capabilities
from etloop.traffic.send_limits import LoopLimits, SendLimits, loop_limits
from tests.support.control_plane.control_plane_by_hand import ring_assignments

LOCAL = Capabilities(local_networks=("127.0.0.0/8",), complete=True)
FLOOD = UdpStream("flood", True, "10.0.0.1", "10.88.0.99", 9000, 9000, 0, 5_000_000_000, 1400, 0, 0)


def assigned(*streams: UdpStream, address: str = "127.0.0.1") -> Assignment:
    """A part of two ranks, of which this agent has the first, with streams beside them."""
    part = ring_assignments("a", "b", ops=3)["a"]
    ports = tuple(replace(port, addresses=(address,)) for port in part.ports)
    return replace(part, ports=ports, streams=streams)


def said(guard: Guard, part: Assignment, host: Capabilities = LOCAL, **prefixes: int) -> list[str]:
    found = {name.strip("_").replace("_", "."): bits for name, bits in prefixes.items()}
    return [str(problem) for problem in forbidden_parts(part, guard, host, found, "x")]


def test_the_networks_of_its_own_ports_are_open_without_a_word() -> None:
    assert said(Guard(), assigned()) == []


def test_a_flood_of_a_stranger_is_refused_by_name_with_the_remedy() -> None:
    (line,) = said(Guard(), assigned(FLOOD))
    assert line == (
        "background flood: requests traffic to 10.88.0.99; this agent sends only to 127.0.0.1/32, 127.0.0.0/8; "
        "if this is intended: on x, start etloop-agent run with --allow-peers and a network that contains 10.88.0.99"
    )
    assert said(Guard(), assigned(replace(FLOOD, sends=False))) == [], "this end only receives"
    allowed = (*own_networks(["127.0.0.1"], LOCAL, {}), ipaddress.ip_network("10.88.0.0/16"))
    assert said(Guard(allowed), assigned(FLOOD)) == []


def test_a_connection_with_a_stranger_is_refused_too() -> None:
    lines = said(Guard((ipaddress.ip_network("127.0.0.1/32"),)), assigned())
    assert lines[0].startswith(
        "a connection: requests traffic to 127.0.0.2; this agent sends only to 127.0.0.1/32;"
    )


@pytest.mark.parametrize(
    ("address", "bits", "expected"),
    [
        ("10.0.1.5", 24, ["10.0.1.0/24"]),
        ("10.0.1.5", 31, ["10.0.1.4/31"]),
        ("fd00::5", 64, ["fd00::/64"]),
        ("10.0.1.5", None, ["10.0.1.5/32"]),
        ("127.9.9.9", None, ["127.9.9.9/32", "127.0.0.0/8"]),
    ],
)
def test_the_network_of_an_address_is_its_interfaces(
    address: str, bits: int | None, expected: list[str]
) -> None:
    prefixes = {} if bits is None else {address: bits}
    assert list(map(str, own_networks([address], LOCAL, prefixes))) == expected


def test_a_few_strangers_are_named_and_the_others_counted() -> None:
    streams = tuple(replace(FLOOD, name=f"s{n}", dst_ip=f"10.9.0.{n}") for n in range(1, 31))
    lines = said(Guard(), assigned(*streams))
    assert len(lines) == 9
    assert lines[-1].startswith("the run: requests traffic to 22 more addresses outside the allowed networks")


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        (
            Guard(udp_ports=((4791, 4791),)),
            "background flood: requests traffic to UDP port 9000; this agent sends only to UDP ports 4791;",
        ),
        (
            Guard(limits=SendLimits(most_bps=10**9)),
            "background flood, flood: requests 10000000000 bit/s; ",
        ),
        (
            Guard(limits=SendLimits(most_packets_per_s=892_857)),
            "background flood, flood: requests 892858 pac",
        ),
        (Guard(limits=SendLimits(most_packets_per_s=892_858)), ""),
        (Guard(limits=SendLimits(most_bps=10**10)), ""),
    ],
)
def test_ports_and_rates_are_bounded(guard: Guard, expected: str) -> None:
    stream = replace(FLOOD, dst_ip="127.0.0.9")
    lines = said(guard, assigned(stream, stream))
    assert lines[0].startswith(expected) if expected else lines == []


def test_a_well_known_port_is_closed_without_a_word() -> None:
    (line,) = said(Guard(), assigned(replace(FLOOD, dst_ip="127.0.0.9", udp_port=53)))
    assert (
        "UDP port 53; this agent sends only to UDP ports 1024-65535; if this is intended: on x, --allow-udp-ports 1024-65535,53"
        in line
    )


def test_a_card_that_sends_by_itself_is_refused_where_a_rate_is_to_hold() -> None:
    part = assigned()
    part = replace(part, ports=tuple(replace(port, backend=PortBackend.VERBS) for port in part.ports))
    assert said(Guard(), part) == []
    for limits in (SendLimits(most_bps=1), SendLimits(hop_limit=1), SendLimits(most_packets_per_s=1)):
        (line,) = said(Guard(limits=limits), part)
        assert "a network card sends in hardware, where the agent cannot enforce a rate or a TTL" in line


def test_options_are_read_and_all_their_mistakes_told() -> None:
    guard = read_guard("10.0.0.0/16,fd00::/64", "4791,20000-20999", "10Gbps", "1000000", 1)
    assert list(map(str, guard.networks or ())) == ["10.0.0.0/16", "fd00::/64"]
    assert guard.udp_ports == ((4791, 4791), (20000, 20999))
    assert guard.limits == SendLimits(10**10, 10**6, 1)
    assert read_guard(None, None, None, None, None) == Guard()
    with pytest.raises(ConfigError) as refused:
        read_guard("10.0.0.1/16", "70000", "fast", "-1", 0)
    wrong = [problem.where for problem in refused.value.problems]
    assert sorted(wrong) == [
        "--allow-peers",
        "--allow-udp-ports",
        "--most-packet-rate",
        "--most-rate",
        "--ttl",
    ]
    for ports in ("", "5-4", "0", "1-", "x", "٣"):
        with pytest.raises(ConfigError, match="is not a range of UDP ports; write ports such as"):
            read_guard(None, ports, None, None, None)


def test_the_kernel_tells_the_prefixes_of_this_hosts_addresses() -> None:
    assert own_prefixes()["127.0.0.1"] == 8


def test_loops_of_one_port_share_its_limits() -> None:
    found = loop_limits(SendLimits(1000, 7, 3), (0, 0, 0, 1))
    assert found == LoopLimits(3, (333, 333, 333, 1000), (2, 2, 2, 7))
    assert loop_limits(SendLimits(), (0, 1)) == LoopLimits(0, (0, 0), (0, 0))


def test_a_run_over_a_limited_agent_says_so() -> None:
    assert SendLimits().degraded_notes() == ()
    assert SendLimits(hop_limit=1).degraded_notes() == ()
    assert SendLimits(10**9, 5000).degraded_notes() == (
        "this agent sends at most 1Gbps a port (--most-rate)",
        "this agent sends at most 5000 packets/s a port (--most-packet-rate)",
    )
