"""Builds the scenario of a benchmark: the settings of a file, overridden by the command line. Pure.

Decides which keys of a file count: workload, scale, iterations and seed are set by the benchmark, so the file may be
any existing scenario. The result is a text like any other, so that one reader finds every mistake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.collective_spec import Variant
from etloop.controller.inputs.scenario.collectives import COLLECTIVE_KEYS
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.run.prepare import InputFile
from etloop.results.schema.kinds import CONVENTIONS
from etloop.traffic.collectives.choice import Shaping, why_not
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.pins import Pin
from etloop.workload.trace.trace import CollectiveKind

_OWN: Final = ("workload", "scale", "iterations", "jobs", "rounds", "background")
NO_TRACE: Final = "benchmark"


@dataclass(frozen=True, slots=True)
class Layout:
    """Placement of ranks given by the command line; None: given by the file."""

    ranks_per_host: int | None = None
    nics_per_host: int | None = None
    placement: str | None = None


@dataclass(frozen=True, slots=True)
class Followers:
    """Collectives that can be measured in a variant."""

    kinds: tuple[int, ...]
    others: tuple[tuple[str, str], ...]
    """Names of the collectives that cannot, each with the reason."""


def followers_of(kinds: tuple[int, ...], variant: Variant) -> Followers:
    """Split `kinds` by whether any op of theirs can follow the pins of `variant`.

    Raises `ConfigError` for an unknown shaping, protocol or algorithm, and if no collective is left.
    """
    shapings, protocols = [member.value for member in Shaping], [member.name.lower() for member in Protocol]
    for option, word, allowed in (
        ("--shaping", variant.shaping, shapings),
        ("--protocol", variant.protocol, protocols),
    ):
        if word and word not in allowed:
            raise ConfigError(
                Problem(option, f'unknown value "{word[:64]}"', f"write some of {', '.join(allowed)}")
            )
    shaping = Shaping(variant.shaping or Shaping.NCCL)
    protocol = Protocol[variant.protocol.upper()] if variant.protocol else None
    pin = Pin(variant.algorithm, protocol, variant.channels)
    followers, excluded = [], []
    problems = []
    for kind in kinds:
        refusal = why_not(shaping, COLLECTIVE_KEYS[choice_key(kind)], pin)
        if refusal is None:
            followers.append(kind)
        else:
            excluded.append((CONVENTIONS[kind].name, refusal[0]))
            problems.append(Problem(f"{CONVENTIONS[kind].name} with {variant.words()}", *refusal))
    if not followers:
        raise ConfigError(*problems)
    return Followers(tuple(followers), tuple(excluded))


def choice_key(kind: int) -> str:
    """Return the name of a kind in the `collectives` section and in the choices of a plan."""
    if kind == CollectiveKind.REDUCE_SCATTER_BLOCK:
        kind = int(CollectiveKind.REDUCE_SCATTER)
    return CONVENTIONS[kind].name


def bench_scenario(
    file: InputFile | None, layout: Layout, kinds: tuple[int, ...], variant: Variant
) -> InputFile:
    """Return the scenario of a benchmark: the settings of `file`, if there is one, overridden by the layout and the
    variant.

    The pins of `variant` bind the kinds: the plan refuses an op that cannot follow them.

    Raises `ConfigError` with all mistakes of the file.
    """
    base = file or InputFile(Path("options"), b"")
    file_text = base.read()
    values: dict[str, Any] = {}
    if file is not None:
        # Parse the file itself first, so that mistakes are reported at its lines.
        parse_scenario(file_text, base.source, base.path.parent)
        values = yaml.safe_load(file_text) or {}
    for key in _OWN:
        values.pop(key, None)
    values["workload"] = {"trace": NO_TRACE}
    mapping = dict(values.get("mapping") or {})
    for key in ("ranks_per_host", "nics_per_host", "placement"):
        value = getattr(layout, key)
        if value is not None:
            mapping[key] = value
    if layout.placement is not None and layout.placement != "explicit":
        mapping.pop("explicit", None)
    if mapping:
        values["mapping"] = mapping
    if variant.qps:
        values["transport"] = dict(values.get("transport") or {}) | {"qps_per_connection": variant.qps}
    collectives = dict(values.get("collectives") or {})
    if variant.shaping:
        collectives["shaping"] = variant.shaping
    pins = {"algorithm": variant.algorithm, "protocol": variant.protocol, "channels": variant.channels}
    pinned = {key: value for key, value in pins.items() if value}
    for kind in kinds if pinned else ():
        collective_settings = dict(collectives.get(choice_key(kind)) or {})
        if variant.algorithm:
            collective_settings.pop("schedule", None)
        collectives[choice_key(kind)] = collective_settings | pinned
    if collectives:
        values["collectives"] = collectives
    text = "# Made by etloop collective.\n" + yaml.safe_dump(values, sort_keys=False)
    return InputFile(base.path, text.encode(), base.name)
