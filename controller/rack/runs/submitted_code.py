"""Code in a submitted scenario: Python schedules and congestion control plugins, refused unless the owner allows them.

Decides what is refused, and that a plugin's file is below the scenario root. Code that runs is not restricted: it has
the rights of the controller, and a plugin also those of the agents, which have to be started with --allow-plugins
(docs/security.md).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_parsers import yes_or_no
from etloop.controller.inputs.scenario.congestion import Plugin, PluginReader
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.rack.runs.confinement import OUTSIDE, REMEDY, within
from etloop.controller.run.prepare import read_cc_plugin

_CODE_SUFFIX: Final = ".py"


@dataclass(frozen=True, slots=True)
class AllowedCode:
    """Content of `allow:` in controller.yaml."""

    python_schedules: bool = setting("python_schedules", yes_or_no, False)
    """Allow schedules in Python."""
    cc_plugins: bool = setting("cc_plugins", yes_or_no, False)
    """Allow congestion control plugins."""


class PluginNamed(Exception):
    """The scenario names an allowed plugin, which is compiled only when the job is prepared."""


def looking_reader(allowed: AllowedCode) -> PluginReader:
    """Return the plugin reader for submissions: refuses plugins, or raises `PluginNamed` if they are allowed."""
    return partial(_read_plugin, allowed, None)


def compiling_reader(allowed: AllowedCode, root: Path) -> PluginReader:
    """Return the plugin reader for preparing a job: refuses plugins, or compiles those below `root`."""
    return partial(_read_plugin, allowed, root)


def _read_plugin(allowed: AllowedCode, root: Path | None, path: Path) -> Plugin:
    if not allowed.cc_plugins:
        raise _refusal(path, "allow: {cc_plugins: true}", "an algorithm that is built in")
    if root is None:
        raise PluginNamed
    if not within(path, root):
        raise QuantityError(f"{path.name} {OUTSIDE}", REMEDY)
    return read_cc_plugin(path)


def refuse_python(scenario: Scenario, allowed: AllowedCode) -> None:
    """Raise `ConfigError` with every Python schedule of the scenario, unless they are allowed."""
    if allowed.python_schedules:
        return
    refusals = [
        (file.where, _refusal(file.path, "allow: {python_schedules: true}", "a schedule as MSCCL XML"))
        for file in scenario.schedule_files
        if file.path.suffix == _CODE_SUFFIX
    ]
    if refusals:
        raise ConfigError(*(Problem(where, refusal.what, refusal.remedy) for where, refusal in refusals))


def _refusal(path: Path, key: str, instead: str) -> QuantityError:
    problem = f"{path.name} is code; this rack does not run code from scenarios"
    return QuantityError(problem, f"name {instead}, or let the rack's owner set {key}")
