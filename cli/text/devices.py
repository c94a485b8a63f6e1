"""Which settings of a topology's switches come from a device's profile, as lines for people and as values for programs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from etloop.cli.text.plan import rank_ranges
from etloop.contract.model.topology import SettingsOrigin, Topology

_WIDTH: Final = 120
_NUMBERED: Final = re.compile(r"(groups|queues)\[(\d+)\](.*)")


def device_lines(topology: Topology) -> tuple[str, ...]:
    """Return the lines of every device that the topology's switches are; none where all are presets."""
    lines = []
    for origin, names in _switches_by_origin(topology).items():
        lines.append(f"device          {origin.profile}: {', '.join(names)}")
        for what, entries in (
            ("profile", origin.stated),
            ("topology", origin.overridden),
            ("default", origin.defaults),
            ("left out", origin.left_out),
        ):
            lines += textwrap.wrap(
                "; ".join(_joined(entries)),
                _WIDTH,
                initial_indent=f"  {what:<14}",
                subsequent_indent=" " * 16,
            )
    return tuple(lines)


def device_values(topology: Topology) -> list[dict[str, Any]]:
    """Return the same for programs."""
    return [{"switches": names, **asdict(origin)} for origin, names in _switches_by_origin(topology).items()]


def _switches_by_origin(topology: Topology) -> dict[SettingsOrigin, list[str]]:
    found: dict[SettingsOrigin, list[str]] = {}
    for switch in topology.switches:
        if switch.origin is not None:
            found.setdefault(switch.origin, []).append(switch.name)
    return found


def _joined(entries: Iterable[str]) -> list[str]:
    """Entries of groups and queues that say the same under one key: "groups[0-2].lossless: false"."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        numbered = _NUMBERED.fullmatch(entry)
        if numbered is None:
            numbers[entry, ""] = []
        else:
            numbers.setdefault((numbered[1], numbered[3]), []).append(int(numbered[2]))
    return [f"{key}[{rank_ranges(found)}]{rest}" if found else key for (key, rest), found in numbers.items()]
