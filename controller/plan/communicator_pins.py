"""What shapes the collectives of every communicator of a job: the settings of its job, or pins of some communicators alone.

Decides which pins are whose, and refuses those of communicators that a job does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.traffic.collectives.group_pins import GroupedSettings
from etloop.workload.inspect.parallelism import Shape, guess_roles
from etloop.workload.trace.program import Communicator, Job, OpKind
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from etloop.controller.plan.job_set import JobSet
    from etloop.traffic.collectives.choice import Settings

MOST_NAMED: Final = 8
"""Communicators in a message."""


def settings_by_communicator(jobs: JobSet, settings: list[Settings]) -> list[int]:
    """By communicator the settings that shape it: those of its part, or further ones, which are added to `settings`.

    Raises `PlanError` for pins of communicators that no job has.
    """
    job, part_of = jobs.job, jobs.settings_of_communicator()
    if not any(one.groups for one in settings):
        return list(part_of)
    grouped = [GroupedSettings(one) for one in settings]
    roles = _roles(jobs, part_of)
    found: list[int] = []
    names = [
        group.name.removeprefix(f"{jobs.parts[part].name}/")
        for group, part in zip(job.communicators, part_of, strict=True)
    ]
    for name, group, part, role in zip(names, job.communicators, part_of, roles, strict=True):
        shaping = grouped[part].of(name, role, group.members)
        if not shaping.said_by:
            found.append(part)
            continue
        if shaping not in settings:
            settings.append(shaping)
        found.append(settings.index(shaping))
    _refuse_unmet(job, names, roles, grouped)
    for number, one in enumerate(settings):
        settings[number] = replace(one, groups=())
    return found


def _refuse_unmet(
    job: Job, names: Sequence[str], roles: Sequence[str], grouped: Sequence[GroupedSettings]
) -> None:
    unmet = {entry.where: entry for one in grouped for entry in one.unmet()}
    met = {one.settings.groups[number].where for one in grouped for number in one.met}
    there = list(
        dict.fromkeys(
            f'"{name[:48]}" of {len(group.members)} ({role})'
            for name, group, role in zip(names, job.communicators, roles, strict=True)
        )
    )
    more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
    remedy = (
        f"there are {', '.join(there[:MOST_NAMED])}{more}" if there else "there are none: remove the entry"
    )
    problems = [
        Problem(where, f"no communicator that earlier entries leave {entry.described()}", remedy)
        for where, entry in unmet.items()
        if where not in met
    ]
    if problems:
        raise PlanError(*problems)


def _roles(jobs: JobSet, part_of: Sequence[int]) -> list[str]:
    """By communicator what it is for, as `etloop inspect` guesses it, each job by itself."""
    job = jobs.job
    found = [""] * len(job.communicators)
    for number, part in enumerate(jobs.parts):
        own = [at for at, one in enumerate(part_of) if one == number]
        shapes = [Shape(job.communicators[at].members, _operations(job, job.communicators[at])) for at in own]
        for at, guess in zip(own, guess_roles(part.ranks, shapes), strict=True):
            found[at] = guess.role.lower()
    return found


def _operations(job: Job, group: Communicator) -> dict[CollectiveKind, int]:
    """How many collectives of each kind a communicator has, by what its first member does."""
    rank = job.ranks[group.members[0]]
    program = job.programs[rank.program]
    slot = rank.communicators.index(group.index)
    own = (program.kind == OpKind.COLLECTIVE) & (program.slot == slot)
    kinds, counts = np.unique(program.collective[own], return_counts=True)
    return {CollectiveKind(kind): count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
