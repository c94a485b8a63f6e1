"""Which cores the engine threads of agents of one machine get, whatever the rig calls their hosts. Pure.

A machine is identified by the boot of its kernel, so that namespaces and containers of one count as one; agents share cores if
the sets that they may use overlap. Two polling threads never get one core: agents that share cores count through one list of
them, those that were given cores by name keep these, and where threads are more than cores nobody polls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from etloop.contract.model.assignment import Assignment
from etloop.contract.model.capabilities import Capabilities
from etloop.contract.protocol.messages import Hello


def share_cores(assignments: Mapping[str, Assignment], hellos: Mapping[str, Hello]) -> dict[str, Assignment]:
    """Return the assignments with their places among all threads of their machine; as they are where it is not known."""
    hosts = {name: hello.capabilities for name, hello in hellos.items()}
    shared = dict(assignments)
    machines: dict[str, list[str]] = {}
    for name in assignments:
        known = hosts.get(name)
        if known is not None and known.machine and known.core_ids:
            machines.setdefault(known.machine, []).append(name)
    for names in machines.values():
        shared |= _on_one_machine({name: assignments[name] for name in names}, hosts)
    return shared


def _on_one_machine(
    assignments: Mapping[str, Assignment], hosts: Mapping[str, Capabilities]
) -> dict[str, Assignment]:
    owners = {name: set(hosts[name].core_ids) for name in assignments if hosts[name].cores_named}
    taken = set().union(*owners.values())
    shared = {}
    for name, mine in owners.items():
        sharers = tuple(other for other, theirs in owners.items() if other != name and mine & theirs)
        shared[name] = _placed(assignments[name], sharers=sharers, contended=bool(sharers))
    usable = {name: set(hosts[name].core_ids) for name in assignments if name not in owners}
    for group in _overlapping(usable):
        common = set.intersection(*(usable[name] for name in group)) - taken
        cores = sorted(common or set.union(*(usable[name] for name in group)))
        quotas = [quota for name in group if (quota := hosts[name].quota_millicores)]
        if quotas:
            # A thread that polls uses a whole core: beyond the quota the kernel would stop all of them in turn.
            cores = cores[: max(min(quotas) // 1000, 1)]
        shared |= _in_one_list({name: assignments[name] for name in group}, cores, contended=not common)
    return shared


def _in_one_list(
    assignments: Mapping[str, Assignment], cores: Sequence[int], *, contended: bool
) -> dict[str, Assignment]:
    busy = max(assignment.threads.busy for assignment in assignments.values())
    first, total = busy, busy + sum(_threads(assignment) for assignment in assignments.values())
    shared = {}
    for name, assignment in assignments.items():
        sharers = tuple(other for other in assignments if other != name)
        shared[name] = _placed(
            assignment,
            first=first,
            total=total,
            busy=busy,
            cores=tuple(cores),
            sharers=sharers,
            contended=contended,
        )
        first += _threads(assignment)
    return shared


def _placed(assignment: Assignment, **changes: Any) -> Assignment:
    return replace(assignment, threads=replace(assignment.threads, **changes))


def _threads(assignment: Assignment) -> int:
    return sum(port.engine_threads for port in assignment.ports)


def _overlapping(free: Mapping[str, set[int]]) -> Sequence[Sequence[str]]:
    """Agents in groups that have cores in common, directly or through others."""
    groups: list[tuple[set[int], list[str]]] = []
    for name, cores in free.items():
        joined, names = set(cores), [name]
        apart = []
        for known, members in groups:
            if known & joined:
                joined |= known
                names = members + names
            else:
                apart.append((known, members))
        groups = [*apart, (joined, names)]
    order = list(free)
    return [sorted(members, key=order.index) for _, members in groups]
