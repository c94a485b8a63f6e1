"""`do: pause` among the faults of a scenario: pause frames (IEEE 802.1Qbb) that ports send on purpose.

Decides the keys and limits of such a rule. `plan.port_settings` refuses ports that cannot send pause frames;
traffic/native/loop decides when they are sent.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S, format_duration, parse_duration_ns, parse_port_label
from etloop.contract.base.value_parsers import integer, with_bounds
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.fault_rules import PauseRule

_LONGEST_QUANTA: Final = 0xFFFF
_LEAST_INTERVAL_NS: Final = 1000
"""Shortest interval; more frequent pause frames would take a large share of the link."""


@dataclass(frozen=True, slots=True)
class PortPause:
    """A pause rule and the port that it applies to."""

    port: str
    """Port as "agent/port"; empty for every port that writes its own frames."""
    rule: PauseRule


def read_pause(section: Section) -> PortPause:
    """Read a rule with `do: pause` and close its section. Mistakes are added to its file."""
    interval = with_bounds(parse_duration_ns, _LEAST_INTERVAL_NS, 3600 * NS_PER_S, format_duration)
    start = with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
    pause = PortPause(
        port=section.optional(
            "port",
            parse_port_label,
            "",
            "Of `pause`, the port that sends; every port that writes frames if left out.",
        ),
        rule=PauseRule(
            priority=section.require(
                "priority",
                integer(0, 7),
                0,
                "write the paused priority, such as 3",
                "Of `pause`, the paused priority.",
            ),
            quanta=section.optional(
                "quanta",
                integer(0, _LONGEST_QUANTA),
                _LONGEST_QUANTA,
                "Of `pause`, its time, in units of 512 bits.",
            ),
            first_ns=section.optional("first", start, 0, "Of `pause`, when the first frame leaves."),
            every_ns=section.require("every", interval, NS_PER_S, "write how often, such as 100us"),
            count=section.optional(
                "count", integer(1, 2**62), 0, "Of `pause`, number of frames; without end if left out."
            ),
        ),
    )
    section.close()
    return pause
