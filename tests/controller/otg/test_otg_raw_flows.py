"""Raw flows of OTG configurations, as snappi 1.62 serialises them: their frames, schedules, plans and counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.frame_streams import MARK, SIGNATURE_BYTES, FrameCount
from etloop.controller.otg.answers import metrics_answer
from etloop.controller.otg.counts import RunCounts
from etloop.controller.otg.frames import ones_complement_sum
from etloop.controller.otg.mapping import map_config
from etloop.controller.otg.model import RawFlow
from etloop.controller.otg.plan import plan_run
from etloop.controller.otg.raw_counts import RawCounts
from etloop.controller.otg.requests import MetricsRequest, Order, read_capture, read_control
from etloop.traffic.frame_streams import complement_of_words
from tests.controller.otg.test_otg_mapping import RIG_PORTS, two_ports
from tests.controller.otg.test_otg_runs import RIG

ETHERNET = {"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": "00:00:01:01:01:02"}}}
IPV4 = {
    "choice": "ipv4",
    "ipv4": {
        "src": {"choice": "value", "value": "1.1.1.1"},
        "dst": {"choice": "increment", "increment": {"start": "1.1.1.2", "step": "0.0.0.1", "count": 3}},
        "priority": {"choice": "dscp", "dscp": {"phb": {"choice": "value", "value": 46}}},
    },
}
UDP_HEADER = {
    "choice": "udp",
    "udp": {
        "src_port": {"choice": "decrement", "decrement": {"start": 5000, "step": 2, "count": 2}},
        "dst_port": {"choice": "values", "values": [4000, 4044]},
    },
}
TCP_HEADER = {"choice": "tcp", "tcp": {"dst_port": {"choice": "value", "value": 80}}}


def raw_flow(*packet: dict[str, Any], **fields: Any) -> dict[str, Any]:
    ends = {"choice": "port", "port": {"tx_name": "Port 0", "rx_names": ["Port 1"]}}
    size = {"choice": "fixed", "fixed": 128}
    return {"name": "raw", "tx_rx": ends, "packet": list(packet), "size": size} | fields


def raw_config(*packet: dict[str, Any], **fields: Any) -> dict[str, Any]:
    ports = [{"name": f"Port {index}", "location": f"left/p{index}"} for index in range(2)]
    return {"ports": ports, "flows": [raw_flow(*packet, **fields)]}


def mapped(*packet: dict[str, Any], **fields: Any) -> RawFlow:
    (flow,) = map_config(raw_config(*packet, **fields), RIG_PORTS).raw_flows
    return flow


def problem_paths(config: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        map_config(config, RIG_PORTS)
    return [problem.where for problem in caught.value.problems]


def test_a_destination_that_no_receiving_port_has_is_warned_of() -> None:
    receiver = RIG_PORTS["left/p1"].addresses[0]
    to_receiver = {"choice": "ipv4", "ipv4": {"dst": {"choice": "value", "value": receiver}}}
    assert map_config(raw_config(ETHERNET, to_receiver), RIG_PORTS).warnings == ()
    (warning,) = map_config(raw_config(ETHERNET, IPV4), RIG_PORTS).warnings
    assert warning.startswith("$.flows[0].packet: 1.1.1.2 is not an address of a receiving port")
    assert receiver in warning


def test_fields_run_through_their_values() -> None:
    frames = [Ether(frame) for frame in mapped(ETHERNET, IPV4, UDP_HEADER).frames]
    assert [frame[IP].dst for frame in frames] == [f"1.1.1.{host}" for host in (2, 3, 4, 2, 3, 4)]
    assert [frame[UDP].sport for frame in frames] == [5000, 4998] * 3
    assert [frame[UDP].dport for frame in frames] == [4000, 4044] * 3
    assert {(frame.dst, frame[IP].tos, len(frame)) for frame in frames} == {
        ("00:00:01:01:01:02", 46 << 2, 124)
    }


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        ((ETHERNET, IPV4, UDP_HEADER), Ether() / IP(dst="1.1.1.2", src="1.1.1.1", tos=184) / UDP(sport=5000, dport=4000)),
        ((ETHERNET, IPV4, TCP_HEADER),
         Ether() / IP(dst="1.1.1.2", src="1.1.1.1", tos=184) / TCP(sport=0, dport=80, flags=0, window=0)),
        ((ETHERNET, {"choice": "ipv6", "ipv6": {}}, TCP_HEADER),
         Ether() / IPv6(src="::", dst="::") / TCP(sport=0, dport=80, flags=0, window=0)),
        ((ETHERNET, {"choice": "vlan", "vlan": {"id": {"choice": "value", "value": 7}}}, IPV4, UDP_HEADER),
         Ether() / Dot1Q(vlan=7) / IP(dst="1.1.1.2", src="1.1.1.1", tos=184) / UDP(sport=5000, dport=4000)),
    ],
)  # fmt: skip
def test_lengths_types_and_checksums_are_those_of_scapy(
    packet: tuple[dict[str, Any], ...], expected: Packet
) -> None:
    flow = mapped(*packet)
    frame = flow.frames[0]
    expected[Ether].dst, expected[Ether].src = "00:00:01:01:01:02", "00:00:00:00:00:00"
    if IP in expected:
        expected[IP].id = 0
    assert len(expected) == flow.signature_at
    assert bytes(expected / frame[flow.signature_at :]) == frame


def test_time_in_the_signature_leaves_the_checksum_as_it_is() -> None:
    flow = mapped(ETHERNET, IPV4, UDP_HEADER)
    frame, at = bytearray(flow.frames[0]), flow.signature_at
    assert frame[at : at + 4] == MARK
    before = ones_complement_sum(bytes(frame[at : at + SIGNATURE_BYTES]))
    for now_ns in (1, 1_796_000_000_123_456_789, (1 << 64) - 1):
        frame[at + 8 : at + 16] = now_ns.to_bytes(8, "big")
        frame[at + 16 : at + 18] = complement_of_words(now_ns).to_bytes(2, "big")
        assert ones_complement_sum(bytes(frame[at : at + SIGNATURE_BYTES])) == before


@pytest.mark.parametrize(
    ("rate", "cycle_ns"),
    [
        ({"choice": "pps", "pps": "1000"}, 6 * NS_PER_S // 1000),
        ({"choice": "percentage", "percentage": 10}, round(6 * 148 * 8 / 2.5)),
        ({"choice": "mbps", "mbps": 6.144}, 6 * 128 * 8 * 1000 // 6144 * 1000),
        ({}, 6 * NS_PER_S // 1000),
    ],
)
def test_rate_is_the_time_of_all_frames(rate: dict[str, Any], cycle_ns: int) -> None:
    assert mapped(ETHERNET, IPV4, UDP_HEADER, rate=rate).cycle_ns == cycle_ns


@pytest.mark.parametrize(
    ("duration", "count", "delay_ns"),
    [
        ({}, 0, 0),
        ({"choice": "fixed_packets", "fixed_packets": {"packets": 7, "gap": 12}}, 7, 0),
        ({"choice": "fixed_seconds", "fixed_seconds": {"seconds": 2.5}}, 2500, 0),
        ({"choice": "continuous", "continuous": {"delay": {"choice": "microseconds", "microseconds": 3}}}, 0, 3000),
    ],
)  # fmt: skip
def test_duration_is_a_number_of_frames(duration: dict[str, Any], count: int, delay_ns: int) -> None:
    flow = mapped(ETHERNET, duration=duration)
    assert (flow.count, flow.delay_ns) == (count, delay_ns)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"rate": {"choice": "gbps", "gbps": 26}}, "rate"),
        ({"size": {"choice": "random", "random": {}}}, "size.choice"),
        ({"duration": {"choice": "burst", "burst": {}}}, "duration.choice"),
        ({"packet": [ETHERNET, {"choice": "vxlan"}]}, "packet[1].choice"),
        ({"packet": [ETHERNET, TCP_HEADER]}, "packet[1].choice"),
        ({"packet": [ETHERNET, IPV4 | {"ipv4": {"options": [{}]}}]}, "packet[1].ipv4.options"),
        ({"tx_rx": {"choice": "device"}}, "tx_rx.choice"),
        ({"egress_packet": [{}]}, "egress_packet"),
    ],
)
def test_part_of_a_flow_without_counterpart_is_refused_by_its_path(fields: dict[str, Any], path: str) -> None:
    assert f"$.flows[0].{path}" in problem_paths(
        raw_config(ETHERNET) | {"flows": [raw_flow(ETHERNET) | fields]}
    )


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ({"choice": "value", "value": "1.1.1"}, "src"),
        ({"choice": "values", "values": ["1.1.1.1", 1 << 32]}, "src"),
        ({"choice": "random", "random": {}}, "src.choice"),
        ({"choice": "increment", "increment": {"count": 5000}}, "src.increment.count"),
    ],
)
def test_pattern_that_is_no_address_is_refused(pattern: dict[str, Any], path: str) -> None:
    header = {"choice": "ipv4", "ipv4": {"src": pattern}}
    (problem, *_) = problem_paths(raw_config(ETHERNET, header))
    assert problem.startswith(f"$.flows[0].packet[1].ipv4.{path}")


def test_small_frame_needs_room_for_its_signature() -> None:
    config = raw_config(ETHERNET, IPV4, TCP_HEADER, size={"choice": "fixed", "fixed": 64})
    with pytest.raises(ConfigError, match="write at least 76"):
        map_config(config, RIG_PORTS)


def test_frames_of_all_flows_are_bounded() -> None:
    many = {"choice": "udp", "udp": {"src_port": {"choice": "increment", "increment": {"count": 2048}}}}
    flows = [raw_flow(ETHERNET, IPV4, many) | {"name": str(number)} for number in range(3)]
    assert problem_paths(raw_config() | {"flows": flows[:1]}) == ["$.flows[0].packet"], "3 addresses"
    ipv4 = {"choice": "ipv4", "ipv4": {}}
    flows = [raw_flow(ETHERNET, ipv4, many) | {"name": str(number)} for number in range(3)]
    assert problem_paths(raw_config() | {"flows": flows}) == ["$.flows[2].packet"]
    assert problem_paths(raw_config() | {"flows": [raw_flow(ETHERNET)] * 257}) == ["$.flows"]


def test_layer1_must_have_the_speed_of_the_link() -> None:
    layer1 = {"name": "l", "port_names": ["Port 0"], "speed": "speed_25_gbps", "mtu": 1500}
    assert map_config(raw_config(ETHERNET) | {"layer1": [layer1]}, RIG_PORTS).warnings == ()
    wrong = layer1 | {"speed": "speed_1_gbps"}
    assert problem_paths(raw_config(ETHERNET) | {"layer1": [wrong]}) == ["$.layer1[0].speed"]


# ---- plans


def test_raw_flows_are_streams_next_to_queue_pairs() -> None:
    capture = {"name": "c", "port_names": ["Port 1"], "format": "pcap"}
    config = two_ports() | {"flows": [raw_flow(ETHERNET, IPV4, UDP_HEADER)], "captures": [capture]}
    test = map_config(config, RIG.ports)
    work = plan_run(test, RIG, ["QP 0", "raw"], 10, "run", nonce=7).plan.assignments["left"].frames
    assert [(stream.port, stream.sends, len(stream.frames)) for stream in work.streams] == [
        (0, True, 6),
        (1, False, 0),
    ]
    assert work.captures == (1,)


def test_ports_of_raw_flows_alone_have_ranks_without_messages() -> None:
    test = map_config(raw_config(ETHERNET), RIG.ports)
    assignment = plan_run(test, RIG, ["raw"], 1, "run", nonce=7).plan.assignments["left"]
    assert [(rank.rank, rank.port, rank.peers) for rank in assignment.ranks] == [(0, 0, ()), (1, 1, ())]
    assert (len(assignment.connections.src_rank), len(assignment.frames.streams)) == (0, 2)


# ---- counts

SENT = FrameCount(
    0, 0, sends=True, frames=11, frame_bytes=1240, first_ns=5, last_ns=5 + NS_PER_S, is_over=False
)
RECEIVED = FrameCount(
    0, 1, sends=False, frames=10, frame_bytes=1240, first_ns=9, last_ns=9 + NS_PER_S, is_over=False,
    latency_min_ns=4, latency_max_ns=8, latency_sum_ns=50,
)  # fmt: skip


def counted(*counts: FrameCount) -> RunCounts:
    flow = replace(mapped(ETHERNET), has_latency=True)
    raw = RawCounts([flow], {"left": ("p0", "p1")}, {"Port 0": "left/p0", "Port 1": "left/p1"})
    raw.is_running = True
    raw.take({"left": counts}, now_ns=NS_PER_S)
    return RunCounts((), 0, 1024, raw)


def rows_of(counts: RunCounts, choice: str, now_ns: int) -> list[Any]:
    test = map_config(raw_config(ETHERNET), RIG.ports)
    answer = metrics_answer(MetricsRequest(choice), test, counts, is_connected=False, now_ns=now_ns)
    rows = answer[f"{choice}_metrics"]
    assert isinstance(rows, list)
    return rows


def test_row_of_a_raw_flow_has_counts_rates_and_latency() -> None:
    (row,) = rows_of(counted(SENT, RECEIVED), "flow", NS_PER_S)
    names = ("transmit", "frames_tx", "frames_rx", "bytes_rx", "frames_tx_rate", "frames_rx_rate", "loss")
    assert [row[name] for name in names] == ["started", "11", "10", "1280", 10.0, 9.0, 0.0]
    assert row["latency"] == {"minimum_ns": 4.0, "maximum_ns": 8.0, "average_ns": 5.0}


def test_flow_is_stopped_once_all_its_frames_are_sent() -> None:
    counts = counted(replace(SENT, is_over=True), RECEIVED)
    (row,) = rows_of(counts, "flow", NS_PER_S)
    assert (row["transmit"], row["frames_tx_rate"], row["loss"]) == ("stopped", 0.0, pytest.approx(100 / 11))
    assert counts.raw.are_all_sent()


def test_rate_is_0_once_no_frame_is_reported() -> None:
    (row,) = rows_of(counted(SENT, RECEIVED), "flow", 60 * NS_PER_S)
    assert (row["frames_tx_rate"], row["frames_rx_rate"]) == (0.0, 0.0)


def test_ports_count_the_frames_of_raw_flows() -> None:
    rows = rows_of(counted(SENT, RECEIVED), "port", NS_PER_S)
    assert [(row["frames_tx"], row["frames_rx"], row["link"]) for row in rows] == [
        ("11", "0", "up"),
        ("0", "10", "up"),
    ]


def test_late_sender_and_interrupted_receiver_are_noted() -> None:
    assert counted(SENT, RECEIVED).raw.notes() == ()
    counts = counted(replace(SENT, behind_ns=NS_PER_S // 4), replace(RECEIVED, interruptions=2))
    assert counts.raw.notes() == (
        "raw flow raw fell behind its rate by 0.250 s",
        "frames sent while the interface of port Port 1 was down were not received (interruptions: 2)",
    )


def test_capture_is_ordered_by_port() -> None:
    body = {"choice": "port", "port": {"choice": "capture", "capture": {"state": "start"}}}
    assert read_control(body).order is Order.CAPTURE
    assert read_capture({"port_name": "Port 1"}) == "Port 1"
    with pytest.raises(ConfigError, match=r"\$\.port\.choice"):
        read_control({"choice": "port", "port": {"choice": "link"}})
