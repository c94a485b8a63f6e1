"""Measure the profile of a NIC for `etloop nic`, and show profiles next to others. A shell: files, screen."""

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
from etloop.experiments.nic.conditions import ConditionResult, evaluate_conditions, result_of
from etloop.experiments.nic.document import PROFILE_FILE, PROFILE_SCHEMA, NicProfile
from etloop.experiments.nic.page import CardComparison, profile_html
from etloop.experiments.nic.run import Probed, read_profile, run_battery, select_experiments
from etloop.experiments.nic.text import render_conditions, render_pairs, render_profile
from etloop.results.schema.verdict import RequestedCondition, Result

_EMPTY_PROFILE: Final = NicProfile(PROFILE_SCHEMA, "", 0, None, ())


def measure_profile(parsed: argparse.Namespace) -> NicProfile:
    """Run the experiments on the NIC that the command line names. Raise `ConfigError`."""
    experiments = select_experiments(parsed.only or ())
    nics = (parsed.simulated, parsed.peer, parsed.nic)
    if sum(nic is not None for nic in nics) != 1:
        problem = "names no NIC" if nics == (None, None, None) else "names more than one NIC"
        remedy = "give one of --peer HOST:PORT, --rig FILE --nic AGENT/PORT and --simulated FILE"
        raise ConfigError(Problem("etloop nic profile", problem, remedy))
    if parsed.simulated is not None:
        model, card = _simulated_model(parsed.simulated)
        nic = SimulatedNic(model, random.Random(parsed.seed))  # noqa: S311 - the same answers for the same seed
        probed = Probed(nic, nic, card, parsed.most_pairs)
        return run_battery(probed, parsed.out, experiments, print_status)
    from etloop.experiments.nic.cards.real_card import open_card

    peer = parsed.peer if parsed.nic is None else _peer_of(parsed.rig, parsed.nic)
    with open_card(peer, parsed.interface) as (wire, control, card):
        probed = Probed(wire, control, card, parsed.most_pairs)
        return run_battery(probed, parsed.out, experiments, print_status)


def _peer_of(rig_path: Path | None, label: str) -> tuple[str, int]:
    """Return address and TCP port of the nic-peer of a rig's port."""
    if rig_path is None:
        raise ConfigError(
            Problem("--nic", f"{label[:64]} is a port of a rig, but --rig is missing", "add --rig FILE")
        )
    ports = parse_rig(read_file(rig_path), str(rig_path), rig_path.parent).ports
    if label not in ports:
        problem = f'{rig_path} has no port "{label[:64]}"'
        raise ConfigError(Problem("--nic", problem, f"write one of {', '.join(sorted(ports)[:16])}"))
    return ports[label].addresses[0], USUAL_PORT


def _simulated_model(where: str) -> tuple[NicModel, str]:
    if where.isascii() and where.isdigit() and len(where) < 19:
        return drawn_model(random.Random(int(where))), f"modelled card drawn by seed {where}"  # noqa: S311 - likewise
    path = Path(where)
    return parse_model(read_file(path), str(path)), f"modelled card of {path.name}"


def show_profile(profile: NicProfile, parsed: argparse.Namespace, page: Path) -> CommandResult:
    """Write the page of a profile and return the profile as text or JSON. Raise `ConfigError`."""
    requested = read_conditions(parsed.conditions) if parsed.conditions is not None else ()
    outcomes = evaluate_conditions(profile, requested)
    references = tuple(_compare_with(profile, name) for name in parsed.beside or ())
    try:
        page.write_text(profile_html(profile, outcomes, references))
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise ConfigError(
            Problem(str(page), problem, "name a profile in a directory that can be written")
        ) from None
    code = _exit_code(profile, outcomes)
    if parsed.json:
        answer = {
            "profile": asdict(profile),
            "conditions": [asdict(outcome) for outcome in outcomes],
            "stated": [asdict(reference) for reference in references],
        }
        return CommandResult(to_json(answer), code)
    text = render_profile(profile, with_methods=parsed.methods)
    for reference in references:
        text += f"\n{render_pairs(reference.pairs, 'measured', reference.name)}"
    if outcomes:
        text += f"\n{render_conditions(outcomes)}"
    return CommandResult(f"{text}\npage         {page}\n", code)


def _compare_with(profile: NicProfile, name: str) -> CardComparison:
    """Compare with a measured NIC profile or a device profile."""
    place = Path(name)
    if (place / PROFILE_FILE).is_file():
        other = read_profile(place)
        return CardComparison(other.card, compare_profiles(profile, other))
    return CardComparison(f"{name}, as stated", compare_with_stated(profile, find_profile(name)))


def read_conditions(path: Path) -> tuple[RequestedCondition, ...]:
    """Return the conditions of a YAML file. Raise `ConfigError` if there are none or one is invalid."""
    checks = conditions_of(read_file(path), str(path)).checks
    if not checks:
        raise ConfigError(Problem(str(path), "has no conditions", "list some under verdict.checks"))
    # Invalid conditions are reported here, before any experiment.
    evaluate_conditions(_EMPTY_PROFILE, checks)
    return checks


def _exit_code(profile: NicProfile, outcomes: tuple[ConditionResult, ...]) -> ExitCode:
    result = result_of(outcomes)
    if result is Result.FAIL:
        return ExitCode.VERDICT_FAILED
    if any(experiment.failure for experiment in profile.experiments):
        return ExitCode.RUN_ERROR
    return ExitCode.INCONCLUSIVE if result is Result.INCONCLUSIVE else ExitCode.PASS


def show_comparison(parsed: argparse.Namespace) -> CommandResult:
    """Compare two profiles; the exit code reports whether they differ."""
    a, b = read_profile(parsed.a), read_profile(parsed.b)
    pairs = compare_profiles(a, b)
    differs = any(pair.agreement is Agreement.DIFFERENT for pair in pairs)
    code = ExitCode.VERDICT_FAILED if differs else ExitCode.PASS
    if parsed.json:
        return CommandResult(to_json([asdict(pair) for pair in pairs]), code)
    return CommandResult(render_pairs(pairs, a.card, b.card), code)
