"""Device profiles and their contradictions -> text and values for programs. Pure."""

from __future__ import annotations

from dataclasses import asdict

from etloop.contract.base.errors import Severity
from etloop.dut_profiles.model.findings import ProfileVerdict
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.model.stated import Stated, stated_values
from etloop.dut_profiles.model.stated_text import value_text


def profile_values(profile: DutProfile) -> dict[str, object]:
    """Return a profile for programs: every value by its path, each with basis and source."""
    return {
        "name": profile.name,
        "kind": profile.kind,
        "summary": profile.summary,
        "values": {
            path: {
                basis.value: {
                    "value": value_text(path, claim.value),
                    "source": claim.source.name,
                    "where": claim.where,
                }
                for basis, claim in stated.claims()
            }
            for path, stated in stated_values(profile)
            if stated.best is not None
        },
        "counters": [
            {
                "reader": access.reader,
                "paths": access.paths,
                "objects": access.objects,
                "caveat": access.caveat,
            }
            for access in profile.counters.access
        ],
        "checks": [asdict(check) for check in profile.checks],
        "notes": profile.notes,
        "sources": [asdict(source) for source in profile.sources],
    }


def render_device_profile(profile: DutProfile) -> str:
    """Return a profile as text: its values with basis and source, counters, checks, notes and sources."""
    values = [(path, value) for path, value in stated_values(profile) if value.best is not None]
    width = max((len(path) for path, _ in values), default=0)
    lines = [f"{profile.name} ({profile.kind})", f"  {profile.summary}", ""]
    lines += [line for path, value in values for line in _claim_lines(path, value, width)]
    for access in profile.counters.access:
        objects = ", ".join(access.objects)
        caveat = f"; {access.caveat}" if access.caveat else ""
        lines.append(f"  counters by {access.reader} as {access.paths} names them: {objects}{caveat}")
    lines += ["", *(f"  check {check.expression}: {check.why}" for check in profile.checks)]
    lines += [f"  note: {note}" for note in profile.notes]
    lines += ["", "sources"]
    lines += [
        f"  {source.name}: {source.title}, {source.dated.isoformat()}{f' <{source.url}>' if source.url else ''}"
        for source in profile.sources
    ]
    return "\n".join(lines) + "\n"


def _claim_lines(path: str, stated: Stated[object], width: int) -> list[str]:
    """Return the lines of one value: the best claim first, the other claims below it."""
    return [
        f"  {path if place == 0 else '':<{width}}  {basis:<10}  {value_text(path, claim.value)}  [{claim.source.name}]"
        for place, (basis, claim) in enumerate(stated.claims())
    ]


def render_profile_verdict(profile: DutProfile, verdict: ProfileVerdict) -> str:
    """Return the contradictions and remarks about a profile as text."""
    lines = [
        f"{severity}: {finding.rule}: {finding.problem}"
        for severity in Severity
        for finding in verdict.findings
        if finding.severity is severity
    ]
    lines += [
        f"not checked in full: {finding.rule}: no {', '.join(finding.missing)}" for finding in verdict.skipped
    ]
    counts = [
        _count_text(len(verdict.contradictions), "contradiction"),
        _count_text(len(verdict.findings) - len(verdict.contradictions), "remark"),
        f"{_count_text(len(verdict.skipped), 'rule')} not checked in full",
    ]
    lines.append(f"{profile.name}: {', '.join(counts)}")
    return "\n".join(lines) + "\n"


def _count_text(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
