"""Collectives of OTG in both proposals: one job, its plan, its times and its rows, without a network."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.controller.inputs.rig import ControllerSettings, Rig, RigAgent, RigPort, Security
from etloop.controller.otg.collective_counts import StepCounts, ccl_rows, summary_rows
from etloop.controller.otg.collective_model import CollectiveJob, Proposal, Step
from etloop.controller.otg.collective_plan import plan_step
from etloop.controller.otg.mapping import map_config
from etloop.controller.otg.model import OtgTest
from etloop.controller.otg.requests import MetricsRequest, Order, read_control, read_metrics, read_states
from etloop.workload.trace.trace import CollectiveKind
from tests.controller.otg_server.test_otg_server import mutated

RANKS = 4
LINK_BPS = 100_000_000
RIG = Rig(
    controller=ControllerSettings(),
    security=Security(),
    agents=tuple(
        RigAgent(
            name=f"a{rank}",
            host=f"a{rank}",
            ports=(RigPort(name="p0", addresses=(f"198.18.{rank}.1",), link_bps=LINK_BPS),),
        )
        for rank in range(RANKS)
    ),
)


def device(rank: int) -> dict[str, Any]:
    address = {"name": f"ip{rank}", "address": f"198.18.{rank}.1", "gateway": f"198.18.{rank}.2"}
    connection = {"choice": "port_name", "port_name": f"port{rank}"}
    ethernet = {"name": f"eth{rank}", "connection": connection, "ipv4_addresses": [address]}
    return {"name": f"device{rank}", "ethernets": [ethernet]}


def base() -> dict[str, Any]:
    ports = [{"name": f"port{rank}", "location": f"a{rank}/p0"} for rank in range(RANKS)]
    return {"ports": ports, "devices": [device(rank) for rank in range(RANKS)]}


def ccl(*, choice: str = "ring_allreduce", phase: str = "allreduce", **changes: Any) -> dict[str, Any]:
    """Return a configuration of pull request 490: three iterations of 1 MB among all ranks."""
    communicator = {
        "name": "all",
        "device_names": [f"device{rank}" for rank in range(RANKS)],
        "generation": {"data_size": "1", "data_size_unit": "megabyte"},
        "rocev2": {"ib_mtu": 1024},
    }
    stage = {
        "name": "stage",
        "algorithm": {"choice": choice, "phase": phase},
        "communicators": [communicator],
        "duration": {"choice": "fixed_iterations", "fixed_iterations": {"count": 3, "interval_ms": 100}},
    }
    return base() | {"ccl": {"name": "job", "stages": [stage]} | changes}


def communications(*, algorithm: str = "all_reduce_unidirectional_ring", **changes: Any) -> dict[str, Any]:
    """Return the same job in pull request 491."""
    config = base()
    nics = [{"device_instance_name": "host", "device_index": rank} for rank in range(RANKS)]
    for rank, entry in enumerate(config["devices"]):
        reliable = {"dscp": 24, "ecn": "ect_1"}
        kind = {"choice": "reliable_connection", "reliable_connection": reliable}
        peer = {
            "name": f"peer{rank}",
            "destination_ip_address": f"198.18.{(rank + 1) % RANKS}.1",
            "qps": [{"qp_name": f"qp{rank}", "connection_type": kind}],
        }
        entry["rocev2"] = {"ipv4_interfaces": [{"ipv4_name": f"ip{rank}", "ib_mtu": 1024, "peers": [peer]}]}
    single = {
        "collective_algorithm": {"algorithm_type": {"choice": "system", "system": algorithm}},
        "datasizes": {"choice": "list", "list": {"size_bytes": ["1000000"]}},
        "iterations": "3",
        "iteration_append_delay": 100,
    }
    bindings = {
        "rank_bindings": [{"rank_id": rank, "nic_refs": [nics[rank]]} for rank in range(RANKS)],
        "nic_bindings": [
            {"infrastructure_ref": nics[rank], "ethernet_name": f"eth{rank}"} for rank in range(RANKS)
        ],
    }
    job = {
        "workload": {"choice": "single_collective", "single_collective": single | changes},
        "bindings": {"choice": "basic_binding", "basic_binding": bindings},
    }
    return config | {"collective_communications": job}


def read(config: dict[str, Any]) -> tuple[OtgTest, CollectiveJob]:
    test = map_config(config, RIG.ports)
    assert test.collectives is not None
    return test, test.collectives


def test_both_proposals_are_one_job() -> None:
    jobs = [read(config)[1] for config in (ccl(), communications())]
    assert [job.proposal for job in jobs] == [Proposal.CCL, Proposal.COMMUNICATIONS]
    (first,), (second,) = (job.steps for job in jobs)
    (operation,), (other,) = first.operations, second.operations
    assert (operation.kind, operation.algorithm) == (CollectiveKind.ALL_REDUCE, "ring")
    assert (operation.size_bytes, operation.gap_ns) == (1_000_000, 100_000_000)
    assert replace(operation, name="") == replace(other, name="")
    assert (first.iterations, first.transport) == (second.iterations, second.transport)
    assert (
        jobs[0].addresses == jobs[1].addresses == {f"port{rank}": f"198.18.{rank}.1" for rank in range(RANKS)}
    )


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (ccl(send_mode="sync"), "$.ccl.send_mode"),
        (ccl(stage_mode="llm"), "$.ccl.stage_mode"),
        (ccl(transport="uet"), "$.ccl.transport"),
        (ccl(choice="alternating_ring"), "$.ccl.stages[0].algorithm.choice"),
        (ccl(choice="dual_tree", phase="all_gather"), "$.ccl.stages[0].algorithm.phase"),
        (ccl(stages=[]), "$.ccl.stages"),
        (ccl(iteration_recording={"enable": True}), "$.ccl.iteration_recording"),
        (ccl(surprise=1), "$.ccl.surprise"),
        (
            communications(algorithm="all_to_all_pxn"),
            "$.collective_communications.workload.single_collective.collective_algorithm.algorithm_type.system",
        ),
        (
            communications(transport={"choice": "tcp"}),
            "$.collective_communications.workload.single_collective.transport.choice",
        ),
        (
            communications(datasizes={"choice": "list", "list": {"size_bytes": [-1]}}),
            "$.collective_communications.workload.single_collective.datasizes.list.size_bytes",
        ),
        (ccl() | {"collective_communications": communications()["collective_communications"]}, "$.ccl"),
    ],
)
def test_part_without_counterpart_is_refused_by_its_path(config: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        map_config(config, RIG.ports)
    assert path in [problem.where for problem in caught.value.problems]


def test_nic_without_rocev2_is_refused() -> None:
    config = communications()
    del config["devices"][2]["rocev2"]
    with pytest.raises(ConfigError, match="runs TCP, which is not offered"):
        map_config(config, RIG.ports)


def test_data_of_collectives_cannot_be_sent_as_marked() -> None:
    config = communications()
    for entry in config["devices"]:
        (queue_pair,) = entry["rocev2"]["ipv4_interfaces"][0]["peers"][0]["qps"]
        queue_pair["connection_type"]["reliable_connection"]["ecn"] = "ce"
    with pytest.raises(ConfigError, match="NICs send data with ecn ce"):
        map_config(config, RIG.ports)


def test_multiplied_sizes_are_steps_one_after_the_other() -> None:
    sizes = {"choice": "multiplier", "multiplier": {"start": 1000, "multiplier": 4, "end": 100_000}}
    _, job = read(communications(datasizes=sizes))
    assert [step.operations[0].size_bytes for step in job.steps] == [1000, 4000, 16_000, 64_000]
    assert [step.stage for step in job.steps] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "config", [ccl(), communications(), ccl(choice="all_to_all_direct"), ccl(choice="dual_tree")]
)
def test_step_is_planned_with_its_transport_on_the_ports_of_its_ranks(config: dict[str, Any]) -> None:
    test, job = read(config)
    plan = plan_step(test, job, job.steps[0], RIG, "run", nonce=7).plan
    assert sorted(plan.assignments) == [f"a{rank}" for rank in range(RANKS)]
    transports = [assignment.transport for assignment in plan.assignments.values()]
    assert {(transport.path_mtu_bytes, transport.traffic_class) for transport in transports} == {
        (1024, 24 << 2 | 1)
    }


@pytest.mark.parametrize("algorithm", ["all_gather_ring", "reduce_scatter_ring", "gather_parallel"])
def test_every_system_algorithm_is_planned(algorithm: str) -> None:
    test, job = read(communications(algorithm=algorithm))
    assert plan_step(test, job, job.steps[0], RIG, "run", nonce=7).plan.assignments


def counted(step: Step) -> StepCounts:
    """Return counts of three iterations of 10, 20 and 60 ms on the slowest rank, whose clocks are apart."""
    counts = StepCounts(step)
    for rank in range(RANKS):
        records = np.zeros(3, OP_RECORD)
        records["rank"], records["iteration"] = rank, range(3)
        records["issued_ns"] = np.array([1, 2, 3]) * 1_000_000_000 * (rank + 1)
        slow_ns = 1 if rank == 1 else 2
        records["completed_ns"] = records["issued_ns"] + np.array([10, 20, 60]) * 1_000_000 // slow_ns
        counts.take(records)
    flows = np.zeros(2, FLOW_RECORD)
    flows["sends_data"] = [1, 0]
    flows["tx_payload_bytes"], flows["rx_payload_bytes"] = [900, 64], [64, 800]
    flows["retransmitted_packets"], flows["np_cnp_sent"], flows["rp_cnp_handled"] = [2, 0], [0, 3], [3, 0]
    agent = AgentRecords(
        "a0", "h", np.empty(0, OP_RECORD), flows, np.empty(0, PORT_RECORD), 0, 0, (), {}, True
    )
    counts.finish(RunOutcome("run", RunEnd.DONE, "", "", 0, (agent,)))
    return counts


def test_rows_of_both_proposals_have_the_same_times_in_their_units() -> None:
    (row,) = ccl_rows([counted(read(ccl())[1].steps[0])], LINK_BPS, (), ())
    (summary,) = summary_rows([counted(read(communications())[1].steps[0])], LINK_BPS, ())
    assert (row["communicator_name"], row["stage_name"], row["iteration_count"]) == ("all", "stage", "3")
    assert (row["jct"], row["avg_jct"]) == (pytest.approx(0.09), pytest.approx(0.03))
    assert (row["min_jct"], row["max_jct"]) == (pytest.approx(0.01), pytest.approx(0.06))
    assert summary["completion_time"] == pytest.approx(30.0)
    # 8 Mb in 30 ms; a ring of four moves 1.5 times the data.
    assert (row["alg_bw"], row["bus_bw"]) == (pytest.approx(8 / 30), pytest.approx(12 / 30))
    assert (summary["algo_bw"], summary["bus_bw"]) == (pytest.approx(1 / 30), pytest.approx(1.5 / 30))
    assert row["jct_percent"] == pytest.approx(100 / (row["bus_bw_percent"] / 100))  # type: ignore[operator]
    assert summary["ideal"] == pytest.approx(row["bus_bw_percent"])
    counters = ("total_bytes_tx", "total_bytes_rx", "frames_retx", "cnp_tx", "cnp_rx", "ecn_ce_rx")
    assert [summary[name] for name in counters] == ["900", "800", 2, 3, 3, 0]


def test_iteration_counts_once_all_ranks_have_completed_it() -> None:
    step = read(ccl())[1].steps[0]
    counts = StepCounts(step)
    records = np.zeros(1, OP_RECORD)
    records["completed_ns"] = 5
    counts.take(records)
    assert ccl_rows([counts], LINK_BPS, (), ()) == [
        {"communicator_name": "all", "stage_index": "0", "stage_name": "stage", "iteration_count": "0"}
    ]
    assert ccl_rows([counts], LINK_BPS, ("other",), ()) == ccl_rows([counts], LINK_BPS, (), ("other",)) == []


def test_orders_and_requests_of_both_proposals_are_read() -> None:
    order = read_control({"choice": "traffic", "traffic": {"choice": "ccl", "ccl": {"state": "start"}}})
    assert (order.order, order.proposal) == (Order.START_JOB, Proposal.CCL)
    execution = {"choice": "execution", "execution": {"state": "stop"}}
    order = read_control({"choice": "collective_communications", "collective_communications": execution})
    assert (order.order, order.proposal) == (Order.STOP_JOB, Proposal.COMMUNICATIONS)
    request = {"choice": "ccl", "ccl": {"communicator_names": ["all"], "stage_names": ["s"]}}
    assert read_metrics(request) == MetricsRequest("ccl", ("all",), ("s",))
    single = {"choice": "single_collective", "single_collective": {"choice": "summary", "summary": {}}}
    request = {"choice": "collective_communications", "collective_communications": single}
    assert read_metrics(request) == MetricsRequest("collective_communications")
    state = {"choice": "collective_communications", "collective_communications": {"choice": "execution"}}
    assert read_states(state) == "collective_communications"


def test_mutated_collectives_are_mapped_or_refused() -> None:
    """600 configurations with one value of another kind; seed 51."""
    chance = random.Random(51)
    refused = 0
    for number in range(600):
        config, key = (ccl(), "ccl") if number % 2 else (communications(), "collective_communications")
        config[key] = mutated(config[key], chance)
        try:
            map_config(config, RIG.ports)
        except ConfigError:
            refused += 1
    assert refused > 300
