"""Check that some part of a job crosses the device under test; a run without such traffic would not test the device."""

from __future__ import annotations

import numpy as np

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import Path
from etloop.contract.model.run import PlanTables
from etloop.controller.inputs.scenario.scenario import Scenario


def refuse_idle_device(scenario: Scenario, tables: PlanTables, source: str) -> None:
    """Raise `PlanError` if no byte of the job crosses the device and the scenario does not allow that (`allow_local`).

    `source` names the scenario in the message.
    """
    connections = tables.connections
    if scenario.allow_local or bool((connections.payload_bytes[connections.path == Path.WIRE] > 0).any()):
        return
    problem = "the job sends no traffic through the device under test"
    if not np.any(connections.payload_bytes):
        raise PlanError(Problem(source, f"{problem}: its ranks do not communicate", _REMEDY_NO_TRAFFIC))
    hosts, ports = len(set(tables.rank_host)), len(set(zip(tables.rank_agent, tables.rank_port, strict=True)))
    where = (
        f"{len(tables.rank_host)} ranks are on {_with_count(hosts, 'host')} and {_with_count(ports, 'port')}"
    )
    raise PlanError(Problem(source, f"{problem}: {where}", _REMEDY_ONE_PLACE))


_REMEDY_NO_TRAFFIC = "use a trace with communication, or write allow_local: true if this is intended"
_REMEDY_ONE_PLACE = (
    "lower mapping.ranks_per_host (1 if it is left out) or place the ranks on several ports, "
    "or write allow_local: true if this is intended"
)


def _with_count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
