"""From the rows of requests and decode steps to the figures of a serving run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.serving import (
    FABRIC_PARTS,
    TTFT_PARTS,
    Columns,
    OtherJob,
    Percentiles,
    QueueFigures,
    ServingFigures,
)

_NS: Final = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class ServingRecords:
    """Records of a serving run: columns as in `results.schema.serving`, and values for the whole run."""

    requests: Columns
    steps: Columns
    exchange_ns: NDArray[np.int64]
    exchange_bytes: NDArray[np.int64]
    queues: tuple[QueueFigures, ...]
    source: str
    model: str
    left_out: int
    duration_ns: int
    ttft_limit_ns: int
    """0: none."""
    itl_limit_ns: int
    prefill_instances: int
    decode_instances: int
    notes: tuple[str, ...] = ()
    late_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """By message on the wire: when its agent began it, less when it was to begin; empty in virtual time."""
    jobs: tuple[OtherJob, ...] = ()


def percentiles(
    values: NDArray[np.generic], weights: NDArray[np.generic] | None = None
) -> Percentiles | None:
    """Return mean and nearest-rank percentiles, sorted[ceil(p / 100 * n) - 1]; None for no values.

    `weights`: how often each value counts.
    """
    numbers = np.asarray(values, np.int64)
    counts = np.ones(len(numbers), np.int64) if weights is None else np.asarray(weights, np.int64)
    numbers, counts = numbers[counts > 0], counts[counts > 0]
    if not len(numbers):
        return None
    order = np.argsort(numbers, kind="stable")
    numbers, sums = numbers[order], np.cumsum(counts[order])
    total = int(sums[-1])

    def at(per_mille: int) -> int:
        return int(numbers[np.searchsorted(sums, -(-per_mille * total // 1000))])

    mean = float((numbers * counts[order]).sum() / total)
    return Percentiles(total, mean, at(500), at(950), at(990), at(999), int(numbers[-1]))


def jain(values: NDArray[np.generic]) -> float:
    """Return Jain's fairness index; 1 if no bytes were shared."""
    numbers = np.asarray(values, np.float64)
    squares = float((numbers**2).sum())
    return float(numbers.sum() ** 2 / (len(numbers) * squares)) if squares else 1.0


def meets_objective(records: ServingRecords) -> NDArray[np.bool_]:
    """Return by request whether it finished within the limits."""
    rows = records.requests
    met = rows["state"] == "finished"
    if records.ttft_limit_ns:
        met &= np.asarray(rows["ttft_ns"], np.int64) <= records.ttft_limit_ns
    if records.itl_limit_ns:
        met &= np.asarray(rows["itl_mean_ns"], np.int64) <= records.itl_limit_ns
    return np.asarray(met, np.bool_)


def serving_figures(records: ServingRecords) -> ServingFigures:
    """Return the figures of a run."""
    rows = {name: _numbers(column) for name, column in records.requests.items() if column.dtype != object}
    steps = {name: _numbers(column) for name, column in records.steps.items()}
    states = records.requests["state"]
    finished, refused = np.asarray(states == "finished"), np.asarray(states == "refused")
    started = rows["ttft_ns"] >= 0
    met = meets_objective(records)
    seconds = max(records.duration_ns, 1) / _NS
    moved = (rows["kv_end_ns"] >= 0) & (rows["kv_bytes"] > 0)
    kv_ns = rows["kv_end_ns"][moved] - rows["kv_start_ns"][moved]
    rates = rows["kv_bytes"][moved] / np.maximum(kv_ns, 1) * _NS
    fabric = sum((rows[name][started] for name in FABRIC_PARTS), np.zeros(int(started.sum()), np.int64))
    hit = rows["cached_prefill_tokens"] > 0
    two = rows["second_token_ns"] >= 0
    return ServingFigures(
        source=records.source,
        model=records.model,
        arrived=len(finished),
        finished=int(finished.sum()),
        running=int((~finished & ~refused).sum()),
        refused=int(refused.sum()),
        left_out=records.left_out,
        duration_ns=records.duration_ns,
        request_rate=int(finished.sum()) / seconds,
        input_tokens_per_s=int(rows["input_tokens"][finished].sum()) / seconds,
        output_tokens_per_s=int(rows["generated_tokens"].sum()) / seconds,
        goodput=int(met.sum()) / seconds,
        goodput_tokens_per_s=int(rows["generated_tokens"][met].sum()) / seconds,
        met_objective=int(met.sum()),
        ttft=percentiles(rows["ttft_ns"][started]),
        ttft_parts={
            name.removesuffix("_ns"): part
            for name in TTFT_PARTS
            if (part := percentiles(rows[name][started])) is not None
        },
        ttft_fabric=percentiles(fabric),
        itl=percentiles(steps["gap_ns"], steps["continuing"]),
        itl_compute=percentiles(steps["compute_ns"], steps["continuing"]),
        itl_fabric=percentiles(steps["fabric_ns"], steps["continuing"]),
        second_token=percentiles((rows["second_token_ns"] - rows["first_token_ns"])[two]),
        e2e=percentiles((rows["last_token_ns"] - rows["arrival_ns"])[finished]),
        kv_latency=percentiles(kv_ns),
        kv_bytes=int(rows["kv_bytes"].sum()),
        kv_bytes_per_s=int(rows["kv_bytes"].sum()) / seconds,
        kv_transfer_bytes_per_s=float(np.median(rates)) if len(rates) else 0.0,
        exchange=percentiles(records.exchange_ns),
        exchange_bytes=int(records.exchange_bytes.sum()),
        prefix_hit_requests=int(hit.sum()),
        prefix_hit_tokens=int(rows["cached_prefill_tokens"].sum()),
        fairness=_fairness(records, rows),
        queues=records.queues,
        slip=percentiles(records.late_ns),
        notes=records.notes,
        jobs=records.jobs,
    )


def _numbers(column: NDArray[np.generic]) -> NDArray[np.int64]:
    return np.asarray(column, np.int64)


def _fairness(records: ServingRecords, rows: dict[str, NDArray[np.int64]]) -> dict[str, float]:
    def by_instance(pool: str, amount: str, instances: int) -> float:
        placed = rows[pool] >= 0
        return jain(np.bincount(rows[pool][placed], weights=rows[amount][placed], minlength=instances))

    return {
        "prefill_tokens": by_instance("prefill", "input_tokens", records.prefill_instances),
        "decode_tokens": by_instance("decode", "generated_tokens", records.decode_instances),
        "kv_bytes_received": by_instance("decode", "kv_bytes", records.decode_instances),
    }


def little_errors(queues: Sequence[QueueFigures], duration_ns: int) -> dict[str, float]:
    """Return by queue the relative difference between mean length and arrival rate times mean wait (Little's law)."""
    errors = {}
    for queue in queues:
        predicted = queue.entered / max(duration_ns, 1) * queue.mean_wait_ns
        scale = max(queue.mean_length, predicted)
        errors[queue.name] = abs(queue.mean_length - predicted) / scale if scale else 0.0
    return errors
