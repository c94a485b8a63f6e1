"""Sequences of public OTG scripts against `etloop otg serve` over a lab: RoCEv2 traffic, peers, raw flows, captures.

Counters are those of the switch.

The bodies are what snappi 1.62 serialises, with the traps of those scripts: flows named crosswise, a flow under the port that
does not send it, `ib_mtu` 1027, an empty group of stateful flows, names of devices in `peer_names`, numbers as texts.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.lab.client import lab_down
from tests.e2e.lab.test_otg_lab import frames_of, received_packets
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import PATIENCE_S, etloop, free_place, running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * PATIENCE_S),
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]

ADDRESSES: Final = ("10.1.1.1", "10.1.1.2")
TOPOLOGY: Final = """\
switches: [{name: sw, preset: lossy}]
attach:
  - {port: a/p0, to: sw/1, rate: 100Mbps, addresses: [10.1.1.1]}
  - {port: b/p0, to: sw/2, rate: 100Mbps, addresses: [10.1.1.2]}
"""
PORTS: Final = [{"name": "tx", "location": "a/p0"}, {"name": "rx", "location": "b/p0"}]
PROBES: Final = 16
"""Packets by which a start may probe its queue pairs, each way, without counting them."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client of the server."""

    url: str

    def ask(self, path: str, body: object) -> bytes:
        """Return the body of the answer to a POST."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            content: bytes = answer.read()
            return content

    def configure(self, config: object) -> None:
        assert "warnings" in json.loads(self.ask("/config", config))

    def control(self, choice: str, **fields: object) -> list[str]:
        """Set the state of protocols, traffic or ports; return the warnings."""
        (inner,) = fields
        body = {"choice": choice, choice: {"choice": inner, inner: fields[inner]}}
        warnings: list[str] = json.loads(self.ask("/control/state", body))["warnings"]
        return warnings

    def transmit(self, state: str) -> list[str]:
        return self.control("traffic", flow_transmit={"state": state})

    def protocols(self, state: str) -> None:
        self.control("protocol", all={"state": state})

    def rows(self, kind: str, **request: object) -> list[dict[str, Any]]:
        """Return the rows of a metrics request."""
        answer = json.loads(self.ask("/monitor/metrics", {"choice": kind, kind: request}))
        rows: list[dict[str, Any]] = answer[answer["choice"]]
        return rows

    def flows_until(self, holds: Any) -> list[dict[str, Any]]:
        """Return the rows of raw flows once `holds` is true of all."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            rows = self.rows("flow", flow_names=[])
            if all(holds(row) for row in rows):
                return rows
            assert time.monotonic() < deadline_s, rows


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server over a lab of two ports."""
    with served(tmp_path_factory.mktemp("otg")) as client:
        yield client


@contextmanager
def served(directory: Path) -> Iterator[Client]:
    """A server over a lab of two ports, with its files in a directory."""
    place = free_place(directory)
    bind = free_place(directory).endpoint.removeprefix("tcp://")
    place.write("topology.yaml", TOPOLOGY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(directory))
        up = ("lab", "up", "topology.yaml", "--rig-out", "rig.yaml", "--agents", "--unmeasured")
        started = etloop(place, *up, "--bind", place.endpoint)
        assert started.exit_code == 0, started.err
        try:
            serve = ("otg", "serve", "--rig", "rig.yaml", "--bind", bind)
            with running(place, "etloop.cli.main", *serve) as server:
                server.wait_for("serving OTG for 2 ports at ")
                yield Client(server.printed().partition(" at ")[2].split()[0])
        finally:
            lab_down("lab")


def device(index: int, queue_pairs: int) -> dict[str, Any]:
    connection = {"dscp": 27 + index, "ecn": "ect_0", "source_qp_number": 33 + index, "initial_psn": "0"}
    qps = [
        {
            "qp_name": f"QP_{index + 1}_{number}",
            "connection_type": {"choice": "reliable_connection", "reliable_connection": connection},
        }
        for number in range(queue_pairs)
    ]
    peer = {"name": f"RoCEv2 {index + 1}", "destination_ip_address": ADDRESSES[1 - index], "qps": qps}
    address = {"name": f"ip{index}", "address": ADDRESSES[index], "gateway": ADDRESSES[1 - index]}
    return {
        "name": f"rocev2_{index + 1}",
        "ethernets": [
            {
                "name": f"eth{index}",
                "mac": f"00:00:00:00:00:{index + 1}1",
                "connection": {"choice": "port_name", "port_name": PORTS[index]["name"]},
                "ipv4_addresses": [address | {"prefix": 24}],
            }
        ],
        "rocev2": {"ipv4_interfaces": [{"ipv4_name": f"ip{index}", "ib_mtu": 1027, "peers": [peer]}]},
    }


def stateful(port: str, percent: str, *flows: dict[str, Any]) -> dict[str, Any]:
    line_rate = {"value": percent, "flows": list(flows)}
    return {
        "port_name": port,
        "transmit_type": {"choice": "target_line_rate", "target_line_rate": line_rate},
    }


def flow(queue_pair: str, verb: str, unit: str, size: int) -> dict[str, Any]:
    """A flow with the name of the queue pair of the other end."""
    other = queue_pair.replace("_1_", "_3_").replace("_2_", "_1_").replace("_3_", "_2_")
    verb_fields = {"choice": verb, verb: {"immediate_data": "bb"}}
    return {
        "name": other,
        "tx_endpoint": queue_pair,
        "rocev2_verb": verb_fields,
        "message_size": size,
        "message_size_unit": unit,
    }


def roce_config(queue_pairs: int, *tx_ports: dict[str, Any]) -> dict[str, Any]:
    marks = {"choice": "ip_dscp", "ip_dscp": {"value": 59}, "ecn_value": "ect_0"}
    reliable = {"ack": marks, "enable_retransmission_timeout": False, "retransmission_timeout_value": 10}
    options = {
        "cnp": {"choice": "ip_dscp", "ip_dscp": {"value": 44}, "ecn_value": "ect_0"},
        "connection_type": {"choice": "reliable_connection", "reliable_connection": reliable},
        "dcqcn_settings": {"alpha_g": "1020", "initial_alpha": 1000, "maximum_rate_decrement_at_time": 12},
    }
    per_port = [
        {"port_name": port["name"], "protocols": [{"choice": "rocev2", "rocev2": options}]} for port in PORTS
    ]
    return {
        "ports": PORTS,
        "devices": [device(index, queue_pairs) for index in range(2)],
        "stateful_flows": {"choice": "rocev2", "rocev2": [{"tx_ports": list(tx_ports)}, {}]},
        "options": {"per_port_options": per_port},
    }


def test_traffic_goes_both_ways_and_its_frames_are_those_of_the_switch(client: Client) -> None:
    client.configure(
        roce_config(
            1,
            stateful("tx", "20", flow("QP_1_0", "send_with_immediate", "kb", 1)),
            stateful("rx", "20", flow("QP_2_0", "write_with_immediate", "kb", 256)),
        )
    )
    client.protocols("start")
    before = received_packets()
    client.transmit("start")
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        live = client.rows("rocev2_flow", choice="per_qp", per_qp={"column_names": []})
        if all(int(row["message_complete_rx"]) > 10 and row["data_rx_rate"] > 0 for row in live):
            break
        assert time.monotonic() < deadline_s, live
    client.transmit("stop")
    received = [after - earlier for after, earlier in zip(received_packets(), before, strict=True)]
    rows = client.rows("rocev2_flow", choice="per_qp", per_qp={"column_names": ["data_tx_rate"]})
    sent = [int(row["frames_tx"]) for row in client.rows("port", port_names=[])]
    client.protocols("stop")
    assert [(row["flow_name"], row["port_tx"]) for row in rows] == [("QP_2_0", "tx"), ("QP_1_0", "rx")]
    for row in rows:
        assert (row["message_fail"], row["cnp_rx"], row["nak_rx"]) == ("0", "0", "0")
        assert f"{row['data_tx_rate']:.2f} {row['data_rx_rate']:.2f}" == "0.00 0.00"
    assert all(0 <= seen - own <= PROBES for seen, own in zip(received, sent, strict=True)), (received, sent)


@pytest.mark.parametrize("queue_pairs", [1, 2])
def test_statistics_of_peers_are_found_by_the_name_of_their_device(client: Client, queue_pairs: int) -> None:
    flows = [flow(f"QP_1_{number}", "send_with_immediate", "kb", 1) for number in range(queue_pairs)]
    flows += [flow(f"QP_2_{number}", "write_with_immediate", "mb", 1) for number in range(queue_pairs)]
    client.configure(roce_config(queue_pairs, stateful("tx", "98", *flows)))
    client.protocols("start")
    (named,) = client.rows("rocev2_ipv4", choice="per_peer", per_peer={"peer_names": ["rocev2_1"]})
    every = client.rows("rocev2_ipv4", choice="per_peer", per_peer={"column_names": ["qp_down"]})
    client.protocols("stop")
    down = client.rows("rocev2_ipv4", choice="per_peer", per_peer={})
    assert (named["name"], named["qp_up"]) == ("RoCEv2 1", str(queue_pairs))
    assert [row["qp_down"] for row in every] == ["0", "0"]
    assert [row["qp_down"] for row in down] == [str(queue_pairs)] * 2


def raw_flow(index: int, size: int, count: int, pps: int, transport: dict[str, Any]) -> dict[str, Any]:
    """A flow from port `index` to the other one."""
    ends = {"tx_name": PORTS[index]["name"], "rx_names": [PORTS[1 - index]["name"]]}
    addresses = {
        "src": {"choice": "value", "value": ADDRESSES[index]},
        "dst": {"choice": "value", "value": ADDRESSES[1 - index]},
    }
    macs = {
        "src": {"choice": "value", "value": f"00:00:01:01:01:0{index + 1}"},
        "dst": {"choice": "value", "value": f"00:00:01:01:01:0{2 - index}"},
    }
    return {
        "name": f"flow {index}",
        "tx_rx": {"choice": "port", "port": ends},
        "packet": [
            {"choice": "ethernet", "ethernet": macs},
            {"choice": "ipv4", "ipv4": addresses},
            transport,
        ],
        "size": {"choice": "fixed", "fixed": size},
        "rate": {"choice": "pps", "pps": str(pps)},
        "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": count}},
        "metrics": {"enable": True},
    }


def test_two_udp_flows_end_by_themselves_with_the_counts_of_the_switch(client: Client) -> None:
    increment = {"choice": "increment", "increment": {"start": 5000, "step": 2, "count": 10}}
    udp = {
        "choice": "udp",
        "udp": {"src_port": increment, "dst_port": {"choice": "values", "values": [4000, 4044]}},
    }
    client.configure({"ports": PORTS, "flows": [raw_flow(index, 128, 500, 500, udp) for index in range(2)]})
    before = received_packets()
    client.transmit("start")
    rows = client.flows_until(lambda row: (row["frames_tx"], row["frames_rx"]) == ("500", "500"))
    client.protocols("stop")
    received = [after - earlier for after, earlier in zip(received_packets(), before, strict=True)]
    assert received == [500, 500]
    for row in rows:
        span_ns = row["timestamps"]["last_timestamp_ns"] - row["timestamps"]["first_timestamp_ns"]
        # The schedule ends 499 intervals after its begin; a busy machine may send the last frame later.
        assert (row["transmit"], row["bytes_rx"]) == ("stopped", str(500 * 128))
        assert span_ns > 0.9 * 499 * 2_000_000
    totals = client.rows("port", port_names=["tx", "rx"], column_names=["frames_tx", "frames_rx"])
    assert [(row["frames_tx"], row["frames_rx"]) for row in totals] == [("500", "500")] * 2


def test_captured_tcp_frames_have_their_ports_in_order(client: Client) -> None:
    ports = [{"choice": "values", "values": [base + 10 * step for step in range(4)]} for base in (5000, 6000)]
    tcp = {"choice": "tcp", "tcp": {"src_port": ports[0], "dst_port": ports[1]}}
    client.configure(
        {
            "ports": PORTS,
            "layer1": [{"name": "ly", "port_names": ["tx", "rx"], "speed": "speed_100_fd_mbps"}],
            "captures": [{"name": "ca", "port_names": ["tx", "rx"], "format": "pcap"}],
            "flows": [raw_flow(0, 128, 100, 200, tcp)],
        }
    )
    before = received_packets()
    client.control("port", capture={"state": "start"})
    client.transmit("start")
    client.flows_until(
        lambda row: (row["transmit"], row["frames_tx"], row["frames_rx"]) == ("stopped", "100", "100")
    )
    client.control("port", capture={"state": "stop"})
    frames = [
        frame
        for frame in frames_of(client.ask("/monitor/capture", {"port_name": "rx"}))
        if frame[6:12] == bytes.fromhex("000001010101")
    ]
    assert received_packets()[0] - before[0] == 100
    assert [len(frame) for frame in frames] == [128] * 100
    assert [(int.from_bytes(frame[34:36]), int.from_bytes(frame[36:38])) for frame in frames] == [
        (5000 + 10 * (index % 4), 6000 + 10 * (index % 4)) for index in range(100)
    ]
    assert {(frame[16:18], frame[23], frame[46]) for frame in frames} == {(b"\0\x6e", 6, 0x50)}


GENERATION: Final = {"data_size": "256", "data_size_unit": "kilobyte"}
STAGE: Final = {
    "name": "stage",
    "algorithm": {"choice": "ring_allreduce"},
    "communicators": [
        {"name": "all", "device_names": ["rocev2_1", "rocev2_2"], "generation": GENERATION},
    ],
    "duration": {"choice": "fixed_iterations", "fixed_iterations": {"count": 4, "interval_ms": 1}},
}
SINGLE: Final = {
    "collective_algorithm": {
        "algorithm_type": {"choice": "system", "system": "all_reduce_unidirectional_ring"}
    },
    "datasizes": {"choice": "list", "list": {"size_bytes": ["65536", "256000"]}},
    "iterations": "4",
    "iteration_append_delay": 1,
}
NICS: Final = [{"device_instance_name": "host", "device_index": rank} for rank in range(2)]
BINDINGS: Final = {
    "rank_bindings": [{"rank_id": rank, "nic_refs": [NICS[rank]]} for rank in range(2)],
    "nic_bindings": [{"infrastructure_ref": NICS[rank], "ethernet_name": f"eth{rank}"} for rank in range(2)],
}


def test_collectives_of_both_proposals_are_carried(client: Client) -> None:
    """The proposals of pull requests 490 and 491 of OTG's models."""
    config = roce_config(1)
    for end in config["devices"]:
        (queue_pair,) = end["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"]
        queue_pair["connection_type"]["reliable_connection"]["dscp"] = 26
    client.configure(config | {"ccl": {"name": "job", "stages": [STAGE]}})
    before = received_packets()
    client.control("traffic", ccl={"state": "start"})
    row: dict[str, Any] = {"iteration_count": "0"}
    deadline_s = time.monotonic() + PATIENCE_S
    while row["iteration_count"] != "4":
        (row,) = client.rows("ccl", communicator_names=["all"])
        assert time.monotonic() < deadline_s, row
    client.control("traffic", ccl={"state": "stop"})
    received = [after - earlier for after, earlier in zip(received_packets(), before, strict=True)]
    # Each rank of a ring of two sends a buffer of data in frames of 4 KiB, four times.
    assert all(count >= 4 * 256_000 / 4096 for count in received), received
    assert 0 < row["min_jct"] <= row["avg_jct"] <= row["max_jct"]
    assert row["jct_percent"] > 100, "faster than the link"
    workload = {"choice": "single_collective", "single_collective": SINGLE}
    bindings = {"choice": "basic_binding", "basic_binding": BINDINGS}
    client.configure(config | {"collective_communications": {"workload": workload, "bindings": bindings}})
    client.control("collective_communications", execution={"state": "start"})
    request = {"choice": "collective_communications", "collective_communications": {"choice": "execution"}}
    while True:
        states = json.loads(client.ask("/monitor/states", request))
        execution = states["collective_communications"]["execution"]
        if execution["choice"] == "stopped":
            break
        assert time.monotonic() < deadline_s, states
    assert execution["stopped"] == {"choice": "success"}
    single = {"choice": "single_collective", "single_collective": {"choice": "summary", "summary": {}}}
    answer = json.loads(
        client.ask(
            "/monitor/metrics", {"choice": "collective_communications", "collective_communications": single}
        )
    )
    rows = answer["collective_communications"]["single_collective"]["summary"]
    assert [(row["data_size"], row["iterations"]) for row in rows] == [("65536", "4"), ("256000", "4")]
    assert [int(row["total_bytes_rx"]) for row in rows] == [2 * 4 * 65_536, 2 * 4 * 256_000]
    assert all(0 < row["ideal"] < 100 and 0 < row["duty_cycle"] <= 100 for row in rows)
