"""OTG configurations, as snappi 1.62 serialises them, on a rig of two ports."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.rig import RigPort
from etloop.controller.otg.mapping import map_config
from etloop.controller.otg.model import EndlessFlow, Marks, Verb

RIG_PORTS = {
    f"left/p{index}": RigPort(name=f"p{index}", link_bps=25_000_000_000, addresses=(f"192.0.2.{index + 1}",))
    for index in range(2)
}


def device(index: int) -> dict[str, Any]:
    queue_pair = {
        "qp_name": f"QP {index}",
        "connection_type": {
            "choice": "reliable_connection",
            "reliable_connection": {
                "dscp": 3,
                "ecn": "ect_1",
                "initial_psn": "0",
                "remote_key": "00000000",
                "source_qp_number": 100 + index,
                "udp_source_port": 49152,
                "virtual_address": "0000000000000000",
            },
        },
    }
    peer = {"name": f"Peer {index}", "destination_ip_address": f"192.0.2.{2 - index}", "qps": [queue_pair]}
    address = {
        "name": f"Ip {index}",
        "address": f"192.0.2.{index + 1}",
        "prefix": 24,
        "gateway": "192.0.2.254",
    }
    return {
        "name": f"Device {index}",
        "ethernets": [
            {
                "name": f"Eth {index}",
                "mac": f"00:11:22:33:44:0{index}",
                "mtu": 1500,
                "connection": {"choice": "port_name", "port_name": f"Port {index}"},
                "ipv4_addresses": [address],
            }
        ],
        "rocev2": {"ipv4_interfaces": [{"ipv4_name": f"Ip {index}", "ib_mtu": 1024, "peers": [peer]}]},
    }


def flow(name: str, queue_pair: str) -> dict[str, Any]:
    return {
        "name": name,
        "tx_endpoint": queue_pair,
        "message_size": 128,
        "message_size_unit": "kb",
        "rocev2_verb": {"choice": "send_with_immediate", "send_with_immediate": {"immediate_data": "bb"}},
    }


def two_ports() -> dict[str, Any]:
    line_rate = {"value": "80", "flows": [flow("QP 0", "QP 0")]}
    transmit_type = {"choice": "target_line_rate", "target_line_rate": line_rate}
    return {
        "ports": [{"name": f"Port {index}", "location": f"left/p{index}"} for index in range(2)],
        "devices": [device(index) for index in range(2)],
        "stateful_flows": {
            "choice": "rocev2",
            "rocev2": [{}, {"tx_ports": [{"port_name": "Port 0", "transmit_type": transmit_type}]}],
        },
    }


def with_options(**rocev2: Any) -> dict[str, Any]:
    protocol = {"choice": "rocev2", "rocev2": rocev2}
    options = {"per_port_options": [{"port_name": "Port 0", "protocols": [protocol]}]}
    return two_ports() | {"options": options}


def problem_paths(config: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        map_config(config, RIG_PORTS)
    return [problem.where for problem in caught.value.problems]


def test_flow_has_queue_pair_verb_size_and_rate() -> None:
    mapped = map_config(two_ports(), RIG_PORTS)
    expected = EndlessFlow("QP 0", "QP 0", Verb.SEND_WITH_IMMEDIATE, 0xBB, 131_072, 20_000_000_000)
    assert mapped.flows == (expected,)
    queue_pair = mapped.queue_pairs["QP 0"]
    assert (queue_pair.port, queue_pair.source, queue_pair.destination) == (
        "Port 0",
        "192.0.2.1",
        "192.0.2.2",
    )
    assert (queue_pair.number, queue_pair.dscp, queue_pair.ecn) == (100, 3, 1)
    assert mapped.ports == {"Port 0": "left/p0", "Port 1": "left/p1"}


def test_mac_and_gateway_are_warned_of() -> None:
    paths = [text.split(":")[0] for text in map_config(two_ports(), RIG_PORTS).warnings]
    assert "$.devices[0].ethernets[0].mac" in paths
    assert "$.devices[1].ethernets[0].ipv4_addresses[0].gateway" in paths


def test_line_rate_is_divided_by_flows_of_the_port() -> None:
    config = two_ports()
    line_rate = config["stateful_flows"]["rocev2"][1]["tx_ports"][0]["transmit_type"]["target_line_rate"]
    line_rate["flows"] = [flow("a", "QP 0"), flow("b", "QP 1")]
    mapped = map_config(config, RIG_PORTS)
    assert [entry.rate_bps for entry in mapped.flows] == [10_000_000_000] * 2
    assert any("QP 1 sends on port Port 1" in warning for warning in mapped.warnings)


@pytest.mark.parametrize(
    ("ib_mtu", "path_mtu"), [(9100, 4096), (4096, 4096), (1027, 1024), (1024, 1024), (100, 256)]
)
def test_ib_mtu_is_clamped_with_a_warning(ib_mtu: int, path_mtu: int) -> None:
    config = two_ports()
    config["devices"][0]["rocev2"]["ipv4_interfaces"][0]["ib_mtu"] = ib_mtu
    mapped = map_config(config, RIG_PORTS)
    assert mapped.queue_pairs["QP 0"].path_mtu_bytes == path_mtu
    assert any(f"{ib_mtu} is clamped" in warning for warning in mapped.warnings) == (ib_mtu != path_mtu)


def test_options_of_sonic_mgmt() -> None:
    mark = {"choice": "ip_dscp", "ip_dscp": {"value": 48}, "ecn_value": "non_ect"}
    connection = {
        "ack": mark,
        "nak": mark,
        "retransmission_timeout_value": 5000,
        "retransmission_retry_count": 254,
    }
    mapped = map_config(
        with_options(
            cnp={"choice": "ip_dscp", "ip_dscp": {"value": 0}, "ecn_value": "ect_1", "cnp_delay_timer": 111},
            connection_type={"choice": "reliable_connection", "reliable_connection": connection},
            dcqcn_settings={"alpha_g": "1020", "initial_alpha": "1000", "maximum_rate_decrement_at_time": 12},
        ),
        RIG_PORTS,
    )
    options = mapped.options["Port 0"]
    assert (options.cnp, options.cnp_interval_ns) == (Marks(0, 1), 111_000)
    assert (options.ack, options.timeout_ns, options.retry_limit) == (Marks(48, 0), 5_000_000_000, 63)
    assert options.dcqcn is not None
    assert (options.dcqcn.g, options.dcqcn.initial_alpha) == (4 / 1024, 1000 / 1023)
    assert (options.dcqcn.most_decrement, options.dcqcn.least_rate_bps) == (0.12, 500_000)
    assert any("254 is clamped to 63" in warning for warning in mapped.warnings)


def test_data_cnps_and_acks_can_be_sent_with_any_ecn_field_of_the_schema() -> None:
    for name, ecn in (("non_ect", 0), ("ect_0", 2), ("ect_1", 1), ("ce", 3)):
        mark = {"ip_dscp": {"value": 48}, "ecn_value": name}
        config = with_options(cnp=mark, connection_type={"reliable_connection": {"ack": mark, "nak": mark}})
        (queue_pair,) = config["devices"][0]["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"]
        queue_pair["connection_type"]["reliable_connection"]["ecn"] = name
        mapped = map_config(config, RIG_PORTS)
        options = mapped.options["Port 0"]
        assert (mapped.queue_pairs["QP 0"].ecn, options.cnp.ecn, options.ack.ecn) == (ecn, ecn, ecn)


def test_dcqcn_can_be_disabled() -> None:
    mapped = map_config(with_options(dcqcn_settings={"enable_dcqcn": False}), RIG_PORTS)
    assert mapped.options["Port 0"].dcqcn is None


def test_flow_of_a_receiving_port_is_left_out_with_a_warning() -> None:
    config = two_ports()
    peers = [entry["rocev2"]["ipv4_interfaces"][0]["peers"][0] for entry in config["devices"]]
    peers[1]["destination_ip_address"] = "0.0.0.0"
    assert map_config(config, RIG_PORTS).queue_pairs["QP 1"].destination == ""
    peers[0]["destination_ip_address"] = "0.0.0.0"
    flow_path = "$.stateful_flows.rocev2[1].tx_ports[0].transmit_type.target_line_rate.flows[0]"
    mapped = map_config(config, RIG_PORTS)
    assert mapped.flows == ()
    assert any(warning.startswith(f"{flow_path}.tx_endpoint: QP 0 has no") for warning in mapped.warnings)


@pytest.mark.parametrize("key", ["lags", "lldp", "macsec", "egress_only_tracking"])
def test_part_without_counterpart_is_refused_by_name(key: str) -> None:
    assert problem_paths(two_ports() | {key: [{"name": "x"}]}) == [f"$.{key}"]


def test_protocol_of_a_device_is_refused_by_name() -> None:
    config = two_ports()
    config["devices"][1]["bgp"] = {"router_id": "192.0.2.2"}
    assert problem_paths(config) == ["$.devices[1].bgp"]


def test_address_of_another_host_is_refused() -> None:
    config = two_ports()
    config["devices"][0]["ethernets"][0]["ipv4_addresses"][0]["address"] = "192.0.2.99"
    assert problem_paths(config) == ["$.devices[0].ethernets[0].ipv4_addresses[0].address"]


def test_unknown_location_names_those_of_the_rig() -> None:
    config = two_ports()
    config["ports"][0]["location"] = "right/p0"
    with pytest.raises(ConfigError, match="left/p0, left/p1"):
        map_config(config, RIG_PORTS)


@pytest.mark.parametrize("config", [None, {}, {"ports": None}])
def test_empty_configuration_has_no_flows(config: object) -> None:
    assert map_config(config, RIG_PORTS).flows == ()


@pytest.mark.parametrize(
    ("config", "path"),
    [([], "$"), ("text", "$"), ({"ports": {}}, "$.ports"), ({"devices": [[]]}, "$.devices[0]")],
)
def test_value_of_wrong_type_is_refused_at_its_path(config: object, path: str) -> None:
    assert path in problem_paths(config)


def test_destination_without_device_is_refused_for_a_flow() -> None:
    config = two_ports()
    peer = config["devices"][0]["rocev2"]["ipv4_interfaces"][0]["peers"][0]
    peer["destination_ip_address"] = "192.0.2.77"
    assert [path.rsplit(".", 1)[1] for path in problem_paths(config)] == ["tx_endpoint"]


def test_mutated_configurations_are_mapped_or_refused() -> None:
    """Replace one value anywhere by another kind of value, 500 times: no other exception may arise."""
    values: tuple[object, ...] = (
        None,
        True,
        -1,
        1 << 70,
        10**400,
        0.5,
        float("nan"),
        "",
        "x",
        "9" * 5000,
        [],
        {},
        [[]],
        {"choice": "x"},
    )
    chance = random.Random(51)
    refused: list[str] = []
    for _ in range(500):
        config = copy.deepcopy(
            with_options(cnp={"ip_dscp": {"value": 0}}, dcqcn_settings={"alpha_g": "1020"})
        )
        node: Any = config
        while True:
            key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if not isinstance(node[key], dict | list) or not node[key] or chance.random() < 0.1:
                break
            node = node[key]
        node[key] = chance.choice(values)
        try:
            map_config(config, RIG_PORTS)
        except ConfigError as error:
            refused += [problem.where for problem in error.problems]
    assert len(refused) > 200
    assert all(path.startswith("$") for path in refused)
