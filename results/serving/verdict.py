"""Conditions of a scenario over the figures and tables of a serving run.

Decides their names; the language is that of verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.results.schema.serving import (
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    TTFT_PARTS,
    Columns,
    OtherJob,
    Percentiles,
    QueueFigures,
    ServingFigures,
)
from etloop.results.schema.verdict import RequestedCondition, Result, Verdict
from etloop.results.serving.figures import ServingRecords
from etloop.results.verdict.evaluation import Frame, Results
from etloop.results.verdict.parser import Vocabulary
from etloop.results.verdict.verdict import decide_condition

_SAMPLES: Final = (
    "ttft",
    "ttft_fabric",
    "itl",
    "itl_compute",
    "itl_fabric",
    "second_token",
    "e2e",
    "kv_latency",
    "exchange",
    *(f"ttft_{name.removesuffix('_ns')}" for name in TTFT_PARTS),
)
_STATISTICS: Final = ("mean", "p50", "p95", "p99", "p999", "most")
_PLAIN: Final = {
    "arrived": "requests",
    "finished": "requests",
    "running": "requests",
    "refused": "requests",
    "met_objective": "requests",
    "duration_ns": "ns",
    "request_rate": "requests/s",
    "goodput": "requests/s",
    "goodput_tokens_per_s": "tokens/s",
    "input_tokens_per_s": "tokens/s",
    "output_tokens_per_s": "tokens/s",
    "kv_bytes": "bytes",
    "kv_bytes_per_s": "bytes/s",
    "kv_transfer_bytes_per_s": "bytes/s",
    "exchange_bytes": "bytes",
    "prefix_hit_requests": "requests",
    "prefix_hit_tokens": "tokens",
}
_FAIRNESS: Final = ("prefill_tokens", "decode_tokens", "kv_bytes_received")
QUEUES: Final[dict[str, str]] = {field.name: field.name for field in fields(QueueFigures)}
JOBS: Final = ("name", "iterations", "complete", "end_ns", *(f"iteration_{name}_ns" for name in _STATISTICS))
"""Columns of the jobs next to the workload."""


def _unit(name: str) -> str:
    if name in {"state", "reason", "name"}:
        return "name"
    if name.endswith("_ns"):
        return "ns"
    return "bytes" if name.endswith("bytes") else ""


def serving_vocabulary() -> Vocabulary:
    """Return every name that a condition on a serving run may use."""
    figures = {f"{sample}_{statistic}_ns": "ns" for sample in _SAMPLES for statistic in _STATISTICS}
    figures |= _PLAIN | {f"fairness_{name}": "" for name in _FAIRNESS}
    tables = {"requests": REQUEST_COLUMNS, "decode_steps": STEP_COLUMNS, "queues": QUEUES, "jobs": JOBS}
    return Vocabulary(
        figures, {table: {name: _unit(name) for name in names} for table, names in tables.items()}
    )


def serving_results(records: ServingRecords, figures: ServingFigures) -> Results:
    """Return figures and tables as conditions see them."""
    samples: dict[str, Percentiles | None] = {name: getattr(figures, name, None) for name in _SAMPLES}
    samples |= {f"ttft_{name}": part for name, part in figures.ttft_parts.items()}
    values: dict[str, float | None] = {
        f"{name}_{statistic}_ns": None if sample is None else float(getattr(sample, statistic))
        for name, sample in samples.items()
        for statistic in _STATISTICS
    }
    values |= {name: float(getattr(figures, name)) for name in _PLAIN}
    values |= {f"fairness_{name}": figures.fairness[name] for name in _FAIRNESS}
    queues: Columns = {
        name: np.array(
            [getattr(queue, name) for queue in figures.queues], object if name == "name" else np.float64
        )
        for name in QUEUES
    }
    names = [str(name) for name in queues["name"]]
    jobs = [_job_row(job) for job in figures.jobs]
    columns = {name: np.array([job[name] for job in jobs], None if jobs else np.float64) for name in JOBS}
    frames = {
        "requests": _frame(records.requests, lambda row: f"request {records.requests['request'][row]}"),
        "decode_steps": _frame(records.steps, "decode step {}".format),
        "queues": _frame(queues, names.__getitem__),
        "jobs": _frame(
            columns | {"name": columns["name"].astype(object)}, lambda row: figures.jobs[row].name
        ),
    }
    return Results(values, serving_vocabulary().figures, frames)


def _job_row(job: OtherJob) -> dict[str, str | float]:
    row: dict[str, str | float] = {name: getattr(job, name) for name in JOBS[:4]}
    return row | {f"iteration_{name}_ns": getattr(job.iteration, name, np.nan) for name in _STATISTICS}


def _frame(columns: Columns, label: Callable[[int], str]) -> Frame:
    def values_of(name: str, column: NDArray[np.generic]) -> NDArray[np.generic]:
        if column.dtype == object:
            return column
        numbers = np.asarray(column, np.float64)
        # Times of events that did not happen are absent.
        return np.where(numbers < 0, np.nan, numbers) if _unit(name) == "ns" else numbers

    rows = len(next(iter(columns.values())))
    units: Mapping[str, str] = {name: _unit(name) for name in columns}
    return Frame({name: values_of(name, column) for name, column in columns.items()}, units, rows, label)


def serving_verdict(
    requested: Sequence[RequestedCondition], records: ServingRecords, figures: ServingFigures, failure: str
) -> Verdict | None:
    """Return the verdict of a run; None without conditions."""
    if not requested:
        return None
    decide = partial(
        decide_condition,
        results=serving_results(records, figures),
        vocabulary=serving_vocabulary(),
        is_done=not failure,
    )
    outcomes = tuple(decide(condition) for condition in requested)
    failed = [
        f"{outcome.expression}: {outcome.value or 'does not hold'}"
        for outcome in outcomes
        if outcome.result is Result.FAIL
    ]
    unknown = [
        f"{outcome.expression}: {outcome.reason}"
        for outcome in outcomes
        if outcome.result is Result.INCONCLUSIVE
    ]
    result = Result.FAIL if failed else Result.INCONCLUSIVE if unknown else Result.PASS
    return Verdict(result, "", tuple(failed + unknown), (), outcomes)
