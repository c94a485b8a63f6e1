"""The end of a serving run, for `etloop run` and `etloop twin`: its directory, and its figures as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult, to_json
from etloop.results.serving.store import serving_values, write_serving
from etloop.results.serving.text import serving_lines

if TYPE_CHECKING:
    from etloop.controller.run.prepare import Prepared
    from etloop.results.serving.run import ServingRun


def serving_answer(
    served: ServingRun, prepared: Prepared, out_dir: Path | None, *, as_json: bool
) -> CommandResult:
    """Write requests, figures and report to `out_dir`, and return the figures with the exit code of the run."""
    if out_dir is not None:
        write_serving(out_dir, served, prepared.texts)
    code = served.result.exit_code
    if as_json:
        return CommandResult(to_json(serving_values(served)), code)
    lines = serving_lines(served)
    if out_dir is not None:
        lines.append(f"written to {out_dir}")
    return CommandResult("".join(f"{line.rstrip()}\n" for line in lines), code)
