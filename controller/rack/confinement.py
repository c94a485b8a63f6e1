"""Keeps the paths of a submitted scenario below the rack's scenario root. A shell: it looks at the file system for links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from controller.scenario import Scenario


def confine(scenario: Scenario, root: Path) -> None:
    """Raises `ConfigError` with every path of the scenario that leaves `root`, links followed."""
    named = {"workload.trace": scenario.trace, "workload.groups": scenario.groups}
    problems = [
        Problem(
            key,
            "lies outside the rack's scenario root",
            "copy it below the root and name it relative to that",
        )
        for key, path in named.items()
        if path is not None and not within(path, root)
    ]
    if problems:
        raise ConfigError(*problems)


def within(path: Path, root: Path) -> bool:
    """Whether `path` is `root` or below it when every link on the way is followed."""
    real, real_root = path.resolve(), root.resolve()
    return real == real_root or real_root in real.parents
