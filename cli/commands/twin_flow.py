"""`etloop twin --level flow`: a job without packets, on the ideal network and on the device that a topology describes.

Decides what is printed of it; what the flow level knows is decided by `traffic.flow_level` (docs/flow_level.md).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.controller.run.expectation import expect_by_flows
from etloop.results.expected.expected_figures import expected_figures
from etloop.results.text.expected import expected_lines

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.controller.plan.plan import Plan
    from etloop.controller.run.expectation import DescribedDevice


def refuse_records(out_dir: Path | None) -> None:
    """Raises `ConfigError` where records are to be kept: there are none of packets, queues and switches."""
    if out_dir is not None:
        what = "the flow level has no records to keep"
        raise ConfigError(Problem("--out", what, "leave out --out, or --level flow; --json has every figure"))


def flow_level_command(plan: Plan, device: DescribedDevice, limit_ns: int, *, as_json: bool) -> CommandResult:
    """Works the job out. Raises `PlanError` as `expect_by_flows`."""
    expectation = expect_by_flows(plan, device, limit_ns)
    figures = expected_figures(expectation.runs, expectation.absent, plan.tables)
    is_whole = not figures.absent and all(one.complete for one in figures.expected)
    code = ExitCode.PASS if is_whole else ExitCode.RUN_ERROR
    if as_json:
        return CommandResult(to_json(asdict(figures)), code)
    return CommandResult("".join(f"{line.rstrip()}\n" for line in expected_lines(figures)), code)
