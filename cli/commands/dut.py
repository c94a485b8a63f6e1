"""`dut list`, `dut show`, `dut check`: profiles of devices under test, and their contradictions, before any run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, ExitCode, Mistakes, Problem, Severity
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.run.device_check import check_conditions, profile_verdict
from etloop.controller.run.prepare import InputFile, read_cc_plugin, read_rig
from etloop.dut_profiles.model.findings import ProfileVerdict
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.model.stated import Stated, stated_values
from etloop.dut_profiles.model.stated_text import value_text
from etloop.dut_profiles.reading.catalogue import find_profile, profile_names


def dut_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raise `ConfigError` for files that cannot be read."""
    match parsed.action:
        case "counters":
            from etloop.cli.commands.counters import show_counters

            return CommandResult("", show_counters(parsed))
        case "linux-counters":
            from etloop.counters.readers.linux_process import main

            return CommandResult("", main(parsed.interfaces))
        case "fabric":
            from etloop.cli.commands.fabric import fabric_command

            return fabric_command(parsed)
        case "list":
            return _list(as_json=parsed.json)
        case "show":
            profile = find_profile(parsed.profile)
            return CommandResult(to_json(profile_as_json(profile)) if parsed.json else _profile_text(profile))
        case _:
            return _check(parsed.profile, parsed.scenario, parsed.rig, as_json=parsed.json)


def _list(*, as_json: bool) -> CommandResult:
    profiles = [find_profile(name) for name in profile_names()]
    if as_json:
        rows = [
            {"name": profile.name, "kind": profile.kind, "summary": profile.summary} for profile in profiles
        ]
        return CommandResult(to_json(rows))
    widest = max(len(profile.name) for profile in profiles)
    return CommandResult(
        "".join(f"{profile.name:<{widest}}  {profile.kind:<6}  {profile.summary}\n" for profile in profiles)
    )


def profile_as_json(profile: DutProfile) -> dict[str, object]:
    """Return a profile for programs: every value by its path, each with basis and source."""
    return {
        "name": profile.name,
        "kind": profile.kind,
        "summary": profile.summary,
        "values": {
            path: {
                basis.value: {
                    "value": value_text(path, claim.value),
                    "source": claim.source.name,
                    "where": claim.where,
                }
                for basis, claim in stated.claims()
            }
            for path, stated in stated_values(profile)
            if stated.best is not None
        },
        "counters": [
            {
                "reader": access.reader,
                "paths": access.paths,
                "objects": access.objects,
                "caveat": access.caveat,
            }
            for access in profile.counters.access
        ],
        "checks": [asdict(check) for check in profile.checks],
        "notes": profile.notes,
        "sources": [asdict(source) for source in profile.sources],
    }


def _profile_text(profile: DutProfile) -> str:
    stated = [(path, value) for path, value in stated_values(profile) if value.best is not None]
    width = max((len(path) for path, _ in stated), default=0)
    lines = [f"{profile.name} ({profile.kind})", f"  {profile.summary}", ""]
    lines += [line for path, value in stated for line in _claim_lines(path, value, width)]
    for access in profile.counters.access:
        objects = ", ".join(access.objects)
        caveat = f"; {access.caveat}" if access.caveat else ""
        lines.append(f"  counters by {access.reader} as {access.paths} names them: {objects}{caveat}")
    lines += ["", *(f"  check {check.expression}: {check.why}" for check in profile.checks)]
    lines += [f"  note: {note}" for note in profile.notes]
    lines += ["", "sources"]
    lines += [
        f"  {source.name}: {source.title}, {source.dated.isoformat()}{f' <{source.url}>' if source.url else ''}"
        for source in profile.sources
    ]
    return "\n".join(lines) + "\n"


def _claim_lines(path: str, stated: Stated[object], width: int) -> list[str]:
    """Return the lines of one value: the best claim first, the other claims below it."""
    return [
        f"  {path if place == 0 else '':<{width}}  {basis:<10}  {value_text(path, claim.value)}  [{claim.source.name}]"
        for place, (basis, claim) in enumerate(stated.claims())
    ]


def _check(
    name_or_path: str | None, scenario_path: Path | None, rig_path: Path | None, *, as_json: bool
) -> CommandResult:
    """Check a profile, alone and with a scenario or a rig; without a profile, the one that the rig names.

    Raise `ConfigError` with the mistakes of all files together. The exit code reports whether there is a contradiction.
    """
    profile, scenario, rig = _read_all(name_or_path, scenario_path, rig_path)
    verdict = profile_verdict(
        profile, scenario, rig, scenario_name=str(scenario_path), rig_name=str(rig_path)
    ) + check_conditions(profile, scenario)
    code = ExitCode.PREPARATION_FAILED if verdict.contradictions else ExitCode.PASS
    if as_json:
        report = {"profile": profile.name, "exit_code": int(code), **asdict(verdict)}
        return CommandResult(to_json(report), code)
    return CommandResult(_verdict_text(profile, verdict), code)


def _read_all(
    name_or_path: str | None, scenario_path: Path | None, rig_path: Path | None
) -> tuple[DutProfile, Scenario | None, Rig | None]:
    mistakes = Mistakes()
    scenario = rig = profile = None
    if scenario_path is not None:
        scenario = mistakes.of(
            lambda: parse_scenario(
                read_file(scenario_path), str(scenario_path), scenario_path.parent, read_cc_plugin
            )
        )
    if rig_path is not None:
        rig = mistakes.of(lambda: read_rig(InputFile(rig_path)))
    if name_or_path is None and rig is not None and rig.dut is not None:
        name_or_path = rig.dut.profile
    if name_or_path is not None:
        profile = mistakes.of(partial(find_profile, name_or_path))
    elif rig is not None or rig_path is None:
        problem = "no profile is named" if rig_path is None else f"{rig_path} names no profile"
        remedy = "name one, or write dut: {profile: NAME} in the rig"
        mistakes.problems.append(Problem("dut check", problem, remedy))
    mistakes.refuse(ConfigError)
    assert profile is not None
    return profile, scenario, rig


def _verdict_text(profile: DutProfile, verdict: ProfileVerdict) -> str:
    lines = [
        f"{severity}: {finding.rule}: {finding.problem}"
        for severity in Severity
        for finding in verdict.findings
        if finding.severity is severity
    ]
    lines += [
        f"not checked in full: {finding.rule}: no {', '.join(finding.missing)}" for finding in verdict.skipped
    ]
    counts = [
        _count_text(len(verdict.contradictions), "contradiction"),
        _count_text(len(verdict.findings) - len(verdict.contradictions), "remark"),
        f"{_count_text(len(verdict.skipped), 'rule')} not checked in full",
    ]
    lines.append(f"{profile.name}: {', '.join(counts)}")
    return "\n".join(lines) + "\n"


def _count_text(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
