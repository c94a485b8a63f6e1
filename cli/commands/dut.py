"""Show device profiles, check them for contradictions, read device counters, import switches and fabrics."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import parse_duration
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.clock import NS_PER_S

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.dut_profiles.model.profile import DutProfile

EXAMPLE: Final = (
    "  etloop dut show sonic-tomahawk5\n"
    "  etloop dut check sonic-tomahawk5 --scenario scenario.yaml --rig rig.yaml\n"
    "  etloop dut import config_db.json --out imported/\n"
    "  etloop dut counters --rig rig.yaml --watch"
)
_PROFILE: Final = "name of a shipped profile, or a file that ends in .yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the shipped profiles")
    show = actions.add_parser("show", help="print a profile with its sources")
    show.add_argument("profile", metavar="PROFILE", help=_PROFILE)
    check = actions.add_parser(
        "check", help="check a profile for contradictions, alone or with a scenario and a rig"
    )
    check.add_argument(
        "profile", nargs="?", metavar="PROFILE", help=f"{_PROFILE} (default: the profile that the rig names)"
    )
    check.add_argument("--scenario", type=Path, metavar="FILE", help="scenario.yaml")
    check.add_argument("--rig", type=Path, metavar="FILE", help="rig.yaml")
    fabric = actions.add_parser(
        "fabric",
        help="show hosts, switches and ranks of an InfraGraph description; convert it into rig and mapping",
    )
    fabric.add_argument(
        "description", type=Path, metavar="FILE", help="InfraGraph infrastructure, YAML or JSON"
    )
    fabric.add_argument(
        "--annotations", type=Path, metavar="FILE", help="annotations of nodes: ranks, addresses, profiles"
    )
    fabric.add_argument(
        "--out", type=Path, metavar="DIR", help="write rig.yaml and mapping.yaml to this directory"
    )
    importing = actions.add_parser(
        "import",
        help="import config_db.json of SONiC switches as profiles and a topology; list what has no counterpart",
    )
    importing.add_argument(
        "configs", nargs="+", type=Path, metavar="FILE", help="config_db.json, one per switch"
    )
    importing.add_argument(
        "--neighbours",
        action="append",
        metavar="[SWITCH=]FILE",
        help="minigraph.xml, or the LLDP neighbours of a switch (lldpctl -f json or xml, show lldp table); may be repeated",
    )
    importing.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write profiles, topology.yaml and import.json to this directory",
    )
    counters = actions.add_parser("counters", help="read the counters of a rig's device, once or repeatedly")
    counters.add_argument(
        "--rig", type=Path, required=True, metavar="FILE", help="rig.yaml with dut.counters"
    )
    counters.add_argument(
        "--watch",
        action="store_true",
        help="read until Ctrl-C: show rates on a terminal, print changes otherwise",
    )
    counters.add_argument(
        "--every",
        type=parse_duration,
        default=NS_PER_S,
        metavar="TIME",
        help="interval of --watch (default 1s)",
    )
    linux = actions.add_parser(
        "linux-counters",
        help="serve interface counters of this host on standard input and output: one JSON line per request line",
    )
    linux.add_argument(
        "interfaces", nargs="*", metavar="INTERFACE", help="interfaces to read (default: all except loopback)"
    )
    for action in (listing, show, check, fabric, importing, counters):
        add_json(action)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raise `ConfigError` for files that cannot be read."""

    match parsed.action:
        case "counters":
            from etloop.cli.dut.counters import show_counters

            return CommandResult("", show_counters(parsed))
        case "linux-counters":
            from etloop.counters.readers.linux_process import main

            return CommandResult("", main(parsed.interfaces))
        case "fabric":
            from etloop.cli.dut.fabric import show_fabric

            return show_fabric(parsed)
        case "import":
            from etloop.cli.dut.sonic_import import import_sonic

            return import_sonic(parsed)
        case "list":
            return _list_profiles(as_json=parsed.json)
        case "show":
            return _show_profile(parsed.profile, as_json=parsed.json)
        case _:
            return _check_profile(parsed.profile, parsed.scenario, parsed.rig, as_json=parsed.json)


def _list_profiles(*, as_json: bool) -> CommandResult:
    from etloop.dut_profiles.reading.catalogue import find_profile, profile_names

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


def _show_profile(name_or_path: str, *, as_json: bool) -> CommandResult:
    from etloop.cli.text.dut_profile import profile_values, render_device_profile
    from etloop.dut_profiles.reading.catalogue import find_profile

    profile = find_profile(name_or_path)
    return CommandResult(to_json(profile_values(profile)) if as_json else render_device_profile(profile))


def _check_profile(
    name_or_path: str | None, scenario_path: Path | None, rig_path: Path | None, *, as_json: bool
) -> CommandResult:
    """Check a profile, alone and with a scenario or a rig; without a profile, the one that the rig names.

    Raise `ConfigError` with the mistakes of all files together. The exit code reports whether there is a contradiction.
    """
    from dataclasses import asdict

    from etloop.cli.text.dut_profile import render_profile_verdict
    from etloop.contract.base.errors import ExitCode
    from etloop.controller.run.device_check import check_conditions, profile_verdict

    profile, scenario, rig = _read_inputs(name_or_path, scenario_path, rig_path)
    verdict = profile_verdict(
        profile, scenario, rig, scenario_name=str(scenario_path), rig_name=str(rig_path)
    ) + check_conditions(profile, scenario)
    code = ExitCode.PREPARATION_FAILED if verdict.contradictions else ExitCode.PASS
    if as_json:
        report = {"profile": profile.name, "exit_code": int(code), **asdict(verdict)}
        return CommandResult(to_json(report), code)
    return CommandResult(render_profile_verdict(profile, verdict), code)


def _read_inputs(
    name_or_path: str | None, scenario_path: Path | None, rig_path: Path | None
) -> tuple[DutProfile, Scenario | None, Rig | None]:
    from functools import partial

    from etloop.contract.base.errors import ConfigError, Mistakes, Problem
    from etloop.controller.inputs.files import read_file
    from etloop.controller.inputs.scenario.scenario import parse_scenario
    from etloop.controller.run.prepare import InputFile, read_cc_plugin, read_rig
    from etloop.dut_profiles.reading.catalogue import find_profile

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
