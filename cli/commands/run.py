"""Run a scenario on a rig and write the results to a directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json, add_scenario_and_rig, add_strict, add_verbose
from etloop.cli.arguments.values import parse_listen_address
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
    "  and on each agent's machine: etloop-agent run --controller tcp://HOST:PORT --name NAME"
)
_DEFAULT_WEB: Final = ("127.0.0.1", 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add scenario and rig, the run directory, the display of progress and the length of the result."""
    add_json(parser)
    add_verbose(parser)
    add_scenario_and_rig(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="RUN_DIR", help="new directory for the results"
    )
    parser.add_argument("--no-progress", action="store_true", help="do not draw progress")
    parser.add_argument(
        "--web",
        nargs="?",
        type=parse_listen_address,
        const=_DEFAULT_WEB,
        metavar="ADDRESS:PORT",
        help="serve a live web page of the run, which stays with the report until its reader leaves; no authentication "
        "(default 127.0.0.1 and a free port)",
    )
    parser.add_argument(
        "--no-twin",
        action="store_true",
        help="do not compute the expected result (ideal network and twin) afterwards",
    )
    add_strict(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run the scenario or the case that the command line names. Raise as `run_prepared` does."""
    with quick_loading():
        from etloop.cli.case_files import open_inputs
        from etloop.cli.session_run import run_prepared
        from etloop.contract.base.errors import ConfigError, Problem
        from etloop.controller.plan.serving_jobs import serving_load
        from etloop.controller.run.out_directory import refuse_used_directory
        from etloop.controller.run.pipeline import RunOptions
        from etloop.controller.run.prepare import PrepareOptions, prepare
        from etloop.results.schema.case import Repeat

    refuse_used_directory(parsed.out)
    with open_inputs(parsed, Repeat.RUN) as inputs:
        prepared = inputs.label_case(prepare(inputs.files, PrepareOptions(strict=parsed.strict)))
        if (load := serving_load(prepared.scenario)) is not None:
            from etloop.cli.progress import StatusWatcher
            from etloop.cli.serving_answer import serving_answer
            from etloop.controller.run.serving import serve_on_rig

            if parsed.web is not None:
                problem = "a serving workload has no live page"
                raise ConfigError(Problem("--web", problem, "leave it out; report.html has the figures"))
            served = serve_on_rig(prepared, load, prepared.rig.lab, StatusWatcher())
            return serving_answer(served, prepared, parsed.out, as_json=parsed.json)
        options = RunOptions(parsed.out, expects=not parsed.no_twin)
        code = run_prepared(
            prepared,
            options,
            as_json=parsed.json,
            is_verbose=parsed.verbose,
            draws=not parsed.no_progress,
            web=parsed.web,
        )
    return CommandResult("", code)
