"""A certificate as text: the named parts first, then steps and ports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etloop.results.report.certificate import headline, ports_table, steps_table
from etloop.results.schema.verdict import Result
from etloop.results.text.layout import label_each, label_line, label_text, table_lines

if TYPE_CHECKING:
    from etloop.results.report.table import Table
    from etloop.results.schema.certificate import Certificate


def render_certificate(certificate: Certificate, directory: str = "") -> str:
    """Return the text; it ends with a newline. `directory`: where the runs of the steps are, "" if they are not kept."""
    lines = [
        *label_line("certificate", headline(certificate)),
        *label_text("rig", certificate.rig),
        *(label_text("device", certificate.device) if certificate.device else ()),
    ]
    for finding in certificate.findings:
        lines += ["", *label_text(finding.kind.value, finding.sentence), *label_text("", finding.remedy)]
    lines += ["", *table_lines(steps_table(certificate), len(certificate.steps))]
    ports = ports_table(certificate)
    # Ports that failed come first, because a text shows only the first ones of a large rig.
    order = sorted(range(len(ports.rows)), key=lambda row: certificate.ports[row].result is Result.PASS)
    lines += ["", *table_lines(_with_rows(ports, order))]
    if certificate.notes:
        lines += ["", *label_each("note", certificate.notes)]
    lines += label_line("results", directory) if directory else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _with_rows(table: Table, order: list[int]) -> Table:
    return replace(table, rows=tuple(table.rows[row] for row in order))
