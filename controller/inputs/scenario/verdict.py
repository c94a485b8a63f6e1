"""`verdict:` of a scenario: the conditions that its runs must meet, and the limits above which the emulator is at fault.

Decides the keys and their limits. `results` checks before the run whether a condition can be evaluated.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import with_bounds
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.results.schema.verdict import RequestedCondition
from etloop.results.verdict.verdict import EmulatorLimits

MOST_CHECKS: Final = 256


@dataclass(frozen=True, slots=True)
class VerdictSettings:
    """The verdict settings of a scenario."""

    checks: tuple[RequestedCondition, ...] = ()
    limits: EmulatorLimits = group(EmulatorLimits, "emulator")
    """Thresholds above which the emulator was the limit, which makes a failed condition inconclusive."""
    base_latency_ns: int | None = setting(
        "base_latency", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), None
    )
    """One way through the empty network, for slowdowns of flows in labs and on hardware; as probes measure it if left out."""


def conditions_of(text: bytes, source: str) -> VerdictSettings:
    """Return the `verdict:` section of a YAML text, which may be a scenario or a separate file; other keys are ignored.

    Raises `ConfigError` with all mistakes of the section.
    """
    file = ConfigFile(source)
    settings = read_verdict(read_document(text, file).section("verdict"))
    file.refuse_mistakes()
    return settings


def read_verdict(section: Section) -> VerdictSettings:
    """Read the `verdict:` section; defaults if it is absent. Mistakes are added to its file."""
    checks = []
    entries = (
        section.sections("checks", "list at least one", "Conditions on the results.")
        if section.has("checks")
        else ()
    )
    if len(entries) > MOST_CHECKS:
        section.mistake("checks", f"{len(entries)} entries", f"give at most {MOST_CHECKS}")
    for entry in entries[:MOST_CHECKS]:
        checks.append(read_settings(RequestedCondition, entry, where=entry.where("check")))
        entry.close()
    settings = read_settings(VerdictSettings, section, checks=tuple(checks))
    section.close()
    return settings
