"""`etloop twin`: a scenario in virtual time, through the switches of a topology.

Decides what is printed of it, and which settings of its switches come from a device's profile; `controller.run` carries out the
run, `traffic.flow_level` models the flow level (docs/flow_level.md).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.cli.case_files import GivenFiles, given_files
from etloop.cli.progress import StatusWatcher, reading_bar
from etloop.cli.result import CommandResult, on_terminal, pages_of, to_json
from etloop.cli.text.plan import rank_ranges
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.units import approximate_duration
from etloop.contract.model.topology import SettingsOrigin, Topology
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.expectation import expect_by_flows
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    FinishedRun,
    PrepareOptions,
    RunOptions,
    prepare,
    run_plan,
)
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.twin import TwinExecution, TwinHosts, described_device
from etloop.results.expected.expected_vs_measured import expected_figures
from etloop.results.schema.case import Repeat, RepeatedBy
from etloop.results.tables.switch_tables import totals
from etloop.results.text.expected import expected_lines
from etloop.results.text.switches import render_switches
from etloop.results.text.table import render
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings, seeded

if TYPE_CHECKING:
    import argparse

_WIDTH: Final = 120
_NUMBERED: Final = re.compile(r"(groups|queues)\[(\d+)\](.*)")


def twin_command(parsed: argparse.Namespace) -> CommandResult:
    """Run the twin. Raise an `InputError` with all mistakes of the files before the run."""
    by_flows = parsed.level == "flow"
    if by_flows and parsed.out is not None:
        problem = "the flow level has no records to keep"
        raise ConfigError(
            Problem("--out", problem, "leave out --out, or --level flow; --json has every figure")
        )
    if parsed.out is not None:
        refuse_used_directory(parsed.out)
    with given_files(parsed, Repeat.TWIN, TWIN_ID) as files:
        return _twin(parsed, files)


def _twin(parsed: argparse.Namespace, given: GivenFiles) -> CommandResult:
    by_flows = parsed.level == "flow"
    # Options that the command line leaves open are those of the case's run.
    case = given.case
    case_run = RepeatedBy(Repeat.TWIN) if case is None else case.case.repeated_by
    seed = case_run.seed if parsed.seed is None else parsed.seed
    limit_ns = _first_stated(parsed.limit, case_run.limit_ns, TwinSettings().limit_ns)
    with reading_bar() as bar:
        options = PrepareOptions(
            device=parsed.device,
            strict=parsed.strict,
            jobs=partial(build_jobs, progress=bar),
            keeps_case=parsed.out is not None,
        )
        prepared = given.settled(prepare(given.inputs, options))
    if by_flows:
        return _expect_at_flow_level(prepared, seed, limit_ns, as_json=parsed.json)
    settings = TwinSettings(
        seed=seed,
        limit_ns=limit_ns,
        sample_interval_ns=_first_stated(parsed.sample, case_run.sample_ns, SAMPLE_INTERVAL_NS)
        if parsed.out is not None
        else 0,
    )
    options_of_run = RunOptions(parsed.out, expects=False)
    hosts = TwinHosts(parsed.hosts or case_run.hosts or TwinHosts.CARDS)
    finished = run_plan(prepared, TwinExecution(settings, hosts), options_of_run, StatusWatcher())
    text = _as_json(prepared, finished) if parsed.json else _as_text(prepared, finished, parsed.out)
    return CommandResult(text, finished.summary.result.exit_code)


def _first_stated(*values: int | None) -> int:
    """Return the first value that is not None; the last one must not be."""
    return next(value for value in values if value is not None)


def _expect_at_flow_level(
    prepared: Prepared, seed: int | None, limit_ns: int, *, as_json: bool
) -> CommandResult:
    """Compute the job's expectation at flow level, without packets. Raise `PlanError` as `expect_by_flows` does."""
    device = described_device(prepared)
    device = replace(device, topology=seeded(device.topology, seed))
    expectation = expect_by_flows(prepared.plan, device, limit_ns)
    figures = expected_figures(expectation.runs, expectation.absent, prepared.plan.tables)
    is_complete = not figures.absent and all(run.complete for run in figures.expected)
    code = ExitCode.PASS if is_complete else ExitCode.RUN_ERROR
    if as_json:
        return CommandResult(to_json(asdict(figures)), code)
    return CommandResult("".join(f"{line.rstrip()}\n" for line in expected_lines(figures)), code)


def _as_text(prepared: Prepared, finished: FinishedRun, out_dir: Path | None) -> str:
    outcome = finished.executed.twin
    assert outcome is not None
    topology = described_device(prepared).topology
    place_text = str(out_dir) if out_dir is not None else "not kept; --out DIR keeps them"
    duration_text = approximate_duration(outcome.end_ns - outcome.start_ns)
    twin_text = (
        render_switches(topology, outcome.switch_ports)
        + "".join(f"{line}\n" for line in device_lines(topology))
        + f"virtual time    {duration_text}, {outcome.packets} packets over {outcome.hops} links\n"
    )
    pages = pages_of(out_dir) if out_dir is not None else {}
    return on_terminal(render(finished.summary, place_text, pages=pages, more=twin_text))


def _as_json(prepared: Prepared, finished: FinishedRun) -> str:
    outcome = finished.executed.twin
    assert outcome is not None
    return to_json(
        {
            "summary": asdict(finished.summary),
            "twin": {
                "start_ns": outcome.start_ns,
                "end_ns": outcome.end_ns,
                "packets": outcome.packets,
                "hops": outcome.hops,
                "bad_packets": outcome.bad_packets,
                "switches": totals(outcome.switch_ports),
                "devices": device_values(described_device(prepared).topology),
                "notes": finished.executed.notes,
            },
        }
    )


def device_lines(topology: Topology) -> tuple[str, ...]:
    """Return the lines of every device profile of the topology's switches; none if all are presets."""
    lines = []
    for origin, names in _switches_by_origin(topology).items():
        lines.append(f"device          {origin.profile}: {', '.join(names)}")
        for label, entries in (
            ("profile", origin.stated),
            ("topology", origin.overridden),
            ("default", origin.defaults),
            ("left out", origin.left_out),
        ):
            lines += textwrap.wrap(
                "; ".join(_joined(entries)),
                _WIDTH,
                initial_indent=f"  {label:<14}",
                subsequent_indent=" " * 16,
            )
    return tuple(lines)


def device_values(topology: Topology) -> list[dict[str, Any]]:
    """Return the same as values for programs."""
    return [{"switches": names, **asdict(origin)} for origin, names in _switches_by_origin(topology).items()]


def _switches_by_origin(topology: Topology) -> dict[SettingsOrigin, list[str]]:
    by_origin: dict[SettingsOrigin, list[str]] = {}
    for switch in topology.switches:
        if switch.origin is not None:
            by_origin.setdefault(switch.origin, []).append(switch.name)
    return by_origin


def _joined(entries: Iterable[str]) -> list[str]:
    """Return the entries with equal ones of several groups or queues joined: "groups[0-2].lossless: false"."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        match = _NUMBERED.fullmatch(entry)
        if match is None:
            numbers[entry, ""] = []
        else:
            numbers.setdefault((match[1], match[3]), []).append(int(match[2]))
    return [
        f"{key}[{rank_ranges(indices)}]{suffix}" if indices else key
        for (key, suffix), indices in numbers.items()
    ]
