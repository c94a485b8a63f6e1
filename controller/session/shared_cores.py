"""Decides which cores the engine threads of agents on one machine get, whatever host names the rig gives them. Pure.

A machine is identified by its kernel's boot id, so namespaces and containers of one machine count as one. Agents share
cores if the sets that they may use overlap. Two polling threads never get the same core: agents that share cores count
through one list of them, agents given cores by name keep those, and if threads outnumber the cores none of them polls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.capabilities import Capabilities
from etloop.contract.protocol.messages import Hello


def share_cores(assignments: Mapping[str, Assignment], hellos: Mapping[str, Hello]) -> dict[str, Assignment]:
    """Return the assignments, each with its place among all engine threads of its machine.

    An assignment whose agent's machine is unknown stays as it is.
    """
    capabilities_of = {name: hello.capabilities for name, hello in hellos.items()}
    placed = dict(assignments)
    machines: dict[str, list[str]] = {}
    for name in assignments:
        capabilities = capabilities_of.get(name)
        if capabilities is not None and capabilities.machine and capabilities.core_ids:
            machines.setdefault(capabilities.machine, []).append(name)
    for names in machines.values():
        placed |= _on_one_machine({name: assignments[name] for name in names}, capabilities_of)
    return placed


def _on_one_machine(
    assignments: Mapping[str, Assignment], hosts: Mapping[str, Capabilities]
) -> dict[str, Assignment]:
    owners = {name: set(hosts[name].core_ids) for name in assignments if hosts[name].cores_named}
    named_cores = set().union(*owners.values())
    placed = {}
    for name, own_cores in owners.items():
        sharers = tuple(
            other for other, other_cores in owners.items() if other != name and own_cores & other_cores
        )
        placed[name] = _with_threads(assignments[name], sharers=sharers, contended=bool(sharers))
    usable = {name: set(hosts[name].core_ids) for name in assignments if name not in owners}
    for names in _overlapping(usable):
        common = set.intersection(*(usable[name] for name in names)) - named_cores
        cores = sorted(common or set.union(*(usable[name] for name in names)))
        quotas = [quota for name in names if (quota := hosts[name].quota_millicores)]
        if quotas:
            # A polling thread uses a whole core: beyond the CPU quota the kernel would throttle all of them.
            cores = cores[: max(min(quotas) // 1000, 1)]
        placed |= _in_one_list({name: assignments[name] for name in names}, cores, contended=not common)
    return placed


def _in_one_list(
    assignments: Mapping[str, Assignment], cores: Sequence[int], *, contended: bool
) -> dict[str, Assignment]:
    busy = max(assignment.threads.busy for assignment in assignments.values())
    first, total = busy, busy + sum(_threads(assignment) for assignment in assignments.values())
    placed = {}
    for name, assignment in assignments.items():
        sharers = tuple(other for other in assignments if other != name)
        placed[name] = _with_threads(
            assignment,
            first=first,
            total=total,
            busy=busy,
            cores=tuple(cores),
            sharers=sharers,
            contended=contended,
        )
        first += _threads(assignment)
    return placed


def _with_threads(assignment: Assignment, **changes: Any) -> Assignment:
    return replace(assignment, threads=replace(assignment.threads, **changes))


def _threads(assignment: Assignment) -> int:
    return sum(port.engine_threads for port in assignment.ports)


def _overlapping(free: Mapping[str, set[int]]) -> Sequence[Sequence[str]]:
    """Return agents in groups that have cores in common, directly or through other agents."""
    groups: list[tuple[set[int], list[str]]] = []
    for name, cores in free.items():
        group_cores, group_names = set(cores), [name]
        disjoint = []
        for cores_of_group, members in groups:
            if cores_of_group & group_cores:
                group_cores |= cores_of_group
                group_names = members + group_names
            else:
                disjoint.append((cores_of_group, members))
        groups = [*disjoint, (group_cores, group_names)]
    agent_order = list(free)
    return [sorted(members, key=agent_order.index) for _, members in groups]
