"""The scenario of a benchmark: what a file says, and on top of it what the command line says. Pure.

Decides which keys of a file count: workload, scale, iterations and seed are the benchmark's own, and a file that has them
may be any scenario that is there already. The result is a text like any other, so that one reader finds every mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.scenario import Scenario, parse_scenario

if TYPE_CHECKING:
    from controller.collective_spec import Variant

_OWN: Final = ("workload", "scale", "iterations")
NO_TRACE: Final = "benchmark"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where ranks go, as the command line says; None leaves it to the file."""

    ranks_per_host: int | None = None
    nics_per_host: int | None = None
    placement: str | None = None


def bench_scenario(
    file_text: bytes | None, source: str, directory: Path, layout: Layout, variant: Variant
) -> tuple[Scenario, str]:
    """The scenario and its text. `file_text` is that of a scenario file named `source`, None if there is none.

    Raises `ConfigError` with all mistakes of the file, or of what the options make of it.
    """
    values: dict[str, Any] = {}
    if file_text is not None:
        # As a whole first, so that mistakes are told at the lines of the file.
        parse_scenario(file_text, source, directory)
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
    pins = {
        "shaping": variant.shaping,
        "algorithm": variant.algorithm,
        "protocol": variant.protocol,
        "channels": variant.channels,
    }
    pinned = {key: value for key, value in pins.items() if value}
    if pinned:
        values["collectives"] = dict(values.get("collectives") or {}) | pinned
    text = "# Made by etloop collective.\n" + yaml.safe_dump(values, sort_keys=False)
    name = source if file_text is not None else "options"
    return parse_scenario(text.encode(), name, directory), text
