"""The real trace sets through the engine in virtual time, on a network that loses one packet in twenty."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from etloop.controller.plan.plan import make_plan
from etloop.traffic.simulation import SimulationSettings, simulate
from etloop.workload.job import build_job
from etloop.workload.trace.settings import WorkloadSettings
from tests.support.runs.plan_by_hand import rig_of, scenario_of
from tests.support.traces.shared_traces import known_set

BAD_NETWORK = SimulationSettings(
    seed=20, loss_per_million=50_000, duplicate_per_million=10_000, reorder_per_million=10_000
)

SETS = (
    # set, share of its bytes, iterations
    ("all_reduce_4", Fraction(1), 3),
    ("all_gather_16", Fraction(1, 10), 2),
    ("all_to_all_16", Fraction(1), 2),
    ("reduce_scatter_8", Fraction(1), 2),
    ("custom_ring_allreduce_8npus_1MB", Fraction(1), 2),
    ("gpt_8", Fraction(1, 10_000), 2),
    ("llama_small_8", Fraction(1, 10_000), 1),
    ("llama_fsdp_8", Fraction(1, 100_000), 1),
    ("moe_small_8", Fraction(1, 10_000), 1),
    ("mixtral_64", Fraction(1, 10_000_000), 1),
    ("llama8b_fsdp_64", Fraction(1, 10_000_000), 1),
)


@pytest.mark.parametrize(("name", "scale", "iterations"), SETS, ids=[name for name, _, _ in SETS])
def test_nothing_is_lost_and_nothing_comes_twice(name: str, scale: Fraction, iterations: int) -> None:
    job = build_job(known_set(name).read(), WorkloadSettings(bytes_scale=scale))
    plan = make_plan(scenario_of(f"iterations: {iterations}\n"), rig_of({"a": 4}, addresses=64), job)
    planned = plan.tables.ops
    outcome = simulate(plan.assignments["a"], BAD_NETWORK)
    assert outcome.failure == ""
    assert outcome.lost > 0
    ops = np.sort(outcome.ops, order=("rank", "op", "iteration"))
    assert len(ops) == iterations * len(planned.rank)
    for measured, analytic in (
        (ops["rank"], planned.rank),
        (ops["op"], planned.op),
        (ops["wire_tx_bytes"], planned.wire_tx_bytes),
        (ops["wire_rx_bytes"], planned.wire_rx_bytes),
        (ops["local_tx_bytes"], planned.local_tx_bytes),
        (ops["local_rx_bytes"], planned.local_rx_bytes),
    ):
        np.testing.assert_array_equal(measured, np.repeat(analytic, iterations))
    per_connection = np.zeros(len(plan.tables.connections.src_rank), np.int64)
    sent = outcome.flows[outcome.flows["sends_data"] == 1]
    np.add.at(per_connection, plan.connection_rows["a"][sent["connection"]], sent["tx_payload_bytes"])
    on_the_wire = plan.tables.connections.path == 0
    np.testing.assert_array_equal(
        per_connection[on_the_wire], iterations * plan.tables.connections.payload_bytes[on_the_wire]
    )
