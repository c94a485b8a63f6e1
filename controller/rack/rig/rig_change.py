"""Decides whether a rig may replace the one in service, and describes their differences. Pure.

A run keeps its rig to its end, so ports that jobs run on must not change: otherwise their addresses could be given to
another job under another name. The controller's address and keys are fixed at its start.
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
_RESTART: Final = "restore the old value, or restart the controller (queued jobs are kept)"


@dataclass(frozen=True, slots=True)
class RigReading:
    """Published state of the rig in service."""

    read_at: str = ""
    """Wall time in UTC, ISO 8601."""
    refused: str = ""
    """Why the rig as last read is not in service; "" if it is."""
    dut: str = ""
    """Name of the profile of the device under test; "" if the rig names none."""


def rack_ports(rig: Rig) -> tuple[RackPort, ...]:
    """Return the ports of a rig as the rack leases them."""
    return tuple(
        RackPort(label, label.partition("/")[0], port.link_bps, port.backend.name.lower(), port.addresses)
        for label, port in rig.ports.items()
    )


def dut_name(rig: Rig) -> str:
    """Return the published name of the device under test: that of its profile, without a path; "" without one."""
    return PurePath(rig.dut.profile).name.removesuffix(".yaml") if rig.dut is not None else ""


def slots_of(rig: Rig, most: int) -> dict[str, int]:
    """Return the most runs that each agent of a rig may take part in at once: its number of ports, at most `most`."""
    return {agent.name: min(most, len(agent.ports)) for agent in rig.agents}


def refusals(served: Rig, wanted: Rig, leases: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return why `wanted` cannot replace `served`; `leases` maps a leased port to its job."""
    problems: list[Problem] = []
    if wanted.bind != served.bind:
        change = f"is {wanted.bind}; this controller listens at {served.bind}"
        problems.append(Problem("controller.bind", change, _RESTART))
    if wanted.security != served.security:
        problems.append(Problem("security", "differs from the controller's start", _RESTART))
    old_ports, new_ports = served.ports, wanted.ports
    hosts = ({agent.name: agent.host for agent in rig.agents} for rig in (served, wanted))
    host_before, host_after = hosts
    for label, job_id in sorted(leases.items()):
        agent = label.partition("/")[0]
        if label not in new_ports:
            change = "was removed"
        elif label in old_ports and (
            old_ports[label] != new_ports[label] or host_before.get(agent) != host_after.get(agent)
        ):
            change = "was changed"
        else:
            continue
        remedy = f"etloop rack drain {label}, and have the rig read again when the job has ended"
        problems.append(Problem(f"port {label}", f"{change} while job {job_id} runs on it", remedy))
    return tuple(problems)


def difference(served: Rig, wanted: Rig) -> str:
    """Describe the differences of two rigs, for people."""
    old_ports, new_ports = served.ports, wanted.ports
    kinds = (
        ("new", [label for label in new_ports if label not in old_ports]),
        ("gone", [label for label in old_ports if label not in new_ports]),
        (
            "changed",
            [label for label in new_ports if label in old_ports and new_ports[label] != old_ports[label]],
        ),
    )
    parts = [f"{kind}: {_join_labels(labels)}" for kind, labels in kinds if labels]
    return "; ".join(parts) or ("the ports are unchanged" if served != wanted else "the rig is unchanged")


def _join_labels(labels: list[str]) -> str:
    more_text = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return ", ".join(labels[:_MOST_NAMED]) + more_text
