"""The scenario of a benchmark: what a file says, and on top of it what the command line says. Pure.

Decides which keys of a file count: workload, scale, iterations and seed are the benchmark's own, and a file that has them
may be any scenario that is there already. The result is a text like any other, so that one reader finds every mistake.
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
    """Where ranks go, as the command line says; None leaves it to the file."""

    ranks_per_host: int | None = None
    nics_per_host: int | None = None
    placement: str | None = None


@dataclass(frozen=True, slots=True)
class Followers:
    """Which kinds a variant can be measured with."""

    kinds: tuple[int, ...]
    others: tuple[tuple[str, str], ...]
    """The names of those that cannot, each with the reason."""


def followers_of(kinds: tuple[int, ...], variant: Variant) -> Followers:
    """Splits `kinds` by whether any op of theirs could follow the pins of `variant`.

    Raises `ConfigError` for a word that is no shaping, protocol or algorithm, and where nothing is left to measure.
    """
    shapings, protocols = [one.value for one in Shaping], [one.name.lower() for one in Protocol]
    for option, word, known in (
        ("--shaping", variant.shaping, shapings),
        ("--protocol", variant.protocol, protocols),
    ):
        if word and word not in known:
            raise ConfigError(
                Problem(option, f'there is no "{word[:64]}"', f"write some of {', '.join(known)}")
            )
    shaping = Shaping(variant.shaping or Shaping.NCCL)
    protocol = Protocol[variant.protocol.upper()] if variant.protocol else None
    pin = Pin(variant.algorithm, protocol, variant.channels)
    able, others = [], []
    problems = []
    for kind in kinds:
        wrong = why_not(shaping, COLLECTIVE_KEYS[choice_key(kind)], pin)
        if wrong is None:
            able.append(kind)
        else:
            others.append((CONVENTIONS[kind].name, wrong[0]))
            problems.append(Problem(f"{CONVENTIONS[kind].name} with {variant.words()}", *wrong))
    if not able:
        raise ConfigError(*problems)
    return Followers(tuple(able), tuple(others))


def choice_key(kind: int) -> str:
    """Of a kind, in the `collectives` section and in the choices of a plan."""
    if kind == CollectiveKind.REDUCE_SCATTER_BLOCK:
        kind = int(CollectiveKind.REDUCE_SCATTER)
    return CONVENTIONS[kind].name


def bench_scenario(
    file: InputFile | None, layout: Layout, kinds: tuple[int, ...], variant: Variant
) -> InputFile:
    """Return the scenario of a benchmark: what `file` says, if there is one, and on top of it the layout and the variant.

    The pins of `variant` bind the kinds: an op that cannot follow them is refused by the plan.

    Raises `ConfigError` with all mistakes of the file.
    """
    base = file or InputFile(Path("options"), b"")
    file_text = base.read()
    values: dict[str, Any] = {}
    if file is not None:
        # As a whole first, so that mistakes are reported at the lines of the file.
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
        own = dict(collectives.get(choice_key(kind)) or {})
        if variant.algorithm:
            own.pop("schedule", None)
        collectives[choice_key(kind)] = own | pinned
    if collectives:
        values["collectives"] = collectives
    text = "# Made by etloop collective.\n" + yaml.safe_dump(values, sort_keys=False)
    return InputFile(base.path, text.encode(), base.name)
