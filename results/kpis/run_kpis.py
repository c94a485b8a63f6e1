"""All key figures of a run, combined from the other modules of this package.

Decides only their order, which is that of `schema.kpis.FIGURES`, and the tables that conditions may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

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
from etloop.results.schema.kpis import FIGURES, KPI_SCHEMA, KindKpis, Kpi, KpiBasis, KpiSet
from etloop.results.schema.summary import IterationSummary
from etloop.results.tables.frames import frame_by_hand
from etloop.results.tables.switch_tables import LANE_UNITS, SAMPLE_UNITS
from etloop.results.verdict.evaluation import Frame, Results
from etloop.results.verdict.parser import Vocabulary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
    return Vocabulary({figure.name: figure.unit for figure in FIGURES}, tables)


def results_of(inputs: KpiInput, kpis: KpiSet) -> Results:
    """Return the figures and tables that conditions are evaluated over."""
    frames = dict(inputs.frames)
    frames["connections"] = connection_frame(inputs)
    frames["kinds"] = _frame("kinds", kpis.kinds, KIND_UNITS)
    frames["iterations"] = _frame("iterations", inputs.summary.job.per_iteration, ITERATION_UNITS)
    figures = {kpi.name: kpi.value for kpi in kpis.figures}
    units = {kpi.name: kpi.unit for kpi in kpis.figures}
    return Results(figures, units, frames, own=lambda: own_share(inputs, figures))


def _frame(name: str, rows: Sequence[DataclassInstance], units: Mapping[str, str]) -> Frame:
    columns: dict[str, NDArray[np.generic]] = {}
    for column, unit in units.items():
        values = [getattr(row, column) for row in rows]
        if unit == "name":
            columns[column] = np.array(values, object)
        elif unit == "flag":
            columns[column] = np.array(values, np.int8)
        else:
            columns[column] = np.array(
                [np.nan if value is None else float(value) for value in values], np.float64
            )
    return frame_by_hand(name, columns, units)
