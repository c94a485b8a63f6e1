"""`optimize:` of sweep.yaml: which figures are to become small or large, under which conditions, in how many trials. Pure.

The axes of the sweep are the space: a trial has one setting of each. Conditions are those of a verdict (docs/verdict.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import yaml

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.value_parsers import integer, words
from etloop.contract.base.yaml_tree import TEXT_TAG, Change, changed_text, tree_of
from etloop.controller.run.prepare import InputFile
from etloop.results.schema.kpis import BY_NAME

MOST_TRIALS: Final = 20_000
MOST_OBJECTIVES: Final = 4
MOST_PARALLEL: Final = 1024
_MAP_TAG: Final = "tag:yaml.org,2002:map"
_SEQ_TAG: Final = "tag:yaml.org,2002:seq"


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure that is to become small, or large."""

    figure: str
    is_maximized: bool

    def __str__(self) -> str:
        return f"{'maximize' if self.is_maximized else 'minimize'} {self.figure}"


@dataclass(frozen=True, slots=True)
class Optimize:
    """Search the best settings of all axes instead of running every combination (`etloop search`)."""

    minimize: tuple[str, ...] = list_setting("minimize", words, "Figures of docs/metrics.md, section 9.")
    """Figures that are to become small."""
    maximize: tuple[str, ...] = list_setting("maximize", words, "Figures of docs/metrics.md, section 9.")
    """Figures that are to become large."""
    constraints: tuple[str, ...] = list_setting(
        "constraints", words, "Conditions that every run must meet, as in a verdict."
    )
    """Conditions that every run must meet, in addition to those of its scenario."""
    trials: int = setting("trials", integer(1, MOST_TRIALS), 100)
    """Combinations that are tried."""
    parallel: int = setting("parallel", integer(1, MOST_PARALLEL), 8)
    """Trials that are proposed together, before their results are known; they may run at the same time."""
    early_iterations: int = setting("early_iterations", integer(0, 1_000_000), 0)
    """Iterations after which a trial is compared: it ends if it is worse than the median of the trials so far. 0: never."""
    best: int = setting("best", integer(1, 64), 3)
    """Best trials that are repeated, as often as `repeats`."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return all objectives, those to minimize first."""
        small = (Objective(figure, is_maximized=False) for figure in self.minimize)
        return (*small, *(Objective(figure, is_maximized=True) for figure in self.maximize))

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield unknown figures, and a number of objectives that cannot be used."""
        for key, figures in (("minimize", self.minimize), ("maximize", self.maximize)):
            for figure in figures:
                if figure not in BY_NAME:
                    yield Problem(
                        key, f'there is no figure "{figure[:64]}"', "see docs/metrics.md, section 9"
                    )
        names = [objective.figure for objective in self.objectives]
        if not 1 <= len(set(names)) == len(names) <= MOST_OBJECTIVES:
            remedy = f"name 1 to {MOST_OBJECTIVES} different figures, such as minimize: jct_avg_ns"
            yield Problem("minimize", f"with maximize, {len(names)} figures", remedy)
        if self.early_iterations and len(names) > 1:
            problem = "needs a single objective: of several, no trial is the worse one"
            yield Problem("early_iterations", problem, "leave it out")


def add_constraints(scenario: InputFile, constraints: tuple[str, ...]) -> InputFile:
    """Return a scenario whose verdict has further conditions, after its own. Raises `ConfigError`."""
    if not constraints:
        return scenario
    content = scenario.read()
    change = conditions_change(content, scenario.source, constraints)
    return replace(scenario, content=changed_text(content, scenario.source, [change]).encode())


def conditions_change(content: bytes, source: str, constraints: tuple[str, ...]) -> Change:
    """Return the change that adds conditions to the verdict of a scenario. Raises `ConfigError`."""
    own = _below(_below(tree_of(content, source), "verdict"), "checks")
    items = list(own.value) if isinstance(own, yaml.SequenceNode) else []
    items += [
        yaml.MappingNode(_MAP_TAG, [(_text("check"), _text(condition)), (_text("why"), _text("constraint"))])
        for condition in constraints
    ]
    return Change(("verdict", "checks"), yaml.SequenceNode(_SEQ_TAG, items))


def _below(node: yaml.Node | None, key: str) -> yaml.Node | None:
    entries = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in entries if name.value == key), None)


def _text(text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode(TEXT_TAG, text)
