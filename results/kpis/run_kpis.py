"""All key figures of a run, combined from the other modules of this package.

Decides only their order, which is that of `schema.kpis.FIGURES`, and the tables that conditions may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.device.summary import CLASSES, RECONCILIATION
from etloop.results.device.tables import COUNTERS, DUT
from etloop.results.kpis.flow_sizes import flow_figures
from etloop.results.kpis.input import CONNECTION_UNITS, KpiInput, connection_frame
from etloop.results.kpis.job import (
    Value,
    curves,
    job_figures,
    kind_kpis,
    one_way_figures,
    skew_and_transfer_figures,
)
from etloop.results.kpis.network import (
    device_figures,
    port_figures,
    slip_figures,
    transport_figures,
    uplink_figures,
)
from etloop.results.kpis.own_delay import own_share
from etloop.results.kpis.rates import rate_figures
from etloop.results.schema.columns import COMPARISON, JOBS, RATES, TABLES
from etloop.results.schema.findings import Examined, FindingKind, Role
from etloop.results.schema.kpis import FIGURES, KPI_SCHEMA, KindKpis, Kpi, KpiBasis, KpiSet
from etloop.results.schema.summary import IterationSummary
from etloop.results.tables.frames import frame_by_hand
from etloop.results.tables.switch_tables import LANE_UNITS, SAMPLE_UNITS
from etloop.results.verdict.evaluation import Frame, Results
from etloop.results.verdict.parser import Vocabulary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from etloop.results.schema.findings import Diagnosis, Finding


def key_figures(inputs: KpiInput, basis: KpiBasis) -> KpiSet:
    """Return every figure of `FIGURES`, with its value or why it is absent."""
    values: dict[str, Value] = {}
    for part in (
        job_figures(inputs),
        skew_and_transfer_figures(inputs),
        one_way_figures(inputs),
        flow_figures(inputs),
        rate_figures(inputs),
        transport_figures(inputs, connection_frame(inputs)),
        port_figures(inputs),
        uplink_figures(inputs),
        device_figures(inputs),
        slip_figures(inputs),
    ):
        values.update(part)
    assert values.keys() == {figure.name for figure in FIGURES}, values.keys() ^ {
        figure.name for figure in FIGURES
    }
    return KpiSet(
        KPI_SCHEMA,
        inputs.summary.run_id,
        tuple(_kpi(figure.name, figure.unit, values[figure.name]) for figure in FIGURES),
        kind_kpis(inputs),
        curves(inputs),
        basis,
    )


def _kpi(name: str, unit: str, value: Value) -> Kpi:
    if isinstance(value, str):
        return Kpi(name, unit, None, value)
    return (
        Kpi(name, unit, float(value), "")
        if np.isfinite(value)
        else Kpi(name, unit, None, "cannot be worked out")
    )


def _unit_of(name: str) -> str:
    """Return the unit of a field from the end of its name."""
    for ending, unit in (("_bytes_per_s", "bytes/s"), ("_ns", "ns"), ("_bytes", "bytes")):
        if name.endswith(ending):
            return unit
    return {"kind": "name", "algorithm": "name", "complete": "flag"}.get(name, "count")


KIND_UNITS: Final = {field.name: _unit_of(field.name) for field in fields(KindKpis)}
ITERATION_UNITS: Final = {field.name: _unit_of(field.name) for field in fields(IterationSummary)}


FINDING_UNITS: Final = dict.fromkeys(("kind", "role", "place", "peer", "sentence"), "name") | {
    "confidence": "ratio",
    "share": "ratio",
    "is_cause": "flag",
}
"""Columns of the table `findings`. Several places of a finding are joined by ", "."""
EXAMINATION_UNITS: Final = dict.fromkeys(("kind", "outcome", "why"), "name")


_TEXTS: Final = {
    "findings.kind": tuple(FindingKind),
    "findings.role": tuple(Role),
    "examinations.kind": tuple(FindingKind),
    "examinations.outcome": tuple(Examined),
}


def vocabulary() -> Vocabulary:
    """Return every name that a condition may use, whether or not a particular run has it."""
    stored = {name.removesuffix(".parquet"): columns for name, columns in TABLES.items()}
    stored |= {"cc": RATES, "comparison": COMPARISON, "jobs": JOBS}
    stored |= {"dut": DUT, "counters": COUNTERS, "reconciliation": RECONCILIATION, "classes": CLASSES}
    tables: dict[str, Mapping[str, str]] = {
        name: {column.name: column.unit for column in columns} for name, columns in stored.items()
    }
    tables |= {"connections": CONNECTION_UNITS, "kinds": KIND_UNITS, "iterations": ITERATION_UNITS}
    tables |= {"switches": LANE_UNITS, "queues": SAMPLE_UNITS}
    tables |= {"findings": FINDING_UNITS, "examinations": EXAMINATION_UNITS}
    return Vocabulary({figure.name: figure.unit for figure in FIGURES}, tables, _TEXTS)


def results_of(inputs: KpiInput, kpis: KpiSet) -> Results:
    """Return the figures and tables that conditions are evaluated over."""
    frames = dict(inputs.frames)
    frames["connections"] = connection_frame(inputs)
    frames["kinds"] = _frame("kinds", kpis.kinds, KIND_UNITS)
    frames["iterations"] = _frame("iterations", inputs.summary.job.per_iteration, ITERATION_UNITS)
    frames |= _diagnosis_frames(inputs.summary.diagnosis)
    figures = {kpi.name: kpi.value for kpi in kpis.figures}
    units = {kpi.name: kpi.unit for kpi in kpis.figures}
    return Results(figures, units, frames, own=lambda: own_share(inputs, figures))


def _diagnosis_frames(diagnosis: Diagnosis) -> dict[str, Frame]:
    """Return the tables `findings` and `examinations`; none if no kind was examined."""
    if not diagnosis.examinations:
        return {}
    findings = tuple(map(_finding_row, diagnosis.findings))
    return {
        "findings": _frame("findings", findings, FINDING_UNITS),
        "examinations": _frame("examinations", diagnosis.examinations, EXAMINATION_UNITS),
    }


@dataclass(frozen=True, slots=True)
class _FindingRow:
    """A row of the table `findings`."""

    kind: str
    role: str
    place: str
    peer: str
    sentence: str
    confidence: float
    share: float | None
    is_cause: bool


def _finding_row(finding: Finding) -> _FindingRow:
    return _FindingRow(
        finding.kind.value,
        finding.role.value,
        ", ".join(dict.fromkeys(place.name for place in finding.places)),
        ", ".join(dict.fromkeys(filter(None, (place.peer for place in finding.places)))),
        finding.sentence,
        finding.confidence,
        finding.share,
        finding.effect_of is None,
    )


def _frame(name: str, rows: Sequence[DataclassInstance], units: Mapping[str, str]) -> Frame:
    columns: dict[str, NDArray[np.generic]] = {}
    for column, unit in units.items():
        values = [getattr(row, column) for row in rows]
        if unit == "name":
            columns[column] = np.array([None if value is None else str(value) for value in values], object)
        elif unit == "flag":
            columns[column] = np.array(values, np.int8)
        else:
            columns[column] = np.array(
                [np.nan if value is None else float(value) for value in values], np.float64
            )
    return frame_by_hand(name, columns, units)
