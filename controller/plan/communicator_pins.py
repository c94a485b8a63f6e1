"""The settings for the collectives of each communicator: those of its job, or pins of that communicator alone.

Assigns pins to communicators, and refuses pins for communicators that no job has.
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
"""Number of communicators that an error lists."""


def settings_by_communicator(jobs: JobSet, settings: list[Settings]) -> list[int]:
    """Return by communicator the index of its settings in `settings`: those of its part, or pinned ones.

    Appends pinned settings to `settings`, and clears `groups` in all of them. Raises `PlanError` for pins of communicators
    that no job has.
    """
    job, part_of = jobs.job, jobs.settings_of_communicator()
    if not any(part_settings.groups for part_settings in settings):
        return list(part_of)
    grouped_settings = [GroupedSettings(part_settings) for part_settings in settings]
    roles = _guess_roles(jobs, part_of)
    settings_index: list[int] = []
    names = [
        group.name.removeprefix(f"{jobs.parts[part].name}/")
        for group, part in zip(job.communicators, part_of, strict=True)
    ]
    for name, group, part, role in zip(names, job.communicators, part_of, roles, strict=True):
        group_settings = grouped_settings[part].of(name, role, group.members)
        if not group_settings.said_by:
            settings_index.append(part)
            continue
        if group_settings not in settings:
            settings.append(group_settings)
        settings_index.append(settings.index(group_settings))
    _refuse_unmatched(job, names, roles, grouped_settings)
    for number, entry in enumerate(settings):
        settings[number] = replace(entry, groups=())
    return settings_index


def _refuse_unmatched(
    job: Job, names: Sequence[str], roles: Sequence[str], grouped: Sequence[GroupedSettings]
) -> None:
    unmatched_pins = {entry.where: entry for job_settings in grouped for entry in job_settings.unmet()}
    matched_places = {
        job_settings.settings.groups[number].where for job_settings in grouped for number in job_settings.met
    }
    descriptions = list(
        dict.fromkeys(
            f'"{name[:48]}" of {len(group.members)} ({role})'
            for name, group, role in zip(names, job.communicators, roles, strict=True)
        )
    )
    more = f" and {len(descriptions) - MOST_NAMED} more" if len(descriptions) > MOST_NAMED else ""
    remedy = (
        f"there are {', '.join(descriptions[:MOST_NAMED])}{more}"
        if descriptions
        else "there are none: remove the entry"
    )
    problems = [
        Problem(where, f"no communicator left by earlier entries {entry.describe()}", remedy)
        for where, entry in unmatched_pins.items()
        if where not in matched_places
    ]
    if problems:
        raise PlanError(*problems)


def _guess_roles(jobs: JobSet, part_of: Sequence[int]) -> list[str]:
    """Return the role of each communicator as guessed by `etloop inspect` within its job."""
    job = jobs.job
    roles = [""] * len(job.communicators)
    for number, part in enumerate(jobs.parts):
        part_communicators = [
            communicator for communicator, part_number in enumerate(part_of) if part_number == number
        ]
        shapes = [
            Shape(
                job.communicators[communicator].members,
                _count_operations(job, job.communicators[communicator]),
            )
            for communicator in part_communicators
        ]
        for communicator, guess in zip(part_communicators, guess_roles(part.ranks, shapes), strict=True):
            roles[communicator] = guess.role.lower()
    return roles


def _count_operations(job: Job, group: Communicator) -> dict[CollectiveKind, int]:
    """Return the number of collectives of each kind of a communicator, counted in the program of its first member."""
    rank = job.ranks[group.members[0]]
    program = job.programs[rank.program]
    slot = rank.communicators.index(group.index)
    in_group = (program.kind == OpKind.COLLECTIVE) & (program.slot == slot)
    kinds, counts = np.unique(program.collective[in_group], return_counts=True)
    return {CollectiveKind(kind): count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)}
