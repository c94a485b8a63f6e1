"""Finds packets that queue pairs received although no agent sent them: forged ACKs, NAKs, CNPs or data.

Decides nothing new: these are the mismatches of the consistency check `received_was_sent` (`measure.never_sent`). They are
neither the device's nor the job's, and explain no loss of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.diagnosis.rule import Found, no_evidence, report
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind
from etloop.results.schema.losses import NEVER_SENT

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

_KIND: Final = FindingKind.FOREIGN_PACKETS
_REMEDY: Final = (
    "find the host of this network that sends them, or separate the network of the device under test"
)


def look(evidence: Evidence) -> Found:
    """Return the packets that no agent sent, with the queue pairs that received the first of them."""
    check = next((check for check in evidence.run.summary.checks if check.name == NEVER_SENT), None)
    if check is None:
        return no_evidence(_KIND, "packets received were not compared with those sent")
    if not check.mismatches:
        return report(_KIND, ())
    first = f", such as {check.examples[0]}" if check.examples else ""
    sentence = (
        f"{check.mismatches:,} packets were received that no agent sent{first}: they are not the device's"
    )
    fact = Fact("never_sent", float(check.mismatches), "packets", 0.0)
    return report(_KIND, (Finding(_KIND, (Place(PlaceKind.JOB, "job"),), sentence, (fact,), 1.0, _REMEDY),))
