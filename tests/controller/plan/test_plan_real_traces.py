"""Plans of the real trace sets move exactly the bytes that were computed from the files by other programs."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.controller.plan.plan import make_plan
from etloop.workload.job import build_job
from etloop.workload.trace.settings import SizeUnit, WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import rig_of, scenario_of
from tests.support.traces.shared_traces import known_set

SETS = (
    "gpt_8",
    "llama_small_8",
    "moe_small_8",
    "mixtral_64",
    "llama8b_fsdp_64",
    "custom_ring_allreduce_8npus_1MB",
    "text_DLRM_HybridParallel_64",
)


@pytest.mark.parametrize("name", SETS)
def test_payload_is_what_the_files_say(name: str) -> None:
    found = known_set(name)
    # One byte an element: then our bytes are the units that expected.json counts in.
    settings = WorkloadSettings(size_unit=SizeUnit.ELEMENTS, element_bytes=1)
    job = build_job(found.read(), settings)
    ops = make_plan(scenario_of(), rig_of({"a": 2, "b": 2}, addresses=32), job).tables.ops
    moved = ops.wire_tx_bytes + ops.local_tx_bytes
    assert (moved.sum(), ops.wire_tx_bytes.sum()) == (
        (ops.wire_rx_bytes + ops.local_rx_bytes).sum(),
        ops.wire_rx_bytes.sum(),
    )
    by_kind = {
        CollectiveKind(kind).name: int(moved[ops.collective == kind].sum())
        for kind in np.unique(ops.collective[ops.collective >= 0]).tolist()
    }
    assert by_kind == found.facts["ring_wire_total"]
