"""JSON output of `etloop collective`: a list of tests, each in the form that NVIDIA/nccl-tests writes with -J.

Decides the keys and their values. Within a test the keys, and booleans written as the words "true" and "false", are
those of nccl-tests (src/util.cu); figures that it does not have are under `etloop`. Bandwidths are GB/s, times of rows
microseconds, as in nccl-tests. Values that exist only in a process with GPUs are left out: environment, NCCL's version,
process and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from etloop.controller.inputs.collective_spec import BenchSpec, Half, root_of
from etloop.experiments.collective.result import TestResult
from etloop.results.schema.kinds import CONVENTIONS

if TYPE_CHECKING:
    from etloop.experiments.collective.figures import Interference, IterationFigures

SCHEMA: Final = "etloop-collective/1"
NCCL_TESTS_FORM: Final = 2
"""JSON_FILE_VERSION of the nccl-tests version that has these keys."""

Json = dict[str, Any]
"""An object to be written as JSON; it is not read back here."""


def tests_as_json(
    version: str, arguments: Sequence[str], spec: BenchSpec, tests: Sequence[TestResult]
) -> Json:
    """Return the whole output."""
    return {
        "schema": SCHEMA,
        "version": version,
        "args": list(arguments),
        "tests": [_test(version, arguments, spec, test) for test in tests],
    }


def _test(version: str, arguments: Sequence[str], spec: BenchSpec, test: TestResult) -> Json:
    verdict = test.verdict
    return {
        "version": NCCL_TESTS_FORM,
        "start_time": test.started_at,
        "args": list(arguments),
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": spec.least_bytes,
            "maximum_bytes": spec.most_bytes,
            **({"step_factor": spec.factor} if spec.factor > 1 else {"step_bytes": spec.step_bytes}),
            "warmup_iters": spec.warmups,
            "iterations": spec.iterations,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": _word(False),
            "per_iter_timing": _word(any(row.iterations is not None for row in test.rows)),
            "parallel_init": _word(False),
            "devices": [
                {
                    "rank": place.rank,
                    "group": 0,
                    "hostname": place.agent,
                    "device_info": f"{place.port} {place.address}",
                    "host": place.host,
                }
                for place in test.opening.places
            ],
        },
        "results": _results(spec, test),
        "out_of_bounds": {
            "count": verdict.wrong_bytes,
            "okay": _word(not verdict.wrong_bytes and verdict.complete),
        },
        "average_bus_bandwidth": {
            "bandwidth": verdict.average_busbw / 1e9,
            "okay": "unchecked" if verdict.bandwidth_ok is None else _word(verdict.bandwidth_ok),
        },
        "errors": list(test.errors),
        "end_time": test.ended_at,
        "etloop": {
            "version": version,
            "collective": CONVENTIONS[test.kind].name,
            "shaping": test.opening.shaping,
            "choices": [asdict(choice) for choice in test.opening.choices],
            "pinned": asdict(test.variant),
            "notes": [*test.opening.notes, *test.degraded],
            "retransmitted_packets": test.summary.transport["retransmitted_packets"],
            "sent_packets": test.summary.transport["tx_packets"],
            "result": test.summary.result,
            "verdict": None if test.summary.verdict is None else asdict(test.summary.verdict),
            "interference": [_interference(row) for row in test.interference],
        },
    }


def _results(spec: BenchSpec, test: TestResult) -> list[Json]:
    results: dict[tuple[int, int], Json] = {}
    for row in test.rows:
        key = (row.amount.size_bytes, row.amount.count)
        result = results.setdefault(
            key,
            {
                "size": row.amount.size_bytes,
                "count": row.amount.count,
                "type": spec.datatype,
                "redop": spec.redop(row.kind),
                "root": f"{root_of(row.kind):6d}",
                "actual_iterations": spec.iterations,
                "etloop": {},
            },
        )
        result[row.half.value] = {
            "time": None if row.time_ns is None else row.time_ns / 1000,
            "alg_bw": row.algbw / 1e9,
            "bus_bw": row.busbw / 1e9,
            "nwrong": row.wrong_bytes,
        }
        if row.iterations is not None:
            result[f"{row.half.value}_per_iter"] = _iterations(row.iterations)
        if row.half is Half.OUT_OF_PLACE:
            result["etloop"] = {
                "sent_bytes": row.sent_bytes,
                "fabric_bytes": row.fabric_bytes,
                "messages": row.messages,
            }
    return list(results.values())


def _iterations(single: IterationFigures) -> Json:
    return {
        "min_us": single.min_ns / 1000,
        "max_us": single.max_ns / 1000,
        "avg_us": single.avg_ns / 1000,
        "p50_us": single.p50_ns / 1000,
        "p95_us": single.p95_ns / 1000,
        "p99_us": single.p99_ns / 1000,
        "stdev_us": single.stdev_ns / 1000,
        "cv_pct": single.cv_percent,
        "times_us": [time_ns / 1000 for time_ns in single.times_ns],
    }


def _interference(interference: Interference) -> Json:
    return {
        "collective": CONVENTIONS[interference.kind].name,
        "size": interference.amount.size_bytes,
        "alone_us": None if interference.alone_ns is None else interference.alone_ns / 1000,
        "together_us": None if interference.together_ns is None else interference.together_ns / 1000,
        "factor": interference.factor,
        "overlapped_iterations": interference.overlapped,
    }


def _word(value: bool) -> str:
    return "true" if value else "false"
