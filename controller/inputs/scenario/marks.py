"""Marks of single kinds of packets below `transport:`: DSCP, ECN and the priority of the VLAN tag. What is left out is as
of data."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_reader import Section, integer, one_of
from etloop.contract.model.transport import AS_DATA, ClassMarks

ECN_BITS: Final = {"none": 0, "ect0": 2, "ect1": 1}
dscp_value: Final = integer(0, 63)


@dataclass(frozen=True, slots=True)
class AnswerMarks:
    """Of what a receiver of data sends on its own account, apart from notifications."""

    ack: ClassMarks = ClassMarks()
    clear_to_send: ClassMarks = ClassMarks()


def read_answer_marks(transport: Section, data_class: int, *, tagged: bool) -> AnswerMarks:
    """The sections `ack:` and `clear_to_send:` of a `transport:` section."""
    ack, grant = (
        read_marks(transport.section(kind), data_class, tagged=tagged) for kind in ("ack", "clear_to_send")
    )
    return AnswerMarks(ack, grant)


def read_marks(section: Section, data_class: int, *, tagged: bool) -> ClassMarks:
    """The marks of a section such as `ack:`, of which nothing else is known; `data_class` are those of data."""
    dscp = section.optional("dscp", dscp_value, data_class >> 2)
    ecn = section.optional("ecn", one_of(ECN_BITS), data_class & 3)
    differs = section.has("dscp") or section.has("ecn")
    marks = ClassMarks(
        dscp << 2 | ecn if differs else AS_DATA, read_priority(section, AS_DATA, tagged=tagged)
    )
    section.close()
    return marks


def read_priority(section: Section, default: int, *, tagged: bool) -> int:
    """`pcp` of a section; a mistake where frames have no tag to carry it. `AS_DATA` without tag."""
    priority = section.optional("pcp", integer(0, 7), default)
    if section.has("pcp") and not tagged:
        what, remedy = "frames have no tag to carry it", "write transport.vlan: {id: 0}, or leave it out"
        section.mistake("pcp", what, remedy)
    return priority if tagged else AS_DATA
