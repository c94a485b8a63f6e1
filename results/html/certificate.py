"""The page of a certificate: result, named parts, steps, and the port matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Fact, Page, Section, Text, listing, table_blocks
from etloop.results.html.render import render
from etloop.results.report.certificate import headline, parts_table, ports_table, steps_table

if TYPE_CHECKING:
    from etloop.results.schema.certificate import Certificate

MOST_PORTS: Final = 1_024
"""Most rows of the port matrix; certificate.json has all of them."""


def certificate_html(certificate: Certificate) -> str:
    """Return the page."""
    parts = table_blocks(parts_table(certificate), len(certificate.findings))
    sections = (
        Section("parts", "Named parts", parts or (Text("No part was named."),)),
        Section("steps", "Steps", table_blocks(steps_table(certificate), len(certificate.steps))),
        Section("ports", "Ports", table_blocks(ports_table(certificate), MOST_PORTS)),
        Section("notes", "Notes", listing(certificate.notes)),
    )
    facts = (
        Fact("rig", certificate.rig),
        Fact("device", certificate.device or "not stated"),
        Fact("started", certificate.started_at),
    )
    result = certificate.result.value
    return render(Page("ETLoop certificate", headline(certificate), result, result, facts, sections))
