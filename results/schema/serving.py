"""The figures of a serving run: a row per request, one per decode step, and the figures computed from them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass

REQUEST_COLUMNS: Final[dict[str, str]] = {
    "request": "id: position in the source of requests",
    "state": "finished, refused, or its state when the run ended",
    "reason": "why it was refused",
    "prefill": "number of its prefill instance; -1: none",
    "decode": "number of its decode instance; -1: none",
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens of the answer",
    "generated_tokens": "tokens generated",
    "cached_prefill_tokens": "prompt tokens that the prefill instance had",
    "cached_decode_tokens": "prompt tokens that the decode instance had, which are not moved",
    "kv_bytes": "payload of its KV transfer",
    "arrival_ns": "time of arrival since the start of the run",
    "reserved_ns": "time at which the decode instance reserved its memory",
    "prefill_start_ns": "start of its prefill",
    "prefill_end_ns": "end of its prefill",
    "kv_start_ns": "start of its KV transfer",
    "kv_end_ns": "end of its KV transfer, not before the end of the prefill",
    "decode_start_ns": "start of its first decode step",
    "first_token_ns": "first token",
    "second_token_ns": "second token",
    "last_token_ns": "last token so far",
    "longest_gap_ns": "longest time between two of its tokens",
    "memory_wait_ns": "part of TTFT: waiting for memory of the decode instance",
    "prefill_wait_ns": "part of TTFT: waiting for the prefill instance",
    "prefill_ns": "part of TTFT: modelled compute of the prefill",
    "prefill_fabric_ns": "part of TTFT: exchanges with experts during the prefill",
    "transfer_ns": "part of TTFT: KV transfer after the prefill",
    "decode_wait_ns": "part of TTFT: waiting for the next decode step",
    "decode_ns": "part of TTFT: modelled compute of the first decode step",
    "decode_fabric_ns": "part of TTFT: exchanges with experts in the first decode step",
    "ttft_ns": "time to first token; -1: none yet",
    "itl_mean_ns": "mean time between its tokens; -1: fewer than two",
}
"""Column of requests.parquet -> meaning. Times of events that did not happen are -1."""
TTFT_PARTS: Final = (
    "memory_wait_ns",
    "prefill_wait_ns",
    "prefill_ns",
    "prefill_fabric_ns",
    "transfer_ns",
    "decode_wait_ns",
    "decode_ns",
    "decode_fabric_ns",
)
"""Parts whose sum is the time to first token."""
FABRIC_PARTS: Final = ("prefill_fabric_ns", "transfer_ns", "decode_fabric_ns")
STEP_COLUMNS: Final[dict[str, str]] = {
    "end_ns": "end of the step",
    "sequences": "sequences of the step",
    "continuing": "sequences that had a token in the instance's step before",
    "gap_ns": "time since the end of that step: the inter-token latency of the continuing sequences",
    "compute_ns": "modelled compute of the step",
    "fabric_ns": "exchanges with experts in the step",
}
"""Column of decode_steps.parquet -> meaning."""
Columns = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Mean and nearest-rank percentiles of a sample, in nanoseconds."""

    count: int
    mean: float
    p50: int
    p95: int
    p99: int
    p999: int
    most: int


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue: its length over time, and the waits in it."""

    name: str
    entered: int
    mean_length: float
    most: int
    mean_wait_ns: float


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job that ran next to the workload."""

    name: str
    iterations: int
    complete: int
    """Iterations that ended."""
    end_ns: int
    """End of its last op, since the start of the run."""
    iteration: Percentiles | None
    """Duration of a complete iteration, its compute included."""


@dataclass(frozen=True, slots=True)
class ServingFigures:
    """Figures of a whole run. Compute is modelled; the times of the fabric are simulated or measured."""

    source: str
    model: str
    arrived: int
    finished: int
    running: int
    refused: int
    left_out: int
    """Requests of the source without an answer."""
    duration_ns: int
    """From the start to the last event."""
    request_rate: float
    """Finished requests a second."""
    input_tokens_per_s: float
    output_tokens_per_s: float
    goodput: float
    """Finished requests a second that meet the objective; all finished ones without one."""
    goodput_tokens_per_s: float
    """Output tokens a second of those requests."""
    met_objective: int
    ttft: Percentiles | None
    ttft_parts: dict[str, Percentiles]
    ttft_fabric: Percentiles | None
    itl: Percentiles | None
    itl_compute: Percentiles | None
    itl_fabric: Percentiles | None
    second_token: Percentiles | None
    """From the first token to the second, which includes the transfer if the first one comes from the prefill."""
    e2e: Percentiles | None
    kv_latency: Percentiles | None
    """From the first message of a KV transfer to its last arrival."""
    kv_bytes: int
    kv_bytes_per_s: float
    """KV payload over the duration of the run."""
    kv_transfer_bytes_per_s: float
    """Median over requests of the payload over the duration of their transfer."""
    exchange: Percentiles | None
    exchange_bytes: int
    prefix_hit_requests: int
    """Requests of whose prompts the prefill instance had something."""
    prefix_hit_tokens: int
    fairness: dict[str, float]
    """Jain's index over instances, (sum x)^2 / (n * sum x^2): of prefill and decode tokens and of KV bytes received."""
    queues: tuple[QueueFigures, ...]
    slip: Percentiles | None
    """Of agents: by how much messages began later than decided; None in virtual time."""
    notes: tuple[str, ...]
    jobs: tuple[OtherJob, ...] = ()
    """Other jobs of the scenario."""


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One rate of a search, and its figures."""

    rate: float
    """Requests a second."""
    met_share: float
    """Share of the requests within the objective."""
    meets: bool
    ttft_mean_ns: float
    ttft_p99_ns: int
    ttft_fabric_p99_ns: int
    itl_p99_ns: int
    goodput: float
    """Requests a second within the objective."""
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class RateSearch:
    """The highest rate that meets an objective."""

    share: float
    """Share of the requests that must be within the objective."""
    rate: float
    """Highest rate tried that meets it; 0: none."""
    failing_rate: float | None
    """Lowest rate tried above it that does not; None: none was found."""
    points: tuple[RatePoint, ...]
    """By rate."""
    ttft_limit_ns: int
    itl_limit_ns: int
