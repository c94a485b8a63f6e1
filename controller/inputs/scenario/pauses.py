"""`do: pause` among the faults of a scenario: pause frames (IEEE 802.1Qbb) that ports send unasked.

Decides the keys and limits of such a rule, and refuses ports that cannot send frames of their own. When and how they
leave is decided by traffic/native/loop/loop.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S, format_duration, parse_duration_ns, parse_port_label
from etloop.contract.base.value_parsers import bounded, integer
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import PauseRule

_LONGEST_QUANTA: Final = 0xFFFF
_LEAST_INTERVAL_NS: Final = 1000
"""Pause frames at a higher rate would take more of the link than some jobs do."""


@dataclass(frozen=True, slots=True)
class PortPause:
    """A rule and the port that it is for."""

    port: str
    """As "agent/port"; empty: every port that writes frames."""
    rule: PauseRule


def read_pause(section: Section) -> PortPause:
    """A rule whose `do` says pause. Mistakes go to the file of the section, which is closed."""
    times = bounded(parse_duration_ns, _LEAST_INTERVAL_NS, 3600 * NS_PER_S, format_duration)
    begins = bounded(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration)
    pause = PortPause(
        port=section.optional("port", parse_port_label, ""),
        rule=PauseRule(
            priority=section.required(
                "priority", integer(0, 7), 0, "write which priority is to rest, such as 3"
            ),
            quanta=section.optional("quanta", integer(0, _LONGEST_QUANTA), _LONGEST_QUANTA),
            first_ns=section.optional("first", begins, 0),
            every_ns=section.required("every", times, NS_PER_S, "write how often, such as 100us"),
            count=section.optional("count", integer(1, 2**62), 0),
        ),
    )
    section.close()
    return pause
