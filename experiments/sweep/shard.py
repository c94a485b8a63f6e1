"""Shards of a sweep: which of its runs a process of a batch system makes. Pure; the environment is an argument.

Shard I of N has every Nth point; if there are more shards than points, every Nth run. I counts modulo N: an array of tasks
may be numbered from 0 to N - 1 (Kubernetes) or from 1 to N (Slurm, LSF), and has every run once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.sweep.points import Turn

MOST_SHARDS: Final = 20_000
INDEX_VARIABLES: Final = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "LSB_JOBINDEX")
"""Index of a task in an array: of Slurm, of a Kubernetes Indexed Job (also below Argo), of LSF. The first one counts."""
COUNT_VARIABLE: Final = "SLURM_ARRAY_TASK_COUNT"
_FORM: Final = "write I/N such as 3/16, or N below Slurm, Kubernetes or LSF, whose index is used"


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` shards."""

    index: int
    """0 to count - 1."""
    count: int

    def turns(self, points: int, repeats: int) -> tuple[Turn, ...]:
        """Return the runs of this shard, point by point."""
        by_point = points >= self.count
        return tuple(
            Turn(point, repeat)
            for point in range(points)
            for repeat in range(repeats)
            if (point if by_point else point * repeats + repeat) % self.count == self.index
        )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """Parse "I/N", "N" (index from the environment) or "" (both from Slurm's environment). Raises `ConfigError`."""
    index_text, slash, count_text = text.rpartition("/")
    if not text:
        count_text = environment.get(COUNT_VARIABLE, "")
        if not count_text:
            raise _refusal(f"gives no number of shards, and {COUNT_VARIABLE} is not set")
    if not slash:
        index_text = next((environment[name] for name in INDEX_VARIABLES if environment.get(name)), "")
        if not index_text:
            raise _refusal(f"gives no index, and none of {', '.join(INDEX_VARIABLES)} is set")
    index, count = _whole(index_text), _whole(count_text)
    if not 1 <= count <= MOST_SHARDS:
        raise _refusal(f"{count} shards are not between 1 and {MOST_SHARDS}")
    if index > count:
        raise _refusal(f"shard {index} of {count} does not exist")
    return Shard(index % count, count)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _refusal(f'"{text[:32]}" is not a whole number')
    return int(text)


def _refusal(problem: str) -> ConfigError:
    return ConfigError(Problem("--shard", problem, _FORM))


def points_of_turns(turns: Sequence[Turn]) -> tuple[int, ...]:
    """Return the points of runs, each once, in their order."""
    return tuple(dict.fromkeys(turn.point for turn in turns))
