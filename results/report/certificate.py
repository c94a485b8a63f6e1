"""Tables of a certificate: the parts that it names, its steps and its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Cell, Column, Table, Unit, Value, table_of
from etloop.results.report.values import list_names, time_words

if TYPE_CHECKING:
    from etloop.results.schema.certificate import Certificate, PortRecord, StepRecord
    from etloop.results.schema.findings import Finding

_MOST_NAMES: Final = 4


def headline(certificate: Certificate) -> str:
    """Return the result in one line: how many ports, parts and steps, and how long it took."""
    count = len(certificate.findings)
    parts = "no part named" if not count else f"{count} part{'s' if count > 1 else ''} named"
    ports, steps = len(certificate.ports), len(certificate.steps)
    took = time_words(certificate.wall_ns)
    return f"{certificate.result.value.upper()}: {ports} ports, {steps} steps, {parts}, {took} ({certificate.mode})"


def parts_table(certificate: Certificate) -> Table:
    """Return the named parts, causes by precedence."""
    columns = (
        Column("kind", "kind", Unit.CODE, value=lambda finding: finding.kind.value),
        Column("place", "part", value=_places),
        Column("sentence", "what was measured", is_detail=True),
        Column("remedy", "remedy", is_detail=True),
    )
    return table_of("parts", "Named parts", columns, certificate.findings)


def _places(finding: Finding) -> str:
    return " or ".join(map(str, finding.places))


def steps_table(certificate: Certificate) -> Table:
    """Return the steps in their order."""
    columns = (
        Column("name", "step", Unit.CODE),
        Column("result", "result", value=_result),
        Column("parts", "parts", Unit.COUNT),
        Column("packets", "packets", Unit.COUNT),
        Column("traffic", "traffic", Unit.NUMBER, value=lambda step: time_words(step.traffic_ns)),
        Column("took", "took", Unit.NUMBER, value=lambda step: time_words(step.wall_ns)),
        Column("shows", "shows that", value=_purpose),
    )
    return table_of("steps", "Steps", columns, certificate.steps)


def _result(row: StepRecord | PortRecord) -> Value:
    return Cell(row.result.value, badge=row.result.value)


def _purpose(step: StepRecord) -> Value:
    words = step.shows
    if step.left_out:
        words += f"; without {list_names(step.left_out, _MOST_NAMES)}"
    return f"{words}: {step.reason}" if step.reason else words


def ports_table(certificate: Certificate) -> Table:
    """Return the port matrix: a row for each port of the rig, a column for each figure."""

    def giga(name: str) -> Column:
        def value(port: PortRecord) -> str | None:
            rate: float | None = getattr(port, f"{name}_bps")
            return None if rate is None else f"{rate / 1e9:.4g}"

        return Column(name, name, Unit.NUMBER, group="Gb/s", value=value)

    def sum_losses(port: PortRecord) -> int | None:
        counts = [count for count in (port.lost_sent, port.lost_received) if count is not None]
        return sum(counts) if counts else None

    columns = (
        Column("name", "port", Unit.CODE),
        Column("device_port", "device", Unit.CODE),
        Column("result", "result", value=_result),
        giga("stated"),
        giga("sends"),
        giga("receives"),
        Column("lost", "lost", Unit.COUNT, value=sum_losses),
        Column("queue", "queue", Unit.COUNT),
        Column("kmin_bytes", "Kmin", Unit.BYTES),
        Column("kmax_bytes", "Kmax", Unit.BYTES),
        Column("pauses", "pauses", Unit.COUNT),
    )
    return table_of("ports", "Ports", columns, certificate.ports, all_rows_in="certificate.json")
