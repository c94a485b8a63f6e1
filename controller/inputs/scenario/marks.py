"""Rules on the marks of packets: DSCP and ECN of a kind of packet go together, and only tagged frames have a priority."""

from __future__ import annotations

from dataclasses import replace

from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import AS_DATA, MarkSettings


def completed_marks(marks: MarkSettings, data_dscp: int, data_ecn: int) -> MarkSettings:
    """Return marks of which DSCP and ECN are both stated or both those of data."""
    if marks.dscp == AS_DATA and marks.ecn == AS_DATA:
        return marks
    return replace(
        marks,
        dscp=data_dscp if marks.dscp == AS_DATA else marks.dscp,
        ecn=data_ecn if marks.ecn == AS_DATA else marks.ecn,
    )


def refuse_untagged_priority(section: Section, *, tagged: bool) -> None:
    """Report a `pcp` of a section if frames have no VLAN tag."""
    if section.has("pcp") and not tagged:
        problem, remedy = (
            "a priority needs VLAN-tagged frames",
            "write transport.vlan: {id: 0}, or leave it out",
        )
        section.mistake("pcp", problem, remedy)
