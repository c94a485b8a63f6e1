"""`verdict:` of a scenario: the conditions that its runs must meet, and the limits above which the emulator is at fault.

Decides the keys and their limits. `results` checks before the run whether a condition can be evaluated.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, parse_duration_ns, parse_share_per_million
from etloop.contract.base.value_parsers import bounded, integer, words
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.results.schema.verdict import RequestedCondition
from etloop.results.verdict.verdict import EmulatorLimits

MOST_CHECKS: Final = 256


@dataclass(frozen=True, slots=True)
class VerdictSettings:
    """The verdict settings of a scenario."""

    checks: tuple[RequestedCondition, ...] = ()
    limits: EmulatorLimits = EmulatorLimits()
    base_latency_ns: int | None = None
    """One way through the empty network, for slowdowns; None: as probes measure it, or as a topology says."""


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
    entries = section.sections("checks", "list at least one") if section.has("checks") else ()
    if len(entries) > MOST_CHECKS:
        section.mistake("checks", f"{len(entries)} entries", f"give at most {MOST_CHECKS}")
    for entry in entries[:MOST_CHECKS]:
        text = entry.required("check", words, "?", "write a condition on the results, see docs/verdict.md")
        reason = entry.optional("why", words, "")
        checks.append(RequestedCondition(text, reason, entry.where("check")))
        entry.close()
    emulator = section.section("emulator")
    default = EmulatorLimits()
    share = parse_share_per_million
    limits = EmulatorLimits(
        emulator.optional("slip", share, round(default.slip_share * 1e6)) / 1e6,
        emulator.optional("busy", share, round(default.busy_share * 1e6)) / 1e6,
        emulator.optional("lost_packets", integer(0, 10**12), default.own_lost_packets),
        emulator.optional("needless", share, round(default.needless_share * 1e6)) / 1e6,
    )
    emulator.close()
    base_latency = bounded(parse_duration_ns, 0, NS_PER_S, format_duration)
    base_latency_ns = section.optional("base_latency", base_latency, None)
    section.close()
    return VerdictSettings(tuple(checks), limits, base_latency_ns)
