"""Whether a rig may take the place of the one that is served, and in what it differs. Pure.

A run has the rig of its start to its end. So ports that jobs run on must stay as they are: their addresses could otherwise be
given to another job under another name. Where the controller listens, and by which keys, is settled at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.dispatch import RackPort

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig

_MOST_NAMED: Final = 8
_RESTART: Final = "put it back, or restart the controller: jobs that wait go on"


@dataclass(frozen=True, slots=True)
class RigReading:
    """What is said of the rig that is served."""

    read_at: str = ""
    """Wall time in UTC, ISO 8601."""
    refused: str = ""
    """Why the rig as its file last was is not served; "" if it is."""
    dut: str = ""
    """Name of the profile of the device under test; "" where the rig names none."""


def rack_ports(rig: Rig) -> tuple[RackPort, ...]:
    """Return the ports of a rig as jobs are given them."""
    return tuple(
        RackPort(label, label.partition("/")[0], port.link_bps, port.backend.name.lower())
        for label, port in rig.ports.items()
    )


def dut_name(rig: Rig) -> str:
    """Return by which name the device under test is published: that of its profile, without a path; "" without one."""
    return PurePath(rig.dut.profile).name.removesuffix(".yaml") if rig.dut is not None else ""


def slots_of(rig: Rig, most: int) -> dict[str, int]:
    """Return how many runs each agent of a rig may take part in at once: as many as it has ports, `most` at most."""
    return {agent.name: min(most, len(agent.ports)) for agent in rig.agents}


def refusals(served: Rig, wanted: Rig, leases: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return what keeps `wanted` from being served instead; `leases` maps a leased port to its job."""
    found: list[Problem] = []
    if wanted.bind != served.bind:
        what = f"is {wanted.bind}, and this controller listens at {served.bind}"
        found.append(Problem("controller.bind", what, _RESTART))
    if wanted.security != served.security:
        found.append(Problem("security", "is other than at the controller's start", _RESTART))
    before, after = served.ports, wanted.ports
    hosts = ({agent.name: agent.host for agent in rig.agents} for rig in (served, wanted))
    host_before, host_after = hosts
    for label, job_id in sorted(leases.items()):
        agent = label.partition("/")[0]
        if label not in after:
            what = "is gone"
        elif label in before and (
            before[label] != after[label] or host_before.get(agent) != host_after.get(agent)
        ):
            what = "is another one"
        else:
            continue
        remedy = f"etloop rack drain {label}, and have the rig read again when the job has ended"
        found.append(Problem(f"port {label}", f"{what}, and job {job_id} runs on it", remedy))
    return tuple(found)


def difference(served: Rig, wanted: Rig) -> str:
    """Say in what two rigs differ, for people."""
    before, after = served.ports, wanted.ports
    kinds = (
        ("new", [label for label in after if label not in before]),
        ("gone", [label for label in before if label not in after]),
        ("changed", [label for label in after if label in before and after[label] != before[label]]),
    )
    parts = [f"{kind}: {_named(labels)}" for kind, labels in kinds if labels]
    return "; ".join(parts) or ("the ports are the same" if served != wanted else "it is the same")


def _named(labels: list[str]) -> str:
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return ", ".join(labels[:_MOST_NAMED]) + more
