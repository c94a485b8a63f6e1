"""Which jobs somebody asked for. Pure."""

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
    """What a job must be. What is empty asks nothing."""

    states: frozenset[JobState] = frozenset()
    owner: str = ""
    """User whose job it is, or, of a job without one, who submitted it."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def takes(self, job: JobStatus) -> bool:
        """Whether a job is such a one."""
        return (
            (not self.states or job.state in self.states)
            and (not self.owner or self.owner == owner_of(job))
            and self.labels.items() <= job.labels.items()
        )


def owner_of(job: JobStatus) -> str:
    """Return whose job it is, as far as anybody knows."""
    return job.owner or job.submitter


def parse_labels(where: str, given: list[str]) -> dict[str, str]:
    """Return NAME=VALUE texts as a mapping. Raises `ConfigError` for what is none."""
    pairs = [label.partition("=") for label in given]
    odd = [label for label, (name, mark, _) in zip(given, pairs, strict=True) if not mark or not name]
    if odd:
        raise ConfigError(Problem(where, f'"{printable(odd[0][:64])}" is no label', "write NAME=VALUE"))
    return {name: value for name, _, value in pairs}
