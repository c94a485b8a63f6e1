"""The ports of the device that the data of a run's queue pairs crosses, for the diagnosis.

Decides for which runs they are known: the switches of twin and lab hash as `traffic` does, others do not.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.errors import PlanError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import Topology
from etloop.controller.plan.plan import Plan
from etloop.results.schema.network_needs import FlowWays, pack
from etloop.traffic.flow_network import ports_crossed
from etloop.traffic.twin import with_seed


@dataclass(frozen=True, slots=True)
class Hashes:
    """The hashes of switches that ETLoop models."""

    seed: int | None
    """Replaces the seeds of the topology (`TwinSettings.seed`)."""


def flow_ways(plan: Plan, topology: Topology, hashes: Hashes) -> FlowWays | None:
    """Return the ports that the data of each queue pair of a plan crosses; None if they cannot be followed."""
    assignment = plan.whole()
    names = tuple(port.name for port in assignment.ports)
    keeps_links = not topology.outages and not plan.parts.scenario.timeline
    try:
        crossed = ports_crossed(assignment, names, with_seed(topology, hashes.seed), keeps_links=keeps_links)
    except PlanError:
        return None
    return FlowWays(
        ports=crossed.ports,
        choices=tuple(tuple(links.tolist()) for links in crossed.choices),
        is_hashed=crossed.is_hashed,
        values=pack(crossed.values),
        lengths=pack(np.bincount(crossed.queue_pair, minlength=len(crossed.values))),
        port=pack(crossed.port),
        choice=pack(crossed.choice + 1),
        share=pack(np.rint(crossed.share * 1e6).astype(np.int64)),
    )
