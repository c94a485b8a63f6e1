"""The command `nic`: profiles a card, shows a profile, and compares two. A shell: files, screen."""

from __future__ import annotations

import argparse
import random
from dataclasses import asdict
from pathlib import Path
from typing import Final

from etloop.cli.progress import print_status
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.protocol.card_orders import USUAL_PORT
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.verdict import conditions_of
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.experiments.nic.cards.model import NicModel, drawn_model, parse_model
from etloop.experiments.nic.cards.simulated import SimulatedNic
from etloop.experiments.nic.comparison import Agreement, compare_profiles, compare_with_stated
from etloop.experiments.nic.conditions import Judged, judge, result_of
from etloop.experiments.nic.document import PROFILE_FILE, PROFILE_SCHEMA, NicProfile
from etloop.experiments.nic.page import PAGE_FILE, Beside, profile_html
from etloop.experiments.nic.run import Probed, chosen, read_profile, run_battery
from etloop.experiments.nic.text import render_judged, render_pairs, render_profile
from etloop.results.schema.verdict import RequestedCheck, Result

_NOTHING: Final = NicProfile(PROFILE_SCHEMA, "", 0, None, ())


def nic_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raises `ConfigError` for what cannot be used."""
    match parsed.action:
        case "profile":
            if parsed.conditions is not None:
                _checks(parsed.conditions)
            return _shown(_profiled(parsed), parsed, parsed.out / PAGE_FILE)
        case "show":
            place: Path = parsed.profile
            page = (place if place.is_dir() else place.parent) / PAGE_FILE
            return _shown(read_profile(place), parsed, page)
        case _:
            return _compared(parsed)


def _profiled(parsed: argparse.Namespace) -> NicProfile:
    experiments = chosen(parsed.only or ())
    ways = (parsed.simulated, parsed.peer, parsed.nic)
    if sum(way is not None for way in ways) != 1:
        what = "names no card" if ways == (None, None, None) else "names two cards"
        remedy = "give one of --peer HOST:PORT, --rig FILE --nic AGENT/PORT and --simulated FILE"
        raise ConfigError(Problem("etloop nic profile", what, remedy))
    if parsed.simulated is not None:
        model, card = _modelled(parsed.simulated)
        # The same card answers the same way again.
        nic = SimulatedNic(model, random.Random(parsed.seed))  # noqa: S311 - the same answers for the same seed
        probed = Probed(nic, nic, card, parsed.most_pairs)
        return run_battery(probed, parsed.out, experiments, print_status)
    from etloop.experiments.nic.cards.real_card import open_card

    peer = parsed.peer if parsed.nic is None else _peer_of(parsed.rig, parsed.nic)
    with open_card(peer, parsed.interface) as (wire, control, card):
        probed = Probed(wire, control, card, parsed.most_pairs)
        return run_battery(probed, parsed.out, experiments, print_status)


def _peer_of(rig_path: Path | None, label: str) -> tuple[str, int]:
    """Where the card of a rig's port is driven: at its first address."""
    if rig_path is None:
        raise ConfigError(
            Problem("--nic", f"{label[:64]} is a port of a rig, and none is named", "add --rig FILE")
        )
    ports = parse_rig(read_file(rig_path), str(rig_path), rig_path.parent).ports
    if label not in ports:
        what = f'{rig_path} has no port "{label[:64]}"'
        raise ConfigError(Problem("--nic", what, f"write one of {', '.join(sorted(ports)[:16])}"))
    return ports[label].addresses[0], USUAL_PORT


def _modelled(where: str) -> tuple[NicModel, str]:
    if where.isascii() and where.isdigit() and len(where) < 19:
        return drawn_model(random.Random(int(where))), f"modelled card drawn by seed {where}"  # noqa: S311 - likewise
    path = Path(where)
    return parse_model(read_file(path), str(path)), f"modelled card of {path.name}"


def _shown(profile: NicProfile, parsed: argparse.Namespace, page: Path) -> CommandResult:
    judged = judge(profile, _checks(parsed.conditions)) if parsed.conditions is not None else ()
    beside = tuple(_beside(profile, name) for name in parsed.beside or ())
    try:
        page.write_text(profile_html(profile, judged, beside))
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(page), what, "give the profile a place that can be")) from None
    code = _exit_code(profile, judged)
    if parsed.json:
        answer = {
            "profile": asdict(profile),
            "conditions": [asdict(one) for one in judged],
            "stated": [asdict(one) for one in beside],
        }
        return CommandResult(to_json(answer), code)
    text = render_profile(profile, with_methods=parsed.methods)
    for one in beside:
        text += f"\n{render_pairs(one.pairs, 'measured', one.name)}"
    if judged:
        text += f"\n{render_judged(judged)}"
    return CommandResult(f"{text}\npage         {page}\n", code)


def _beside(profile: NicProfile, name: str) -> Beside:
    """Another profile of a card, or what a profile of a device states."""
    place = Path(name)
    if (place / PROFILE_FILE).is_file():
        other = read_profile(place)
        return Beside(other.card, compare_profiles(profile, other))
    return Beside(f"{name}, as stated", compare_with_stated(profile, find_profile(name)))


def _checks(path: Path) -> tuple[RequestedCheck, ...]:
    checks = conditions_of(read_file(path), str(path)).checks
    if not checks:
        raise ConfigError(Problem(str(path), "states no condition", "list some under verdict.checks"))
    # Those that cannot be read are told before a battery begins.
    judge(_NOTHING, checks)
    return checks


def _exit_code(profile: NicProfile, judged: tuple[Judged, ...]) -> ExitCode:
    result = result_of(judged)
    if result is Result.FAIL:
        return ExitCode.VERDICT_FAILED
    if any(one.failure for one in profile.experiments):
        return ExitCode.RUN_ERROR
    return ExitCode.INCONCLUSIVE if result is Result.INCONCLUSIVE else ExitCode.PASS


def _compared(parsed: argparse.Namespace) -> CommandResult:
    a, b = read_profile(parsed.a), read_profile(parsed.b)
    pairs = compare_profiles(a, b)
    differs = any(pair.agreement is Agreement.DIFFERENT for pair in pairs)
    code = ExitCode.VERDICT_FAILED if differs else ExitCode.PASS
    if parsed.json:
        return CommandResult(to_json([asdict(pair) for pair in pairs]), code)
    return CommandResult(render_pairs(pairs, a.card, b.card), code)
