"""`etloop plan`: a scenario on a rig, laid out and told, not run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.plan import render_plan
from etloop.controller.plan.report import report_plan
from etloop.controller.run.prepare import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.workload.readers.files import Progress


def plan_command(
    scenario_path: Path, rig_path: Path, *, as_json: bool, progress: Progress | None = None
) -> CommandResult:
    """Return the plan in words or as JSON. Raises as `prepare`."""
    report = report_plan(prepare(scenario_path, rig_path, progress=progress).plan)
    return CommandResult(to_json(asdict(report)) if as_json else render_plan(report))
