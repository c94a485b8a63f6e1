"""`etloop report`: what a run directory holds, printed again or judged again."""

from __future__ import annotations

import argparse

from etloop.cli.result import CommandResult
from etloop.contract.base.errors import ExitCode
from etloop.results.schema.typed_json import to_json
from etloop.results.store.run_dir import read_run
from etloop.results.text.table import render


def report_command(parsed: argparse.Namespace) -> CommandResult:
    """Return the table or the summary of a run, with a new verdict if it is asked for, by other conditions or another profile.

    Raises an `InputError` where directory, conditions or profile cannot be used.
    """
    code = ExitCode.PASS
    if parsed.verdict or parsed.conditions or parsed.dut:
        from etloop.controller.run.verdict import renew_verdict

        summary = renew_verdict(parsed.run_dir, parsed.conditions, parsed.dut)
        code = summary.result.exit_code
    else:
        summary = read_run(parsed.run_dir).summary
    return CommandResult(to_json(summary) if parsed.json else render(summary, str(parsed.run_dir)), code)
