"""The command `nic`: profiles a card, shows a profile, and compares two. A shell: files, screen."""

from __future__ import annotations

import argparse
import random
from dataclasses import asdict
from pathlib import Path

from etloop.cli.progress import print_status
from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.controller.inputs.files import read_file
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.experiments.nic.cards.model import NicModel, drawn_model
from etloop.experiments.nic.cards.model_file import parse_model
from etloop.experiments.nic.cards.simulated import SimulatedNic
from etloop.experiments.nic.comparison import Agreement, FigurePair, compare_profiles, compare_with_stated
from etloop.experiments.nic.document import NicProfile
from etloop.experiments.nic.run import chosen, read_profile, run_battery
from etloop.experiments.nic.text import render_pairs, render_profile


def nic_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raises `ConfigError` for what cannot be used."""
    match parsed.action:
        case "profile":
            return _shown(_profiled(parsed), parsed)
        case "show":
            return _shown(read_profile(parsed.profile), parsed)
        case _:
            return _compared(parsed)


def _profiled(parsed: argparse.Namespace) -> NicProfile:
    experiments = chosen(parsed.only or ())
    if (parsed.simulated is None) == (parsed.peer is None):
        what = "names no card" if parsed.peer is None else "names two cards"
        raise ConfigError(
            Problem("etloop nic profile", what, "give either --peer HOST:PORT or --simulated FILE")
        )
    if parsed.simulated is not None:
        model, card = _modelled(parsed.simulated)
        # The same card answers the same way again.
        nic = SimulatedNic(model, random.Random(parsed.seed))  # noqa: S311 - the same answers for the same seed
        return run_battery(nic, nic, card, parsed.out, experiments, print_status)
    from etloop.experiments.nic.cards.real_card import open_card

    with open_card(parsed.peer, parsed.interface) as (wire, control, card):
        return run_battery(wire, control, card, parsed.out, experiments, print_status)


def _modelled(where: str) -> tuple[NicModel, str]:
    if where.isascii() and where.isdigit() and len(where) < 19:
        return drawn_model(random.Random(int(where))), f"modelled card drawn by seed {where}"  # noqa: S311 - likewise
    path = Path(where)
    return parse_model(read_file(path), str(path)), f"modelled card of {path.name}"


def _shown(profile: NicProfile, parsed: argparse.Namespace) -> CommandResult:
    code = ExitCode.RUN_ERROR if any(one.failure for one in profile.experiments) else ExitCode.PASS
    pairs: tuple[FigurePair, ...] = ()
    if parsed.beside is not None:
        pairs = compare_with_stated(profile, find_profile(parsed.beside))
    if parsed.json:
        return CommandResult(
            to_json({"profile": asdict(profile), "stated": [asdict(one) for one in pairs]}), code
        )
    text = render_profile(profile, with_methods=parsed.methods)
    if parsed.beside is not None:
        text += f"\n{render_pairs(pairs, 'measured', f'stated by {parsed.beside}')}"
    return CommandResult(text, code)


def _compared(parsed: argparse.Namespace) -> CommandResult:
    a, b = read_profile(parsed.a), read_profile(parsed.b)
    pairs = compare_profiles(a, b)
    differs = any(pair.agreement is Agreement.DIFFERENT for pair in pairs)
    code = ExitCode.VERDICT_FAILED if differs else ExitCode.PASS
    if parsed.json:
        return CommandResult(to_json([asdict(pair) for pair in pairs]), code)
    return CommandResult(render_pairs(pairs, a.card, b.card), code)
