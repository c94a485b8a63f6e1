"""`etloop report`: what a run directory holds, printed again or judged again."""

from __future__ import annotations

from pathlib import Path

from etloop.cli.result import CommandResult
from etloop.contract.base.errors import ExitCode
from etloop.results.schema.typed_json import to_json
from etloop.results.store.run_dir import read_run
from etloop.results.text.table import render


def report_command(
    run_dir: Path, conditions: Path | None, device: str | None, *, renews: bool, as_json: bool
) -> CommandResult:
    """Return the table or the summary of a run; where it `renews` the verdict, by other conditions or another profile if they are named.

    Raises an `InputError` where directory, conditions or profile cannot be used.
    """
    code = ExitCode.PASS
    if renews:
        from etloop.controller.run.verdict import renew_verdict

        summary = renew_verdict(run_dir, conditions, device)
        code = summary.result.exit_code
    else:
        summary = read_run(run_dir).summary
    return CommandResult(to_json(summary) if as_json else render(summary, str(run_dir)), code)
