"""Plans that several points share: one is made once in a process, as long as scenario, rig and job are equal.

Points that differ in the topology only have one plan, unless packets carry the segments of its switches (SRv6).
"""

from __future__ import annotations

import pickle
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.run_numbers import PLAN_ID, TWIN_ID

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.job_set import JobSet

PLANS_KEPT: Final = 8
_kept: deque[tuple[bytes, Plan]] = deque(maxlen=PLANS_KEPT)


def kept_plan(
    scenario: Scenario,
    rig: Rig,
    jobs: JobSet,
    run_id: str,
    topology: Topology | None,
    *,
    drawn_nonce: int,
) -> Plan:
    """Return the plan of equal arguments as it was made before, else that of `plan_jobs`. Raises as `plan_jobs`.

    Runs in real time (`run_id` other than `PLAN_ID` and `TWIN_ID`) have plans of their own, because each has another nonce.
    """
    key = b""
    if run_id in (PLAN_ID, TWIN_ID) and all(
        transport.endpoint.srv6 is None for transport in scenario.transports
    ):
        # Bytes, because the values contain arrays. Equal values with other bytes only cost another plan.
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            key = pickle.dumps((scenario, rig, run_id, jobs.parts), pickle.HIGHEST_PROTOCOL)
    for kept_key, plan in tuple(_kept):
        if kept_key == key and plan.parts.jobs.job is jobs.job:
            return plan
    plan = plan_jobs(scenario, rig, jobs, run_id, topology, drawn_nonce=drawn_nonce)
    if key and plan.is_small:
        _kept.append((key, plan))
    return plan
