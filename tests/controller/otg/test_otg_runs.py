"""Plans, counts, requests and states of an OTG test, without a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.controller.inputs.rig import ControllerSettings, Rig, RigAgent, Security
from etloop.controller.otg.answers import metrics_answer
from etloop.controller.otg.counts import RunCounts, idle_counts, message_link_bytes
from etloop.controller.otg.mapping import map_config
from etloop.controller.otg.model import OtgTest
from etloop.controller.otg.plan import (
    Carriage,
    RunPlan,
    check_runnable,
    connecting,
    flow_runs,
    patient_timeout,
    plan_run,
)
from etloop.controller.otg.requests import MetricsRequest, Order, read_control, read_metrics, read_states
from etloop.controller.otg.states import TRANSITIONS, TestEvent, TestState, after
from tests.controller.otg.test_otg_mapping import RIG_PORTS, flow, two_ports, with_options

RIG = Rig(
    controller=ControllerSettings(),
    security=Security(),
    agents=(RigAgent(name="left", host="left", ports=tuple(RIG_PORTS.values())),),
)


def planned(config: dict[str, Any], messages: int = 10) -> RunPlan:
    test = map_config(config, RIG.ports)
    return plan_run(test, RIG, [entry.name for entry in test.flows], messages, "run", nonce=7)


def assignment_of(config: dict[str, Any]) -> Assignment:
    return planned(config).plan.assignments["left"]


def flows_of(config: dict[str, Any]) -> list[dict[str, Any]]:
    tx_port = config["stateful_flows"]["rocev2"][1]["tx_ports"][0]
    flows: list[dict[str, Any]] = tx_port["transmit_type"]["target_line_rate"]["flows"]
    return flows


def test_flow_is_one_connection_with_class_source_port_and_limit() -> None:
    config = two_ports()
    queue_pair = config["devices"][0]["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"][0]
    queue_pair["connection_type"]["reliable_connection"]["udp_source_port"] = 50_001
    assignment = assignment_of(config)
    assert assignment.connections.src_udp_port.tolist() == [50_001]
    assert assignment.connections.dst_udp_port.tolist() == [49_152]
    assert [rank.traffic_class for rank in assignment.ranks] == [3 << 2 | 1] * 2
    limits = [assignment.transports[port.transport].congestion.pacing.limit_bps for port in assignment.ports]
    assert limits == [20_000_000_000, 0]
    assert assignment.transport.path_mtu_bytes == 1024


def test_timers_and_catching_up_keep_the_rate_of_busy_hosts() -> None:
    slow = replace(
        RIG,
        agents=tuple(
            replace(agent, ports=tuple(replace(port, link_bps=100_000_000) for port in agent.ports))
            for agent in RIG.agents
        ),
    )
    test = map_config(two_ports(), slow.ports)
    plan = plan_run(test, slow, test.flow_names, 1, "run", nonce=1).plan
    for assignment in plan.assignments.values():
        for transport in assignment.transports:
            assert transport.recovery.timeout_floor_ns > 1_000_000_000
            assert transport.congestion.pacing.catch_up_ns == 100_000_000


@pytest.mark.parametrize(("unit", "size", "ahead"), [("kb", 1, 256), ("kb", 8, 64), ("mb", 1, 8)])
def test_short_messages_are_granted_further_ahead(unit: str, size: int, ahead: int) -> None:
    config = two_ports()
    flows_of(config)[0] |= {"message_size": size, "message_size_unit": unit}
    receiver = planned(config, 300).plan.parts.jobs.job.programs[1]
    assert np.diff(receiver.dep_offsets).tolist() == [0] * ahead + [1] * (300 - ahead)


def test_options_reach_the_transport_of_their_port_alone() -> None:
    mark = {"choice": "ip_dscp", "ip_dscp": {"value": 6}, "ecn_value": "non_ect"}
    reliable = {"ack": mark, "nak": mark, "retransmission_timeout_value": 5000}
    connection = {"choice": "reliable_connection", "reliable_connection": reliable}
    cnp = {"ip_dscp": {"value": 1}, "cnp_delay_timer": 111}
    config = with_options(
        cnp=cnp, connection_type=connection, dcqcn_settings={"maximum_rate_decrement_at_time": 12}
    )
    first, second = assignment_of(config).transports
    assert (first.cnp.dscp, first.cnp.interval_ns, first.ack.dscp) == (1, 111_000, 6)
    assert (first.timeout_ns, first.retry_limit, first.recovery.adaptive_timeout) == (5_000_000_000, 3, False)
    parameters = {parameter.name: parameter.value for parameter in first.congestion.parameters}
    assert (parameters["min_dec_fac"], parameters["byte_reset"]) == (0.88, 32_767 * 64)
    assert second.recovery.adaptive_timeout
    assert second.congestion.parameters == ()


def test_own_packets_may_have_a_dscp_of_their_own_and_are_not_marked() -> None:
    config = with_options(cnp={"ip_dscp": {"value": 1}, "ecn_value": "ect_0"})
    test = map_config(config, RIG.ports)
    names = [flow.name for flow in test.flows]
    for own_dscp, expected in ((None, 1), (49, 49)):
        plan = plan_run(test, RIG, names, 1, "run", nonce=1, carriage=Carriage(own_dscp=own_dscp)).plan
        (first, _) = plan.assignments["left"].transports
        assert (first.clear_to_send.dscp, first.clear_to_send.ecn) == (expected, 0)
        assert (first.cnp.dscp, first.cnp.ecn) == (1, 2)


def test_slowdown_lengthens_the_periods_of_dcqcn_and_of_cnps_up_to_a_second() -> None:
    test = map_config(with_options(cnp={"cnp_delay_timer": 111}), RIG.ports)
    carriage = Carriage(dcqcn_slowdown=400)
    assert any("400 times as long" in warning for warning in check_runnable(test, RIG, carriage))
    names = [flow.name for flow in test.flows]
    for factor, cnp_ns, alpha_ns, increase_ns in (
        (1, 111_000, 21_000, 250_000),
        (400, 44_400_000, 8_400_000, 100_000_000),
        (10_000, NS_PER_S, 210_000_000, NS_PER_S),
    ):
        carriage = Carriage(dcqcn_slowdown=factor)
        plan = plan_run(test, RIG, names, 1, "run", nonce=1, carriage=carriage).plan
        (transport, _) = plan.assignments["left"].transports
        values = {parameter.name: parameter.value for parameter in transport.congestion.parameters}
        assert transport.cnp.interval_ns == cnp_ns
        assert (values["alpha_period"], values["time_reset"]) == (alpha_ns, increase_ns)


def test_packets_of_grants_and_probes_have_the_marks_of_cnps_but_not_while_connecting() -> None:
    run_plan = planned(with_options(cnp={"ip_dscp": {"value": 1}}))

    def marks(run_plan: RunPlan) -> list[tuple[int, bool]]:
        transports = run_plan.plan.assignments["left"].transports
        return [(transport.clear_to_send.dscp, transport.own_packets_apart) for transport in transports]

    assert marks(run_plan) == [(1, True), (-1, True)]
    assert marks(connecting(run_plan)) == [(1, False), (-1, False)]


def test_short_timeouts_are_lengthened_for_software() -> None:
    options = map_config(with_options(cnp={}), RIG.ports).options["Port 0"]
    assert (options.timeout_ns, options.retry_limit) == (1_000_000, 3)
    assert patient_timeout(options) == (20_000_000, 10)
    assert patient_timeout(replace(options, timeout_ns=5_000_000_000)) == (5_000_000_000, 3)


@pytest.mark.parametrize(("messages", "carried"), [(1, 1), (4096, 4096), (4097, 4098), (1 << 20, 1 << 20)])
def test_long_flows_repeat_an_iteration(messages: int, carried: int) -> None:
    assert planned(two_ports(), messages).messages == carried


def test_read_is_refused_at_its_path() -> None:
    config = two_ports()
    flows_of(config)[0]["rocev2_verb"] = {"choice": "read"}
    with pytest.raises(ConfigError, match=r"flows\[0\]\.rocev2_verb") as caught:
        check_runnable(map_config(config, RIG.ports), RIG)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("verb", "sends"), [("send", True), ("send_with_immediate", True), ("write", False)])
def test_ranks_of_a_flow_have_its_verb(verb: str, sends: bool) -> None:
    config = two_ports()
    flows_of(config)[0]["rocev2_verb"] = {"choice": verb}
    test = map_config(config, RIG.ports)
    names = [flow.name for flow in test.flows]
    for as_writes in (False, True):
        plan = plan_run(test, RIG, names, 1, "run", nonce=1, carriage=Carriage(as_writes)).plan
        ranks = [rank for assignment in plan.assignments.values() for rank in assignment.ranks]
        assert {rank.sends for rank in ranks} == {sends and not as_writes}


def test_send_from_several_queues_is_refused() -> None:
    ports = tuple(replace(port, queues=2) for port in RIG.agents[0].ports)
    rig = replace(RIG, agents=(replace(RIG.agents[0], ports=ports), *RIG.agents[1:]))
    with pytest.raises(ConfigError, match="several queues, which do not SEND"):
        check_runnable(map_config(two_ports(), rig.ports), rig)


def test_sends_are_carried_as_writes_on_request() -> None:
    (warning,) = check_runnable(map_config(two_ports(), RIG.ports), RIG, Carriage(sends_as_writes=True))
    assert "send_with_immediate is carried as WRITE with immediate" in warning


@pytest.mark.parametrize(("percent", "word"), [("0", "less than 1 Mb/s")])
def test_rate_that_cannot_be_paced_is_refused(percent: str, word: str) -> None:
    config = two_ports()
    tx_port = config["stateful_flows"]["rocev2"][1]["tx_ports"][0]
    tx_port["transmit_type"]["target_line_rate"]["value"] = percent
    with pytest.raises(ConfigError, match=word):
        check_runnable(map_config(config, RIG.ports), RIG, Carriage(sends_as_writes=True))


def test_flows_of_a_port_need_one_rate() -> None:
    config = two_ports()
    transmit_type = {"target_line_rate": {"value": "10", "flows": [flow("b", "QP 0")]}}
    config["stateful_flows"]["rocev2"].append(
        {"tx_ports": [{"port_name": "Port 0", "transmit_type": transmit_type}]}
    )
    with pytest.raises(ConfigError, match="2 rates"):
        check_runnable(map_config(config, RIG.ports), RIG, Carriage(sends_as_writes=True))


# ---- counts


def counted() -> tuple[OtgTest, RunCounts]:
    test = map_config(two_ports(), RIG.ports)
    return test, RunCounts(flow_runs(test), 20, 1024)


def records(rank: int, completed_ns: list[int]) -> np.ndarray[Any, Any]:
    rows = np.zeros(len(completed_ns), OP_RECORD)
    rows["rank"], rows["completed_ns"] = rank, completed_ns
    return rows


def rows_of(test: OtgTest, counts: RunCounts, choice: str, now_ns: int) -> list[Any]:
    answer = metrics_answer(MetricsRequest(choice), test, counts, is_connected=True, now_ns=now_ns)
    rows = answer[str(answer["choice"])]
    assert isinstance(rows, list)
    return rows


def test_rates_are_those_of_the_link_and_end_with_the_messages() -> None:
    test, counts = counted()
    link_bytes = message_link_bytes(131_072, 1024, is_ipv6=False)
    assert link_bytes == 131_072 + 128 * (1106 - 1024) + 20
    counts.take(records(0, [NS_PER_S // 10 * step for step in range(1, 11)]), NS_PER_S)
    (row,) = rows_of(test, counts, "rocev2_flow", NS_PER_S)
    assert row["data_tx_rate"] == pytest.approx(10 * link_bytes * 8 / 1e9)
    assert (row["message_tx"], row["data_frames_tx"], row["data_rx_rate"]) == ("10", "1280", 0.0)
    assert rows_of(test, counts, "flow", NS_PER_S)[0]["transmit"] == "started"
    (row,) = rows_of(test, counts, "rocev2_flow", 60 * NS_PER_S)
    assert row["data_tx_rate"] == 0.0


def test_counters_of_the_end_replace_those_of_messages() -> None:
    test, counts = counted()
    counts.take(records(0, [5, 6]), 7)
    flows, ports = np.zeros(2, FLOW_RECORD), np.zeros(2, PORT_RECORD)
    flows["sends_data"], flows["local_qpn"], flows["remote_qpn"] = [1, 0], [11, 12], [12, 11]
    flows["tx_packets"], flows["rx_packets"], flows["acks_tx"] = [300, 9], [9, 299], [9, 42]
    ports["tx_datagrams"] = [310, 52]
    agent = AgentRecords("left", "left", np.zeros(0, OP_RECORD), flows, ports, 0, 0, (), {}, complete=True)
    outcome = RunOutcome("run", RunEnd.STOPPED, "", "", 0, (agent,))
    counts.finish(outcome, {"left": np.zeros(1, np.int32)}, np.zeros(1, np.int32), {"left": ("p0", "p1")})
    (row,) = rows_of(test, counts, "rocev2_flow", 8)
    names = ("src_qp", "data_frames_tx", "data_frames_rx", "frame_delta", "ack_tx", "message_fail")
    assert [row[name] for name in names] == [11, "300", "299", "1", "42", "0"]
    port_rows = rows_of(test, counts, "port", 8)
    assert [(entry["frames_tx"], entry["link"]) for entry in port_rows] == [("310", "up"), ("52", "up")]
    assert rows_of(test, counts, "flow", 8)[0]["transmit"] == "stopped"


def test_every_number_is_there_before_the_first_run() -> None:
    test = map_config(two_ports(), RIG.ports)
    (row,) = rows_of(test, idle_counts(flow_runs(test)), "rocev2_flow", 0)
    assert (row["flow_name"], row["data_tx_rate"], row["ack_tx"]) == ("QP 0", 0.0, "0")


def test_peers_are_filtered_by_their_name_or_their_device() -> None:
    test = map_config(two_ports(), RIG.ports)
    for name in ("Peer 0", "Device 0"):
        request = MetricsRequest("rocev2_ipv4", (name,))
        answer = metrics_answer(request, test, idle_counts(()), is_connected=True, now_ns=0)
        rows: Any = answer["rocev2_ipv4_per_peer_metrics"]
        (row,) = rows
        assert (row["name"], row["qp_up"], row["qp_down"]) == ("Peer 0", "1", "0")


# ---- requests and states


def transmit(**fields: Any) -> dict[str, Any]:
    return {"choice": "traffic", "traffic": {"choice": "flow_transmit", "flow_transmit": fields}}


def test_orders_of_scripts_are_read() -> None:
    start = {"choice": "protocol", "protocol": {"choice": "all", "all": {"state": "start"}}}
    assert read_control(start).order is Order.CONNECT
    assert read_control(transmit(state="stop", flow_names=["a"])).flow_names == ("a",)
    per_qp = {"choice": "rocev2_flow", "rocev2_flow": {"per_qp": {"column_names": ["a flow"]}}}
    assert read_metrics(per_qp) == MetricsRequest("rocev2_flow")
    assert read_states({"choice": "ipv4_neighbors"}) == "ipv4_neighbors"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (transmit(state="pause"), "$.traffic.flow_transmit.state"),
        ({"choice": "port", "port": {"choice": "link"}}, "$.port.choice"),
        ({"choice": "protocol", "protocol": {"choice": "bgp"}}, "$.protocol.choice"),
        ({}, "$.choice"),
        ([], "$"),
    ],
)
def test_order_that_is_not_offered_is_refused_by_its_path(body: object, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_control(body)
    assert caught.value.problems[0].where == path


def test_every_event_is_allowed_or_refused_with_a_remedy() -> None:
    assert set(TRANSITIONS) == set(TestState)
    refused: list[ConfigError] = []
    for state in TestState:
        for event in TestEvent:
            try:
                assert after(state, event) in TestState
            except ConfigError as refusal:
                refused.append(refusal)
    assert len(refused) == 4
    assert all(refusal.problems[0].remedy for refusal in refused)
