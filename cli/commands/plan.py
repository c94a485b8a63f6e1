"""Show the flows of a run, between which ports, without sending any."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.arguments.inputs import add_json, add_scenario_and_rig, add_strict
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add scenario and rig, and the short form."""
    add_json(parser)
    add_scenario_and_rig(parser)
    add_strict(parser)
    parser.add_argument(
        "--summary",
        action="store_true",
        help="only count connections, without planning each one; for jobs of any size",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Return the plan in words or as JSON. Raise as `prepare` does."""
    with quick_loading():
        from dataclasses import asdict, replace
        from functools import partial

        from etloop.cli.case_files import open_inputs
        from etloop.cli.progress import reading_bar
        from etloop.cli.text.plan import render_plan
        from etloop.cli.text.plan_summary import render_summary
        from etloop.cli.text.serving_plan import render_serving_plan
        from etloop.controller.plan.jobs import build_jobs
        from etloop.controller.plan.report import report_plan
        from etloop.controller.plan.run_numbers import PLAN_ID
        from etloop.controller.plan.serving_jobs import serving_hosts, serving_load
        from etloop.controller.plan.serving_report import serving_plan
        from etloop.controller.run.prepare import PrepareOptions, prepare, summarise_run

    with open_inputs(parsed, None, PLAN_ID) as inputs, reading_bar() as bar:
        options = PrepareOptions(
            strict=parsed.strict, jobs=partial(build_jobs, progress=bar), keeps_case=False
        )
        if parsed.summary:
            summary = summarise_run(inputs.files, options)
            if inputs.case is not None:
                shown = inputs.case.relabel
                summary = replace(
                    summary,
                    source=shown(summary.source),
                    warnings=tuple(map(shown, summary.warnings)),
                    notes=tuple(map(shown, summary.notes)),
                )
            return CommandResult(to_json(asdict(summary)) if parsed.json else render_summary(summary))
        prepared = inputs.label_case(prepare(inputs.files, options))
    if (load := serving_load(prepared.scenario)) is not None:
        serving = serving_plan(load, serving_hosts(prepared.scenario, prepared.plan.parts.jobs))
        return CommandResult(to_json(asdict(serving)) if parsed.json else render_serving_plan(serving))
    report = report_plan(prepared.plan)
    return CommandResult(to_json(asdict(report)) if parsed.json else render_plan(report))
