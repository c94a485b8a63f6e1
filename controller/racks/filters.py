"""Filters for jobs of several racks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobStatus


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions that a job must meet; empty ones are ignored."""

    states: frozenset[JobState] = frozenset()
    owner: str = ""
    """User who owns the job, or, for a job without an owner, its submitter."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def takes(self, job: JobStatus) -> bool:
        """Return whether a job meets all conditions."""
        return (
            (not self.states or job.state in self.states)
            and (not self.owner or self.owner == owner_of(job))
            and self.labels.items() <= job.labels.items()
        )


def owner_of(job: JobStatus) -> str:
    """Return the owner of a job, or its submitter if it has none."""
    return job.owner or job.submitter


def parse_labels(where: str, texts: list[str]) -> dict[str, str]:
    """Parse NAME=VALUE texts to a mapping. Raises `ConfigError` for an invalid one."""
    pairs = [label.partition("=") for label in texts]
    invalid = [label for label, (name, mark, _) in zip(texts, pairs, strict=True) if not mark or not name]
    if invalid:
        raise ConfigError(
            Problem(where, f'"{printable(invalid[0][:64])}" is not a label', "write NAME=VALUE")
        )
    return {name: value for name, _, value in pairs}
